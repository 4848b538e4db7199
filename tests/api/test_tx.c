/* SPDX-License-Identifier: Apache-2.0
 *
 * A command inside the caller's own transaction: record and effect together, or neither.
 * The database's URL is argv[1].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

#include "tx_db.h"

static const char *url;
static struct tx_db *db;
static semel_error *err;

/* A key that no other test or run has used; good until three more were made. */
static const char *fresh_key(void)
{
        static char keys[4][64];
        static unsigned n;
        char *key = keys[++n % 4];
        (void)snprintf(key, sizeof keys[0], "x-%ld-%lld-%u", (long)getpid(), (long long)time(NULL),
                       n);
        return key;
}

static double now_s(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

struct work {
        const char *key;
        semel_effect effect;
        atomic_int executions;
};

/* The effect: one row. */
static semel_effect insert_row(void *arg, struct tx_db *conn, semel_reply *rep)
{
        struct work *w = arg;
        char sql[256], body[64];
        atomic_fetch_add(&w->executions, 1);
        (void)snprintf(sql, sizeof sql, "INSERT INTO effect (key) VALUES ('%s')", w->key);
        if (!tx_db_exec(conn, sql))
                return SEMEL_EFFECT_FAILED;
        (void)snprintf(body, sizeof body, "made %s", w->key);
        semel_reply_set_status(rep, 201);
        (void)semel_reply_set_body(rep, body, strlen(body), NULL);
        return w->effect;
}

static int effects(struct tx_db *conn, const char *key)
{
        char sql[256], n[32];
        (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM effect WHERE key = '%s'", key);
        return (int)strtol(tx_db_value(conn, sql, n, sizeof n), NULL, 10);
}

static semel_outcome run_in(struct tx_db *conn, struct work *w, const char *request,
                            int64_t wait_ms, semel_reply **rep, semel_error *e)
{
        semel_command *cmd = semel_command_new(w->key, strlen(w->key), e);
        (void)semel_command_set_operation(cmd, "pay", e);
        (void)semel_command_set_request(cmd, request, strlen(request), e);
        (void)semel_command_set_wait_ms(cmd, wait_ms, e);
        semel_outcome o = tx_db_run(conn, cmd, insert_row, w, rep, e);
        semel_command_free(cmd);
        return o;
}

/* BEGIN, run, COMMIT or ROLLBACK. */
static semel_outcome transact(struct work *w, const char *request, const char *end)
{
        semel_reply *rep = NULL;
        assert_true(tx_db_begin(db));
        semel_outcome o = run_in(db, w, request, 0, &rep, err);
        assert_true(tx_db_exec(db, end));
        semel_reply_free(rep);
        return o;
}

static void record_and_effect_commit_together(void **state)
{
        (void)state;
        struct work w = {.key = fresh_key()};
        semel_reply *rep = NULL;
        size_t n;
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_RAN);
        assert_int_equal(effects(db, w.key), 1);

        assert_true(tx_db_begin(db));
        assert_int_equal(run_in(db, &w, "a", 0, &rep, err), SEMEL_REPLAYED);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_int_equal(semel_reply_status(rep), 201);
        const char *body = semel_reply_body(rep, &n);
        assert_memory_equal(body, "made x-", 7);
        semel_reply_free(rep);
        assert_int_equal(transact(&w, "b", "COMMIT"), SEMEL_MISMATCH);
        assert_string_equal(semel_error_first_operation(err), "pay");
        assert_int_equal(w.executions, 1);
}

static void record_and_effect_roll_back_together(void **state)
{
        (void)state;
        struct work w = {.key = fresh_key()};
        assert_int_equal(transact(&w, "a", "ROLLBACK"), SEMEL_RAN);
        assert_int_equal(effects(db, w.key), 0);
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_RAN);
        assert_int_equal(effects(db, w.key), 1);
}

static void a_failed_command_leaves_the_transaction_usable(void **state)
{
        (void)state;
        struct work w = {.key = fresh_key(), .effect = SEMEL_EFFECT_FAILED};
        struct work other = {.key = fresh_key()};
        semel_reply *rep = NULL;
        assert_true(tx_db_begin(db));
        assert_int_equal(run_in(db, &w, "a", 0, &rep, err), SEMEL_FAILED);
        semel_reply_free(rep);
        rep = NULL;
        assert_int_equal(run_in(db, &other, "a", 0, &rep, err), SEMEL_RAN);
        semel_reply_free(rep);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_int_equal(effects(db, w.key), 0);
        assert_int_equal(effects(db, other.key), 1);
        w.effect = SEMEL_EFFECT_DONE;
        assert_int_equal(transact(&w, "zzz", "COMMIT"), SEMEL_RAN); /* the key is free */
}

