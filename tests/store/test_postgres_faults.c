/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL: replies that are lost, connections that break, a server that goes and comes back,
 * a disk that is full (rules A7, B3, B10; H14, H15, H70).
 *
 * why this file is long: one fault after the other, over one set of small steps.
 */
#include "postgres_world.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp_proxy.h"

static PGconn *db;
static struct tcp_proxy *px;
static struct store *st; /* through the proxy */

/* The server's URL with the proxy's port in it. */
static const char *proxy_url(const char *parameters)
{
        static char url[512];
        (void)snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/semel_test?%s",
                       tcp_proxy_port(px), parameters);
        return url;
}

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        px = tcp_proxy_start((int)strtol(getenv("SEMEL_TEST_PG_PORT"), NULL, 10));
        st = world_open(proxy_url("semel_connections=2"));
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        world_close(st);
        tcp_proxy_stop(px);
        PQfinish(db);
        return 0;
}

static void turn_until(bool (*over)(void *arg), void *arg)
{
        struct store *const stores[] = {st};
        int64_t until_us = clock_boot_us() + 15 * SECOND;
        while (!over(arg)) {
                if (clock_boot_us() > until_us)
                        fail_msg("it never came");
                world_turn(stores, 1);
        }
}

static bool reply_was_lost(void *arg)
{
        return tcp_proxy_lost(px) > *(long *)arg;
}

/* Submit it, let the server do it, lose the answer, break the connection, and let it finish. */
static void run_with_lost_reply(struct store_op *op)
{
        struct store *const stores[] = {st};
        long lost = tcp_proxy_lost(px);
        tcp_proxy_set(px, PROXY_LOSE_REPLIES);
        ops_submit(st, op, 1);
        turn_until(reply_was_lost, &lost);
        assert_int_equal(ops_pending(), 1);
        tcp_proxy_set(px, PROXY_PASS);
        tcp_proxy_cut(px);
        ops_finish(stores, 1, 0);
        if (op->err.code != SEMEL_OK)
                fail_msg("%s", op->err.text);
}

/* H15: a blind repetition would say "in flight" to the one who holds it. */
static void a7_h15_a_claim_whose_commit_was_not_heard_of_is_held(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        op_claim_init(&op, &claim);
        run_with_lost_reply(&op);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        assert_int_equal(db_int(db, "SELECT token FROM semel.command"), op.out.claim.answer.token);
        store_op_release(&op);
}

static void a7_a_takeover_whose_commit_was_not_heard_of_happened_once(void **state)
{
        (void)state;
        struct command_claim first = claim_of(1, true), second = claim_of(1, true);
        struct store_op op;
        assert_int_equal(try_claim(st, &first), COMMAND_RUN);
        db_exec(db, "UPDATE semel.command SET lease_until = clock_timestamp()");
        int64_t token = db_int(db, "SELECT token FROM semel.command");
        op_claim_init(&op, &second);
        run_with_lost_reply(&op); /* loses the insert's answer, the reading, or the update's */
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        assert_int_equal(op.out.claim.answer.token, token + 1);
        store_op_release(&op);
}

static void a7_each_write_whose_commit_was_not_heard_of_is_done(void **state)
{
        (void)state;
        static const enum command_write_kind kinds[] = {COMMAND_COMPLETE, COMMAND_RELEASE,
                                                        COMMAND_RELEASE_NOT_EXECUTED,
                                                        COMMAND_EXTEND, COMMAND_MARK_UNKNOWN};
        static const int states[] = {COMMAND_COMPLETED, COMMAND_FREE, COMMAND_FREE,
                                     COMMAND_IN_FLIGHT, COMMAND_UNKNOWN};
        for (unsigned i = 0; i < 5; i++) {
                struct command_claim claim = claim_of(i, false);
                struct store_op op;
                assert_int_equal(do_claim(st, &op, &claim), SEMEL_OK);
                int64_t token = op.out.claim.answer.token;
                store_op_release(&op);
                op_write_init(&op, kinds[i], &claim, token, span_str("body"));
                run_with_lost_reply(&op);
                assert_int_equal(op.out.write.outcome, COMMAND_DONE);
                assert_int_equal(db_int(db, "SELECT state FROM semel.command WHERE id = %s",
                                        sql_id(&claim)),
                                 states[i]);
                store_op_release(&op);
        }
}

