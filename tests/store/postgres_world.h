/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres_world: the server of tests/support/with_postgres, a fresh schema, and operations by
 * the hundred.  Without the server (SEMEL_TEST_PG is not set) tests are skipped: exit 77.
 */
#ifndef TESTS_STORE_POSTGRES_WORLD_H
#define TESTS_STORE_POSTGRES_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <libpq-fe.h>

#include "core/limits.h"
#include "store/postgres/postgres_store.h"

/* Exits with 77 when there is no server. */
const char *world_url(void);
/* The URL with parameters appended ("semel_prepare=off"), in a static buffer of 4. */
const char *world_url_with(const char *parameters);
/* Drop everything of semel and migrate. */
void world_fresh(void);

struct store *world_open(const char *url);
/* As semel_store_open() does: its callers are threads that sleep. */
struct store *world_open_sleeping(const char *url);
/* The code of an open that should fail; its sentence is printed. */
semel_code world_open_fails(const char *url, semel_error *ret_err);
static inline void world_close(struct store *st)
{
        st->vt->close(st);
}

/* A connection beside the store's. */
PGconn *db_open(void);
void db_exec(PGconn *pg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t db_int(PGconn *pg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same statement until it gives `want`; fails after 10 s. */
void db_wait(PGconn *pg, int64_t want, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* '\\x...' of a claim's id, for SQL; in a static buffer of 4. */
const char *sql_id(const struct command_claim *claim);
/* A row for the claim, IN_FLIGHT with another attempt, as some other writer would insert it. */
void db_insert_row(PGconn *pg, const struct command_claim *claim);

/* The server: stop, start, restart; fast or immediate (start: NULL).  Waits until it is done. */
void server(const char *verb, const char *mode);

/* -- operations --------------------------------------------------------------------------- */

#define WORLD_LEASE_US (60 * SECOND)
#define WORLD_RETENTION_US HOUR

struct command_claim claim_of(unsigned n, bool retry); /* a fresh attempt each time */
void op_claim_init(struct store_op *op, const struct command_claim *claim);
void op_write_init(struct store_op *op, enum command_write_kind kind,
                   const struct command_claim *claim, int64_t token, struct span body);
/* Submit, and run the store until all are done; `done` is theirs. */
void ops_submit(struct store *st, struct store_op *ops, size_t n);
void ops_finish(struct store *const *stores, size_t store_count, size_t pending);
/* One turn of the loops, at most 10 ms. */
void world_turn(struct store *const *stores, size_t store_count);
size_t ops_pending(void);
/* One at a time. */
semel_code do_claim(struct store *st, struct store_op *op, const struct command_claim *claim);
semel_code do_write(struct store *st, struct store_op *op, enum command_write_kind kind,
                    const struct command_claim *claim, int64_t token, struct span body);
enum command_outcome try_claim(struct store *st, const struct command_claim *claim);
/* Claim and complete; fails the test when it does not RUN. */
void run_once(struct store *st, unsigned n, struct span body);
int64_t op_deadline_us(void);

#endif
