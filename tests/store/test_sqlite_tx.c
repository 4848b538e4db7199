/* SPDX-License-Identifier: Apache-2.0
 *
 * A command inside the caller's own SQLite transaction (B9), on a file that a store uses too.
 */
#include "sqlite_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/limits.h"
#include "store/sqlite/sqlite_store.h"

static const struct span small = {(const uint8_t *)"ok", 2};

/* The caller's connection: it has not switched extended codes on, as most have not. */
struct app {
        struct sqlite_world w;
        sqlite3 *db;
        struct store_tx tx;
        semel_error err;
};

static int setup(void **state)
{
        static struct app a;
        world_init(&a.w);
        a.w.env.clock = &sys_clock_host;
        a.db = world_db(&a.w);
        db_exec(a.db, "PRAGMA journal_mode=WAL; CREATE TABLE orders (n)");
        a.tx.conn = a.db;
        err_clear(&a.err);
        *state = &a;
        return 0;
}

static int teardown(void **state)
{
        struct app *a = *state;
        assert_int_equal(sqlite3_close(a->db), SQLITE_OK); /* no statement was left behind */
        world_release(&a->w);
        return 0;
}

static void migrate(struct app *a)
{
        if (sqlite_store_migrate_db(a->db, &a->err) != SEMEL_OK)
                fail_msg("%s", a->err.text);
}

static void expect_begin(struct app *a, semel_code code, const char *says)
{
        semel_code got = store_sqlite_tx.begin(&a->tx, &a->err);
        if (got != code || !strstr(a->err.text, says))
                fail_msg("code %d, not %d, or no \"%s\" in: %s", (int)got, (int)code, says,
                         a->err.text);
        if (code != SEMEL_OK)
                assert_null(a->tx.driver);
}

static enum command_outcome claim_in(struct app *a, const struct command_claim *claim,
                                     int64_t *ret_token)
{
        static const struct store_label label = {.mode = MODE_TX};
        struct command_answer answer = {0};
        struct store_record rec;
        store_record_init(&rec);
        if (store_sqlite_tx.claim(&a->tx, claim, &label, 0, &answer, &rec, &a->err) != SEMEL_OK)
                fail_msg("%s", a->err.text);
        if (answer.outcome == COMMAND_REPLAY)
                assert_true(span_eq(buf_span(&rec.body), small));
        store_record_release(&rec);
        *ret_token = answer.token;
        return answer.outcome;
}

static semel_code complete_in(struct app *a, const struct command_claim *claim, int64_t token)
{
        const struct command_write write = {.kind = COMMAND_COMPLETE,
                                            .id = claim->id,
                                            .token = token,
                                            .attempt = claim->attempt};
        const struct store_reply rep = {.status = 201, .body = small};
        return store_sqlite_tx.complete(&a->tx, &write, &rep, &a->err);
}

/* What semel_sqlite_run() does with a command that inserts one order. */
static enum command_outcome run_in(struct app *a, const struct command_claim *claim)
{
        int64_t token;
        expect_begin(a, SEMEL_OK, "");
        enum command_outcome outcome = claim_in(a, claim, &token);
        if (outcome == COMMAND_RUN) {
                db_exec(a->db, "INSERT INTO orders VALUES (1)");
                assert_int_equal(complete_in(a, claim, token), SEMEL_OK);
        }
        store_sqlite_tx.end(&a->tx);
        return outcome;
}

static void record_and_effect_commit_together(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false), again = claim_of(1, false);
        migrate(a);
        db_exec(a->db, "BEGIN IMMEDIATE");
        assert_int_equal(run_in(a, &claim), COMMAND_RUN);
        assert_int_equal(run_in(a, &again), COMMAND_REPLAY); /* twice in one transaction, too */
        db_exec(a->db, "COMMIT; BEGIN IMMEDIATE");
        assert_int_equal(run_in(a, &again), COMMAND_REPLAY);
        db_exec(a->db, "COMMIT");
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM orders"), 1);
}

static void or_not_at_all(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false), again = claim_of(1, false);
        migrate(a);
        db_exec(a->db, "BEGIN IMMEDIATE");
        assert_int_equal(run_in(a, &claim), COMMAND_RUN);
        db_exec(a->db, "ROLLBACK; BEGIN IMMEDIATE");
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM semel_command"), 0);
        assert_int_equal(run_in(a, &again), COMMAND_RUN);
        db_exec(a->db, "COMMIT");
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM orders"), 1);
}

