/* SPDX-License-Identifier: Apache-2.0
 *
 * semel_pg_prepare(): by name or by text, a command runs once; and names that were taken away are
 * an error that a retry cures.  The database's URL is argv[1].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>

static const char *url;
static PGconn *pg;
static semel_error *err;

static semel_effect command(void *arg, struct pg_conn *conn, semel_reply *rep)
{
        (void)conn;
        ++*(int *)arg;
        semel_reply_set_status(rep, 201);
        return SEMEL_EFFECT_DONE;
}

static void sql(const char *text)
{
        PGresult *res = PQexec(pg, text);
        assert_int_equal(PQresultStatus(res), PGRES_COMMAND_OK);
        PQclear(res);
}

/* One transaction around one key; committed when it ran. */
static semel_outcome transact(const char *key, int *executions)
{
        semel_command *cmd = semel_command_new(key, strlen(key), err);
        semel_reply *rep = NULL;
        sql("BEGIN");
        semel_outcome outcome = semel_pg_run(pg, cmd, command, executions, &rep, err);
        sql(outcome == SEMEL_RAN ? "COMMIT" : "ROLLBACK");
        semel_reply_free(rep);
        semel_command_free(cmd);
        return outcome;
}

static const char *fresh_key(void)
{
        static char key[64];
        static int n;
        (void)snprintf(key, sizeof key, "p-%ld-%lld-%d", (long)getpid(), (long long)time(NULL), ++n);
        return key;
}

/* How many of semel's statements the session knows. */
static int names(void)
{
        PGresult *res = PQexec(pg, "SELECT count(*) FROM pg_prepared_statements "
                                   "WHERE name LIKE 'semel%'");
        int n = (int)strtol(PQgetvalue(res, 0, 0), NULL, 10);
        PQclear(res);
        return n;
}

static void preparing_twice_is_fine(void **state)
{
        (void)state;
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK);
        int n = names();
        assert_true(n > 0);
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK);
        assert_int_equal(names(), n);
}

static void it_is_refused_inside_a_transaction(void **state)
{
        (void)state;
        sql("BEGIN");
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_ERR_TX_STATE);
        sql("ROLLBACK");
        assert_int_equal(names(), 0);
}

static void each_way_through_a_key_works_by_name(void **state)
{
        (void)state;
        int executions = 0;
        const char *key = fresh_key();
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK);
        assert_int_equal(transact(key, &executions), SEMEL_RAN);
        assert_int_equal(transact(key, &executions), SEMEL_REPLAYED);
        sql("UPDATE semel.command SET expire_at = '2000-01-01'");
        assert_int_equal(transact(key, &executions), SEMEL_RAN); /* taken: past its retention */
        assert_int_equal(executions, 2);
}

static void names_that_are_gone_ask_for_a_retry_which_then_works(void **state)
{
        (void)state;
        int executions = 0;
        const char *key = fresh_key();
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK);
        sql("DISCARD ALL");
        assert_int_equal(transact(key, &executions), SEMEL_ERROR);
        assert_int_equal(semel_error_code(err), SEMEL_ERR_CONFLICT);
        assert_int_equal(executions, 0);
        assert_int_equal(transact(key, &executions), SEMEL_RAN);
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK); /* and they may come back */
        assert_int_equal(transact(key, &executions), SEMEL_REPLAYED);
        assert_int_equal(executions, 1);
}

static void a_reset_connection_is_as_if_never_prepared(void **state)
{
        (void)state;
        int executions = 0;
        assert_int_equal(semel_pg_prepare(pg, err), SEMEL_OK);
        PQreset(pg);
        assert_int_equal(names(), 0);
        assert_int_equal(transact(fresh_key(), &executions), SEMEL_RAN);
        assert_int_equal(names(), 0);
}

static int open_db(void **state)
{
        (void)state;
        pg = PQconnectdb(url);
        return PQstatus(pg) == CONNECTION_OK ? 0 : -1;
}

static int close_db(void **state)
{
        (void)state;
        PQfinish(pg);
        return 0;
}

static int migrate(void **state)
{
        (void)state;
        err = semel_error_new();
        semel_postgres_register();
        return semel_store_migrate(url, err) == SEMEL_OK ? 0 : -1;
}

static int end(void **state)
{
        (void)state;
        semel_error_free(err);
        return 0;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(preparing_twice_is_fine, open_db, close_db),
                cmocka_unit_test_setup_teardown(it_is_refused_inside_a_transaction, open_db,
                                                close_db),
                cmocka_unit_test_setup_teardown(each_way_through_a_key_works_by_name, open_db,
                                                close_db),
                cmocka_unit_test_setup_teardown(
                        names_that_are_gone_ask_for_a_retry_which_then_works, open_db, close_db),
                cmocka_unit_test_setup_teardown(a_reset_connection_is_as_if_never_prepared, open_db,
                                                close_db),
        };
        url = argc > 1 ? argv[1] : getenv("SEMEL_TEST_URL");
        return cmocka_run_group_tests(tests, migrate, end);
}
