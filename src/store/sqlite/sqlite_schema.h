/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_schema: semel's tables in one file, made and checked.
 */
#ifndef STORE_SQLITE_SCHEMA_H
#define STORE_SQLITE_SCHEMA_H

#include "store/sqlite/sqlite_clock.h"
#include "sys/clock.h"

struct sqlite3;

/* Version n is made from n - 1 by the n-th of the steps in sqlite_schema.c. */
enum { SQLITE_SCHEMA_VERSION = 3 };

/* The statements that make version `version` from the one before it. */
const char *schema_step(int version);

/* SEMEL_OK, or SEMEL_ERR_SCHEMA with what to do. */
semel_code schema_check_version(const char *name, int64_t version, semel_error *err);

/* Make what is missing, or bring an older schema up to date, in one IMMEDIATE transaction; and when the file's mark is of another
 * boot, take it into this one, unless `foreign_is_alive` (asked only then) says that somebody
 * holds the file open there: SEMEL_ERR_UNSAFE.  Any number of processes may do this at once.
 * SEMEL_ERR_TX_STATE when a transaction is open on `db`. */
semel_code schema_ensure(struct sqlite3 *db, const char *name, const struct sys_clock *clock,
                         const struct sqlite_boot_id *boot_id,
                         bool (*foreign_is_alive)(void *arg), void *arg, semel_error *err);

#endif
