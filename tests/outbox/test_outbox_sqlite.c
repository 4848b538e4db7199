/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite of outboxes on a SQLite file.
 */
#include "outbox_suite.h"
#include "sqlite_world.h"

#include <stdio.h>
#include <string.h>

#include "store/sqlite/sqlite_store.h"
#include "sys/clock.h"

static struct sqlite_world world;

/* Without the file's gate: sessions of the test before are closed. */
static void fresh(void *arg)
{
        (void)arg;
        world_remove_file(&world);
        world_close(world_open(&world));
}

static struct outbox_session *open_session(void *arg, const char *name)
{
        semel_error err = {0};
        struct outbox_session *s = NULL;
        (void)arg;
        if (store_sqlite_driver.outbox_open(world.url, NULL, name, &s, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return s;
}

/* One statement made by printf. */
static int64_t query(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        char *sql = sqlite3_vmprintf(fmt, ap);
        va_end(ap);
        sqlite3 *db = world_db(&world);
        int64_t v = db_int64(db, sql);
        (void)sqlite3_close(db);
        sqlite3_free(sql);
        return v;
}

static int64_t append(void *arg, const struct event *ev)
{
        semel_error err = {0};
        (void)arg;
        sqlite3 *db = world_db(&world);
        db_exec(db, "BEGIN IMMEDIATE");
        if (sqlite_outbox_append(db, ev, NULL, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        int64_t id = sqlite3_last_insert_rowid(db);
        db_exec(db, "COMMIT");
        (void)sqlite3_close(db);
        return id;
}

static void append_many(void *arg, size_t n, const char *prefix, bool one_key)
{
        (void)arg;
        sqlite3 *db = world_db(&world);
        char *sql = sqlite3_mprintf("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
                                    "WHERE i < %lld) INSERT INTO semel_outbox (topic, key, payload) "
                                    "SELECT 't', %Q || %s, 'x' FROM n",
                                    (long long)n - 1, prefix, one_key ? "''" : "i");
        db_exec(db, sql);
        sqlite3_free(sql);
        (void)sqlite3_close(db);
}

static int state(void *arg, int64_t id, int32_t *ret_attempts)
{
        (void)arg;
        if (query("SELECT count(*) FROM semel_outbox WHERE id = %lld", (long long)id) == 0)
                return -1;
        *ret_attempts = (int32_t)query("SELECT attempts FROM semel_outbox WHERE id = %lld",
                                       (long long)id);
        for (int i = 0; i < OUTBOX_STATES; i++)
                if (query("SELECT status = %Q FROM semel_outbox WHERE id = %lld",
                          outbox_state_name((enum outbox_state)i), (long long)id))
                        return i;
        return -1;
}

static void force(void *arg, int64_t id, enum outbox_state to, int32_t attempts, int64_t wait_us,
                  int64_t age_us)
{
        (void)arg;
        int64_t now_us = clock_wall_us();
        (void)query("UPDATE semel_outbox SET status = %Q, attempts = %d, next_attempt_at = "
                    "nullif(%lld, 0), published_at = nullif(%lld, 0) WHERE id = %lld RETURNING id",
                    outbox_state_name(to), (int)attempts,
                    wait_us ? (long long)(now_us + wait_us) : 0LL,
                    to == OUTBOX_PUBLISHED ? (long long)(now_us - age_us) : 0LL, (long long)id);
}

static void made(void *arg, int64_t id, int64_t age_us)
{
        (void)arg;
        (void)query("UPDATE semel_outbox SET created_at = %lld WHERE id = %lld RETURNING id",
                    (long long)(clock_wall_us() - age_us), (long long)id);
}

/* There is no lease: the owner's lock ends with its session. */
static void expire_leases(void *arg)
{
        (void)arg;
}

static int64_t count(void *arg, enum outbox_state of)
{
        (void)arg;
        return query("SELECT count(*) FROM semel_outbox WHERE status = %Q", outbox_state_name(of));
}

static int64_t audit_count(void *arg, const char *verb, const char *who)
{
        (void)arg;
        return query("SELECT count(*) FROM semel_audit WHERE verb = %Q AND who = %Q", verb, who);
}

int main(int argc, char **argv)
{
        const struct outbox_target target = {
                .name = "outbox on SQLite",
                .many_relays = false,
                .all_modes = false,
                .fresh = fresh,
                .open = open_session,
                .append = append,
                .append_many = append_many,
                .state = state,
                .force = force,
                .made = made,
                .expire_leases = expire_leases,
                .count = count,
                .audit_count = audit_count,
        };
        world_init(&world);
        world.env.clock = &sys_clock_host;
        int failed = outbox_suite_run(&target, argc > 1 ? argv[1] : NULL);
        world_release(&world);
        return failed;
}
