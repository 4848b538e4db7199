/* SPDX-License-Identifier: Apache-2.0
 *
 * consumer: against a real broker: messages whole and in order, offsets by hand, two members that
 * share.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "bus_kit.h"
#include "sys/clock.h"

static struct semel_error err;
static struct kit_reports reports;

static struct bus_producer *producer(void)
{
        struct bus_config config = kit_config(kit_broker());
        struct bus_producer *p = NULL;
        reports.n = 0;
        assert_ok(bus_producer_open(&config, NULL, 0, kit_on_report, &reports, &p, &err));
        return p;
}

static const struct bus_property quick[] = {{"session.timeout.ms", "2000"},
                                            {"heartbeat.interval.ms", "200"},
                                            {"topic.metadata.refresh.interval.ms", "300"}};

static struct bus_consumer *consumer(const char *group, const char *topic,
                                     const struct bus_consumer_hooks *hooks)
{
        struct bus_config config = kit_config(kit_broker());
        struct bus_consumer *c = NULL;
        config.property = quick;
        config.property_count = 3;
        assert_ok(bus_consumer_open(&config, group, &topic, 1, hooks, &c, &err));
        return c;
}

/* The next message within 20 s. */
static struct bus_message *next(struct bus_consumer *c)
{
        struct bus_message *m = NULL;
        int64_t deadline = clock_boot_us() + 20 * SECOND;
        while (!m && clock_boot_us() < deadline)
                if (bus_consume(c, 100 * MS, &m, &err) != SEMEL_OK)
                        print_message("consumer: %s\n", err.text);
        assert_non_null(m);
        return m;
}

static void expect(struct bus_consumer *c, const char *payload)
{
        struct bus_message *m = next(c);
        if (!span_eq(m->event.payload, span_str(payload)))
                fail_msg("%.*s instead of %s", (int)m->event.payload.n, m->event.payload.p, payload);
        bus_message_free(m);
}

static void expect_nothing(struct bus_consumer *c, int64_t us)
{
        struct bus_message *m = NULL;
        int64_t deadline = clock_boot_us() + us;
        while (!m && clock_boot_us() < deadline)
                (void)bus_consume(c, 50 * MS, &m, &err);
        assert_null(m);
}

