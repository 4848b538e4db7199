/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on SQLite: its two views are two stores on one file, each with its own
 * thread and connection, as two processes would have them; the clocks are ours.
 */
#include "conformance.h"

#include <stddef.h>

#include "sqlite_world.h"

static struct store *target_open(void *arg)
{
        return world_open(arg);
}

static void target_reset(void *arg)
{
        world_remove_file(arg);
}

static void target_advance(void *arg, int64_t us)
{
        world_advance(arg, us);
}

static void target_step_wall(void *arg, int64_t us)
{
        ((struct sqlite_world *)arg)->wall_us += us;
}

static int target_audit_count(void *arg, const struct command_id *id, struct span reason,
                              struct span who)
{
        static const char sql[] = "SELECT count(*) FROM semel_audit "
                                  "WHERE id = ?1 AND reason = ?2 AND who = ?3";
        sqlite3 *db = world_db(arg);
        sqlite3_stmt *stmt = NULL;
        int n = -1;
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK) {
                (void)sqlite3_bind_blob(stmt, 1, id->b, sizeof id->b, SQLITE_STATIC);
                (void)sqlite3_bind_text(stmt, 2, (const char *)reason.p, (int)reason.n,
                                        SQLITE_STATIC);
                (void)sqlite3_bind_text(stmt, 3, (const char *)who.p, (int)who.n, SQLITE_STATIC);
                if (sqlite3_step(stmt) == SQLITE_ROW)
                        n = sqlite3_column_int(stmt, 0);
        }
        (void)sqlite3_finalize(stmt);
        (void)sqlite3_close(db);
        return n;
}

int main(int argc, char **argv)
{
        struct sqlite_world w;
        world_init(&w);
        const struct conformance_target target = {.name = "sqlite",
                                                  .arg = &w,
                                                  .open = target_open,
                                                  .reset = target_reset,
                                                  .advance = target_advance,
                                                  .durable = true,
                                                  .step_wall = target_step_wall,
                                                  .audit_count = target_audit_count};
        int rc = conformance_main(&target, 1, argc, argv);
        world_release(&w);
        return rc;
}
