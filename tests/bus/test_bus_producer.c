/* SPDX-License-Identifier: Apache-2.0
 *
 * producer: against a real broker: partitions as Java's client chooses them, limits of topics, a
 * broker that stops answering.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "bus_kit.h"
#include "sys/clock.h"
#include "table.h"

static struct semel_error err;
static struct kit_reports reports;

static struct bus_producer *producer(const struct bus_property *p, size_t n)
{
        struct bus_config config = kit_config(kit_broker());
        struct bus_producer *ret = NULL;
        config.property = p;
        config.property_count = n;
        reports.n = 0;
        assert_ok(bus_producer_open(&config, NULL, 0, kit_on_report, &reports, &ret, &err));
        return ret;
}

static int64_t look(struct bus_producer *p, const char *topic)
{
        bool exists = false;
        int64_t max = -1, until_us = clock_boot_us() + 30 * SECOND;
        /* "Not now" is an answer, of a broker that is slow to find a leader. */
        for (;;) {
                assert_ok(bus_topic_look(p, topic, 10 * SECOND, &exists, &max, &err));
                if (exists)
                        return max;
                assert_true(clock_boot_us() < until_us);
                (void)poll(NULL, 0, 50);
        }
}

/* Column 1: of 6 partitions, column 2: of 7 (tests/data/partitions.txt). */
static void keys_go_where_javas_client_sends_them(const char *topic, size_t column)
{
        const struct row *rows = table_load("partitions.txt");
        struct bus_producer *p = producer(NULL, 0);
        (void)look(p, topic);
        size_t n = 0;
        for (; rows[n].name; n++) {
                struct event e = kit_event(topic, "", rows[n].name);
                e.key = rows[n].field[0];
                assert_int_equal(bus_produce(p, &e, (void *)(uintptr_t)rows[n].name, &err), BUS_QUEUED);
        }
        kit_drain(p);
        assert_int_equal(n, 50);
        assert_int_equal(reports.n, n);
        for (size_t i = 0; i < n; i++) {
                assert_int_equal(reports.at[i].kind, BUS_DELIVERED);
                for (size_t j = 0; j < n; j++)
                        if (rows[j].name == reports.at[i].payload &&
                            strtol(row_str(&rows[j], column), NULL, 10) != reports.at[i].partition)
                                fail_msg("%s: partition %d", rows[j].name, (int)reports.at[i].partition);
        }
        bus_producer_close(p);
}

static void o38_keys_go_to_the_partitions_of_javas_client(void **state)
{
        (void)state;
        const char *six = kit_topic("six"), *seven = kit_topic("seven");
        kit_create(kit_broker(), six, 6, NULL);
        kit_create(kit_broker(), seven, 7, NULL);
        keys_go_where_javas_client_sends_them(six, 1);
        keys_go_where_javas_client_sends_them(seven, 2);
}

static void a_topic_is_made_by_the_first_look(void **state)
{
        (void)state;
        struct bus_producer *p = producer(NULL, 0);
        int64_t took_us = SECOND; /* without the look, of each topic */
        for (int i = 0; i < 5 && took_us >= 700 * MS; i++) {
                const char *topic = kit_topic("new");
                assert_int_equal(look(p, topic), 1048588); /* the broker's default */
                int64_t begin_us = clock_boot_us();
                kit_send(p, topic, "k", "x");
                kit_drain(p);
                took_us = clock_boot_us() - begin_us;
                assert_int_equal(reports.n, i + 1);
                assert_int_equal(reports.at[i].kind, BUS_DELIVERED);
        }
        assert_true(took_us < 700 * MS);
        bus_producer_close(p);
}

/* A broker refuses a whole batch when it is larger than max.message.bytes, though each of its
 * records would fit. */
static void o32_small_records_fit_into_a_topic_of_small_batches_and_a_large_one_fails_alone(void **state)
{
        (void)state;
        static const char *const small[] = {"max.message.bytes", "5000", NULL};
        static char payload[1000], large[6000];
        const char *topic = kit_topic("small");
        memset(payload, 'x', sizeof payload - 1);
        memset(large, 'y', sizeof large - 1);
        kit_create(kit_broker(), topic, 1, small);
        struct bus_producer *p = producer(NULL, 0);
        assert_int_equal(look(p, topic), 5000);
        for (int i = 0; i < 100; i++)
                kit_send(p, topic, "k", payload);
        kit_drain(p);
        assert_int_equal(reports.n, 100);
        for (size_t i = 0; i < 100; i++)
                assert_int_equal(reports.at[i].kind, BUS_DELIVERED);

        struct event e = kit_event(topic, "k", large);
        assert_true(bus_record_bytes_max(&e) > 5000);
        kit_send(p, topic, "k", large);
        kit_drain(p);
        assert_int_equal(reports.at[100].kind, BUS_REJECTED);
        assert_string_equal(reports.at[100].name, "MSG_SIZE_TOO_LARGE");
        assert_false(bus_producer_is_fatal(p, &err));
        kit_send(p, topic, "k", "after");
        kit_drain(p);
        assert_int_equal(reports.at[101].kind, BUS_DELIVERED);
        bus_producer_close(p);
}

