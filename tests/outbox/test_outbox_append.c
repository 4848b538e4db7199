/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaving events on PostgreSQL: semel_pg_outbox_append(), semel.publish() and its JSON sister, the
 * slot in SQL (tests/data/slots.txt), and a role that may only append.
 */
#include <stdio.h>
#include <stdlib.h>

#include <semel/postgres.h>

#include "outbox_suite.h"
#include "postgres_world.h"
#include "table.h"

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

static void c1_the_slot_in_sql_is_the_slot_in_c(void **state)
{
        (void)state;
        for (const struct row *row = table_load("slots.txt"); row->name; row++) {
                bool null = row_is(row, 0, "null");
                const char *const values[] = {null ? NULL : row_str(row, 1),
                                              null ? row_str(row, 1) : "7"};
                PGresult *res = PQexecParams(db, "SELECT semel.slot_of($1::text, $2::bigint)", 2, NULL,
                                             values, NULL, NULL, 0);
                if (PQresultStatus(res) != PGRES_TUPLES_OK)
                        fail_msg("%s", PQresultErrorMessage(res));
                assert_string_equal(PQgetvalue(res, 0, 0), row_str(row, 2));
                PQclear(res);
        }
}

static void an_event_commits_with_the_callers_transaction(void **state)
{
        (void)state;
        char id[SEMEL_EVENT_ID_BYTES] = "", sql[128];
        semel_error err = {0};
        semel_event *ev = semel_event_new("orders", &err);
        assert_int_equal(semel_event_set_key(ev, "7", 1, &err), SEMEL_OK);
        assert_int_equal(semel_pg_outbox_append(db, ev, id, &err), SEMEL_ERR_TX_STATE);
        print_message("   %s\n", err.text);
        db_exec(db, "BEGIN");
        assert_int_equal(semel_pg_outbox_append(db, ev, NULL, &err), SEMEL_OK);
        db_exec(db, "ROLLBACK");
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox"), 0);
        db_exec(db, "BEGIN");
        assert_int_equal(semel_pg_outbox_append(db, ev, id, &err), SEMEL_OK);
        assert_int_equal(semel_pg_outbox_append(db, ev, NULL, &err), SEMEL_OK);
        db_exec(db, "COMMIT");
        (void)snprintf(sql, sizeof sql, "event_id = '%s' AND payload IS NULL", id);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox WHERE %s", sql), 1);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox"), 2);
        /* The same id twice is the database's to refuse, and the transaction has failed then. */
        assert_int_equal(semel_event_set_id(ev, id, &err), SEMEL_OK);
        db_exec(db, "BEGIN");
        assert_int_not_equal(semel_pg_outbox_append(db, ev, NULL, &err), SEMEL_OK);
        print_message("   %s\n", err.text);
        assert_int_equal(semel_pg_outbox_append(db, ev, NULL, &err), SEMEL_ERR_TX_STATE);
        print_message("   %s\n", err.text);
        db_exec(db, "ROLLBACK");
        semel_event_free(ev);
}

/* event.h promises UTF-8, whatever the caller's connection speaks: else it is another key, another slot and
 * another partition than by any other path.  Nor do functions of its own that come before
 * pg_catalog's. */
