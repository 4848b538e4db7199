/* SPDX-License-Identifier: Apache-2.0
 *
 * mock: faults that a real broker does not make on demand, played by librdkafka's mock cluster.
 */
#include <stdio.h>

#include "base/err.h"
#include "bus_kit.h"
#include "sys/clock.h"

enum { PRODUCE = 0, OUT_OF_ORDER = 45, TOO_LARGE = 10, NOT_ENOUGH_REPLICAS = 19 };

static struct semel_error err;
static struct kit_reports reports;

static int set_up(void **state)
{
        struct bus_mock *mock;
        reports.n = 0;
        err_clear(&err);
        assert_ok(bus_mock_new(1, &mock, &err));
        *state = mock;
        return 0;
}

static int tear_down(void **state)
{
        bus_mock_free(*state);
        return 0;
}

static struct bus_producer *producer_of(const struct bus_mock *mock, const struct bus_property *p,
                                        size_t n)
{
        struct bus_config config = kit_config(bus_mock_bootstrap(mock));
        struct bus_producer *producer = NULL;
        config.property = p;
        config.property_count = n;
        assert_ok(bus_producer_open(&config, NULL, 0, kit_on_report, &reports, &producer, &err));
        return producer;
}

static void the_mock_is_recognised(void **state)
{
        struct bus_config config = kit_config(bus_mock_bootstrap(*state));
        bool is = false;
        assert_ok(bus_is_mock(&config, 10 * SECOND, &is, &err));
        assert_true(is);
        config.brokers = "127.0.0.1:1";
        assert_int_equal(bus_is_mock(&config, 200 * MS, &is, &err), SEMEL_ERR_STORE_DOWN);
}

static void messages_of_a_key_arrive_in_order(void **state)
{
        assert_ok(bus_mock_topic(*state, "t", 7, &err));
        struct bus_producer *p = producer_of(*state, NULL, 0);
        bool exists = false;
        int64_t max = -1;
        assert_ok(bus_topic_look(p, "t", 10 * SECOND, &exists, &max, &err));
        assert_true(exists);
        assert_int_equal(max, 0); /* the mock does not tell */
        kit_send(p, "t", "k", "one");
        kit_send(p, "t", "k", "two");
        kit_send(p, "t", "k", "three");
        kit_drain(p);
        assert_int_equal(reports.n, 3);
        for (size_t i = 0; i < 3; i++) {
                assert_int_equal(reports.at[i].kind, BUS_DELIVERED);
                assert_int_equal(reports.at[i].offset, i);
        }
        assert_string_equal(kit_read(bus_mock_bootstrap(*state), "t", reports.at[0].partition, false),
                            "one two three");
        bus_producer_close(p);
}

/* What librdkafka does alone when message.timeout.ms is not 0: row1 times out, row2 goes, and row1,
 * sent again by its caller, comes behind it. */
static void c7_nothing_is_given_up_while_the_broker_is_away(void **state)
{
        static const struct bus_property quick[] = {{"reconnect.backoff.max.ms", "100"}};
        assert_ok(bus_mock_topic(*state, "t", 1, &err));
        struct bus_producer *p = producer_of(*state, quick, 1);
        kit_send(p, "t", "k", "row0");
        kit_drain(p);
        bus_mock_set_down(*state, true);
        kit_send(p, "t", "k", "row1");
        int64_t end = clock_boot_us() + 1500 * MS;
        while (clock_boot_us() < end)
                assert_int_equal(bus_producer_poll(p, 50 * MS), 1);
        kit_send(p, "t", "k", "row2");
        assert_int_equal(reports.n, 1);
        bus_mock_set_down(*state, false);
        kit_drain(p);
        assert_string_equal(kit_read(bus_mock_bootstrap(*state), "t", 0, false), "row0 row1 row2");
        bus_producer_close(p);
}

