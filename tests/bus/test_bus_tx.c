/* SPDX-License-Identifier: Apache-2.0
 *
 * tx: transactions and markers against a real broker.
 */
#include <stdio.h>

#include "base/err.h"
#include "bus_kit.h"
#include "sys/clock.h"

static struct semel_error err;
static struct kit_reports reports;

static struct bus_producer *tx_producer(const char *id)
{
        struct bus_config config = kit_config(kit_broker());
        struct bus_producer *p = NULL;
        reports.n = 0;
        assert_ok(bus_producer_open(&config, id, 20 * SECOND, kit_on_report, &reports, &p, &err));
        return p;
}

static void must(enum bus_tx_result got, enum bus_tx_result want)
{
        if (got != want)
                fail_msg("result %d, not %d: %s", (int)got, (int)want, err.text);
}

/* The last committed marker, "" when there is none. */
static const char *marker(const char *topic, const char *key, int64_t timeout_us)
{
        struct bus_config config = kit_config(kit_broker());
        static char text[64];
        struct buf value;
        bool found = false;
        buf_init(&value, sizeof text - 1);
        semel_code rc = bus_marker_read(&config, topic, span_str(key), timeout_us, &found, &value, &err);
        (void)snprintf(text, sizeof text, "%s%.*s", rc ? "error " : "", found ? (int)value.n : 0,
                       value.p ? (const char *)value.p : "");
        if (rc)
                (void)snprintf(text, sizeof text, "error %d", (int)rc);
        buf_release(&value);
        return text;
}

