/* SPDX-License-Identifier: Apache-2.0
 *
 * bus_kit: see bus_kit.h.
 */
#include "bus_kit.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "sys/clock.h"

void kit_on_report(void *arg, const struct bus_report *report)
{
        struct kit_reports *all = arg;
        assert_true(all->n < KIT_REPORTS_MAX);
        all->at[all->n].payload = report->opaque;
        all->at[all->n].kind = report->kind;
        all->at[all->n].partition = report->partition;
        all->at[all->n].offset = report->offset;
        (void)snprintf(all->at[all->n].name, sizeof all->at[0].name, "%s",
                       report->name ? report->name : "");
        all->n++;
}

struct bus_config kit_config(const char *brokers)
{
        return (struct bus_config){.brokers = brokers};
}

const char *kit_broker(void)
{
        const char *b = getenv("SEMEL_TEST_KAFKA");
        if (!b)
                fail_msg("SEMEL_TEST_KAFKA is not set: run this under tests/support/with_kafka");
        return b;
}

const char *kit_topic(const char *what)
{
        static char names[16][64];
        static unsigned n;
        char *name = names[n++ % 16];
        (void)snprintf(name, sizeof names[0], "%s-%d-%u", what, (int)getpid(), n);
        return name;
}

struct event kit_event(const char *topic, const char *key, const char *payload)
{
        struct event e = {.topic = span_str(topic), .key = span_str(key), .payload = span_str(payload),
                          .key_is_null = key == NULL, .payload_is_null = payload == NULL,
                          .partition = EVENT_NO_PARTITION, .has_id = true};
        for (size_t i = 0; payload && payload[i]; i++)
                e.id[i % EVENT_ID_BYTES] = (uint8_t)(e.id[i % EVENT_ID_BYTES] * 31 + payload[i]);
        return e;
}

void kit_send(struct bus_producer *p, const char *topic, const char *key, const char *payload)
{
        struct semel_error err = {0};
        struct event e = kit_event(topic, key, payload);
        enum bus_produced got;
        while ((got = bus_produce(p, &e, (void *)(uintptr_t)payload, &err)) == BUS_FULL)
                (void)bus_producer_poll(p, 100 * MS);
        if (got != BUS_QUEUED)
                fail_msg("%s was not taken (%d): %s", payload, (int)got, err.text);
}

void kit_drain(struct bus_producer *p)
{
        int64_t deadline = clock_boot_us() + 30 * SECOND;
        while (bus_producer_poll(p, 100 * MS) > 0)
                if (clock_boot_us() > deadline)
                        fail_msg("%zu messages stay unreported", bus_producer_unreported(p));
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
        char why[256];
        if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
                fail_msg("%s: %s", name, why);
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *brokers, const char *isolation)
{
        char why[256];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "bootstrap.servers", brokers);
        set(conf, "log_level", "0");
        if (type == RD_KAFKA_CONSUMER) {
                set(conf, "group.id", "kit");
                set(conf, "enable.auto.commit", "false");
                set(conf, "enable.partition.eof", "true");
                set(conf, "auto.offset.reset", "earliest");
                set(conf, "isolation.level", isolation);
        }
        rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
        if (!rk)
                fail_msg("%s", why);
        return rk;
}

const char *kit_read(const char *brokers, const char *topic, int32_t partition, bool committed_only)
{
        static char text[4096];
        size_t n = 0;
        text[0] = 0;
        rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, brokers,
                                committed_only ? "read_committed" : "read_uncommitted");
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, topic, partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
        rd_kafka_assign(rk, list);
        rd_kafka_topic_partition_list_destroy(list);
        int64_t deadline = clock_boot_us() + 30 * SECOND;
        bool eof = false;
        while (!eof && clock_boot_us() < deadline) {
                rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 100);
                if (!m)
                        continue;
                eof = m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
                if (!m->err && n < sizeof text - 1)
                        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", n ? " " : "",
                                              (int)m->len, (const char *)m->payload);
                rd_kafka_message_destroy(m);
        }
        rd_kafka_consumer_close(rk);
        rd_kafka_destroy(rk);
        assert_true(eof);
        return text;
}

void kit_create(const char *brokers, const char *topic, int partitions, const char *const *settings)
{
        char why[256];
        rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, brokers, NULL);
        rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(topic, partitions, 1, why, sizeof why);
        for (size_t i = 0; settings && settings[i]; i += 2)
                (void)rd_kafka_NewTopic_set_config(t, settings[i], settings[i + 1]);
        rd_kafka_AdminOptions_t *o = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
        rd_kafka_AdminOptions_set_operation_timeout(o, 15000, why, sizeof why);
        rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
        rd_kafka_CreateTopics(rk, &t, 1, o, q);
        rd_kafka_event_t *ev = rd_kafka_queue_poll(q, 20000);
        assert_non_null(ev);
        size_t n = 0;
        const rd_kafka_topic_result_t **r = rd_kafka_CreateTopics_result_topics(
                rd_kafka_event_CreateTopics_result(ev), &n);
        if (n != 1 || rd_kafka_topic_result_error(r[0]))
                fail_msg("%s: %s", topic, n == 1 ? rd_kafka_topic_result_error_string(r[0]) : "?");
        rd_kafka_event_destroy(ev);
        rd_kafka_queue_destroy(q);
        rd_kafka_AdminOptions_destroy(o);
        rd_kafka_NewTopic_destroy(t);
        rd_kafka_destroy(rk);
}

void kit_delete(const char *brokers, const char *topic)
{
        char why[256];
        rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, brokers, NULL);
        rd_kafka_DeleteTopic_t *t = rd_kafka_DeleteTopic_new(topic);
        rd_kafka_AdminOptions_t *o = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DELETETOPICS);
        rd_kafka_AdminOptions_set_operation_timeout(o, 15000, why, sizeof why);
        rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
        rd_kafka_DeleteTopics(rk, &t, 1, o, q);
        rd_kafka_event_t *ev = rd_kafka_queue_poll(q, 20000);
        assert_true(ev && !rd_kafka_event_error(ev));
        rd_kafka_event_destroy(ev);
        rd_kafka_queue_destroy(q);
        rd_kafka_AdminOptions_destroy(o);
        rd_kafka_DeleteTopic_destroy(t);
        rd_kafka_destroy(rk);
}

void assert_ok_at(semel_code rc, const semel_error *err, const char *call, const char *file, int line)
{
        if (rc != SEMEL_OK) {
                print_error("%s: %s (%d)\n", call, err->text, (int)rc);
                _fail(file, line);
        }
}