static void count_done(struct store_op *op)
{
        *(int *)op->arg = 1;
}

static bool audit_is_waited_for(void *arg)
{
        (void)arg;
        return db_int(db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
                          "'semel.audit'::regclass") > 0;
}

static bool is_set(void *arg)
{
        return *(int *)arg != 0;
}

/* The answer to the reading is let through, the writing's is lost. */
static void a7_an_operators_verdict_leaves_one_audit_row(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        int done = 0;
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        db_exec(db, "UPDATE semel.command SET state = 3");
        store_op_init(&op, STORE_RESOLVE);
        op.deadline_us = op_deadline_us();
        op.done = count_done;
        op.arg = &done;
        op.in.resolve.resolve = (struct command_resolve){
                .kind = COMMAND_RESOLVE_EXECUTED, .id = claim.id, .attempt = claim.attempt};
        op.in.resolve.resolve.new_attempt.b[0] = 9;
        op.in.resolve.reply.status = 200;
        op.in.resolve.reason = span_str("looked");
        op.in.resolve.who = span_str("ada");
        /* The writing waits for this lock, less than its lock timeout. */
        db_exec(db, "BEGIN");
        db_exec(db, "LOCK semel.audit IN EXCLUSIVE MODE");
        store_submit(st, &op);
        turn_until(audit_is_waited_for, NULL);
        long lost = tcp_proxy_lost(px);
        tcp_proxy_set(px, PROXY_LOSE_REPLIES);
        db_exec(db, "COMMIT");
        turn_until(reply_was_lost, &lost);
        tcp_proxy_set(px, PROXY_PASS);
        tcp_proxy_cut(px);
        turn_until(is_set, &done);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.resolve.outcome, COMMAND_RESOLVED);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.audit"), 1);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_COMPLETED);
        store_op_release(&op);
}

static bool nothing_pending(void *arg)
{
        (void)arg;
        return ops_pending() == 0;
}

static bool no_row_in_flight(void *arg)
{
        (void)arg;
        return db_int(db, "SELECT count(*) FROM semel.command WHERE state = 1") == 0;
}

/* Nobody waits for it any more, so nobody would ever end it: the store does. */
static void a7_a_claim_that_ended_unknown_is_undone_when_the_database_is_back(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        long lost = tcp_proxy_lost(px);
        tcp_proxy_set(px, PROXY_LOSE_REPLIES);
        op_claim_init(&op, &claim);
        op.deadline_us = clock_boot_us() + SECOND;
        int64_t start_us = clock_boot_us();
        ops_submit(st, &op, 1);
        turn_until(reply_was_lost, &lost);
        tcp_proxy_set(px, PROXY_REFUSE);
        tcp_proxy_cut(px);
        turn_until(nothing_pending, NULL);
        assert_in_range(clock_boot_us() - start_us, SECOND, 2 * SECOND);
        assert_int_equal(op.err.code, SEMEL_ERR_UNKNOWN);
        assert_int_equal(op.err.class, SEMEL_CLASS_UNKNOWN);
        print_message("   %s\n", op.err.text);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_IN_FLIGHT);
        tcp_proxy_set(px, PROXY_PASS);
        turn_until(no_row_in_flight, NULL);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_FREE);
        store_op_release(&op);

        /* and one that never arrived */
        struct command_claim never = claim_of(2, false);
        tcp_proxy_set(px, PROXY_LOSE_REQUESTS);
        op_claim_init(&op, &never);
        op.deadline_us = clock_boot_us() + SECOND;
        ops_submit(st, &op, 1);
        turn_until(nothing_pending, NULL);
        assert_int_equal(op.err.code, SEMEL_ERR_UNKNOWN);
        tcp_proxy_set(px, PROXY_PASS);
        tcp_proxy_cut(px);
        struct command_claim again = claim_of(2, false);
        assert_int_equal(try_claim(st, &again), COMMAND_RUN);
        store_op_release(&op);
}

