/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL: a command inside the caller's transaction (rule B8), step by step on a connection of
 * the caller's, in whatever state that connection is.
 */
#include "postgres_world.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static PGconn *db, *user;

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        user = db_open();
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        PQfinish(db);
        PQfinish(user);
        return 0;
}

static const struct store_label label = {.mode = MODE_TX};

struct tx_run {
        struct store_tx tx;
        struct command_answer answer;
        struct store_record rec;
        semel_error err;
        semel_code code;
};

/* begin and claim; the rest is the test's. */
static semel_code claim_in(struct tx_run *run, PGconn *pg, const struct command_claim *claim,
                           int64_t wait_us)
{
        *run = (struct tx_run){.tx = {.conn = pg}};
        store_record_init(&run->rec);
        run->code = store_postgres_tx.begin(&run->tx, &run->err);
        if (run->code == SEMEL_OK)
                run->code = store_postgres_tx.claim(&run->tx, claim, &label, wait_us, &run->answer,
                                                    &run->rec, &run->err);
        return run->code;
}

static semel_code complete(struct tx_run *run, const struct command_claim *claim, const char *body)
{
        const struct command_write write = {.kind = COMMAND_COMPLETE,
                                            .id = claim->id,
                                            .token = run->answer.token,
                                            .attempt = claim->attempt};
        const struct store_reply rep = {.status = 201, .body = span_str(body)};
        return store_postgres_tx.complete(&run->tx, &write, &rep, &run->err);
}

static void end(struct tx_run *run)
{
        if (run->tx.driver)
                store_postgres_tx.end(&run->tx);
        store_record_release(&run->rec);
}

static void run_in(PGconn *pg, const struct command_claim *claim, const char *body)
{
        struct tx_run run;
        if (claim_in(&run, pg, claim, 0) != SEMEL_OK)
                fail_msg("%s", run.err.text);
        assert_int_equal(run.answer.outcome, COMMAND_RUN);
        if (complete(&run, claim, body) != SEMEL_OK)
                fail_msg("%s", run.err.text);
        end(&run);
}

static void expect_replay(PGconn *pg, struct command_claim claim, const char *body)
{
        struct tx_run run;
        claim.attempt.b[0] ^= 1;
        if (claim_in(&run, pg, &claim, 0) != SEMEL_OK)
                fail_msg("%s", run.err.text);
        assert_int_equal(run.answer.outcome, COMMAND_REPLAY);
        assert_int_equal(run.rec.status, 201);
        assert_true(span_eq(buf_span(&run.rec.body), span_str(body)));
        end(&run);
}

static void b8_any_session_will_do(void **state)
{
        (void)state;
        static const char *const settings[] = {
                "search_path = 'nowhere'",    "client_encoding = 'SJIS'",
                "timezone = 'Asia/Kathmandu'", "datestyle = 'SQL, DMY'",
                "intervalstyle = 'sql_standard'", "bytea_output = 'escape'",
                "standard_conforming_strings = off"};
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
                db_exec(user, "SET %s", settings[i]);
        static const char *const levels[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
        for (unsigned i = 0; i < 3; i++) {
                struct command_claim claim = claim_of(i, false);
                db_exec(user, "BEGIN ISOLATION LEVEL %s", levels[i]);
                run_in(user, &claim, "\xff\x01 made");
                db_exec(user, "COMMIT");
                db_exec(user, "BEGIN ISOLATION LEVEL %s", levels[i]);
                expect_replay(user, claim, "\xff\x01 made");
                db_exec(user, "COMMIT");
        }
}

static void expect_setting(const char *name, const char *want)
{
        assert_int_equal(db_int(user, "SELECT (current_setting('%s') = '%s')::int", name, want), 1);
}

static void b8_settings_are_as_before_whatever_happened(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false), held = claim_of(2, false);
        struct tx_run run;
        db_exec(user, "SET lock_timeout = '7s'");
        db_exec(user, "BEGIN");
        db_exec(user, "SET LOCAL statement_timeout = '8s'");
        run_in(user, &claim, "x");
        expect_setting("lock_timeout", "7s");
        expect_setting("statement_timeout", "8s");

        db_exec(db, "BEGIN");
        db_insert_row(db, &held);
        assert_int_equal(claim_in(&run, user, &held, 50 * MS), SEMEL_OK);
        assert_int_equal(run.answer.outcome, COMMAND_BUSY);
        assert_in_range(run.answer.lease_left_us, 1, 60 * SECOND);
        end(&run);
        db_exec(db, "ROLLBACK");
        expect_setting("lock_timeout", "7s");
        expect_setting("statement_timeout", "8s");
        db_exec(user, "COMMIT");
        expect_setting("lock_timeout", "7s");
        expect_setting("statement_timeout", "0");
        db_exec(user, "BEGIN");
        expect_replay(user, claim, "x");
        db_exec(user, "ROLLBACK");
        expect_setting("lock_timeout", "7s");
}

