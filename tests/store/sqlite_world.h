/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_world: a folder of its own with one SQLite file, and clocks that the test moves.
 */
#ifndef TESTS_STORE_SQLITE_WORLD_H
#define TESTS_STORE_SQLITE_WORLD_H

#include <sqlite3.h>
#include <stdatomic.h>

#include "store/sqlite/sqlite_internal.h"

struct sqlite_world {
        char dir[64];
        char path[96];
        char url[112];
        _Atomic int64_t boot_us, wall_us;
        struct sys_clock clock; /* these two */
        struct store_env env;
        struct sqlite_hooks hooks;
};

/* Make the folder; the clocks stand still. */
void world_init(struct sqlite_world *w);
/* Remove it. */
void world_release(struct sqlite_world *w);
/* Remove the file and what belongs to it. */
void world_remove_file(struct sqlite_world *w);
void world_advance(struct sqlite_world *w, int64_t us);

/* Assert on failure. */
struct store *world_open(struct sqlite_world *w);
void world_close(struct store *st);
/* The code of an open that should fail; *ret_text is its sentence. */
semel_code world_open_fails(struct sqlite_world *w, semel_error *ret_err);

/* A connection beside the store's. */
sqlite3 *world_db(struct sqlite_world *w);
/* The first column of the first row; fails the test on an error. */
int64_t db_int64(sqlite3 *db, const char *sql);
void db_exec(sqlite3 *db, const char *sql);

/* -- commands -------------------------------------------------------------------------- */

#define WORLD_LEASE_US INT64_C(60000000)
#define WORLD_RETENTION_US INT64_C(3600000000)

struct command_claim claim_of(unsigned n, bool retry); /* a fresh attempt each time */
/* Submit, wait, return the code; `op` is to be released. */
semel_code op_claim(struct store *st, struct store_op *op, const struct command_claim *claim);
semel_code op_write(struct store *st, struct store_op *op, enum command_write_kind kind,
                    const struct command_claim *claim, int64_t token, struct span body);
/* Submit all, wait until all are done (each `done` is called once). */
void ops_wait(struct store *st, struct store_op *ops, size_t n);
/* Claim for the answer alone. */
enum command_outcome try_claim(struct store *st, const struct command_claim *claim);
/* Claim and complete; fails the test when it does not RUN. */
void run_once(struct store *st, unsigned n, struct span body);
/* How long tests wait for an operation. */
int64_t op_deadline_us(void);

#endif