static void without_a_transaction_nothing_runs(void **state)
{
        (void)state;
        struct work w = {.key = fresh_key()};
        semel_reply *rep = NULL;
        assert_int_equal(run_in(db, &w, "a", 0, &rep, err), SEMEL_ERROR);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_TX_STATE);
        assert_int_equal(w.executions, 0);
}

static void a_completion_that_fails_takes_its_effect_with_it(void **state)
{
        (void)state;
        struct work w = {.key = fresh_key()};
        assert_true(tx_db_exec(db, tx_db_is_postgres(url)
                ? "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                  "$$BEGIN RAISE 'refused by a trigger'; END$$;"
                  "CREATE TRIGGER refuse BEFORE UPDATE ON semel.command FOR EACH ROW EXECUTE FUNCTION refuse()"
                : "CREATE TRIGGER refuse BEFORE UPDATE ON semel_command BEGIN "
                  "SELECT RAISE(ABORT, 'refused by a trigger'); END"));
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_ERROR);
        assert_int_equal(effects(db, w.key), 0);
        assert_int_equal(w.executions, 1);
        assert_true(tx_db_exec(db, tx_db_is_postgres(url) ? "DROP TRIGGER refuse ON semel.command"
                                                          : "DROP TRIGGER refuse"));
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_RAN);
        assert_int_equal(effects(db, w.key), 1);
}

/* -- races -------------------------------------------------------------------------------- */

enum { THREADS = 16 };

struct caller {
        pthread_t thread;
        pthread_barrier_t *barrier;
        struct work *w;
        semel_outcome outcome;
        bool committed;
};

static void *call(void *arg)
{
        struct caller *c = arg;
        struct tx_db *mine = tx_db_open(url);
        semel_error *e = semel_error_new();
        semel_reply *rep = NULL;
        (void)pthread_barrier_wait(c->barrier);
        if (tx_db_begin(mine)) {
                c->outcome = run_in(mine, c->w, "a", 10000, &rep, e);
                c->committed = tx_db_exec(mine, "COMMIT");
        }
        if (c->outcome == SEMEL_ERROR)
                fprintf(stderr, "%s\n", semel_error_text(e));
        semel_reply_free(rep);
        semel_error_free(e);
        tx_db_close(mine);
        return NULL;
}

static void h1_racing_transactions_execute_once_and_the_others_replay(void **state)
{
        (void)state;
        for (int round = 0; round < 10; round++) {
                char key[64];
                (void)snprintf(key, sizeof key, "%s", fresh_key());
                struct work w = {.key = key};
                struct caller callers[THREADS];
                pthread_barrier_t barrier;
                (void)pthread_barrier_init(&barrier, NULL, THREADS);
                for (int i = 0; i < THREADS; i++) {
                        callers[i] = (struct caller){.barrier = &barrier, .w = &w};
                        (void)pthread_create(&callers[i].thread, NULL, call, &callers[i]);
                }
                int ran = 0;
                for (int i = 0; i < THREADS; i++) {
                        (void)pthread_join(callers[i].thread, NULL);
                        assert_true(callers[i].committed);
                        ran += callers[i].outcome == SEMEL_RAN;
                        if (callers[i].outcome != SEMEL_RAN)
                                assert_int_equal(callers[i].outcome, SEMEL_REPLAYED);
                }
                (void)pthread_barrier_destroy(&barrier);
                assert_int_equal(ran, 1);
                assert_int_equal(w.executions, 1);
                assert_int_equal(effects(db, key), 1);
        }
}

/* -- PostgreSQL only ----------------------------------------------------------------------- */

