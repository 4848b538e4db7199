/* SPDX-License-Identifier: Apache-2.0
 *
 * Outboxes on PostgreSQL: relays that meet (rules C1, C6), connections that break, and the plan of the
 * fetch (O44, O45).
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "outbox_suite.h"
#include "postgres_world.h"
#include "sql_postgres.h"
#include "sys/clock.h"

#define LEASE_US (30 * SECOND)
static PGconn *db;
static struct outbox_session *a, *b;
static pid_t stopped; /* a child */
static const struct outbox_member me_a = {.id = {1}, .info = "a"};
static const struct outbox_member me_b = {.id = {2}, .info = "b"};

static struct outbox_session *open_leased(const char *name, int64_t lease_us)
{
        struct outbox_session *s = NULL;
        semel_error err = {0};
        const struct outbox_mapping mapping = {.preset = "semel", .lease_us = lease_us};
        if (store_postgres_driver.outbox_open(world_url(), &mapping, name, &s, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return s;
}

static struct outbox_session *open_session(const char *name)
{
        return open_leased(name, 0);
}

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        a = open_session("semel test a");
        b = open_session("semel test b");
        return 0;
}

static void end_stopped(void)
{
        if (stopped > 0 && kill(stopped, SIGKILL) == 0)
                (void)waitpid(stopped, NULL, 0);
        stopped = 0;
}

static int teardown(void **state)
{
        (void)state;
        end_stopped();
        a->vt->close(a);
        b->vt->close(b);
        PQfinish(db);
        return 0;
}

/* A call in a thread of its own. */
struct call {
        pthread_t thread;
        struct outbox_session *s;
        const struct outbox_member *me;
        enum outbox_mode mode;
        struct outbox_slot slots[EVENT_SLOTS];
        struct outbox_mark mark;
        struct outbox_marked marked;
        struct outbox_view view;
        struct semel_error err;
        semel_code code;
};

static int64_t soon(void)
{
        return clock_boot_us() + 10 * SECOND;
}

static void *run_beat(void *arg)
{
        struct call *c = arg;
        c->code = c->s->vt->beat(c->s, c->me, LEASE_US, soon(), &c->view, &c->err);
        return NULL;
}

static void *run_take(void *arg)
{
        struct call *c = arg;
        c->code = c->s->vt->take(c->s, c->me, OUTBOX_OWNED, 0xffff, LEASE_US, soon(), &c->view, &c->err);
        return NULL;
}

static void *run_mark(void *arg)
{
        struct call *c = arg;
        c->code = c->s->vt->mark(c->s, c->mode, false, c->slots, EVENT_SLOTS, &c->mark, 1, soon(),
                                 &c->marked, &c->err);
        return NULL;
}

static uint32_t mine(const struct outbox_view *v)
{
        uint32_t mask = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                mask |= v->slots[i].mine ? 1u << i : 0;
        return mask;
}

static void begin_call(struct call *c, void *(*run)(void *))
{
        assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
}

static void end_call(struct call *c)
{
        assert_int_equal(pthread_join(c->thread, NULL), 0);
        if (c->code != SEMEL_OK)
                fail_msg("%s", c->err.text);
}

static void own_all(struct call *c)
{
        (void)run_take(c);
        assert_int_equal(c->code, SEMEL_OK);
        assert_int_equal(mine(&c->view), 0xffff);
        for (int16_t i = 0; i < EVENT_SLOTS; i++)
                c->slots[i] = (struct outbox_slot){.slot = i, .epoch = c->view.slots[i].epoch};
}

static struct outbox_rows fetch_all(struct call *c, enum outbox_mode mode, semel_code want)
{
        struct outbox_quota quotas[EVENT_SLOTS];
        struct outbox_rows rows = {0};
        for (int i = 0; i < EVENT_SLOTS; i++)
                quotas[i] = (struct outbox_quota){.slot = c->slots[i], .rows_max = 100};
        const struct outbox_fetch in = {.mode = mode,
                                        .quotas = quotas,
                                        .quota_count = EVENT_SLOTS,
                                        .bytes_max = 1000000};
        c->code = c->s->vt->fetch(c->s, &in, soon(), &rows, &c->err);
        if (want != SEMEL_OK || c->code == SEMEL_OK)
                assert_int_equal(c->code, want);
        else
                fail_msg("%s", c->err.text);
        return rows;
}

/* The only row there is, and the mark that it is published. */
static void read_the_row(struct call *c, enum outbox_mode mode)
{
        struct outbox_rows rows = fetch_all(c, mode, SEMEL_OK);
        assert_int_equal(rows.n, 1);
        c->mark = (struct outbox_mark){.id = rows.row[0].id, .slot = rows.row[0].slot,
                                       .place = rows.row[0].place};
        outbox_rows_release(&rows);
}

static void publish_and_read(struct call *c)
{
        db_exec(db, "SELECT semel.publish('t', 'k', 'x'::bytea)");
        own_all(c);
        read_the_row(c, OUTBOX_OWNED);
}

static void expire(void)
{
        db_exec(db, "UPDATE semel.relay_member SET lease_until = clock_timestamp() - interval '1 s'");
}

/* -- C1 --------------------------------------------------------------------------------------- */

static void c1_a_takeover_and_a_renewal_never_both_succeed(void **state)
{
        (void)state;
        static struct call renew, take;
        int taken = 0, kept = 0;
        renew = (struct call){.s = a, .me = &me_a};
        take = (struct call){.s = b, .me = &me_b};
        for (int round = 0; round < 60 || (round < 600 && (taken == 0 || kept == 0)); round++) {
                own_all(&renew);
                expire();
                /* Who begins has the better chance, and a head start of up to 3.5 ms: both are to win now
                 * and then, however fast the machine is. */
                begin_call(round % 2 ? &renew : &take, round % 2 ? run_beat : run_take);
                for (int64_t until_us = clock_boot_us() + round / 2 % 8 * MS / 2;
                     clock_boot_us() < until_us;)
                        ;
                begin_call(round % 2 ? &take : &renew, round % 2 ? run_take : run_beat);
                end_call(&renew);
                end_call(&take);
                assert_int_equal(mine(&renew.view) & mine(&take.view), 0);
                assert_int_equal(mine(&renew.view) | mine(&take.view), 0xffff);
                taken += mine(&take.view) != 0;
                kept += mine(&renew.view) != 0;
                assert_int_equal(b->vt->leave(b, &me_b, 0, soon(), NULL), SEMEL_OK);
        }
        print_message("   %d takeovers, %d renewals\n", taken, kept);
        assert_true(taken > 0 && kept > 0); /* else nothing has raced */
}

/* The renewal holds its member row, uncommitted; a takeover that saw the old lease looks again. */
static void c1_a_takeover_looks_at_the_lease_again(void **state)
{
        (void)state;
        static struct call owner, take;
        owner = (struct call){.s = a, .me = &me_a};
        take = (struct call){.s = b, .me = &me_b};
        own_all(&owner);
        expire();
        db_exec(db, "BEGIN");
        db_exec(db, "UPDATE semel.relay_member SET lease_until = clock_timestamp() + interval '30 s' "
                    "WHERE id = '\\x01000000000000000000000000000000'");
        begin_call(&take, run_take);
        PGconn *look = db_open();
        db_wait(look, 1, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
                         "application_name = 'semel test b'");
        PQfinish(look);
        db_exec(db, "COMMIT");
        end_call(&take);
        assert_int_equal(mine(&take.view), 0);
}

/* Run on PostgreSQL: with EXISTS alone the mark and the takeover both succeed (write skew). */
static void c1_o16_a_mark_that_meets_a_takeover_changes_nothing(void **state)
{
        (void)state;
        static struct call owner;
        owner = (struct call){.s = a, .me = &me_a};
        publish_and_read(&owner);
        db_exec(db, "BEGIN");
        db_exec(db, "UPDATE semel.relay_slot SET epoch = epoch + 1, owner = 'x'");
        begin_call(&owner, run_mark);
        PGconn *look = db_open();
        db_wait(look, 1, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
                         "application_name = 'semel test a'");
        PQfinish(look);
        db_exec(db, "COMMIT");
        end_call(&owner);
        assert_int_equal(owner.marked.marked, 0);
        assert_int_equal(owner.marked.lost_slots, EVENT_SLOTS);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox"), 1);
}

/* Run on PostgreSQL: in one table, overlapping FOR SHARE marks kept a renewal out for 5.6 s. */
static void c1_marks_do_not_starve_the_owners_renewal(void **state)
{
        (void)state;
        static struct call owner;
        owner = (struct call){.s = a, .me = &me_a};
        own_all(&owner);
        db_exec(db, "BEGIN");
        db_exec(db, "SELECT 1 FROM semel.relay_slot FOR SHARE");
        int64_t start_us = clock_boot_us();
        (void)run_beat(&owner);
        assert_int_equal(owner.code, SEMEL_OK);
        assert_int_equal(mine(&owner.view), 0xffff);
        assert_true(clock_boot_us() - start_us < 900 * MS);
        db_exec(db, "COMMIT");
}

/* -- C6 --------------------------------------------------------------------------------------- */

/* A paused owner's transaction is ended before its lease could be over; its mark then does nothing. */
static void c6_a_paused_owners_locks_go_before_its_lease(void **state)
{
        (void)state;
        static struct call owner, next;
        a->vt->close(a);
        b->vt->close(b);
        a = open_leased("semel test a", 1 * SECOND);
        b = open_leased("semel test b", 1 * SECOND);
        owner = (struct call){.s = a, .me = &me_a, .mode = OUTBOX_SINGLE};
        next = (struct call){.s = b, .me = &me_b};
        db_exec(db, "UPDATE semel.outbox_meta SET mode = 'single'");
        db_exec(db, "SELECT semel.publish('t', 'k', 'x'::bytea)");
        owner.code = a->vt->take(a, &me_a, OUTBOX_SINGLE, 0xffff, LEASE_US, soon(), &owner.view, NULL);
        for (int16_t i = 0; i < EVENT_SLOTS; i++)
                owner.slots[i] = (struct outbox_slot){.slot = i, .epoch = owner.view.slots[i].epoch};
        memcpy(next.slots, owner.slots, sizeof next.slots);
        read_the_row(&owner, OUTBOX_SINGLE);
        int64_t start_us = clock_boot_us();
        struct outbox_rows rows = fetch_all(&next, OUTBOX_SINGLE, SEMEL_ERR_BUSY);
        db_wait(db, 0, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel test a'");
        assert_true(clock_boot_us() - start_us < 1 * SECOND);
        rows = fetch_all(&next, OUTBOX_SINGLE, SEMEL_OK);
        assert_int_equal(rows.n, 1);
        outbox_rows_release(&rows);
        (void)run_mark(&owner);
        print_message("   %s\n", owner.err.text);
        assert_true(owner.code == SEMEL_ERR_STORE_DOWN || owner.code == SEMEL_ERR_UNKNOWN);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox WHERE status = 'PENDING'"), 1);
}

/* A wait for a lock ends before the time that a renewal has. */
static void c6_a_short_lease_waits_shortly_for_locks(void **state)
{
        (void)state;
        static struct call owner;
        a->vt->close(a);
        a = open_leased("semel test a", 1 * SECOND);
        owner = (struct call){.s = a, .me = &me_a};
        own_all(&owner);
        db_exec(db, "BEGIN; LOCK TABLE semel.relay_member");
        int64_t took_us = SECOND;
        for (int i = 0; i < 10 && took_us > 600 * MS; i++) { /* a busy machine may need more than one */
                int64_t start_us = clock_boot_us();
                (void)run_beat(&owner);
                took_us = clock_boot_us() - start_us;
                assert_int_equal(owner.code, SEMEL_ERR_BUSY);
        }
        assert_in_range(took_us, 200 * MS, 600 * MS);
        db_exec(db, "ROLLBACK");
}

/* -- B3 --------------------------------------------------------------------------------------- */

/* In a process of its own: a mark's statement without its end, then SIGSTOP. */
static void stop_in_the_middle(const char *name)
{
        char url[512];
        (void)snprintf(url, sizeof url, "%s?application_name=%s", world_url(), name);
        PGconn *half = PQconnectdb(url);
        if (PQstatus(half) != CONNECTION_OK || !PQenterPipelineMode(half) ||
            !PQsendQueryParams(half, "SELECT slot FROM semel.relay_slot FOR UPDATE", 0, NULL, NULL,
                               NULL, NULL, 0) ||
            !PQsendFlushRequest(half) || PQflush(half) != 0)
                _exit(1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)raise(SIGSTOP);
        _exit(2);
}

static void b3_a_relay_that_stopped_in_the_middle_of_a_send_is_ended(void **state)
{
        (void)state;
        static struct call next;
        int64_t ended = -1;
        int status = 0;
        db_exec(db, "SELECT semel.publish('t', 'k', 'x'::bytea)");
        next = (struct call){.s = b, .me = &me_b};
        stopped = fork();
        assert_true(stopped >= 0);
        if (stopped == 0)
                stop_in_the_middle("semel%20relay%20lane%200");
        assert_int_equal(waitpid(stopped, &status, WUNTRACED), stopped);
        assert_true(WIFSTOPPED(status));
        db_wait(db, 1, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = "
                       "'ClientRead' AND application_name = 'semel relay lane 0'");
        assert_int_equal(b->vt->reap(b, 30 * SECOND, soon(), &ended, &next.err), SEMEL_OK);
        assert_int_equal(ended, 0); /* it may still come */
        (void)run_take(&next);
        assert_int_equal(next.code, SEMEL_ERR_BUSY);
        db_exec(db, "SELECT pg_sleep(0.3)");
        assert_int_equal(b->vt->reap(b, 200 * MS, soon(), &ended, &next.err), SEMEL_OK);
        assert_int_equal(ended, 1);
        db_wait(db, 0, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel relay lane 0'");
        own_all(&next);
}

/* -- B10 -------------------------------------------------------------------------------------- */

static void own_and_lose_connection(struct call *owner)
{
        *owner = (struct call){.s = a, .me = &me_a};
        own_all(owner);
        db_exec(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
                    "'semel test a'");
}

static void b10_a_session_connects_anew_by_itself(void **state)
{
        (void)state;
        static struct call owner;
        own_and_lose_connection(&owner);
        (void)run_beat(&owner);
        assert_true(owner.code == SEMEL_OK || owner.code == SEMEL_ERR_STORE_DOWN ||
                    owner.code == SEMEL_ERR_UNKNOWN);
        int64_t until_us = clock_boot_us() + SECOND;
        while (owner.code != SEMEL_OK && clock_boot_us() < until_us)
                (void)run_beat(&owner);
        assert_int_equal(owner.code, SEMEL_OK);
        assert_int_equal(mine(&owner.view), 0xffff);
}

/* As the keeper of a short lease: 166 ms for each try, a try each 250 ms. */
static semel_code beat_in_little_time(struct call *owner)
{
        int64_t next_us = clock_boot_us() + 250 * MS;
        semel_code code = a->vt->beat(a, &me_a, LEASE_US, next_us - 84 * MS, &owner->view, &owner->err);
        while (clock_boot_us() < next_us)
                db_exec(db, "SELECT pg_sleep(0.01)");
        return code;
}

/* A try of which the wait before the next attempt leaves too little attempts nothing, so that the one after
 * it has all of its time. */
static void b10_who_has_little_time_connects_anew_too(void **state)
{
        (void)state;
        static struct call owner;
        own_and_lose_connection(&owner);
        db_wait(db, 0, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel test a'");
        db_exec(db, "BEGIN");
        db_exec(db, "LOCK TABLE semel.schema_version"); /* which every new session reads */
        int left_out = 0;
        for (int i = 0; i < 10; i++) {
                assert_int_not_equal(beat_in_little_time(&owner), SEMEL_OK);
                left_out += strstr(owner.err.text, "a moment ago") != NULL;
        }
        assert_in_range(left_out, 1, 9);
        db_exec(db, "ROLLBACK");
        int64_t until_us = clock_boot_us() + 20 * SECOND;
        semel_code code;
        do /* four do, unless the machine needs more than 166 ms to connect now and then */
                code = beat_in_little_time(&owner);
        while (code != SEMEL_OK && clock_boot_us() < until_us);
        assert_int_equal(code, SEMEL_OK);
}

static void a_call_ends_by_its_deadline(void **state)
{
        (void)state;
        static struct call owner;
        owner = (struct call){.s = a, .me = &me_a};
        own_all(&owner);
        db_exec(db, "BEGIN");
        db_exec(db, "LOCK TABLE semel.relay_member");
        int64_t start_us = clock_boot_us();
        semel_code code = a->vt->beat(a, &me_a, LEASE_US, start_us + 200 * MS, &owner.view, &owner.err);
        assert_true(code == SEMEL_ERR_UNKNOWN || code == SEMEL_ERR_STORE_DOWN);
        assert_true(clock_boot_us() - start_us < 600 * MS);
        db_exec(db, "ROLLBACK");
}

/* -- where rows are ------------------------------------------------------------------------------- */

static void remember_the_place(void)
{
        db_exec(db, "CREATE TEMP TABLE was AS SELECT ctid AS place FROM semel.outbox");
}

/* Is a row there now? */
static bool place_is_taken(void)
{
        int64_t rows = db_int(db, "SELECT count(*) FROM semel.outbox o JOIN was ON place = o.ctid");
        db_exec(db, "DROP TABLE was");
        return rows > 0;
}

/* The row is written anew, or the whole table, between the read and the mark. */
static void c1_a_mark_finds_a_row_that_was_moved(void **state)
{
        (void)state;
        static const char *const move[] = {"UPDATE semel.outbox SET headers = '{}'",
                                           "VACUUM FULL semel.outbox"}; /* there is a dead row in front */
        for (size_t i = 0; i < sizeof move / sizeof *move; i++) {
                static struct call owner;
                owner = (struct call){.s = a, .me = &me_a};
                publish_and_read(&owner);
                remember_the_place();
                db_exec(db, "%s", move[i]);
                assert_false(place_is_taken());
                (void)run_mark(&owner);
                assert_int_equal(owner.code, SEMEL_OK);
                assert_int_equal(owner.marked.marked, 1);
                assert_int_equal(owner.marked.changed, 0);
                assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox"), 0);
        }
}

/* The row went, the table was vacuumed, and a row that nobody published is where it was. */
static void c1_a_mark_spares_what_is_in_the_place_of_its_row(void **state)
{
        (void)state;
        static struct call owner;
        owner = (struct call){.s = a, .me = &me_a};
        publish_and_read(&owner);
        remember_the_place();
        db_exec(db, "DELETE FROM semel.outbox");
        db_exec(db, "VACUUM semel.outbox");
        db_exec(db, "SELECT semel.publish('t', 'k', 'y'::bytea)");
        assert_true(place_is_taken());
        (void)run_mark(&owner);
        assert_int_equal(owner.code, SEMEL_OK);
        assert_int_equal(owner.marked.marked, 0);
        assert_int_equal(owner.marked.changed, 1);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox"), 1);
}

/* -- O44, O45 --------------------------------------------------------------------------------- */

static int64_t buffers_read(const char *explained)
{
        PGresult *res = PQexec(db, explained);
        if (PQresultStatus(res) != PGRES_TUPLES_OK)
                fail_msg("%s", PQresultErrorMessage(res));
        int64_t hit = -1;
        for (int i = 0; i < PQntuples(res); i++) {
                const char *at = strstr(PQgetvalue(res, i, 0), "Buffers: shared hit=");
                if (at && hit < 0)
                        hit = strtol(at + strlen("Buffers: shared hit="), NULL, 10);
        }
        PQclear(res);
        return hit;
}

static int64_t buffers_of(const char *explained)
{
        PGresult *res = PQexec(db, explained);
        for (int i = 0; i < PQntuples(res); i++) {
                if (strstr(PQgetvalue(res, i, 0), "outbox_pkey"))
                        fail_msg("the plan walks the primary key");
        }
        PQclear(res);
        return buffers_read(explained);
}

/* Half of the slots, as one of two lanes asks.  Planned while the table was empty and analysed so. */
static void o44_o45_a_fetch_reads_few_pages_beside_a_long_history(void **state)
{
        (void)state;
        static const char *const explain[] = {
                "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE f ("
                "'{0,2,4,6,8,10,12,14}', '{500,500,500,500,500,500,500,500}', '{}', 2000, 4000)",
                "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE by_bytes ("
                "'{0,2,4,6,8,10,12,14}', '{500,500,500,500,500,500,500,500}', '{}', 8000000, 4000)"};
        db_exec(db, "ALTER TABLE semel.outbox SET (autovacuum_enabled = off); ANALYZE semel.outbox; "
                    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; "
                    "SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan");
        db_exec(db, "PREPARE f AS %s", sql_postgres_outbox_fetch);
        db_exec(db, "PREPARE by_bytes AS %s", sql_postgres_outbox_fetch_bytes);
        for (int i = 0; i < 2; i++)
                (void)buffers_of(explain[i]);
        db_exec(db, "INSERT INTO semel.outbox (topic, key, payload, status, published_at) SELECT 't', "
                    "'k' || i, 'x', 'PUBLISHED', clock_timestamp() FROM generate_series(1, 30000) i");
        db_exec(db, "INSERT INTO semel.outbox (topic, key, payload) SELECT 't', 'k' || i, "
                    "repeat('x', 400)::bytea FROM generate_series(1, 100) i");
        for (int i = 0; i < 4; i++) {
                if (i == 2)
                        db_exec(db, "ANALYZE semel.outbox");
                int64_t hit = buffers_of(explain[i % 2]);
                print_message("   %lld buffers\n", (long long)hit);
                assert_in_range(hit, 1, 49);
        }
}

/* The marks, and two-phase's fetch and mark: planned while the table was thought to be empty, they walk no
 * index. */
static void o44_marks_are_planned_in_one_way_only(void **state)
{
        (void)state;
        static const struct {
                const char *name, *sql, *args;
                int uses;
        } statements[] = {
                {"gone", sql_postgres_outbox_mark_delete, "'{}', '{}', '{}', 'PENDING', '{}'", 1},
                {"tried", sql_postgres_outbox_mark_delete_tried, "'{}', '{}', '{}', '{}', 'PENDING'", 1},
                {"changed", sql_postgres_outbox_mark_update,
                 "'{}', '{}', '{}', '{}', '{}', 'PENDING', '{}', '{}', '{}'", 1},
                {"recovered", sql_postgres_outbox_recover, "'{}', '{}', '{}', '{}', true, '{}'", 2},
                {"claimed", sql_postgres_outbox_fetch_claim, "'{}', '{}', '{}', 1, 1, '{}'", 2},
        };
        db_exec(db, "ALTER TABLE semel.outbox SET (autovacuum_enabled = off); ANALYZE semel.outbox; "
                    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; "
                    "SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan");
        for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
                int uses = 0;
                char explain[256];
                (void)snprintf(explain, sizeof explain, "EXPLAIN (COSTS OFF) EXECUTE %s (%s)",
                               statements[i].name, statements[i].args);
                db_exec(db, "PREPARE %s AS %s", statements[i].name, statements[i].sql);
                PGresult *res = PQexec(db, explain);
                if (PQresultStatus(res) != PGRES_TUPLES_OK)
                        fail_msg("%s", PQresultErrorMessage(res));
                for (int row = 0; row < PQntuples(res); row++) {
                        const char *line = PQgetvalue(res, row, 0);
                        bool by_place = strstr(line, "Tid Scan on outbox o");
                        if (!by_place &&
                            (!strstr(line, " on outbox o") || !strstr(line, "Scan using ")))
                                continue;
                        bool held = strstr(line, "outbox_held"); /* it has only those that are few */
                        uses += !held;
                        if (!held && (row + 1 == PQntuples(res) ||
                                      !strstr(PQgetvalue(res, row + 1, 0),
                                              by_place ? "TID Cond: (" : "Index Cond: (")))
                                fail_msg("%s walks the table or an index", statements[i].name);
                }
                PQclear(res);
                assert_int_equal(uses, statements[i].uses);
        }
}

/* What relays and operators look at now and then: not the history. */
static void counting_and_asking_for_the_oldest_do_not_read_a_long_history(void **state)
{
        (void)state;
        static const struct {
                const char *name, *sql, *args;
                int64_t pages;
        } statements[] = {
                {"counts", sql_postgres_outbox_stats, "", 60},
                {"kept", sql_postgres_outbox_stats_kept, "(1000)", 60},
                {"ages", sql_postgres_outbox_stats_ages, "", 80},
                {"forgotten", sql_postgres_outbox_oldest, "(now() - interval '9 d', now(), 0)", 20},
                {"oldest", sql_postgres_outbox_oldest, "(now() - interval '9 d', now() - interval '8 d', "
                 "1000000)", 20},
                {"blocked", sql_postgres_outbox_blocked, "('{0,1,2,3,4,5,6,7}', true, 100)", 20},
                {"dead", sql_postgres_outbox_list, "('DEAD', 0, 100)", 20},
        };
        db_exec(db, "ALTER TABLE semel.outbox SET (autovacuum_enabled = off); ANALYZE semel.outbox; "
                    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; "
                    "SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off; "
                    "INSERT INTO semel.outbox (topic, key, payload, status, published_at) SELECT 't', "
                    "'k' || i, 'x', 'PUBLISHED', clock_timestamp() FROM generate_series(1, 30000) i; "
                    "INSERT INTO semel.outbox (topic, key) SELECT 't', 'k' || i FROM "
                    "generate_series(1, 20) i");
        for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
                char explain[300];
                db_exec(db, "PREPARE %s AS %s", statements[i].name, statements[i].sql);
                (void)snprintf(explain, sizeof explain,
                               "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE %s %s",
                               statements[i].name, statements[i].args);
                (void)buffers_read(explain); /* catalogs */
                int64_t hit = buffers_read(explain);
                print_message("   %s: %lld buffers\n", statements[i].name, (long long)hit);
                assert_in_range(hit, 0, statements[i].pages);
        }
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(c1_a_takeover_and_a_renewal_never_both_succeed),
                T(c1_a_takeover_looks_at_the_lease_again),
                T(c1_o16_a_mark_that_meets_a_takeover_changes_nothing),
                T(c1_a_mark_finds_a_row_that_was_moved),
                T(c1_a_mark_spares_what_is_in_the_place_of_its_row),
                T(c1_marks_do_not_starve_the_owners_renewal),
                T(c6_a_paused_owners_locks_go_before_its_lease),
                T(c6_a_short_lease_waits_shortly_for_locks),
                T(b3_a_relay_that_stopped_in_the_middle_of_a_send_is_ended),
                T(b10_a_session_connects_anew_by_itself),
                T(b10_who_has_little_time_connects_anew_too),
                T(a_call_ends_by_its_deadline),
                T(o44_marks_are_planned_in_one_way_only),
                T(counting_and_asking_for_the_oldest_do_not_read_a_long_history),
                T(o44_o45_a_fetch_reads_few_pages_beside_a_long_history),
        };
        (void)world_url();
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