static void o42_a_message_comes_whole_with_repeated_and_binary_headers(void **state)
{
        (void)state;
        const char *topic = kit_topic("whole");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_producer *p = producer();
        struct event_header headers[3] = {{span_str("b"), span_of("1\0\xff\n", 4), false},
                                          {span_str("a"), span_str(""), false},
                                          {span_str("b"), span_str(""), true}};
        struct event e = kit_event(topic, "key", "payload");
        assert_true(event_id_parse("0af76519-16cd-43dd-8448-eb211c80319c", 36, e.id));
        e.traceparent = span_str("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        e.headers = headers;
        e.header_count = 3;
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        e = kit_event(topic, NULL, NULL); /* no key, a tombstone */
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        e = kit_event(topic, "", ""); /* both there, and empty */
        assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        kit_drain(p);
        bus_producer_close(p);

        struct bus_consumer *c = consumer(kit_topic("g"), topic, NULL);
        struct bus_message *m = next(c);
        assert_true(span_eq(m->event.topic, span_str(topic)));
        assert_true(span_eq(m->event.key, span_str("key")));
        assert_true(span_eq(m->event.payload, span_str("payload")));
        assert_int_equal(m->offset, 0);
        assert_true(m->timestamp_us > 1577836800 * SECOND);
        static const char *const names[] = {"event-id", "traceparent", "b", "a", "b"};
        assert_int_equal(m->event.header_count, 5);
        for (size_t i = 0; i < 5; i++)
                assert_true(span_eq(m->event.headers[i].name, span_str(names[i])));
        assert_true(span_eq(m->event.headers[0].value,
                            span_str("0af76519-16cd-43dd-8448-eb211c80319c")));
        assert_true(span_eq(m->event.headers[2].value, span_of("1\0\xff\n", 4)));
        assert_false(m->event.headers[3].value_is_null);
        assert_true(m->event.headers[4].value_is_null);
        bus_message_free(m);
        m = next(c);
        assert_true(m->event.key_is_null && m->event.payload_is_null);
        bus_message_free(m);
        m = next(c);
        assert_true(!m->event.key_is_null && !m->event.payload_is_null);
        assert_int_equal(m->event.key.n + m->event.payload.n, 0);
        bus_message_free(m);
        bus_consumer_close(c);
}

static void send(const char *topic, int32_t partition, const char *const *payloads, size_t n)
{
        struct bus_producer *p = producer();
        for (size_t i = 0; i < n; i++) {
                struct event e = kit_event(topic, "k", payloads[i]);
                e.partition = partition;
                assert_int_equal(bus_produce(p, &e, NULL, &err), BUS_QUEUED);
        }
        kit_drain(p);
        bus_producer_close(p);
}

static const char *const four[] = {"one", "two", "three", "four"};

static void d4_only_what_was_committed_is_passed_over(void **state)
{
        (void)state;
        const char *topic = kit_topic("commit"), *group = kit_topic("g");
        kit_create(kit_broker(), topic, 1, NULL);
        send(topic, 0, four, 4);
        struct bus_consumer *c = consumer(group, topic, NULL);
        for (size_t i = 0; i < 4; i++)
                expect(c, four[i]);
        struct bus_partition at = {topic, 0, 2};
        assert_ok(bus_consumer_commit(c, &at, 1, &err));
        assert_int_equal(bus_consumer_lag(c, &at), 2);
        bus_consumer_close(c); /* nothing more is committed by itself */
        c = consumer(group, topic, NULL);
        expect(c, "three");
        bus_consumer_close(c);
}

static void the_lag_is_0_at_the_end_though_transactions_leave_records(void **state)
{
        (void)state;
        const char *topic = kit_topic("lag");
        kit_create(kit_broker(), topic, 1, NULL);
        struct bus_config config = kit_config(kit_broker());
        struct bus_producer *p = NULL;
        assert_ok(bus_producer_open(&config, kit_topic("tx"), 20 * SECOND, kit_on_report, &reports,
                                    &p, &err));
        assert_int_equal(bus_tx_init(p, 20 * SECOND, &err), BUS_TX_OK);
        assert_int_equal(bus_tx_begin(p, &err), BUS_TX_OK);
        kit_send(p, topic, "k", "one");
        kit_send(p, topic, "k", "two");
        assert_int_equal(bus_tx_commit(p, 20 * SECOND, &err), BUS_TX_OK);
        bus_producer_close(p);
        struct bus_consumer *c = consumer(kit_topic("g"), topic, NULL);
        expect(c, "one");
        struct bus_partition at = {topic, 0, 1};
        assert_int_equal(bus_consumer_lag(c, &at), 2); /* a message and the commit's record */
        expect(c, "two");
        expect_nothing(c, 500 * MS);
        assert_int_equal(bus_consumer_lag(c, &at), 2);
        at.offset = 2;
        assert_int_equal(bus_consumer_lag(c, &at), 0);
        send(topic, 0, four, 1);
        expect(c, "one");
        assert_true(bus_consumer_lag(c, &at) > 0);
        bus_consumer_close(c);
}

static void a_paused_partition_loses_nothing(void **state)
{
        (void)state;
        const char *topic = kit_topic("pause");
        kit_create(kit_broker(), topic, 1, NULL);
        send(topic, 0, four, 4);
        struct bus_consumer *c = consumer(kit_topic("g"), topic, NULL);
        expect(c, "one");
        assert_ok(bus_consumer_pause(c, topic, 0, true, &err));
        expect_nothing(c, 500 * MS);
        assert_ok(bus_consumer_pause(c, topic, 0, false, &err));
        expect(c, "two");
        expect(c, "three");
        expect(c, "four");
        bus_consumer_close(c);
}

static void d4_a_topic_that_does_not_exist_yet_is_waited_for(void **state)
{
        (void)state;
        const char *topic = kit_topic("later");
        struct bus_consumer *c = consumer(kit_topic("g"), topic, NULL);
        struct bus_message *m = NULL;
        for (int i = 0; i < 10; i++) {
                semel_code rc = bus_consume(c, 100 * MS, &m, &err);
                assert_true(rc == SEMEL_OK && m == NULL);
        }
        kit_create(kit_broker(), topic, 1, NULL);
        send(topic, 0, four, 1);
        expect(c, "one");
        bus_consumer_close(c);
}

/* Counts, and commits what was read when a partition is given up. */
struct member {
        struct bus_consumer *c;
        int assigned, revoked, lost;
        int64_t next[2]; /* offset, by partition */
        semel_code commit;
};

static void on_assigned(void *arg, const struct bus_partition *p, size_t n)
{
        struct member *m = arg;
        (void)p;
        m->assigned += (int)n;
}

static void on_revoked(void *arg, const struct bus_partition *p, size_t n, bool lost)
{
        struct member *m = arg;
        m->revoked += (int)n;
        m->lost += lost;
        for (size_t i = 0; i < n; i++) {
                struct bus_partition at = {p[i].topic, p[i].partition, m->next[p[i].partition]};
                if (at.offset > 0 && !lost)
                        m->commit = bus_consumer_commit(m->c, &at, 1, &err);
        }
}

static int read_some(struct member *m, int64_t timeout_us)
{
        struct bus_message *msg = NULL;
        (void)bus_consume(m->c, timeout_us, &msg, &err);
        if (!msg)
                return 0;
        m->next[msg->partition] = msg->offset + 1;
        bus_message_free(msg);
        return 1;
}

static void d4_who_gives_a_partition_up_has_committed_and_nothing_comes_twice(void **state)
{
        (void)state;
        const char *topic = kit_topic("share"), *group = kit_topic("g");
        kit_create(kit_broker(), topic, 2, NULL);
        send(topic, 0, four, 4);
        send(topic, 1, four, 4);
        struct member a = {.commit = SEMEL_ERR_INTERNAL}, b = {.commit = SEMEL_ERR_INTERNAL};
        const struct bus_consumer_hooks ha = {on_assigned, on_revoked, &a};
        const struct bus_consumer_hooks hb = {on_assigned, on_revoked, &b};
        a.c = consumer(group, topic, &ha);
        int got = 0;
        while (got < 8)
                got += read_some(&a, 100 * MS);
        assert_int_equal(a.assigned, 2);
        b.c = consumer(group, topic, &hb);
        int64_t deadline = clock_boot_us() + 20 * SECOND;
        while ((b.assigned == 0 || a.assigned < 3) && clock_boot_us() < deadline) {
                got += read_some(&a, 20 * MS);
                got += read_some(&b, 20 * MS);
        }
        assert_int_equal(a.revoked, 2); /* eager: both, and one came back */
        assert_int_equal(a.assigned, 3);
        assert_int_equal(b.assigned, 1);
        assert_int_equal(a.commit, SEMEL_OK);
        assert_int_equal(a.lost, 0);
        send(topic, 0, four, 1);
        send(topic, 1, four, 1);
        while (got < 10 && clock_boot_us() < deadline) {
                got += read_some(&a, 20 * MS);
                got += read_some(&b, 20 * MS);
        }
        assert_int_equal(got, 10);
        expect_nothing(a.c, 200 * MS);
        bus_consumer_close(a.c);
        bus_consumer_close(b.c);
        assert_int_equal(a.revoked, 3);
        assert_int_equal(b.revoked, 1);
}

/* librdkafka 2.0.2 remembers a pause over a rebalance: nobody would ever end it. */
static void d4_what_was_paused_flows_again_after_a_rebalance(void **state)
{
        (void)state;
        const char *topic = kit_topic("paused"), *group = kit_topic("g");
        kit_create(kit_broker(), topic, 2, NULL);
        send(topic, 0, four, 4);
        send(topic, 1, four, 4);
        struct member a = {.commit = SEMEL_ERR_INTERNAL}, b = {.commit = SEMEL_ERR_INTERNAL};
        const struct bus_consumer_hooks ha = {on_assigned, on_revoked, &a};
        const struct bus_consumer_hooks hb = {on_assigned, on_revoked, &b};
        a.c = consumer(group, topic, &ha);
        int got = 0;
        while (got < 8)
                got += read_some(&a, 100 * MS);
        assert_ok(bus_consumer_pause(a.c, topic, 0, true, &err));
        assert_ok(bus_consumer_pause(a.c, topic, 1, true, &err));
        b.c = consumer(group, topic, &hb);
        int64_t deadline = clock_boot_us() + 20 * SECOND;
        while ((b.assigned == 0 || a.assigned < 3) && clock_boot_us() < deadline)
                got += read_some(&a, 20 * MS) + read_some(&b, 20 * MS);
        assert_int_equal(a.assigned, 3);
        send(topic, 0, four, 1);
        send(topic, 1, four, 1);
        while (got < 10 && clock_boot_us() < deadline)
                got += read_some(&a, 20 * MS) + read_some(&b, 20 * MS);
        assert_int_equal(got, 10);
        bus_consumer_close(a.c);
        bus_consumer_close(b.c);
}

/* Whoever was away too long has lost his partitions: his late commit changes nothing. */
static void o73_a_commit_of_an_ended_generation_is_lost_and_not_fatal(void **state)
{
        (void)state;
        static const struct bus_property impatient[] = {{"session.timeout.ms", "1000"},
                                                        {"heartbeat.interval.ms", "200"},
                                                        {"max.poll.interval.ms", "1000"}};
        const char *topic = kit_topic("lost"), *group = kit_topic("g");
        kit_create(kit_broker(), topic, 1, NULL);
        send(topic, 0, four, 4);
        struct bus_config config = kit_config(kit_broker());
        config.property = impatient;
        config.property_count = 3;
        struct member a = {.commit = SEMEL_ERR_INTERNAL};
        const struct bus_consumer_hooks hooks = {on_assigned, on_revoked, &a};
        assert_ok(bus_consumer_open(&config, group, &topic, 1, &hooks, &a.c, &err));
        while (!read_some(&a, 100 * MS))
                ;
        struct bus_consumer *heir = consumer(group, topic, NULL);
        expect(heir, "one"); /* a did not poll, and was put out */
        struct bus_partition at = {topic, 0, 1};
        assert_int_equal(bus_consumer_commit(a.c, &at, 1, &err), SEMEL_ERR_LOST);
        struct bus_partition four_at = {topic, 0, 4};
        assert_ok(bus_consumer_commit(heir, &four_at, 1, &err));
        bus_consumer_close(heir);
        send(topic, 0, four, 1);
        int64_t deadline = clock_boot_us() + 20 * SECOND;
        while (a.next[0] != 5 && clock_boot_us() < deadline)
                (void)read_some(&a, 100 * MS);
        assert_int_equal(a.next[0], 5); /* it is a member again, and goes on behind the heir */
        assert_int_equal(a.revoked, 1);
        assert_int_equal(a.lost, 1);
        bus_consumer_close(a.c);
}

static void d5_the_retention_of_a_topic_is_known(void **state)
{
        (void)state;
        static const char *const hour[] = {"retention.ms", "3600000", NULL};
        static const char *const both[] = {"retention.ms", "3600000", "segment.ms", "60000", NULL};
        static const char *const long_ago[] = {"retention.ms", "9223372036854775807", NULL};
        static const char *const ever[] = {"retention.ms", "-1", NULL};
        static const int64_t week = 604800000; /* what both settings are unless told */
        static const char *const compact[] = {"cleanup.policy", "compact", NULL};
        static const struct {
                const char *const *settings;
                int64_t ms;
        } table[] = {{hour, 3600000 + week}, {both, 3660000},    {long_ago, INT64_MAX},
                     {ever, -1},             {compact, -1},      {NULL, 2 * week}};
        struct bus_consumer *c = consumer(kit_topic("g"), kit_topic("t"), NULL);
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
                const char *topic = kit_topic("retention");
                int64_t ms = 1;
                kit_create(kit_broker(), topic, 1, table[i].settings);
                int64_t deadline = clock_boot_us() + 20 * SECOND;
                do /* 0: the broker does not know its new topic yet */
                        assert_ok(bus_topic_retention(c, topic, 10 * SECOND, &ms, &err));
                while (ms == 0 && clock_boot_us() < deadline);
                assert_int_equal(ms, table[i].ms);
        }
        int64_t ms = 1;
        assert_ok(bus_topic_retention(c, "no-such-topic", 10 * SECOND, &ms, &err));
        assert_int_equal(ms, 0);
        bus_consumer_close(c);
}