static void b8_a_duplicate_waits_no_longer_than_wait_ms_and_settings_are_restored(void **state)
{
        (void)state;
        if (!tx_db_is_postgres(url))
                return; /* in SQLite the wait is BEGIN IMMEDIATE's own */
        struct work w = {.key = fresh_key()};
        struct tx_db *second = tx_db_open(url);
        semel_reply *rep = NULL;
        char value[64];
        assert_true(tx_db_begin(db));
        assert_int_equal(run_in(db, &w, "a", 0, &rep, err), SEMEL_RAN);
        semel_reply_free(rep);
        rep = NULL;

        assert_true(tx_db_exec(second, "SET lock_timeout = '7s'; SET statement_timeout = '8s'"));
        assert_true(tx_db_begin(second));
        double t = now_s();
        assert_int_equal(run_in(second, &w, "a", 400, &rep, err), SEMEL_IN_FLIGHT);
        t = now_s() - t;
        if (t < 0.3 || t > 2.0)
                fail_msg("waited %.3f s for wait_ms 400", t);
        assert_in_range(semel_error_retry_after_s(err), 1, 60);
        assert_string_equal(tx_db_value(second, "SHOW lock_timeout", value, sizeof value), "7s");
        assert_string_equal(tx_db_value(second, "SHOW statement_timeout", value, sizeof value),
                            "8s");
        t = now_s();
        assert_int_equal(run_in(second, &w, "a", 0, &rep, err), SEMEL_IN_FLIGHT);
        assert_true(now_s() - t < 0.3);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_int_equal(run_in(second, &w, "a", 0, &rep, err), SEMEL_REPLAYED);
        semel_reply_free(rep);
        assert_true(tx_db_exec(second, "COMMIT"));
        tx_db_close(second);
}

static void b8_h72_serialization_failures_are_passed_on(void **state)
{
        (void)state;
        if (!tx_db_is_postgres(url))
                return;
        struct work w = {.key = fresh_key()};
        struct tx_db *second = tx_db_open(url);
        semel_reply *rep = NULL;
        assert_true(tx_db_exec(second, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"));
        assert_int_equal(effects(second, w.key), 0); /* its snapshot is taken */
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_RAN);
        assert_int_equal(run_in(second, &w, "a", 1000, &rep, err), SEMEL_ERROR);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_CONFLICT);
        assert_int_equal(semel_error_class(err), SEMEL_CLASS_CONFLICT);
        assert_true(tx_db_exec(second, "ROLLBACK"));
        assert_int_equal(w.executions, 1);

        assert_true(tx_db_begin(second));
        assert_false(tx_db_exec(second, "SELECT 1/0"));
        assert_int_equal(run_in(second, &w, "a", 0, &rep, err), SEMEL_ERROR);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_TX_STATE);
        assert_true(tx_db_exec(second, "ROLLBACK"));
        tx_db_close(second);
}

/* -- SQLite only ----------------------------------------------------------------------------- */

static void b9_a_deferred_transaction_is_told_to_retry_or_refused(void **state)
{
        (void)state;
        if (tx_db_is_postgres(url))
                return;
        struct work w = {.key = fresh_key()};
        struct tx_db *second = tx_db_open(url);
        semel_reply *rep = NULL;
        assert_true(tx_db_exec(second, "BEGIN"));
        assert_int_equal(effects(second, w.key), 0); /* a read snapshot */
        assert_int_equal(transact(&w, "a", "COMMIT"), SEMEL_RAN);
        assert_int_equal(run_in(second, &w, "a", 0, &rep, err), SEMEL_ERROR);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_CONFLICT);
        assert_true(tx_db_exec(second, "ROLLBACK"));
        assert_int_equal(w.executions, 1);
        tx_db_close(second);
}

/* A schema of the caller's in front of pg_catalog, with functions of the same names. */
static void a_search_path_of_the_callers_changes_nothing(void **state)
{
        (void)state;
        if (!tx_db_is_postgres(url))
                return;
        struct work w = {.key = fresh_key()};
        semel_reply *rep = NULL;
        assert_true(tx_db_exec(db, "CREATE SCHEMA first"));
        assert_true(tx_db_exec(db, "CREATE FUNCTION first.clock_timestamp() RETURNS timestamptz "
                                   "LANGUAGE plpgsql AS $$BEGIN RAISE 'not mine'; END$$"));
        assert_true(tx_db_exec(db, "CREATE FUNCTION first.octet_length(bytea) RETURNS integer "
                                   "LANGUAGE plpgsql AS $$BEGIN RAISE 'not mine'; END$$"));
        assert_true(tx_db_exec(db, "SET search_path = first, pg_catalog, public"));
        for (int i = 0; i < 3; i++) { /* inserted; read; taken */
                if (i == 2)
                        assert_true(tx_db_exec(db, "UPDATE semel.command SET state = 0"));
                assert_true(tx_db_begin(db));
                assert_int_equal(run_in(db, &w, "a", 0, &rep, err),
                                 i == 1 ? SEMEL_REPLAYED : SEMEL_RAN);
                assert_true(tx_db_exec(db, "COMMIT"));
                semel_reply_free(rep);
                rep = NULL;
        }
        assert_true(tx_db_exec(db, "RESET search_path"));
        assert_true(tx_db_exec(db, "DROP FUNCTION first.clock_timestamp(), first.octet_length(bytea)"));
        assert_true(tx_db_exec(db, "DROP SCHEMA first"));
}