static void b8_the_callers_encoding_does_not_matter(void **state)
{
        (void)state;
        static const char *const encodings[] = {"UTF8", "LATIN1", "SJIS", "EUC_JP"};
        semel_error err = {0};
        semel_event *ev = semel_event_new("t", &err);
        assert_int_equal(semel_event_set_key(ev, "\xc3\xa9", 2, &err), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "n\xc3\xa9", "\xc3\xa9", 2, &err), SEMEL_OK);
        db_exec(db, "CREATE SCHEMA mine; CREATE FUNCTION mine.gen_random_uuid() RETURNS uuid LANGUAGE sql "
                    "AS $$SELECT '00000000-0000-0000-0000-000000000000'::uuid$$; CREATE FUNCTION "
                    "mine.convert_from(bytea, name) RETURNS text LANGUAGE sql AS $$SELECT 'mine'$$; "
                    "SET search_path = mine, pg_catalog");
        for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
                db_exec(db, "SET client_encoding = '%s'", encodings[i]);
                db_exec(db, "BEGIN");
                if (semel_pg_outbox_append(db, ev, NULL, &err) != SEMEL_OK)
                        fail_msg("%s: %s", encodings[i], err.text);
                db_exec(db, "COMMIT");
                assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox WHERE topic = 't' AND "
                                            "convert_to(key, 'UTF8') = '\\xc3a9' AND slot = semel.slot_of("
                                            "pg_catalog.convert_from('\\xc3a9', 'UTF8'), id) AND "
                                            "position('\\x6ec3a9'::bytea in convert_to(headers::text, "
                                            "'UTF8')) > 0 AND position('\\x22c3a922'::bytea in "
                                            "convert_to(headers::text, 'UTF8')) > 0"), (int64_t)i + 1);
        }
        db_exec(db, "SET client_encoding = 'UTF8'; RESET search_path; DROP SCHEMA mine CASCADE");
        semel_event_free(ev);
}

static void publish_and_publish_json_leave_events(void **state)
{
        (void)state;
        db_exec(db, "SELECT semel.publish('t', 'k', 'bytes'::bytea, '[[\"a\", \"1\"], [\"a\", null]]')");
        db_exec(db, "SELECT semel.publish('t', NULL, NULL)");
        db_exec(db, "SELECT semel.publish_json('t', 'k', '{\"n\": 1}', '{\"type\": \"A\"}')");
        assert_int_equal(db_int(db, "SELECT count(DISTINCT event_id) FROM semel.outbox"), 3);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox WHERE payload = "
                                    "convert_to('{\"n\": 1}', 'UTF8')"), 1);
        PGresult *res = PQexec(db, "SELECT semel.publish('no topic', 'k', NULL)");
        assert_string_equal(PQresultErrorField(res, PG_DIAG_SQLSTATE), "23514");
        PQclear(res);
        res = PQexec(db, "SELECT semel.publish('t', 'k', NULL, '7')");
        assert_string_equal(PQresultErrorField(res, PG_DIAG_SQLSTATE), "23514");
        PQclear(res);
}

static void may(const char *sql, bool allowed)
{
        PGresult *res = PQexec(db, sql);
        ExecStatusType status = PQresultStatus(res);
        if ((status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) != allowed)
                fail_msg("%s: %s", sql, PQresultErrorMessage(res));
        PQclear(res);
}

static void a_role_that_appends_can_do_nothing_else(void **state)
{
        (void)state;
        struct buf grants;
        semel_error err = {0};
        buf_init(&grants, 64 * 1024);
        db_exec(db, "DROP ROLE IF EXISTS appender; CREATE ROLE appender");
        assert_int_equal(store_postgres_driver.print("append-grants", "appender", &grants, &err),
                         SEMEL_OK);
        db_exec(db, "%s", buf_cstr(&grants));
        buf_release(&grants);
        db_exec(db, "SET ROLE appender");
        may("SELECT semel.publish('t', 'k', 'x'::bytea, '{\"a\": \"b\"}')", true);
        may("INSERT INTO semel.outbox (topic, key, payload) VALUES ('t', 'k', 'x')", true);
        may("SELECT payload FROM semel.outbox", false);
        may("UPDATE semel.outbox SET status = 'DEAD'", false);
        may("DELETE FROM semel.outbox", false);
        may("SELECT * FROM semel.relay_slot", false);
        semel_event *ev = semel_event_new("t", NULL);
        db_exec(db, "BEGIN");
        assert_int_equal(semel_pg_outbox_append(db, ev, NULL, &err), SEMEL_OK);
        db_exec(db, "COMMIT; RESET ROLE; DROP OWNED BY appender; DROP ROLE appender");
        semel_event_free(ev);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(c1_the_slot_in_sql_is_the_slot_in_c),
                T(an_event_commits_with_the_callers_transaction),
                T(b8_the_callers_encoding_does_not_matter),
                T(publish_and_publish_json_leave_events),
                T(a_role_that_appends_can_do_nothing_else),
        };
        (void)world_url();
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
