/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/store.h: where claims live.
 *
 *   memory:            this process only; for tests
 *   sqlite:PATH        one file, many processes of one machine (libsemel-sqlite)
 *   postgres://...     shared by any number of machines (libsemel-postgres)
 *
 * libsemel has the memory store; the others are libraries of their own, made known by
 * one explicit call (semel_sqlite_register(), semel_postgres_register()).
 *
 * A store is safe to use from any number of threads.  Inside, one thread runs the
 * asynchronous driver and batches what the callers ask for at the same time.
 */
#ifndef SEMEL_STORE_H
#define SEMEL_STORE_H

#include <stdint.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_store semel_store;

/* Open the store that a URL names.  SQLite files get their schema when opened;
 * PostgreSQL must have it (`semel migrate`).
 *
 * url      NUL-terminated, copied.  A password in it is never shown again.
 * ret_store receives the store, to be closed by semel_store_close().
 * Errors: SEMEL_ERR_URL, SEMEL_ERR_NOT_LINKED, SEMEL_ERR_STORE_DOWN, SEMEL_ERR_SCHEMA,
 * SEMEL_ERR_ACCESS, SEMEL_ERR_UNSAFE, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_code semel_store_open(const char *url, semel_store **ret_store, semel_error *err);

/* Close: waits for the calls that are under way (each is bounded by the call timeout),
 * then frees.  No other thread may use the store any more.  NULL is fine. */
SEMEL_API void semel_store_close(semel_store *st);

/* How long one store call may take before it fails with SEMEL_ERR_STORE_DOWN (nothing
 * happened) or SEMEL_ERR_UNKNOWN.  Milliseconds, 100 .. 60,000; default 5,000. */
SEMEL_API semel_code semel_store_set_call_timeout_ms(semel_store *st, int64_t timeout_ms,
                                                     semel_error *err);

/* Create the tables, or bring them to this version: safe to run again, and by several at
 * once.  SQLite does it when a store is opened.
 * Errors: SEMEL_ERR_SCHEMA (newer than this library), SEMEL_ERR_ACCESS, SEMEL_ERR_STORE_DOWN. */
SEMEL_API semel_code semel_store_migrate(const char *url, semel_error *err);

/* The SQL that semel_store_migrate() would run (what = "schema"), or the one that gives a
 * role what it needs and nothing else (what = "grants").  Connects to nothing.
 * role  for "grants", else NULL.
 * out   gets NUL-terminated pieces; `arg` is passed on.
 * Errors: SEMEL_ERR_ARGUMENT (this store has nothing of the kind), SEMEL_ERR_URL. */
SEMEL_API semel_code semel_store_print(const char *url, const char *what, const char *role,
                                       void (*out)(void *arg, const char *text), void *arg,
                                       semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
