/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL: migrating, the statements, a role with the least privileges, and one sentence for
 * each thing that can be wrong before the first operation.
 */
#include "postgres_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sql_postgres.h"

static PGconn *db;

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        PQfinish(db);
        return 0;
}

static void every_statement_can_be_prepared(void **state)
{
        (void)state;
        static const struct {
                const char *name, *sql;
        } all[] = {SQL_POSTGRES_ALL};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                PGresult *res = PQprepare(db, "", all[i].sql, 0, NULL);
                /* what a parameter is in set_config(name, $1) is not said by every statement */
                if (PQresultStatus(res) != PGRES_COMMAND_OK)
                        fail_msg("%s: %s", all[i].name, PQresultErrorMessage(res));
                PQclear(res);
        }
}

static semel_code migrate(semel_error *err)
{
        return store_postgres_driver.migrate(world_url(), err);
}

static void ten_migrations_at_once_make_one_schema(void **state)
{
        (void)state;
        pid_t pids[10];
        db_exec(db, "DROP SCHEMA semel CASCADE");
        for (int i = 0; i < 10; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        semel_error err = {0};
                        semel_code code = migrate(&err);
                        if (code != SEMEL_OK)
                                (void)fprintf(stderr, "%s\n", err.text);
                        _exit(code == SEMEL_OK ? 0 : 1);
                }
        }
        for (int i = 0; i < 10; i++) {
                int status = -1;
                assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                assert_int_equal(status, 0);
        }
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.schema_version"), 1);
}

static void migrating_again_changes_nothing(void **state)
{
        (void)state;
        semel_error err = {0};
        struct store *st = world_open(world_url());
        run_once(st, 1, span_str("kept"));
        world_close(st);
        assert_int_equal(migrate(&err), SEMEL_OK);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.command"), 1);
}

/* What version 1 made, as it was released. */
static void an_older_schema_is_brought_up_to_date(void **state)
{
        (void)state;
        static const char *const version_1[] = {
                sql_postgres_schema_1_schema,       sql_postgres_schema_2_version,
                sql_postgres_schema_3_command,      sql_postgres_schema_4_body_storage,
                sql_postgres_schema_5_created_index, sql_postgres_schema_6_audit,
                sql_postgres_schema_7_view,
                "INSERT INTO semel.schema_version (version) VALUES (1)",
        };
        static const char *objects =
                "SELECT sum(hashtext(concat(c.relname, c.relkind, a.attname, "
                "a.attnotnull))) FROM pg_class c LEFT JOIN pg_attribute a ON "
                "a.attrelid = c.oid AND NOT a.attisdropped WHERE c.relnamespace = "
                "'semel'::regnamespace";
        int64_t want = db_int(db, "%s", objects);
        semel_error err = {0};
        db_exec(db, "DROP SCHEMA semel CASCADE");
        for (size_t i = 0; i < sizeof version_1 / sizeof *version_1; i++) {
                PGresult *res = PQexec(db, version_1[i]);
                if (PQresultStatus(res) != PGRES_COMMAND_OK)
                        fail_msg("%s", PQresultErrorMessage(res));
                PQclear(res);
        }
        db_exec(db, "INSERT INTO semel.audit (verb, command_id, attempt, state_before, who, reason) "
                    "VALUES ('v', 'i', 'a', 1, 'w', 'r')");
        assert_int_equal(world_open_fails(world_url(), &err), SEMEL_ERR_SCHEMA);
        assert_int_equal(migrate(&err), SEMEL_OK);
        assert_int_equal(db_int(db, "%s", objects), want);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.audit WHERE subject = 'command'"),
                         1);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.schema_version"), 2);
        struct store *st = world_open(world_url());
        run_once(st, 1, span_str("x"));
        world_close(st);
}

/* A migration that fails in the middle leaves nothing behind. */
static void a_migration_is_whole_or_not_at_all(void **state)
{
        (void)state;
        semel_error err = {0};
        db_exec(db, "DROP SCHEMA semel CASCADE; CREATE SCHEMA semel; "
                    "CREATE TABLE semel.audit (stranger int)");
        assert_int_not_equal(migrate(&err), SEMEL_OK);
        print_message("   %s\n", err.text);
        assert_int_equal(db_int(db, "SELECT count(*) FROM pg_tables WHERE schemaname = 'semel'"),
                         1);
}

static void print(const char *what, const char *role, char *out, size_t n)
{
        struct buf b;
        semel_error err = {0};
        buf_init(&b, 64 * 1024);
        assert_int_equal(store_postgres_driver.print(what, role, &b, &err), SEMEL_OK);
        (void)snprintf(out, n, "%s", buf_cstr(&b));
        buf_release(&b);
}

