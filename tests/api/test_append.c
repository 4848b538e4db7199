/* SPDX-License-Identifier: Apache-2.0
 *
 * An event inside the caller's own transaction: it is there when the transaction is, and only then.
 * The database's URL is argv[1].
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

#include "tx_db.h"

static const char *url, *table;
static struct tx_db *db;
static semel_error *err;

static semel_event *event_of(const char *topic)
{
        semel_event *ev = semel_event_new(topic, err);
        assert_non_null(ev);
        assert_int_equal(semel_event_set_key(ev, "o-7", 3, err), SEMEL_OK);
        assert_int_equal(semel_event_set_payload(ev, "{\"n\": 1}", 8, err), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "h", "\0\xff", 2, err), SEMEL_OK);
        assert_int_equal(semel_event_set_partition(ev, 2, err), SEMEL_OK);
        assert_int_equal(semel_event_set_traceparent(ev, "00-ab", err), SEMEL_OK);
        return ev;
}

/* `what` of the rows of this topic, as text. */
static const char *value(const char *what, const char *topic)
{
        static char buf[256];
        char sql[256];
        (void)snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE topic = '%s'", what, table, topic);
        return tx_db_value(db, sql, buf, sizeof buf);
}

static void an_event_commits_with_its_transaction(void **state)
{
        char id[SEMEL_EVENT_ID_BYTES] = "";
        (void)state;
        semel_event *ev = event_of("committed");
        assert_true(tx_db_begin(db));
        assert_int_equal(tx_db_append(db, ev, id, err), SEMEL_OK);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_int_equal(strlen(id), SEMEL_EVENT_ID_BYTES - 1);
        assert_string_equal(value("event_id", "committed"), id);
        assert_string_equal(value("key", "committed"), "o-7");
        assert_string_equal(value("status", "committed"), "PENDING");
        assert_string_equal(value("partition", "committed"), "2");
        assert_string_equal(value("traceparent", "committed"), "00-ab");
        assert_non_null(strstr(value("headers", "committed"), "base64"));
        /* The same object again is another event. */
        assert_true(tx_db_begin(db));
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_string_equal(value("count(DISTINCT event_id)", "committed"), "2");
        semel_event_free(ev);
}

static void an_event_rolls_back_with_its_transaction(void **state)
{
        (void)state;
        semel_event *ev = event_of("rolled-back");
        assert_true(tx_db_begin(db));
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_true(tx_db_exec(db, "ROLLBACK"));
        assert_string_equal(value("count(*)", "rolled-back"), "0");
        semel_event_free(ev);
}

static void without_a_transaction_there_is_no_event(void **state)
{
        (void)state;
        semel_event *ev = event_of("alone");
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_ERR_TX_STATE);
        assert_string_equal(value("count(*)", "alone"), "0");
        semel_event_free(ev);
}

static void o39_tombstones_and_empty_payloads_are_two_things(void **state)
{
        (void)state;
        semel_event *ev = semel_event_new("tombs", err);
        assert_true(tx_db_begin(db));
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_int_equal(semel_event_set_payload(ev, "", 0, err), SEMEL_OK);
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_true(tx_db_exec(db, "COMMIT"));
        assert_string_equal(value("count(*)", "tombs"), "2");
        assert_string_equal(value("count(payload)", "tombs"), "1");
        assert_string_equal(value("count(key)", "tombs"), "0");
        assert_string_equal(value("count(headers)", "tombs"), "0");
        semel_event_free(ev);
}

static void an_id_is_used_once(void **state)
{
        static const char id[] = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        (void)state;
        semel_event *ev = event_of("ids");
        assert_int_equal(semel_event_set_id(ev, id, err), SEMEL_OK);
        assert_true(tx_db_begin(db));
        assert_int_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_int_not_equal(tx_db_append(db, ev, NULL, err), SEMEL_OK);
        assert_int_equal(semel_error_class(err), SEMEL_CLASS_FATAL);
        print_message("   %s\n", semel_error_text(err));
        assert_true(tx_db_exec(db, "ROLLBACK"));
        semel_event_free(ev);
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
        table = tx_db_is_postgres(url) ? "semel.outbox" : "semel_outbox";
        return 0;
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
                cmocka_unit_test(an_event_commits_with_its_transaction),
                cmocka_unit_test(an_event_rolls_back_with_its_transaction),
                cmocka_unit_test(without_a_transaction_there_is_no_event),
                cmocka_unit_test(o39_tombstones_and_empty_payloads_are_two_things),
                cmocka_unit_test(an_id_is_used_once),
        };
        url = argc > 1 ? argv[1] : getenv("SEMEL_TEST_URL");
        return cmocka_run_group_tests(tests, open_db, close_db);
}