/* The first holder rolls back after 0.6 s, a second one then has it: the wait is one for both. */
static PGconn *second;
static struct command_claim waited_for;

static void *change_holders(void *arg)
{
        (void)arg;
        (void)poll(NULL, 0, 600);
        PQclear(PQexec(db, "ROLLBACK"));
        return NULL;
}

/* false: the two who waited were woken in the other order, and there was only one holder. */
static bool wait_for_two_holders(unsigned n)
{
        struct tx_run run;
        pthread_t thread;
        char sql[600];
        waited_for = claim_of(n, false);
        second = db_open();
        db_exec(db, "BEGIN");
        db_insert_row(db, &waited_for);
        db_exec(second, "BEGIN");
        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO semel.command SELECT %s, 1, 1, substr(sha256(''), 1, 16), "
                       "sha256(''), false, false, false, t, 1, t, t, 1, NULL, t, 1, '', '', '', '' "
                       "FROM (SELECT clock_timestamp()) AS n(t)", sql_id(&waited_for));
        assert_int_equal(PQsendQuery(second, sql), 1);
        PGconn *watch = db_open();
        db_wait(watch, 1, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
        PQfinish(watch);

        db_exec(user, "BEGIN");
        assert_int_equal(pthread_create(&thread, NULL, change_holders, NULL), 0);
        int64_t start_us = clock_boot_us();
        assert_int_equal(claim_in(&run, user, &waited_for, SECOND), SEMEL_OK);
        int64_t took_us = clock_boot_us() - start_us;
        bool two = run.answer.outcome == COMMAND_BUSY;
        if (two) {
                print_message("   waited %lld ms of 1000\n", (long long)(took_us / MS));
                assert_in_range(took_us, 950 * MS, 1450 * MS);
        }
        end(&run);
        db_exec(user, "SELECT 1"); /* still usable */
        db_exec(user, "ROLLBACK");
        (void)pthread_join(thread, NULL);
        PQfinish(second);
        return two;
}

static void b8_the_wait_is_one_for_all_holders_together(void **state)
{
        (void)state;
        unsigned n = 0;
        while (!wait_for_two_holders(n)) {
                if (++n == 20)
                        fail_msg("the second holder never came before us");
        }
}

static void b8_a_command_that_deletes_its_row_is_undone(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct tx_run run;
        db_exec(db, "CREATE TABLE semel.effect (i int)");
        db_exec(user, "BEGIN");
        assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_OK);
        db_exec(user, "INSERT INTO semel.effect VALUES (1); DELETE FROM semel.command");
        assert_int_equal(complete(&run, &claim, "x"), SEMEL_ERR_LOST);
        assert_int_equal(store_postgres_tx.undo(&run.tx, &run.err), SEMEL_OK);
        end(&run);
        db_exec(user, "COMMIT");
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.effect"), 0);
}

static void b8_a_command_that_ends_the_transaction_is_told(void **state)
{
        (void)state;
        static const char *const ends[] = {"COMMIT", "ROLLBACK", "SAVEPOINT x; SELECT 1/0"};
        for (unsigned i = 0; i < 3; i++) {
                struct command_claim claim = claim_of(i, false);
                struct tx_run run;
                db_exec(user, "BEGIN");
                assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_OK);
                PQclear(PQexec(user, ends[i]));
                assert_int_equal(complete(&run, &claim, "x"), SEMEL_ERR_TX_STATE);
                semel_code code = store_postgres_tx.undo(&run.tx, &run.err);
                assert_int_equal(code, i < 2 ? SEMEL_ERR_TX_STATE : SEMEL_OK);
                end(&run);
                if (i == 2)
                        db_exec(user, "COMMIT");
        }
}