static void no_broker_is_an_error_of_its_own(void **state)
{
        (void)state;
        const char *topic = "t";
        struct bus_config config = kit_config("127.0.0.1:1");
        struct bus_consumer *c = NULL;
        struct bus_message *m = NULL;
        assert_ok(bus_consumer_open(&config, "g", &topic, 1, NULL, &c, &err));
        semel_code rc = SEMEL_OK;
        for (int i = 0; i < 50 && rc == SEMEL_OK; i++)
                rc = bus_consume(c, 100 * MS, &m, &err);
        assert_int_equal(rc, SEMEL_ERR_STORE_DOWN);
        bus_consumer_close(c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(o42_a_message_comes_whole_with_repeated_and_binary_headers),
                cmocka_unit_test(d4_only_what_was_committed_is_passed_over),
                cmocka_unit_test(the_lag_is_0_at_the_end_though_transactions_leave_records),
                cmocka_unit_test(a_paused_partition_loses_nothing),
                cmocka_unit_test(d4_a_topic_that_does_not_exist_yet_is_waited_for),
                cmocka_unit_test(d4_who_gives_a_partition_up_has_committed_and_nothing_comes_twice),
                cmocka_unit_test(d4_what_was_paused_flows_again_after_a_rebalance),
                cmocka_unit_test(o73_a_commit_of_an_ended_generation_is_lost_and_not_fatal),
                cmocka_unit_test(d5_the_retention_of_a_topic_is_known),
                cmocka_unit_test(no_broker_is_an_error_of_its_own),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