static void undo_keeps_what_the_caller_did_before(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false);
        int64_t token;
        migrate(a);
        db_exec(a->db, "BEGIN IMMEDIATE; INSERT INTO orders VALUES (7)");
        expect_begin(a, SEMEL_OK, "");
        assert_int_equal(claim_in(a, &claim, &token), COMMAND_RUN);
        db_exec(a->db, "INSERT INTO orders VALUES (8)");
        assert_int_equal(store_sqlite_tx.undo(&a->tx, &a->err), SEMEL_OK);
        store_sqlite_tx.end(&a->tx);
        db_exec(a->db, "COMMIT");
        assert_int_equal(db_int64(a->db, "SELECT sum(n) FROM orders"), 7);
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM semel_command"), 0);
}

static void b9_no_transaction_is_refused(void **state)
{
        struct app *a = *state;
        migrate(a);
        expect_begin(a, SEMEL_ERR_TX_STATE, "BEGIN IMMEDIATE");
}

static void b9_a_transaction_that_cannot_write_any_more_is_to_be_retried(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false);
        migrate(a);
        (void)sqlite3_busy_timeout(a->db, 50);
        sqlite3 *other = world_db(&a->w);

        db_exec(a->db, "BEGIN");
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM orders"), 0);
        db_exec(other, "INSERT INTO orders VALUES (3)");
        expect_begin(a, SEMEL_ERR_CONFLICT, "retry your transaction"); /* BUSY_SNAPSHOT */
        db_exec(a->db, "ROLLBACK");

        db_exec(a->db, "BEGIN");
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM orders"), 1);
        db_exec(other, "BEGIN IMMEDIATE");
        expect_begin(a, SEMEL_ERR_CONFLICT, "retry your transaction"); /* a writer is at it */
        db_exec(a->db, "ROLLBACK");

        db_exec(a->db, "BEGIN"); /* nothing read yet: it can wait, and waited in vain */
        expect_begin(a, SEMEL_ERR_BUSY, "");
        db_exec(a->db, "ROLLBACK");
        db_exec(other, "ROLLBACK");

        db_exec(a->db, "BEGIN"); /* and where nobody is in the way it is as good as IMMEDIATE */
        assert_int_equal(run_in(a, &claim), COMMAND_RUN);
        db_exec(a->db, "COMMIT");
        (void)sqlite3_close(other);
}

static void a_missing_schema_names_the_call(void **state)
{
        struct app *a = *state;
        db_exec(a->db, "BEGIN IMMEDIATE");
        expect_begin(a, SEMEL_ERR_SCHEMA, "semel_sqlite_migrate()");
        db_exec(a->db, "INSERT INTO orders VALUES (1); COMMIT"); /* the transaction is unharmed */
        migrate(a);
        db_exec(a->db, "INSERT INTO semel_schema_version VALUES (1000, 0); BEGIN IMMEDIATE");
        expect_begin(a, SEMEL_ERR_SCHEMA, "upgrade");
        db_exec(a->db, "ROLLBACK");
}

static void migrate_refuses_an_open_transaction(void **state)
{
        struct app *a = *state;
        db_exec(a->db, "BEGIN");
        assert_int_equal(sqlite_store_migrate_db(a->db, &a->err), SEMEL_ERR_TX_STATE);
        db_exec(a->db, "COMMIT");
        migrate(a);
        migrate(a);
        assert_int_equal(sqlite_store_migrate_db(NULL, &a->err), SEMEL_ERR_ARGUMENT);
}