static void b8_a_connection_in_another_mode_is_refused(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct tx_run run;
        assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_ERR_TX_STATE);
        end(&run);
        db_exec(user, "BEGIN");
        assert_int_equal(PQenterPipelineMode(user), 1);
        assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_ERR_TX_STATE);
        end(&run);
        assert_int_equal(PQexitPipelineMode(user), 1);
        assert_int_equal(PQsetnonblocking(user, 1), 0);
        assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_ERR_TX_STATE);
        end(&run);
        assert_int_equal(PQsetnonblocking(user, 0), 0);
        run_in(user, &claim, "x"); /* none of this broke it */
        db_exec(user, "COMMIT");
}

/* Two transactions want one expired row: the guarded update makes one of them wait. */
static void a3_an_expired_row_is_taken_by_one_transaction(void **state)
{
        (void)state;
        struct command_claim first = claim_of(1, false), a = claim_of(1, false),
                             b = claim_of(1, false);
        struct tx_run run_a, run_b;
        db_exec(user, "BEGIN");
        run_in(user, &first, "old");
        db_exec(user, "COMMIT");
        db_exec(db, "UPDATE semel.command SET expire_at = clock_timestamp()");
        int64_t token = db_int(db, "SELECT token FROM semel.command");

        db_exec(user, "BEGIN");
        db_exec(db, "BEGIN");
        assert_int_equal(claim_in(&run_a, user, &a, 0), SEMEL_OK);
        assert_int_equal(run_a.answer.outcome, COMMAND_RUN);
        assert_int_equal(run_a.answer.token, token + 1);
        assert_int_equal(claim_in(&run_b, db, &b, 50 * MS), SEMEL_OK);
        assert_int_equal(run_b.answer.outcome, COMMAND_BUSY);
        end(&run_b);
        assert_int_equal(complete(&run_a, &a, "new"), SEMEL_OK);
        end(&run_a);
        db_exec(user, "COMMIT");
        expect_replay(db, b, "new");
        db_exec(db, "COMMIT");
}

static void make_expired(const struct command_claim *first)
{
        db_exec(user, "BEGIN");
        run_in(user, first, "old");
        db_exec(user, "COMMIT");
        db_exec(db, "UPDATE semel.command SET expire_at = clock_timestamp() WHERE id = %s",
                sql_id(first));
}

/* Its taking finds that somebody was faster, each time, and its time is over. */
static void a3_a_row_that_was_not_taken_is_not_run(void **state)
{
        (void)state;
        struct command_claim first = claim_of(1, false), again = claim_of(1, false);
        struct tx_run run;
        make_expired(&first);
        db_exec(db, "CREATE FUNCTION semel.keep_it() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN RETURN NULL; END$$");
        db_exec(db, "CREATE TRIGGER keep_it BEFORE UPDATE ON semel.command FOR EACH ROW "
                    "EXECUTE FUNCTION semel.keep_it()");
        db_exec(user, "BEGIN");
        assert_int_equal(claim_in(&run, user, &again, 0), SEMEL_OK);
        assert_int_equal(run.answer.outcome, COMMAND_BUSY);
        assert_in_range(run.answer.lease_left_us, 1, 60 * SECOND);
        end(&run);
        db_exec(user, "COMMIT");
}

static struct command_claim late_claim;
static struct tx_run late;
static atomic_bool late_is_over;

static void *claim_late(void *arg)
{
        (void)arg;
        (void)claim_in(&late, db, &late_claim, 0);
        atomic_store(&late_is_over, true);
        return NULL;
}

static bool late_is_about_to_take(PGconn *watch)
{
        return db_int(watch, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND "
                             "pid = %d", PQbackendPID(db)) > 0;
}

static bool take_and_commit(const struct command_claim *claim)
{
        struct tx_run run;
        db_exec(user, "BEGIN");
        assert_int_equal(claim_in(&run, user, claim, 0), SEMEL_OK);
        bool taken = run.answer.outcome == COMMAND_RUN;
        if (taken)
                assert_int_equal(complete(&run, claim, "new"), SEMEL_OK);
        end(&run);
        db_exec(user, "COMMIT");
        return taken;
}

/* Both have read the expired row, and the other one takes it first.  false: it was too slow for
 * that, on a machine that stood still. */