/* -- the same, while the database is ill ------------------------------------------------------- */

static void settings_as_before(void)
{
        db_exec(db, "SET default_transaction_read_only = off");
        db_exec(db, "ALTER SYSTEM RESET synchronous_standby_names");
        db_exec(db, "ALTER SYSTEM RESET default_transaction_read_only");
        db_exec(db, "SELECT pg_reload_conf()");
}

static int teardown_settings(void **state)
{
        settings_as_before();
        return teardown(state);
}

/* The row is there, and its caller was told that nobody knows. */
static void claim_that_ends_unknown(struct store_op *op, const struct command_claim *claim)
{
        long lost = tcp_proxy_lost(px);
        tcp_proxy_set(px, PROXY_LOSE_REPLIES);
        op_claim_init(op, claim);
        op->deadline_us = clock_boot_us() + 500 * MS;
        ops_submit(st, op, 1);
        turn_until(reply_was_lost, &lost);
        tcp_proxy_set(px, PROXY_REFUSE);
        tcp_proxy_cut(px);
        turn_until(nothing_pending, NULL);
        assert_int_equal(op->err.code, SEMEL_ERR_UNKNOWN);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_IN_FLIGHT);
}

static void the_claim_is_undone(void)
{
        turn_until(no_row_in_flight, NULL);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_FREE);
}

static int64_t waiting_for_locks(void)
{
        return db_int(db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                          "AND application_name LIKE 'semel/%%'");
}

static bool waits_for_a_lock(void *arg)
{
        (void)arg;
        return waiting_for_locks() > 0;
}

static bool waits_for_no_lock(void *arg)
{
        (void)arg;
        return waiting_for_locks() == 0;
}