static void migrate_says_that_a_connection_is_read_only(void **state)
{
        struct app *a = *state;
        sqlite3 *db = NULL;
        assert_int_equal(sqlite3_open_v2(a->w.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
        assert_int_equal(sqlite_store_migrate_db(db, &a->err), SEMEL_ERR_STORE_READ_ONLY);
        migrate(a);
        assert_int_equal(sqlite_store_migrate_db(db, &a->err), SEMEL_OK); /* it is all there */
        (void)sqlite3_close(db);
}

static void a_command_that_ends_the_transaction_is_told(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false);
        int64_t token;
        migrate(a);
        db_exec(a->db, "BEGIN IMMEDIATE");
        expect_begin(a, SEMEL_OK, "");
        assert_int_equal(claim_in(a, &claim, &token), COMMAND_RUN);
        db_exec(a->db, "ROLLBACK");
        assert_int_equal(complete_in(a, &claim, token), SEMEL_ERR_TX_STATE);
        assert_int_equal(store_sqlite_tx.undo(&a->tx, &a->err), SEMEL_ERR_TX_STATE);
        store_sqlite_tx.end(&a->tx);
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM semel_command"), 0);
}

static void a_store_and_a_transaction_share_one_file(void **state)
{
        struct app *a = *state;
        struct store *st = world_open(&a->w); /* makes the schema */
        struct command_claim mine = claim_of(1, false), theirs = claim_of(2, false);
        run_once(st, 2, small);
        db_exec(a->db, "BEGIN IMMEDIATE");
        assert_int_equal(run_in(a, &mine), COMMAND_RUN);
        assert_int_equal(run_in(a, &theirs), COMMAND_REPLAY);
        db_exec(a->db, "COMMIT");
        struct command_claim again = claim_of(1, false);
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        world_close(st);
}

/* H74: with BEGIN IMMEDIATE and a busy_timeout, writers beside each other wait and all succeed. */
static void h74_transactions_beside_a_busy_store_wait_their_turn(void **state)
{
        enum { ROUNDS = 30, OPS = 100 };
        static struct store_op ops[OPS];
        struct app *a = *state;
        struct store *st = world_open(&a->w);
        for (unsigned round = 0; round < ROUNDS; round++) {
                for (unsigned i = 0; i < OPS; i++) {
                        store_op_init(&ops[i], STORE_CLAIM);
                        ops[i].deadline_us = op_deadline_us();
                        ops[i].in.claim.claim = claim_of(1000 + round * OPS + i, false);
                        ops[i].done = store_op_release;
                        store_submit(st, &ops[i]);
                }
                struct command_claim mine = claim_of(round, false);
                db_exec(a->db, "BEGIN IMMEDIATE");
                assert_int_equal(run_in(a, &mine), COMMAND_RUN);
                db_exec(a->db, "COMMIT");
                struct command_claim last = claim_of(1000000 + round, false);
                assert_int_equal(try_claim(st, &last), COMMAND_RUN); /* behind all the others */
        }
        world_close(st);
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM semel_command"),
                         ROUNDS * (OPS + 2));
}

/* FULL ends the caller's transaction as a whole: nothing of it stays. */
static void b9_full_in_the_command_leaves_nothing(void **state)
{
        struct app *a = *state;
        struct command_claim claim = claim_of(1, false);
        int64_t token;
        migrate(a);
        db_exec(a->db, "PRAGMA max_page_count=40; BEGIN IMMEDIATE; INSERT INTO orders VALUES (1)");
        expect_begin(a, SEMEL_OK, "");
        assert_int_equal(claim_in(a, &claim, &token), COMMAND_RUN);
        assert_int_not_equal(sqlite3_exec(a->db, "INSERT INTO orders VALUES (zeroblob(1000000))",
                                          NULL, NULL, NULL),
                             SQLITE_OK);
        semel_code code = complete_in(a, &claim, token);
        if (sqlite3_get_autocommit(a->db))
                assert_int_equal(code, SEMEL_ERR_TX_STATE);
        (void)store_sqlite_tx.undo(&a->tx, &a->err);
        store_sqlite_tx.end(&a->tx);
        (void)sqlite3_exec(a->db, "ROLLBACK", NULL, NULL, NULL);
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM orders"), 0);
        assert_int_equal(db_int64(a->db, "SELECT count(*) FROM semel_command"), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(record_and_effect_commit_together),
                TEST(or_not_at_all),
                TEST(undo_keeps_what_the_caller_did_before),
                TEST(b9_no_transaction_is_refused),
                TEST(b9_a_transaction_that_cannot_write_any_more_is_to_be_retried),
                TEST(a_missing_schema_names_the_call),
                TEST(migrate_refuses_an_open_transaction),
                TEST(migrate_says_that_a_connection_is_read_only),
                TEST(a_command_that_ends_the_transaction_is_told),
                TEST(a_store_and_a_transaction_share_one_file),
                TEST(h74_transactions_beside_a_busy_store_wait_their_turn),
                TEST(b9_full_in_the_command_leaves_nothing),
        };
        return cmocka_run_group_tests_name("sqlite_tx", tests, NULL, NULL);
}