static void c8_the_marker_is_the_last_committed_one(void **state)
{
        (void)state;
        const char *topic = kit_topic("data"), *markers = kit_topic("markers");
        assert_string_equal(marker(markers, "g0", 20 * SECOND), ""); /* made by the first look */
        struct bus_producer *p = tx_producer(kit_topic("tx"));
        must(bus_tx_init(p, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, topic, "k", "row1");
        kit_send(p, markers, "g0", "one");
        kit_send(p, markers, "g1", "other");
        must(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_OK);
        assert_int_equal(bus_producer_unreported(p), 0);
        assert_int_equal(reports.n, 3);
        assert_string_equal(marker(markers, "g0", 20 * SECOND), "one");
        assert_string_equal(marker(markers, "g1", 20 * SECOND), "other");
        assert_string_equal(marker(markers, "g2", 20 * SECOND), "");

        must(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, markers, "g0", "two");
        must(bus_tx_abort(p, 20 * SECOND, &err), BUS_TX_OK);
        assert_string_equal(marker(markers, "g0", 20 * SECOND), "one");

        must(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, markers, "g0", "three");
        must(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_OK);
        assert_string_equal(marker(markers, "g0", 20 * SECOND), "three");
        bus_producer_close(p);
}

/* A read_committed reader ends before the first open transaction, whoever's it is.  A marker that
 * was committed behind it must not be missed: its rows would be sent twice. */
static void c8_a_marker_behind_anothers_open_transaction_is_waited_for(void **state)
{
        (void)state;
        const char *markers = kit_topic("markers");
        assert_string_equal(marker(markers, "g1", 20 * SECOND), "");
        struct bus_producer *open = tx_producer(kit_topic("tx"));
        must(bus_tx_init(open, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_begin(open, &err), BUS_TX_OK);
        kit_send(open, markers, "g0", "open");
        kit_drain(open);
        struct bus_producer *p = tx_producer(kit_topic("tx"));
        must(bus_tx_init(p, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, markers, "g1", "committed");
        must(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_OK);
        char down[16];
        (void)snprintf(down, sizeof down, "error %d", (int)SEMEL_ERR_STORE_DOWN);
        assert_string_equal(marker(markers, "g1", 2 * SECOND), down);
        must(bus_tx_abort(open, 20 * SECOND, &err), BUS_TX_OK);
        assert_string_equal(marker(markers, "g1", 20 * SECOND), "committed");
        assert_string_equal(marker(markers, "g0", 20 * SECOND), "");
        bus_producer_close(open);
        bus_producer_close(p);
}

static void c9_the_next_owner_ends_the_open_transaction_and_the_first_does_not_know_why(void **state)
{
        (void)state;
        const char *topic = kit_topic("data"), *id = kit_topic("tx");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_producer *a = tx_producer(id);
        must(bus_tx_init(a, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_begin(a, &err), BUS_TX_OK);
        kit_send(a, topic, "k", "zombie");
        kit_drain(a);
        struct bus_producer *b = tx_producer(id);
        must(bus_tx_init(b, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_commit(a, 20 * SECOND, &err), BUS_TX_UNKNOWN);
        assert_int_equal(err.code, SEMEL_ERR_UNKNOWN);
        must(bus_tx_begin(b, &err), BUS_TX_OK);
        kit_send(b, topic, "k", "heir");
        must(bus_tx_commit(b, 20 * SECOND, &err), BUS_TX_OK);
        bus_producer_close(a);
        bus_producer_close(b);
        assert_string_equal(kit_read(kit_broker(), topic, 0, true), "heir");
        assert_string_equal(kit_read(kit_broker(), topic, 0, false), "zombie heir");
}

static void c9_a_commit_that_timed_out_is_called_again(void **state)
{
        (void)state;
        const char *topic = kit_topic("data");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_producer *p = tx_producer(kit_topic("tx"));
        must(bus_tx_init(p, 20 * SECOND, &err), BUS_TX_OK);
        /* A broker may be quicker than a time-out of 0 ms: until one has struck. */
        enum bus_tx_result r = BUS_TX_OK;
        for (int i = 0; i < 100 && r == BUS_TX_OK; i++) {
                must(bus_tx_begin(p, &err), BUS_TX_OK);
                kit_send(p, topic, "k", "row");
                r = bus_tx_commit(p, 0, &err);
        }
        must(r, BUS_TX_AGAIN);
        must(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_OK);
        bus_producer_close(p);
        assert_string_equal(kit_read(kit_broker(), topic, 0, true), "row");
}

static void c7a_a_rejected_row_aborts_the_transaction_and_another_may_begin(void **state)
{
        (void)state;
        static const char *const small[] = {"max.message.bytes", "1000", NULL};
        static char large[2000];
        const char *topic = kit_topic("data");
        memset(large, 'x', sizeof large - 1);
        kit_create(kit_broker(), topic, 1, small);
        struct bus_producer *p = tx_producer(kit_topic("tx"));
        must(bus_tx_init(p, 20 * SECOND, &err), BUS_TX_OK);
        must(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, topic, "k", large);
        kit_drain(p);
        assert_int_equal(reports.at[0].kind, BUS_REJECTED);
        struct event e = kit_event(topic, "k", "overtakes");
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_FATAL);
        assert_false(bus_producer_is_fatal(p, &err));
        must(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_ABORT);
        must(bus_tx_abort(p, 20 * SECOND, &err), BUS_TX_OK);
        assert_int_equal(bus_producer_unreported(p), 0);
        /* The rejected row leaves a gap in the sequence numbers, so the next one is aborted too. */
        enum bus_tx_result r = BUS_TX_ABORT;
        for (int i = 0; i < 2 && r == BUS_TX_ABORT; i++) {
                must(bus_tx_begin(p, &err), BUS_TX_OK);
                kit_send(p, topic, "k", "row2");
                r = bus_tx_commit(p, 20 * SECOND, &err);
                if (r == BUS_TX_ABORT)
                        must(bus_tx_abort(p, 20 * SECOND, &err), BUS_TX_OK);
        }
        must(r, BUS_TX_OK);
        bus_producer_close(p);
        assert_string_equal(kit_read(kit_broker(), topic, 0, true), "row2");
}

static void the_real_broker_is_no_mock(void **state)
{
        (void)state;
        struct bus_config config = kit_config(kit_broker());
        bool is = true;
        assert_ok(bus_is_mock(&config, 10 * SECOND, &is, &err));
        assert_false(is);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(c8_the_marker_is_the_last_committed_one),
                cmocka_unit_test(c8_a_marker_behind_anothers_open_transaction_is_waited_for),
                cmocka_unit_test(c9_the_next_owner_ends_the_open_transaction_and_the_first_does_not_know_why),
                cmocka_unit_test(c9_a_commit_that_timed_out_is_called_again),
                cmocka_unit_test(c7a_a_rejected_row_aborts_the_transaction_and_another_may_begin),
                cmocka_unit_test(the_real_broker_is_no_mock),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