struct cancelled {
        semel_store *st;
        const char *key;
        semel_outcome outcome;
};

static semel_effect be_cancelled(void *arg, semel_claim *claim, semel_reply *rep)
{
        (void)arg;
        (void)claim;
        semel_reply_set_status(rep, 201);
        (void)pthread_cancel(pthread_self());
        return SEMEL_EFFECT_DONE;
}

static void *run_cancelled(void *arg)
{
        struct cancelled *c = arg;
        semel_reply *rep = NULL;
        semel_error *own = semel_error_new();
        semel_command *cmd = semel_command_new(c->key, strlen(c->key), own);
        c->outcome = semel_run(c->st, cmd, be_cancelled, NULL, &rep, own);
        semel_reply_free(rep);
        semel_command_free(cmd);
        semel_error_free(own);
        return &c->outcome;
}

/* semel_run(): the disk is full for two tries, between which it pauses; the effect is there. */
static void a_thread_that_is_cancelled_after_its_effect_records_it(void **state)
{
        (void)state;
        struct cancelled c = {.key = fresh_key()};
        pthread_t thread;
        void *got = NULL;
        char tries[32];
        if (!tx_db_is_postgres(url))
                return; /* a counter that a rollback leaves is needed */
        assert_true(tx_db_exec(db, "CREATE SEQUENCE semel.tries"));
        assert_true(tx_db_exec(db,
                               "CREATE FUNCTION semel.full_twice() RETURNS trigger LANGUAGE plpgsql AS "
                               "$$BEGIN IF nextval('semel.tries') < 3 THEN RAISE 'full' "
                               "USING ERRCODE = '53100'; END IF; RETURN NEW; END$$"));
        assert_true(tx_db_exec(db, "CREATE TRIGGER full_twice BEFORE UPDATE ON semel.command "
                                   "FOR EACH ROW EXECUTE FUNCTION semel.full_twice()"));
        assert_int_equal(semel_store_open(url, &c.st, err), SEMEL_OK);
        assert_int_equal(pthread_create(&thread, NULL, run_cancelled, &c), 0);
        assert_int_equal(pthread_join(thread, &got), 0);
        assert_ptr_equal(got, &c.outcome);
        assert_int_equal(c.outcome, SEMEL_RAN);
        assert_string_equal(tx_db_value(db, "SELECT last_value FROM semel.tries", tries, sizeof tries),
                            "3");
        semel_store_close(c.st);
        assert_true(tx_db_exec(db, "DROP TRIGGER full_twice ON semel.command"));
        assert_true(tx_db_exec(db, "DROP FUNCTION semel.full_twice()"));
        assert_true(tx_db_exec(db, "DROP SEQUENCE semel.tries"));
}

static int open_db(void **state)
{
        (void)state;
        err = semel_error_new();
        semel_sqlite_register();
        semel_postgres_register();
        if (semel_store_migrate(url, err) != SEMEL_OK) {
                fprintf(stderr, "%s\n", semel_error_text(err));
                return -1;
        }
        db = tx_db_open(url);
        return tx_db_exec(db, "CREATE TABLE IF NOT EXISTS effect (key text)") ? 0 : -1;
}

static int close_db(void **state)
{
        (void)state;
        tx_db_close(db);
        semel_error_free(err);
        return 0;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(record_and_effect_commit_together),
                cmocka_unit_test(record_and_effect_roll_back_together),
                cmocka_unit_test(a_failed_command_leaves_the_transaction_usable),
                cmocka_unit_test(without_a_transaction_nothing_runs),
                cmocka_unit_test(a_completion_that_fails_takes_its_effect_with_it),
                cmocka_unit_test(h1_racing_transactions_execute_once_and_the_others_replay),
                cmocka_unit_test(b8_a_duplicate_waits_no_longer_than_wait_ms_and_settings_are_restored),
                cmocka_unit_test(b8_h72_serialization_failures_are_passed_on),
                cmocka_unit_test(a_search_path_of_the_callers_changes_nothing),
                cmocka_unit_test(a_thread_that_is_cancelled_after_its_effect_records_it),
                cmocka_unit_test(b9_a_deferred_transaction_is_told_to_retry_or_refused),
        };
        url = argc > 1 ? argv[1] : getenv("SEMEL_TEST_URL");
        return cmocka_run_group_tests(tests, open_db, close_db);
}