static void c7_abandoned_rows_are_all_reported_and_sent_again_in_order(void **state)
{
        assert_ok(bus_mock_topic(*state, "t", 1, &err));
        struct bus_producer *p = producer_of(*state, NULL, 0);
        kit_send(p, "t", "k", "row0");
        kit_drain(p);
        bus_mock_set_down(*state, true);
        kit_send(p, "t", "k", "row1");
        kit_send(p, "t", "k", "row2");
        int64_t begin = clock_boot_us();
        bus_producer_abandon(p);
        assert_true(clock_boot_us() - begin < 2 * SECOND);
        assert_int_equal(bus_producer_unreported(p), 0);
        assert_int_equal(reports.n, 3);
        assert_int_equal(reports.at[1].kind, BUS_PURGED);
        assert_int_equal(reports.at[2].kind, BUS_PURGED);
        struct event e = kit_event("t", "k", "row3");
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_FATAL); /* closed to new ones */
        bus_producer_close(p);

        bus_mock_set_down(*state, false);
        p = producer_of(*state, NULL, 0);
        kit_send(p, "t", "k", "row1");
        kit_send(p, "t", "k", "row2");
        kit_drain(p);
        assert_string_equal(kit_read(bus_mock_bootstrap(*state), "t", 0, false), "row0 row1 row2");
        bus_producer_close(p);
}

/* row0 is delivered; of six more, each a request of its own, the first is going to be rejected. */
static struct bus_producer *six_behind_a_rejection(struct bus_mock *mock, int64_t rtt_us)
{
        static const struct bus_property single[] = {{"batch.num.messages", "1"}};
        static const char *const rows[] = {"row1", "row2", "row3", "row4", "row5", "row6"};
        assert_ok(bus_mock_topic(mock, "t", 1, &err));
        struct bus_producer *p = producer_of(mock, single, 1);
        kit_send(p, "t", "k", "row0");
        kit_drain(p);
        bus_mock_set_rtt(mock, rtt_us);
        bus_mock_fail(mock, PRODUCE, TOO_LARGE, 1);
        for (size_t i = 0; i < 6; i++)
                kit_send(p, "t", "k", rows[i]);
        return p;
}

/* With five requests in flight, the default, all five rows behind the rejected one are written
 * before its report can be read. */
static void c7a_at_most_one_request_overtakes_a_rejected_row(void **state)
{
        struct bus_producer *p = six_behind_a_rejection(*state, 300 * MS);
        while (reports.n < 2)
                (void)bus_producer_poll(p, 100 * MS);
        assert_int_equal(reports.at[1].kind, BUS_REJECTED);
        assert_string_equal(reports.at[1].payload, "row1");
        assert_string_equal(reports.at[1].name, "MSG_SIZE_TOO_LARGE");
        bus_producer_abandon(p);
        assert_int_equal(reports.n, 7); /* each row has one report, whatever became of it */
        bus_mock_set_rtt(*state, 0);
        bus_producer_close(p);
        const char *log = kit_read(bus_mock_bootstrap(*state), "t", 0, false);
        if (strcmp(log, "row0") != 0 && strcmp(log, "row0 row2") != 0)
                fail_msg("%s", log);
}

/* A flush that goes on serving would have all of them sent and answered first. */
static void c7a_a_flush_ends_with_the_report_of_a_rejection(void **state)
{
        struct bus_producer *p = six_behind_a_rejection(*state, 0);
        assert_int_equal(bus_producer_flush(p, 30 * SECOND), 5);
        assert_int_equal(reports.n, 2);
        assert_int_equal(reports.at[1].kind, BUS_REJECTED);
        assert_string_equal(reports.at[1].payload, "row1");
        assert_int_equal(bus_producer_flush(p, 30 * SECOND), 0); /* who wants more of it gets it */
        assert_int_equal(reports.n, 7);
        bus_producer_close(p);
}