static int64_t commits_that_hang(void)
{
        return db_int(db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
}

/* To undo it the store waits for the transaction in doubt, and not for one lock timeout only: it
 * must not take the row that nobody can see yet for somebody else's. */
static void a7_a_claim_whose_commit_hangs_is_undone_when_it_lands(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        db_exec(db, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        db_exec(db, "SELECT pg_reload_conf()");
        db_wait(db, 1, "SELECT (current_setting('synchronous_standby_names') = 'nobody')::int");
        op_claim_init(&op, &claim);
        op.deadline_us = clock_boot_us() + SECOND;
        ops_submit(st, &op, 1);
        turn_until(nothing_pending, NULL);
        assert_int_equal(op.err.code, SEMEL_ERR_UNKNOWN);
        assert_int_equal(commits_that_hang(), 1);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.command"), 0);
        for (int tries = 0; tries < 2; tries++) {
                turn_until(waits_for_a_lock, NULL);
                turn_until(waits_for_no_lock, NULL);
        }
        assert_int_equal(commits_that_hang(), 1);
        settings_as_before();
        db_wait(db, 1, "SELECT count(*) FROM semel.command"); /* it lands */
        the_claim_is_undone();
        store_op_release(&op);
}

static bool connected_again(void *arg)
{
        return tcp_proxy_accepted(px) >= *(long *)arg;
}

/* The store finds a standby where the primary was. */
static void a7_a_claim_that_ended_unknown_outlasts_a_read_only_server(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        claim_that_ends_unknown(&op, &claim);
        db_exec(db, "ALTER SYSTEM SET default_transaction_read_only = on");
        db_exec(db, "SELECT pg_reload_conf()");
        db_wait(db, 1, "SELECT (current_setting('default_transaction_read_only') = 'on')::int");
        long enough = tcp_proxy_accepted(px) + 6; /* it comes back for the claim alone */
        tcp_proxy_set(px, PROXY_PASS);
        turn_until(connected_again, &enough);
        assert_int_equal(db_int(db, "SELECT state FROM semel.command"), COMMAND_IN_FLIGHT);
        settings_as_before();
        the_claim_is_undone();
        store_op_release(&op);
}

static bool raised_often(void *arg)
{
        (void)arg;
        return db_int(db, "SELECT last_value FROM semel.raised") >= 3;
}

/* The claim is found again, and its release meets a full disk. */
static void a7_a_claim_that_ended_unknown_outlasts_a_release_that_fails(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        claim_that_ends_unknown(&op, &claim);
        db_exec(db, "CREATE SEQUENCE semel.raised");
        db_exec(db, "CREATE FUNCTION semel.raise() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN PERFORM nextval('semel.raised'); "
                    "RAISE 'full' USING ERRCODE = '53100'; END$$");
        db_exec(db, "CREATE TRIGGER raise BEFORE UPDATE ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.raise()");
        tcp_proxy_set(px, PROXY_PASS);
        turn_until(raised_often, NULL);
        db_exec(db, "DROP TRIGGER raise ON semel.command");
        the_claim_is_undone();
        store_op_release(&op);
}

static bool pauses(void *arg)
{
        int64_t left_us = st->vt->deadline_us(st) - clock_boot_us();
        (void)arg;
        return left_us > 0 && left_us < 200 * MS;
}

/* It waits for its lock with its like only, again and again: no caller's claim waits with it. */
static void b2_a_claim_that_is_being_undone_holds_up_nobody(void **state)
{
        (void)state;
        enum { N = 16 };
        static struct store_op ops[N];
        struct store *const stores[] = {st};
        struct command_claim claim = claim_of(N, false);
        struct store_op op;
        PGconn *holder = db_open();
        db_exec(db, "CREATE SEQUENCE semel.tried");
        db_exec(db, "CREATE FUNCTION semel.count_tries() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN IF NEW.id <> %s THEN PERFORM nextval('semel.tried'); END IF; "
                    "RETURN NEW; END$$", sql_id(&claim));
        db_exec(db, "CREATE TRIGGER count_tries BEFORE INSERT ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.count_tries()");
        db_exec(holder, "BEGIN");
        db_insert_row(holder, &claim);
        tcp_proxy_set(px, PROXY_LOSE_REQUESTS);
        op_claim_init(&op, &claim);
        op.deadline_us = clock_boot_us() + 500 * MS;
        ops_submit(st, &op, 1);
        turn_until(nothing_pending, NULL);
        assert_int_equal(op.err.code, SEMEL_ERR_UNKNOWN);
        tcp_proxy_set(px, PROXY_PASS);
        tcp_proxy_cut(px);
        turn_until(waits_for_a_lock, NULL);
        turn_until(pauses, NULL);
        while (st->vt->deadline_us(st) > clock_boot_us())
                (void)poll(NULL, 0, 1); /* the next step takes it up again, and with it those: */
        for (unsigned i = 0; i < N; i++) {
                struct command_claim other = claim_of(i, false);
                op_claim_init(&ops[i], &other);
        }
        ops_submit(st, ops, N);
        ops_finish(stores, 1, 0);
        for (unsigned i = 0; i < N; i++) {
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
                store_op_release(&ops[i]);
        }
        assert_int_equal(db_int(db, "SELECT last_value FROM semel.tried"), N);
        PQfinish(holder);
        store_op_release(&op);
}

/* -- the server -------------------------------------------------------------------------------- */

static void h70_a_server_that_is_down_is_said_in_time_and_nothing_happens(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        server("stop", "fast");
        op_claim_init(&op, &claim);
        op.done = NULL;
        op.deadline_us = clock_boot_us() + 700 * MS;
        int64_t start_us = clock_boot_us();
        store_wait(st, &op);
        assert_in_range(clock_boot_us() - start_us, 600 * MS, 1700 * MS);
        assert_int_equal(op.err.code, SEMEL_ERR_STORE_DOWN);
        assert_int_equal(op.err.class, SEMEL_CLASS_RETRYABLE);
        print_message("   %s\n", op.err.text);
        store_op_release(&op);

        /* B10: who waits when it comes back is served within a second of it */
        struct store *const stores[] = {st};
        op_claim_init(&op, &claim);
        ops_submit(st, &op, 1);
        for (int i = 0; i < 30; i++)
                world_turn(stores, 1);
        server("start", NULL);
        start_us = clock_boot_us();
        ops_finish(stores, 1, 0);
        int64_t took_us = clock_boot_us() - start_us;
        print_message("   works again after %lld ms\n", (long long)(took_us / MS));
        assert_true(took_us < SECOND);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        store_op_release(&op);
        PQreset(db);
}

/* A crash in the middle of the load: whoever was told RUN holds its row, nobody is forgotten. */
static void b10_a_server_crash_under_load_loses_and_doubles_nothing(void **state)
{
        (void)state;
        enum { WAVES = 12, WAVE = 100, N = WAVES * WAVE };
        struct store *const stores[] = {st};
        struct store_op *ops = calloc(N, sizeof *ops);
        assert_non_null(ops);
        for (unsigned wave = 0; wave < WAVES; wave++) {
                for (unsigned i = wave * WAVE; i < (wave + 1) * WAVE; i++) {
                        struct command_claim claim = claim_of(i, false);
                        op_claim_init(&ops[i], &claim);
                        ops[i].deadline_us += 60 * SECOND; /* a crash recovery may take long */
                }
                ops_submit(st, ops + wave * WAVE, WAVE);
                world_turn(stores, 1);
                world_turn(stores, 1);
                if (wave % 6 == 1)
                        server("restart", "immediate");
        }
        ops_finish(stores, 1, 0);
        PQreset(db);
        for (unsigned i = 0; i < N; i++) {
                if (ops[i].err.code != SEMEL_OK)
                        fail_msg("claim %u: %s", i, ops[i].err.text);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
                assert_int_equal(db_int(db, "SELECT token FROM semel.command WHERE id = %s",
                                        sql_id(&ops[i].in.claim.claim)),
                                 ops[i].out.claim.answer.token);
                store_op_release(&ops[i]);
        }
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.command"), N);
        free(ops);
}

static void b10_backends_that_are_terminated_are_replaced(void **state)
{
        (void)state;
        struct store *const stores[] = {st};
        enum { N = 400 };
        struct store_op *ops = calloc(N, sizeof *ops);
        assert_non_null(ops);
        for (unsigned i = 0; i < N; i++) {
                struct command_claim claim = claim_of(i, false);
                op_claim_init(&ops[i], &claim);
                ops_submit(st, &ops[i], 1);
                world_turn(stores, 1);
                if (i % 50 == 49)
                        db_exec(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                    "WHERE application_name LIKE 'semel/%%'");
        }
        ops_finish(stores, 1, 0);
        for (unsigned i = 0; i < N; i++) {
                if (ops[i].err.code != SEMEL_OK)
                        fail_msg("claim %u: %s", i, ops[i].err.text);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
                store_op_release(&ops[i]);
        }
        free(ops);
}

/* SIGSTOP of a gateway, or a partition, between its batch and its Sync: no timeout of the server
 * ends that. */
static void b3_a_half_sent_batch_of_ours_is_ended(void **state)
{
        (void)state;
        char url[512];
        (void)snprintf(url, sizeof url, "%s?application_name=semel/half", world_url());
        PGconn *half = PQconnectdb(url);
        struct command_claim claim = claim_of(1, false);
        char sql[600];
        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO semel.command SELECT %s, 1, 1, substr(sha256(''), 1, 16), "
                       "sha256(''), false, false, false, t, 1, t, t, 1, NULL, t, 1, '', '', '', '' "
                       "FROM (SELECT clock_timestamp()) AS n(t)", sql_id(&claim));
        assert_int_equal(PQenterPipelineMode(half), 1);
        assert_int_equal(PQsendQueryParams(half, sql, 0, NULL, NULL, NULL, NULL, 0), 1);
        assert_int_equal(PQsendFlushRequest(half), 1);
        assert_int_equal(PQflush(half), 0);
        db_wait(db, 1, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND "
                       "wait_event = 'ClientRead' AND application_name = 'semel/half'");

        struct store *reaper = world_open(world_url_with("semel_reap_s=1"));
        int64_t until_us = clock_boot_us() + 8 * SECOND;
        enum command_outcome outcome = try_claim(reaper, &claim);
        assert_int_equal(outcome, COMMAND_BUSY);
        while (outcome == COMMAND_BUSY && clock_boot_us() < until_us)
                outcome = try_claim(reaper, &claim);
        assert_int_equal(outcome, COMMAND_RUN);
        world_close(reaper);
        PQfinish(half);
}

/* One is under way, and its answer may come a little late; another one waits, and its deadline is no
 * later for that. */
static void h70_a_deadline_is_not_put_off_by_what_is_under_way(void **state)
{
        (void)state;
        bool in_time = false;
        world_close(st);
        st = world_open(proxy_url("semel_connections=1"));
        for (unsigned i = 0; i < 5 && !in_time; i++) { /* a machine that stands still proves nothing */
                struct command_claim claims[2] = {claim_of(2 * i, false), claim_of(2 * i + 1, false)};
                struct store_op ops[2];
                int done[2] = {0, 0};
                long lost = tcp_proxy_lost(px);
                tcp_proxy_set(px, PROXY_LOSE_REPLIES);
                for (int k = 0; k < 2; k++) {
                        op_claim_init(&ops[k], &claims[k]);
                        ops[k].deadline_us = clock_boot_us() + 200 * MS;
                        ops[k].done = count_done;
                        ops[k].arg = &done[k];
                        store_submit(st, &ops[k]);
                        turn_until(reply_was_lost, &lost);
                }
                turn_until(is_set, &done[1]);
                in_time = !done[0];
                assert_int_equal(ops[1].err.code, SEMEL_ERR_STORE_DOWN);
                turn_until(is_set, &done[0]);
                tcp_proxy_set(px, PROXY_PASS);
                tcp_proxy_cut(px);
                run_once(st, 1000 + i, span_str("on")); /* it is well again */
                store_op_release(&ops[0]);
                store_op_release(&ops[1]);
        }
        assert_true(in_time);
}

static int64_t most_that_hang;

/* A new key; true when it was not even tried, because no link is free. */
static bool is_held_up(unsigned n)
{
        struct command_claim claim = claim_of(n, false);
        struct store_op op;
        op_claim_init(&op, &claim);
        op.deadline_us = clock_boot_us() + 400 * MS;
        ops_submit(st, &op, 1);
        turn_until(nothing_pending, NULL);
        assert_true(op.err.code == SEMEL_ERR_STORE_DOWN || op.err.code == SEMEL_ERR_UNKNOWN);
        bool held_up = op.err.code == SEMEL_ERR_STORE_DOWN && strstr(op.err.text, "its commits");
        store_op_release(&op);
        if (commits_that_hang() > most_that_hang)
                most_that_hang = commits_that_hang();
        return held_up;
}

/* The synchronous standby is away: a backend waits for it whatever becomes of its client, and each
 * connection made anew would be the next that does. */
static void b10_commits_that_hang_do_not_use_up_the_server(void **state)
{
        (void)state;
        enum { LINKS = 2, HELD_UP = 2 };
        unsigned n = 0, held_up = 0;
        most_that_hang = 0;
        db_exec(db, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        db_exec(db, "SELECT pg_reload_conf()");
        db_wait(db, 1, "SELECT (current_setting('synchronous_standby_names') = 'nobody')::int");
        while (most_that_hang < 2 * LINKS) /* each link's first one, and the one that it stays with */
                (void)is_held_up(n++);
        while (held_up < HELD_UP && most_that_hang <= 2 * LINKS + 2)
                held_up += is_held_up(n++);
        print_message("   %lld backends hang after %u keys\n", (long long)most_that_hang, n);
        assert_in_range(most_that_hang, 2 * LINKS, 2 * LINKS + 2);

        struct command_claim claim = claim_of(n, false);
        settings_as_before();
        int64_t start_us = clock_boot_us();
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        int64_t took_us = clock_boot_us() - start_us;
        print_message("   works again after %lld ms\n", (long long)(took_us / MS));
        assert_true(took_us < 5 * SECOND); /* those that hang were answered: none waits for its time */
        db_wait(db, 0, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
}

/* -- what the server says ------------------------------------------------------------------------ */

static void a_disk_that_is_full_is_said_and_recovers(void **state)
{
        (void)state;
        char dir[256];
        if (geteuid() != 0)
                skip(); /* needs a tmpfs of its own */
        (void)snprintf(dir, sizeof dir, "%s/full", getenv("SEMEL_TEST_PG_DIR"));
        struct stat owner;
        assert_int_equal(stat(getenv("SEMEL_TEST_PG_DIR"), &owner), 0);
        assert_int_equal(mkdir(dir, 0700), 0);
        assert_int_equal(mount("none", dir, "tmpfs", 0, "size=3m"), 0);
        assert_int_equal(chown(dir, owner.st_uid, owner.st_gid), 0);
        db_exec(db, "CREATE TABLESPACE full_disk LOCATION '%s'", dir);
        db_exec(db, "ALTER TABLE semel.command SET TABLESPACE full_disk");

        static uint8_t body[200 * 1000];
        char ballast[300];
        (void)snprintf(ballast, sizeof ballast, "%s/ballast", dir);
        FILE *f = fopen(ballast, "w");
        assert_non_null(f);
        for (int i = 0; i < 5; i++)
                assert_int_equal(fwrite(body, 1, sizeof body, f), sizeof body);
        assert_int_equal(fclose(f), 0);
        semel_code code = SEMEL_OK;
        struct store_op op;
        for (unsigned i = 0; i < 40 && code == SEMEL_OK; i++) {
                struct command_claim claim = claim_of(i, false);
                code = do_claim(st, &op, &claim);
                int64_t token = op.out.claim.answer.token;
                store_op_release(&op);
                if (code != SEMEL_OK)
                        break;
                code = do_write(st, &op, COMMAND_COMPLETE, &claim, token,
                                span_of(body, sizeof body));
                if (code == SEMEL_OK)
                        assert_int_equal(op.out.write.outcome, COMMAND_DONE);
        }
        print_message("   %s\n", op.err.text);
        assert_int_equal(code, SEMEL_ERR_STORE_FULL);
        assert_string_equal(op.err.sqlstate, "53100");
        assert_int_equal(unlink(ballast), 0); /* somebody frees space */
        run_once(st, 1000, span_of(body, 1000));
        db_exec(db, "DROP SCHEMA semel CASCADE");
        db_exec(db, "DROP TABLESPACE full_disk");
        assert_int_equal(umount(dir), 0);
        assert_int_equal(rmdir(dir), 0);
}

static void o56_a_server_that_became_read_only_is_said_and_recovers(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        db_exec(db, "ALTER SYSTEM SET default_transaction_read_only = on");
        db_exec(db, "SELECT pg_reload_conf()");
        db_wait(db, 1, "SELECT (current_setting('default_transaction_read_only') = 'on')::int");
        for (int i = 0; i < 3; i++) { /* the first is told by its statement, the others on connecting */
                do_claim(st, &op, &claim);
                print_message("   %s\n", op.err.text);
                assert_int_equal(op.err.code, SEMEL_ERR_STORE_READ_ONLY);
                store_op_release(&op);
        }
        semel_error err = {0};
        assert_int_equal(world_open_fails(world_url(), &err), SEMEL_ERR_STORE_READ_ONLY);
        db_exec(db, "SET transaction_read_only = off; "
                    "SET default_transaction_read_only = off");
        db_exec(db, "ALTER SYSTEM RESET default_transaction_read_only");
        db_exec(db, "SELECT pg_reload_conf()");
        db_exec(db, "RESET default_transaction_read_only");
        db_wait(db, 1, "SELECT (current_setting('default_transaction_read_only') = 'off')::int");
        do_claim(st, &op, &claim); /* makes an attempt of its own, and hears of no earlier one */
        if (op.err.code != SEMEL_OK)
                fail_msg("%s", op.err.text);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        store_op_release(&op);
}

/* The reply could not be kept once; the store tries again by itself. */
static void a_trigger_that_raises_once_does_not_lose_a_reply(void **state)
{
        (void)state;
        db_exec(db, "CREATE SEQUENCE semel.raised");
        db_exec(db, "CREATE FUNCTION semel.raise_once() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN IF nextval('semel.raised') = 1 THEN RAISE 'once'; END IF; "
                    "RETURN NEW; END$$");
        db_exec(db, "CREATE TRIGGER raise_once BEFORE UPDATE ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.raise_once()");
        run_once(st, 1, span_str("kept"));
        assert_int_equal(db_int(db, "SELECT last_value FROM semel.raised"), 2);
        db_exec(db, "ALTER FUNCTION semel.raise_once() RENAME TO unused");
        db_exec(db, "CREATE FUNCTION semel.raise() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN RAISE 'always'; END$$");
        db_exec(db, "CREATE TRIGGER raise BEFORE UPDATE ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.raise()");
        struct command_claim claim = claim_of(2, false);
        struct store_op op;
        do_claim(st, &op, &claim);
        int64_t token = op.out.claim.answer.token;
        store_op_release(&op);
        int64_t start_us = clock_boot_us();
        do_write(st, &op, COMMAND_COMPLETE, &claim, token, span_str("x"));
        assert_int_equal(op.err.code, SEMEL_ERR_STORE_DOWN);
        assert_int_equal(op.err.class, SEMEL_CLASS_RETRYABLE);
        assert_string_equal(op.err.sqlstate, "P0001");
        assert_true(clock_boot_us() - start_us < 2 * SECOND);
        print_message("   %s\n", op.err.text);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TS(name) cmocka_unit_test_setup_teardown(name, setup, teardown_settings)
        const struct CMUnitTest tests[] = {
                T(a7_h15_a_claim_whose_commit_was_not_heard_of_is_held),
                T(a7_a_takeover_whose_commit_was_not_heard_of_happened_once),
                T(a7_each_write_whose_commit_was_not_heard_of_is_done),
                T(a7_an_operators_verdict_leaves_one_audit_row),
                T(a7_a_claim_that_ended_unknown_is_undone_when_the_database_is_back),
                TS(a7_a_claim_whose_commit_hangs_is_undone_when_it_lands),
                TS(a7_a_claim_that_ended_unknown_outlasts_a_read_only_server),
                T(a7_a_claim_that_ended_unknown_outlasts_a_release_that_fails),
                T(b2_a_claim_that_is_being_undone_holds_up_nobody),
                T(h70_a_server_that_is_down_is_said_in_time_and_nothing_happens),
                T(h70_a_deadline_is_not_put_off_by_what_is_under_way),
                T(b10_a_server_crash_under_load_loses_and_doubles_nothing),
                T(b10_backends_that_are_terminated_are_replaced),
                TS(b10_commits_that_hang_do_not_use_up_the_server),
                T(b3_a_half_sent_batch_of_ours_is_ended),
                T(a_disk_that_is_full_is_said_and_recovers),
                T(o56_a_server_that_became_read_only_is_said_and_recovers),
                T(a_trigger_that_raises_once_does_not_lose_a_reply),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