static bool is_overtaken(unsigned n)
{
        struct command_claim first = claim_of(n, false), a = claim_of(n, false);
        pthread_t thread;
        bool taken = false;
        db_exec(db, "DELETE FROM semel.command");
        make_expired(&first);
        late_claim = claim_of(n, false);
        atomic_store(&late_is_over, false);
        PGconn *watch = db_open();
        db_exec(db, "SET application_name = 'late'");
        db_exec(db, "BEGIN");
        assert_int_equal(pthread_create(&thread, NULL, claim_late, NULL), 0);
        while (!taken && !atomic_load(&late_is_over)) {
                if (late_is_about_to_take(watch))
                        taken = take_and_commit(&a);
        }
        (void)pthread_join(thread, NULL);
        PQfinish(watch);
        if (late.code != SEMEL_OK)
                fail_msg("%s", late.err.text);
        bool overtaken = taken && late.answer.outcome != COMMAND_BUSY;
        if (overtaken) {
                assert_int_equal(late.answer.outcome, COMMAND_REPLAY);
                assert_true(span_eq(buf_span(&late.rec.body), span_str("new")));
        }
        end(&late);
        db_exec(db, "ROLLBACK");
        return overtaken;
}

/* It has waited as long as it may, and looks once more: the kept reply is there. */
static void a3_who_is_overtaken_gets_the_reply_although_its_time_is_over(void **state)
{
        (void)state;
        unsigned n = 0;
        db_exec(db, "CREATE FUNCTION semel.be_late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                    "IF current_setting('application_name') <> 'late' THEN RETURN NULL; END IF; "
                    "FOR i IN 1..14 LOOP "
                    "IF EXISTS (SELECT FROM semel.command WHERE expire_at > clock_timestamp()) THEN "
                    "RETURN NULL; END IF; PERFORM pg_sleep(0.01); END LOOP; "
                    "RAISE lock_not_available; END$$");
        db_exec(db, "CREATE TRIGGER be_late BEFORE UPDATE ON semel.command FOR EACH STATEMENT "
                    "EXECUTE FUNCTION semel.be_late()");
        while (!is_overtaken(n)) {
                if (++n == 50)
                        fail_msg("nobody was ever faster");
        }
        print_message("   overtaken after %u\n", n);
}

/* A row that is committed IN_FLIGHT (a store left it so) is waited for too. */
static void b8_a_committed_holder_is_waited_for(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct tx_run run;
        db_insert_row(db, &claim);
        db_exec(db, "UPDATE semel.command SET fingerprint = '\\x%064x'", 0);
        memset(claim.fingerprint.b, 0, sizeof claim.fingerprint.b);
        db_exec(user, "BEGIN");
        int64_t start_us = clock_boot_us();
        assert_int_equal(claim_in(&run, user, &claim, 200 * MS), SEMEL_OK);
        assert_int_equal(run.answer.outcome, COMMAND_BUSY);
        assert_in_range(clock_boot_us() - start_us, 190 * MS, 700 * MS);
        end(&run);
        db_exec(user, "COMMIT");
}

static void b8_a_broken_connection_is_said(void **state)
{
        (void)state;
        struct command_claim claim = claim_of(1, false);
        struct tx_run run;
        db_exec(user, "BEGIN");
        db_exec(db, "SELECT pg_terminate_backend(%d)", PQbackendPID(user));
        db_wait(db, 0, "SELECT count(*) FROM pg_stat_activity WHERE pid = %d", PQbackendPID(user));
        assert_int_equal(claim_in(&run, user, &claim, 0), SEMEL_ERR_STORE_DOWN);
        end(&run);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(b8_any_session_will_do),
                T(b8_settings_are_as_before_whatever_happened),
                T(b8_the_wait_is_one_for_all_holders_together),
                T(b8_a_command_that_deletes_its_row_is_undone),
                T(b8_a_command_that_ends_the_transaction_is_told),
                T(b8_a_connection_in_another_mode_is_refused),
                T(a3_an_expired_row_is_taken_by_one_transaction),
                T(a3_a_row_that_was_not_taken_is_not_run),
                T(a3_who_is_overtaken_gets_the_reply_although_its_time_is_over),
                T(b8_a_committed_holder_is_waited_for),
                T(b8_a_broken_connection_is_said),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