static void c9_a_fatal_error_finishes_the_producer_and_a_new_one_works(void **state)
{
        assert_ok(bus_mock_topic(*state, "t", 1, &err));
        struct bus_producer *p = producer_of(*state, NULL, 0);
        kit_send(p, "t", "k", "row0");
        kit_drain(p);
        assert_false(bus_producer_is_fatal(p, &err));
        bus_mock_fail(*state, PRODUCE, OUT_OF_ORDER, 1);
        kit_send(p, "t", "k", "row1");
        kit_drain(p);
        assert_int_equal(reports.n, 2);
        assert_int_equal(reports.at[1].kind, BUS_BROKEN);
        assert_true(bus_producer_is_fatal(p, &err));
        assert_non_null(strstr(err.text, "finished"));
        struct event e = kit_event("t", "k", "row2");
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_FATAL);
        bus_producer_close(p);

        p = producer_of(*state, NULL, 0);
        kit_send(p, "t", "k", "row1");
        kit_drain(p);
        assert_int_equal(reports.at[2].kind, BUS_DELIVERED);
        assert_string_equal(kit_read(bus_mock_bootstrap(*state), "t", 0, false), "row0 row1");
        bus_producer_close(p);
}

static void passing_faults_are_retried_inside(void **state)
{
        assert_ok(bus_mock_topic(*state, "t", 1, &err));
        struct bus_producer *p = producer_of(*state, NULL, 0);
        bus_mock_fail(*state, PRODUCE, NOT_ENOUGH_REPLICAS, 3);
        kit_send(p, "t", "k", "row0");
        kit_send(p, "t", "k", "row1");
        kit_drain(p);
        assert_int_equal(reports.at[0].kind, BUS_DELIVERED);
        assert_int_equal(reports.at[1].kind, BUS_DELIVERED);
        assert_string_equal(kit_read(bus_mock_bootstrap(*state), "t", 0, false), "row0 row1");
        bus_producer_close(p);
}

static void o34_the_queue_is_bounded_while_the_broker_is_away(void **state)
{
        static const struct bus_property small[] = {{"queue.buffering.max.messages", "3"}};
        assert_ok(bus_mock_topic(*state, "t", 1, &err));
        bus_mock_set_down(*state, true);
        struct bus_producer *p = producer_of(*state, small, 1);
        struct event e = kit_event("t", "k", "x");
        for (int i = 0; i < 3; i++)
                assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_FULL);
        bus_producer_close(p);
        assert_int_equal(reports.n, 3);
}

static void o40_a_row_may_name_its_partition_and_a_bad_one_is_refused(void **state)
{
        assert_ok(bus_mock_topic(*state, "t", 2, &err));
        struct bus_producer *p = producer_of(*state, NULL, 0);
        bool exists;
        int64_t max;
        assert_ok(bus_topic_look(p, "t", 10 * SECOND, &exists, &max, &err));
        struct event e = kit_event("t", "k", "x");
        e.partition = 1;
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        e.partition = 2;
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_REFUSED);
        assert_non_null(strstr(err.text, "UNKNOWN_PARTITION"));
        e = kit_event("", "k", "x");
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_REFUSED);
        kit_drain(p);
        assert_int_equal(reports.at[0].partition, 1);
        bus_producer_close(p);
}

#define with_mock(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                with_mock(the_mock_is_recognised),
                with_mock(messages_of_a_key_arrive_in_order),
                with_mock(c7_nothing_is_given_up_while_the_broker_is_away),
                with_mock(c7_abandoned_rows_are_all_reported_and_sent_again_in_order),
                with_mock(c7a_at_most_one_request_overtakes_a_rejected_row),
                with_mock(c7a_a_flush_ends_with_the_report_of_a_rejection),
                with_mock(c9_a_fatal_error_finishes_the_producer_and_a_new_one_works),
                with_mock(passing_faults_are_retried_inside),
                with_mock(o34_the_queue_is_bounded_while_the_broker_is_away),
                with_mock(o40_a_row_may_name_its_partition_and_a_bad_one_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