static void what_a_record_measures_is_known_to_the_byte(void **state)
{
        (void)state;
        static const char *const limit[] = {"max.message.bytes", "1000", NULL};
        static char payload[1000];
        const char *topic = kit_topic("bound");
        kit_create(kit_broker(), topic, 1, limit);
        struct bus_producer *p = producer(NULL, 0);
        int64_t max = look(p, topic);
        struct event_header headers[3] = {{span_str("a"), span_str("1"), false},
                                          {span_str("b"), span_str(""), false},
                                          {span_str("c"), span_str(""), true}};
        memset(payload, 'x', sizeof payload);
        struct event e = kit_event(topic, "key", "");
        e.traceparent = span_str("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        e.headers = headers;
        e.header_count = 3;
        for (e.payload = span_of(payload, sizeof payload); bus_record_bytes_max(&e) > (size_t)max;)
                e.payload.n--;
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        kit_drain(p);
        assert_int_equal(reports.at[0].kind, BUS_DELIVERED);
        e.payload.n++;
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        kit_drain(p);
        assert_int_equal(reports.at[1].kind, BUS_REJECTED);
        bus_producer_close(p);
}

/* The broker takes the bytes and does not answer.  The caller's deadline gives up, and sends all
 * of them again with a new producer: some may be there twice, but none behind a younger one. */
static void c7_a_broker_that_stops_answering_reorders_nothing(void **state)
{
        (void)state;
        pid_t broker = (pid_t)strtol(getenv("SEMEL_TEST_KAFKA_PID"), NULL, 10);
        const char *topic = kit_topic("stopped");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_producer *p = producer(NULL, 0);
        (void)look(p, topic);
        kit_send(p, topic, "k", "row0");
        kit_drain(p);
        assert_int_equal(kill(broker, SIGSTOP), 0);
        kit_send(p, topic, "k", "row1");
        int64_t end = clock_boot_us() + 500 * MS;
        while (clock_boot_us() < end)
                (void)bus_producer_poll(p, 50 * MS);
        kit_send(p, topic, "k", "row2");
        (void)bus_producer_poll(p, 100 * MS);
        assert_int_equal(reports.n, 1);
        bus_producer_abandon(p);
        assert_int_equal(reports.n, 3);
        assert_int_equal(reports.at[1].kind, BUS_PURGED);
        assert_int_equal(reports.at[2].kind, BUS_PURGED);
        bus_producer_close(p);
        assert_int_equal(kill(broker, SIGCONT), 0);

        p = producer(NULL, 0);
        kit_send(p, topic, "k", "row1");
        kit_send(p, topic, "k", "row2");
        kit_drain(p);
        bus_producer_close(p);
        const char *log = kit_read(kit_broker(), topic, 0, false);
        if (strcmp(log, "row0 row1 row2") != 0 && strcmp(log, "row0 row1 row1 row2") != 0 &&
            strcmp(log, "row0 row1 row2 row1 row2") != 0)
                fail_msg("%s", log);
}

/* Whoever opens another producer when one is finished goes on by himself. */
static void o36_a_topic_that_is_deleted_and_made_again_is_published_to(void **state)
{
        (void)state;
        const char *topic = kit_topic("again");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_producer *p = producer(NULL, 0);
        kit_send(p, topic, "k", "row0");
        kit_send(p, topic, "k", "row1");
        kit_drain(p);
        kit_delete(kit_broker(), topic);
        kit_create(kit_broker(), topic, 1, NULL);
        int64_t deadline = clock_boot_us() + 30 * SECOND;
        struct event e = kit_event(topic, "k", "row2");
        int producers = 1;
        for (reports.n = 0; clock_boot_us() < deadline; reports.n = 0) {
                enum bus_produced got = bus_produce(p, &e, NULL, &err);
                if (got == BUS_QUEUED)
                        kit_drain(p);
                if (reports.n == 1 && reports.at[0].kind == BUS_DELIVERED)
                        break;
                print_message("%d %s\n", (int)got, reports.n ? reports.at[0].name : err.text);
                if (got == BUS_FATAL || (reports.n && reports.at[0].kind == BUS_BROKEN)) {
                        bus_producer_close(p);
                        p = producer(NULL, 0);
                        producers++;
                }
        }
        assert_int_equal(reports.n, 1);
        print_message("%d producers\n", producers);
        bus_producer_close(p);
        assert_string_equal(kit_read(kit_broker(), topic, 0, false), "row2");
}

static void a_compressed_record_is_measured_by_the_broker_alone(void **state)
{
        (void)state;
        static const char *const small[] = {"max.message.bytes", "1000", NULL};
        static const struct bus_property lz4[] = {{"compression.type", "lz4"}};
        static char payload[5000];
        const char *topic = kit_topic("lz4");
        memset(payload, 'x', sizeof payload - 1);
        kit_create(kit_broker(), topic, 1, small);
        struct bus_producer *p = producer(lz4, 1);
        assert_int_equal(look(p, topic), 0);
        kit_send(p, topic, "k", payload);
        kit_drain(p);
        assert_int_equal(reports.at[0].kind, BUS_DELIVERED);
        bus_producer_close(p);
}

static void a_batch_of_5000_rows_goes_quickly(void **state)
{
        (void)state;
        enum { ROWS = 5000, ROUNDS = 10 };
        static char payload[400], keys[ROWS][16];
        const char *topic = kit_topic("rate");
        memset(payload, 'x', sizeof payload - 1);
        for (int i = 0; i < ROWS; i++)
                (void)snprintf(keys[i], sizeof keys[i], "agg-%d", i % 1000);
        kit_create(kit_broker(), topic, 6, NULL);
        struct bus_producer *p = producer(NULL, 0);
        (void)look(p, topic);
        int64_t best = INT64_MAX;
        for (int round = 0; round < ROUNDS; round++) {
                int64_t begin = clock_boot_us();
                reports.n = 0;
                for (int i = 0; i < ROWS; i++)
                        kit_send(p, topic, keys[i], payload);
                kit_drain(p);
                int64_t took = clock_boot_us() - begin;
                best = took < best ? took : best;
                assert_int_equal(reports.n, ROWS);
        }
        print_message("5000 rows of 400 bytes in %lld us: %lld rows/s\n", (long long)best,
                      (long long)(ROWS * SECOND / best));
        bus_producer_close(p);
}

static int64_t look_at_what_is_missing(struct bus_producer *p, const char *topic)
{
        bool exists = true;
        int64_t max, begun_us = clock_boot_us();
        assert_ok(bus_topic_look(p, topic, 10 * SECOND, &exists, &max, &err));
        assert_false(exists);
        return clock_boot_us() - begun_us;
}

/* The first look waits for the broker, which may be making it; the next ones ask. */
static void a_topic_that_stays_missing_is_waited_for_once(void **state)
{
        static const struct bus_property never[] = {{"allow.auto.create.topics", "false"}};
        (void)state;
        const char *topic = kit_topic("missing");
        struct bus_producer *p = producer(never, 1);
        int64_t waits_us = 250 * MS, took_us = look_at_what_is_missing(p, topic);
        assert_true(took_us >= waits_us);
        for (int i = 0; i < 20 && took_us >= waits_us; i++) {
                int64_t again_us = clock_boot_us() + 1100 * MS; /* until then the answer is kept */
                while (clock_boot_us() < again_us)
                        (void)poll(NULL, 0, 10);
                took_us = look_at_what_is_missing(p, topic);
        }
        assert_true(took_us < waits_us);
        bus_producer_close(p);
}

static void what_the_broker_says_of_a_topic_is_told(void **state)
{
        (void)state;
        const char *name, *text;
        struct bus_producer *p = producer(NULL, 0);
        (void)look_at_what_is_missing(p, "no name!");
        bus_topic_why_not(p, "no name!", &name, &text);
        assert_string_equal(name, "TOPIC_EXCEPTION"); /* not "no such topic": nobody can make this one */
        assert_non_null(strstr(text, "Invalid topic"));
        bus_producer_close(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(o38_keys_go_to_the_partitions_of_javas_client),
                cmocka_unit_test(a_topic_is_made_by_the_first_look),
                cmocka_unit_test(o32_small_records_fit_into_a_topic_of_small_batches_and_a_large_one_fails_alone),
                cmocka_unit_test(what_a_record_measures_is_known_to_the_byte),
                cmocka_unit_test(c7_a_broker_that_stops_answering_reorders_nothing),
                cmocka_unit_test(a_topic_that_stays_missing_is_waited_for_once),
                cmocka_unit_test(what_the_broker_says_of_a_topic_is_told),
                cmocka_unit_test(a_compressed_record_is_measured_by_the_broker_alone),
                cmocka_unit_test(o36_a_topic_that_is_deleted_and_made_again_is_published_to),
                cmocka_unit_test(a_batch_of_5000_rows_goes_quickly),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
