/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite of outboxes on PostgreSQL.
 */
#include "outbox_suite.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "json/event_headers.h"
#include "postgres_world.h"

static PGconn *db;

static void fresh(void *arg)
{
        (void)arg;
        world_fresh();
}

static struct outbox_session *open_session(void *arg, const char *name)
{
        (void)arg;
        semel_error err = {0};
        struct outbox_session *s = NULL;
        if (store_postgres_driver.outbox_open(world_url(), NULL, name, &s, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return s;
}

static int64_t append(void *arg, const struct event *ev)
{
        (void)arg;
        uint8_t id[EVENT_ID_BYTES];
        char text[EVENT_ID_TEXT_BYTES];
        semel_error err = {0};
        db_exec(db, "BEGIN");
        if (postgres_store_append(db, ev, id, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        db_exec(db, "COMMIT");
        event_id_format(id, text);
        return db_int(db, "SELECT id FROM semel.outbox WHERE event_id = '%s'", text);
}

static void append_many(void *arg, size_t n, const char *prefix, bool one_key)
{
        (void)arg;
        db_exec(db, "INSERT INTO semel.outbox (topic, key, payload) SELECT 't', '%s' || %s, 'x' "
                    "FROM generate_series(0, %zu) i", prefix, one_key ? "''" : "i", n - 1);
}

static int state(void *arg, int64_t id, int32_t *ret_attempts)
{
        (void)arg;
        char sql[200];
        (void)snprintf(sql, sizeof sql,
                       "SELECT status, attempts FROM semel.outbox WHERE id = %lld", (long long)id);
        PGresult *res = PQexec(db, sql);
        int found = -1;
        for (int i = 0; PQntuples(res) == 1 && i < OUTBOX_STATES; i++) {
                if (strcmp(PQgetvalue(res, 0, 0), outbox_state_name((enum outbox_state)i)) == 0)
                        found = i;
        }
        if (found >= 0)
                *ret_attempts = (int32_t)strtol(PQgetvalue(res, 0, 1), NULL, 10);
        PQclear(res);
        return found;
}

static void force(void *arg, int64_t id, enum outbox_state to, int32_t attempts, int64_t wait_us,
                  int64_t age_us)
{
        (void)arg;
        db_exec(db, "UPDATE semel.outbox SET status = '%s', attempts = %d, next_attempt_at = CASE "
                    "WHEN %lld <> 0 THEN clock_timestamp() + %lld * interval '1 us' END, "
                    "published_at = CASE '%s' WHEN 'PUBLISHED' THEN clock_timestamp() - %lld * "
                    "interval '1 us' END, locked_at = CASE '%s' WHEN 'PUBLISHING' THEN "
                    "clock_timestamp() - %lld * interval '1 us' END WHERE id = %lld",
                outbox_state_name(to), attempts, (long long)wait_us, (long long)wait_us,
                outbox_state_name(to), (long long)age_us, outbox_state_name(to),
                (long long)age_us, (long long)id);
}

static void made(void *arg, int64_t id, int64_t age_us)
{
        (void)arg;
        db_exec(db, "UPDATE semel.outbox SET created_at = clock_timestamp() - %lld * interval '1 us' "
                    "WHERE id = %lld", (long long)age_us, (long long)id);
}

static void expire_leases(void *arg)
{
        (void)arg;
        db_exec(db, "UPDATE semel.relay_member SET lease_until = clock_timestamp() - "
                    "interval '1 s'");
}

static int64_t count(void *arg, enum outbox_state of)
{
        (void)arg;
        return db_int(db, "SELECT count(*) FROM semel.outbox WHERE status = '%s'",
                      outbox_state_name(of));
}

static int64_t audit_count(void *arg, const char *verb, const char *who)
{
        (void)arg;
        return db_int(db, "SELECT count(*) FROM semel.audit WHERE verb = '%s' AND who = '%s'", verb,
                      who);
}

int main(int argc, char **argv)
{
        const struct outbox_target target = {
                .name = "outbox on PostgreSQL",
                .many_relays = true,
                .all_modes = true,
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
        (void)world_url(); /* skips without a server */
        db = db_open();
        int failed = outbox_suite_run(&target, argc > 1 ? argv[1] : NULL);
        PQfinish(db);
        return failed;
}