static void the_printed_schema_is_the_migrated_one(void **state)
{
        (void)state;
        static const char *columns =
                "SELECT sum(hashtext(table_name || column_name || data_type || is_nullable)) "
                "FROM information_schema.columns WHERE table_schema = 'semel'";
        static char script[65536];
        int64_t want = db_int(db, "%s", columns);
        print("schema", NULL, script, sizeof script);
        db_exec(db, "DROP SCHEMA semel CASCADE");
        PGresult *res = PQexec(db, script);
        if (PQresultStatus(res) != PGRES_COMMAND_OK)
                fail_msg("%s", PQresultErrorMessage(res));
        PQclear(res);
        assert_int_equal(db_int(db, "%s", columns), want);
        struct store *st = world_open(world_url());
        run_once(st, 1, span_str("x"));
        world_close(st);
}

/* -- what is wrong, and what to do ----------------------------------------------------------------- */

static void expect_open(const char *url, semel_code code, const char *advice)
{
        semel_error err = {0};
        assert_int_equal(world_open_fails(url, &err), code);
        if (!strstr(err.text, advice))
                fail_msg("\"%s\" does not say \"%s\"", err.text, advice);
        assert_null(strstr(err.text, "hunter2"));
}

static void a_schema_that_is_missing_old_or_new_is_said(void **state)
{
        (void)state;
        semel_error err = {0};
        db_exec(db, "UPDATE semel.schema_version SET version = 99");
        expect_open(world_url(), SEMEL_ERR_SCHEMA, "upgrade semel");
        assert_int_equal(migrate(&err), SEMEL_ERR_SCHEMA);
        db_exec(db, "DELETE FROM semel.schema_version");
        expect_open(world_url(), SEMEL_ERR_SCHEMA, "semel migrate");
        db_exec(db, "DROP SCHEMA semel CASCADE");
        expect_open(world_url(), SEMEL_ERR_SCHEMA, "semel migrate");
}

static void a_schema_that_is_dropped_in_the_middle_is_said(void **state)
{
        (void)state;
        struct store *st = world_open(world_url());
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        run_once(st, 2, span_str("x"));
        db_exec(db, "DROP SCHEMA semel CASCADE");
        do_claim(st, &op, &claim);
        print_message("   %s\n", op.err.text);
        assert_int_equal(op.err.code, SEMEL_ERR_SCHEMA);
        assert_non_null(strstr(op.err.text, "semel migrate"));
        store_op_release(&op);
        semel_error err = {0};
        assert_int_equal(migrate(&err), SEMEL_OK);
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        world_close(st);
}

static const char *url_of(const char *user, const char *parameters)
{
        static char url[512];
        (void)snprintf(url, sizeof url, "postgres://%s@127.0.0.1:%s/semel_test%s", user,
                       getenv("SEMEL_TEST_PG_PORT"), parameters);
        return url;
}

static void a_wrong_password_is_said_and_never_shown(void **state)
{
        (void)state;
        db_exec(db, "DROP ROLE IF EXISTS secret_role");
        db_exec(db, "CREATE ROLE secret_role LOGIN PASSWORD 'right'");
        expect_open(url_of("secret_role:hunter2", ""), SEMEL_ERR_ACCESS, "password");
        semel_error err = {0};
        (void)world_open_fails(url_of("secret_role:hunter2", ""), &err);
        assert_string_equal(err.sqlstate, "28P01");
        assert_int_equal(store_postgres_driver.migrate(url_of("secret_role:hunter2", ""), &err),
                         SEMEL_ERR_ACCESS);
        assert_null(strstr(err.text, "hunter2"));
        expect_open("postgres://u:hunter2@[bad/x", SEMEL_ERR_URL, "PostgreSQL URL");
        expect_open("postgres://u:hunter2@h/x?semel_connections=0", SEMEL_ERR_URL,
                    "semel_connections");
        expect_open("postgres://u:hunter2@h/x?semel_colour=red", SEMEL_ERR_URL, "semel_colour");
        db_exec(db, "DROP ROLE secret_role");
}

static void nobody_there_and_no_such_database_are_said(void **state)
{
        (void)state;
        int64_t start_us = clock_boot_us();
        expect_open("postgres://postgres@127.0.0.1:1/x", SEMEL_ERR_STORE_DOWN, "start it");
        assert_true(clock_boot_us() - start_us < 2 * SECOND);
        char url[256];
        (void)snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%s/nothing_here",
                       getenv("SEMEL_TEST_PG_PORT"));
        expect_open(url, SEMEL_ERR_ACCESS, "create it");
}

static void a_server_that_may_lose_what_it_acknowledged_is_refused(void **state)
{
        (void)state;
        static const char *const settings[] = {"fsync", "full_page_writes"};
        for (size_t i = 0; i < 2; i++) {
                db_exec(db, "ALTER SYSTEM SET %s = off", settings[i]);
                db_exec(db, "SELECT pg_reload_conf()");
                db_wait(db, 1, "SELECT (current_setting('%s') = 'off')::int", settings[i]);
                expect_open(world_url(), SEMEL_ERR_UNSAFE, settings[i]);
                db_exec(db, "ALTER SYSTEM RESET %s", settings[i]);
                db_exec(db, "SELECT pg_reload_conf()");
                db_wait(db, 1, "SELECT (current_setting('%s') = 'on')::int", settings[i]);
        }
}

/* -- the least privileges -------------------------------------------------------------------------- */

static void do_everything(struct store *st)
{
        struct store_op op;
        struct command_claim claim = claim_of(2, true), late = claim_of(3, false);
        run_once(st, 1, span_str("x"));
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        assert_int_equal(try_claim(st, &late), COMMAND_RUN);
        db_exec(db, "UPDATE semel.command SET lease_until = clock_timestamp(), claimed_at = "
                    "'2000-01-01', request_until = '2000-01-01', expire_at = expire_at - interval '5 h'");
        claim.attempt.b[0] ^= 1;
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN); /* a takeover */
        store_op_init(&op, STORE_SWEEP);
        op.deadline_us = op_deadline_us();
        op.in.sweep.max = 100;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.sweep.deleted, 1);
        assert_int_equal(op.out.sweep.unknown, 1);
        store_op_init(&op, STORE_LIST);
        op.deadline_us = op_deadline_us();
        op.in.list.max = 100;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.list.count, 2);
        store_op_release(&op);
        store_op_init(&op, STORE_RESOLVE);
        op.deadline_us = op_deadline_us();
        op.in.resolve.resolve = (struct command_resolve){
                .kind = COMMAND_RESOLVE_NOT_EXECUTED, .id = late.id, .attempt = late.attempt,
                .looked_us = INT64_MAX};
        op.in.resolve.reason = span_str("looked");
        op.in.resolve.who = span_str("ada");
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.resolve.outcome, COMMAND_RESOLVED);
}

static void a_role_with_the_printed_grants_can_do_everything_and_nothing_else(void **state)
{
        (void)state;
        char grants[2048];
        db_exec(db, "DROP ROLE IF EXISTS \"plain \"\"role\"");
        db_exec(db, "CREATE ROLE \"plain \"\"role\" LOGIN");
        expect_open(url_of("plain%20%22role", ""), SEMEL_ERR_ACCESS, "grants");
        print("grants", "plain \"role", grants, sizeof grants);
        db_exec(db, "%s", grants);
        struct store *st = world_open(url_of("plain%20%22role", ""));
        do_everything(st);
        world_close(st);

        static const char *const more[] = {
                "TRUNCATE semel.command",
                "CREATE TABLE semel.mine (i int)",
                "DELETE FROM semel.audit",
                "UPDATE semel.audit SET reason = 'another'",
                "UPDATE semel.schema_version SET version = 2",
                "ALTER TABLE semel.command ADD x int",
        };
        PGconn *plain = PQconnectdb(url_of("plain%20%22role", ""));
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
                PGresult *res = PQexec(plain, more[i]);
                if (PQresultStatus(res) == PGRES_COMMAND_OK)
                        fail_msg("it may %s", more[i]);
                PQclear(res);
        }
        PQfinish(plain);
        db_exec(db, "DROP OWNED BY \"plain \"\"role\"");
        db_exec(db, "DROP ROLE \"plain \"\"role\"");
}

static void people_can_read_the_view(void **state)
{
        (void)state;
        struct store *st = world_open(world_url());
        run_once(st, 1, span_str("four"));
        world_close(st);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.command_view WHERE key = 'a-key' "
                                    "AND state = 'COMPLETED' AND mode = 'run' AND operation = "
                                    "'POST /things' AND holder = 'a holder' AND status = 201 "
                                    "AND body_bytes = 4"),
                         1);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(every_statement_can_be_prepared),
                T(ten_migrations_at_once_make_one_schema),
                T(migrating_again_changes_nothing),
                T(an_older_schema_is_brought_up_to_date),
                T(a_migration_is_whole_or_not_at_all),
                T(the_printed_schema_is_the_migrated_one),
                T(a_schema_that_is_missing_old_or_new_is_said),
                T(a_schema_that_is_dropped_in_the_middle_is_said),
                T(a_wrong_password_is_said_and_never_shown),
                T(nobody_there_and_no_such_database_are_said),
                T(a_server_that_may_lose_what_it_acknowledged_is_refused),
                T(a_role_with_the_printed_grants_can_do_everything_and_nothing_else),
                T(people_can_read_the_view),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
