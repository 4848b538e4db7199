/* SPDX-License-Identifier: Apache-2.0
 *
 * marker: the last committed record of a key in a compacted topic, for the recovery of exactly-once
 * (rule C8).
 *
 * A read_committed reader stops before the first transaction that is still open, whosoever it is;
 * a marker that was committed behind it is not seen yet.  So "the end" is the high watermark,
 * and until it is reached the reader waits for the other transaction to end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bus/client.h"
#include "core/limits.h"
#include "sys/clock.h"

enum { POLL_MS = 100 };

/* The topic's segments are small, so that compaction keeps what a recovery reads small. */
static const struct bus_fixed topic_settings[] = {{"cleanup.policy", "compact"},
                                                  {"segment.bytes", "16777216"},
                                                  {"min.cleanable.dirty.ratio", "0.1"},
                                                  {NULL, NULL}};

static int ms_left(int64_t deadline_us)
{
        return bus_ms(deadline_us - clock_boot_us());
}

static semel_code created(rd_kafka_event_t *ev, const char *topic, semel_error *err)
{
        size_t n = 0;
        rd_kafka_resp_err_t e = ev ? rd_kafka_event_error(ev) : RD_KAFKA_RESP_ERR__TIMED_OUT;
        const char *why = ev ? rd_kafka_event_error_string(ev) : NULL;
        if (!e) {
                const rd_kafka_topic_result_t **r = rd_kafka_CreateTopics_result_topics(
                        rd_kafka_event_CreateTopics_result(ev), &n);
                e = n == 1 ? rd_kafka_topic_result_error(r[0]) : RD_KAFKA_RESP_ERR__FAIL;
                why = n == 1 ? rd_kafka_topic_result_error_string(r[0]) : NULL;
        }
        if (!e || e == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
                return SEMEL_OK;
        return err_set(err, bus_code_of(e),
                       "topic \"%s\" cannot be made: %s; make it (cleanup.policy=compact, 1 partition), or let us",
                       topic, why ? why : rd_kafka_err2str(e));
}

static semel_code create(rd_kafka_t *rk, const char *topic, int64_t deadline_us, semel_error *err)
{
        char why[256];
        rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(topic, 1, -1, why, sizeof why);
        if (!t)
                return err_set(err, SEMEL_ERR_ARGUMENT, "topic \"%s\": %s", topic, why);
        for (const struct bus_fixed *s = topic_settings; s->name; s++)
                (void)rd_kafka_NewTopic_set_config(t, s->name, s->value);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        rd_kafka_AdminOptions_t *options =
                rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
        int ms = ms_left(deadline_us);
        (void)rd_kafka_AdminOptions_set_request_timeout(options, ms < 1 ? 1 : ms, why, sizeof why);
        /* Wait until every broker knows the topic. */
        (void)rd_kafka_AdminOptions_set_operation_timeout(options, ms < 1 ? 1 : ms, why, sizeof why);
        rd_kafka_CreateTopics(rk, &t, 1, options, queue);
        rd_kafka_event_t *ev = rd_kafka_queue_poll(queue, ms + POLL_MS);
        semel_code rc = created(ev, topic, err);
        if (ev)
                rd_kafka_event_destroy(ev);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_queue_destroy(queue);
        rd_kafka_NewTopic_destroy(t);
        return rc;
}

/* Is the topic there, with one partition?  Else it is made. */
static semel_code ensure(rd_kafka_t *rk, rd_kafka_topic_t *rkt, int64_t deadline_us,
                         semel_error *err)
{
        const struct rd_kafka_metadata *md = NULL;
        const char *topic = rd_kafka_topic_name(rkt);
        int ms = ms_left(deadline_us);
        rd_kafka_resp_err_t e = rd_kafka_metadata(rk, 0, rkt, &md, ms < 1 ? 1 : ms);
        if (e)
                return err_set(err, SEMEL_ERR_STORE_DOWN, "Kafka does not answer: %s",
                               rd_kafka_err2str(e));
        e = md->topic_cnt == 1 ? md->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        int partitions = md->topic_cnt == 1 ? md->topics[0].partition_cnt : 0;
        rd_kafka_metadata_destroy(md);
        if (e == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
                return create(rk, topic, deadline_us, err);
        if (e && e != RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE)
                return err_set(err, bus_code_of(e), "topic \"%s\": %s", topic, rd_kafka_err2str(e));
        if (!e && partitions != 1)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "topic \"%s\" has %d partitions, and markers need one with 1",
                               topic, partitions);
        return SEMEL_OK;
}

struct reading {
        rd_kafka_t *rk;
        const char *topic;
        struct span key;
        bool found;
        int64_t end; /* high watermark when the reading began; -1: not known yet */
        struct buf *value;
};

/* Read from the beginning. */
static semel_code assign(struct reading *r, rd_kafka_topic_t *rkt, int64_t deadline_us,
                         semel_error *err)
{
        const struct rd_kafka_metadata *md = NULL;
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, r->topic, 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
        rd_kafka_resp_err_t e = rd_kafka_assign(r->rk, list);
        rd_kafka_topic_partition_list_destroy(list);
        if (e)
                return err_set(err, bus_code_of(e), "topic \"%s\": %s", r->topic,
                               rd_kafka_err2str(e));
        /* Else librdkafka asks for the partition's leader a second later. */
        if (!rd_kafka_metadata(r->rk, 0, rkt, &md, ms_left(deadline_us)))
                rd_kafka_metadata_destroy(md);
        return SEMEL_OK;
}

static semel_code keep(struct reading *r, const rd_kafka_message_t *m, semel_error *err)
{
        if (!span_eq(span_of(m->key, m->key_len), r->key))
                return SEMEL_OK;
        buf_clear(r->value);
        r->found = m->payload != NULL; /* a tombstone: none */
        if (buf_append(r->value, m->payload, m->len) != BUF_OK)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the marker in topic \"%s\" has %zu bytes",
                               r->topic, m->len);
        return SEMEL_OK;
}

/* One message or event.  *ret_position: the next offset to read. */
static semel_code take(struct reading *r, const rd_kafka_message_t *m, int64_t *ret_position,
                       semel_error *err)
{
        switch (m->err) {
        case RD_KAFKA_RESP_ERR_NO_ERROR:
                *ret_position = m->offset + 1;
                return keep(r, m, err);
        case RD_KAFKA_RESP_ERR__PARTITION_EOF:
                *ret_position = m->offset;
                return SEMEL_OK;
        default:
                if (bus_code_of(m->err) == SEMEL_ERR_STORE_DOWN)
                        return SEMEL_OK; /* goes on by itself, or the deadline ends it */
                return err_set(err, bus_code_of(m->err), "topic \"%s\" cannot be read: %s", r->topic,
                               rd_kafka_message_errstr(m));
        }
}

static semel_code read_to_end(struct reading *r, int64_t deadline_us, semel_error *err)
{
        int64_t position = -1;
        while (r->end < 0 || position < r->end) {
                int ms = ms_left(deadline_us);
                if (ms == 0)
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "topic \"%s\" could not be read to its end in time%s", r->topic,
                                       r->end >= 0 ? " (another transaction may still be open)" : "");
                rd_kafka_message_t *m = rd_kafka_consumer_poll(r->rk, ms < POLL_MS ? ms : POLL_MS);
                if (!m)
                        continue;
                semel_code rc = take(r, m, &position, err);
                rd_kafka_message_destroy(m);
                if (rc != SEMEL_OK)
                        return rc;
                int64_t low, high;
                /* Known from the first answer on; that one was asked for after the caller's
                 * init_transactions, which is what recovery needs. */
                if (r->end < 0 && position >= 0 &&
                    !rd_kafka_get_watermark_offsets(r->rk, r->topic, 0, &low, &high) && high >= 0)
                        r->end = high;
        }
        return SEMEL_OK;
}

semel_code bus_marker_read(const struct bus_config *config, const char *topic, struct span key,
                           int64_t timeout_us, bool *ret_found, struct buf *value,
                           semel_error *err)
{
        const struct bus_fixed defaults[] = {
                {"queued.max.messages.kbytes", "16384"},
                {"fetch.wait.max.ms", "10"}, /* the end is told by an answer without records */
                {NULL, NULL}};
        const struct bus_fixed fixed[] = {
                {"group.id", "semel-marker"}, /* asked for, never used: nothing is committed */
                {"enable.auto.commit", "false"},
                {"isolation.level", "read_committed"},
                {"auto.offset.reset", "earliest"},
                {"enable.partition.eof", "true"},
                {"allow.auto.create.topics", "false"},
                /* From the leader: a follower's end may be behind the marker that was just committed, and before
                 * Kafka 3.6 a follower need not even be in sync to be offered to a client of its rack. */
                {"client.rack", ""},
                {NULL, NULL}};
        int64_t deadline = clock_boot_us() + timeout_us;
        struct bus_client client = {0};
        rd_kafka_conf_t *conf;
        rd_kafka_topic_t *rkt = NULL;
        struct reading r = {.topic = topic, .key = key, .end = -1, .value = value};
        semel_code rc = bus_conf_new(config, defaults, fixed, &client, &conf, err);
        if (rc != SEMEL_OK)
                return rc;
        rc = bus_client_open(conf, RD_KAFKA_CONSUMER, &r.rk, err);
        if (rc != SEMEL_OK)
                goto out;
        (void)rd_kafka_poll_set_consumer(r.rk);
        rkt = rd_kafka_topic_new(r.rk, topic, NULL);
        rc = rkt ? ensure(r.rk, rkt, deadline, err)
                 : err_set(err, SEMEL_ERR_ARGUMENT, "\"%s\" is no name for a topic", topic);
        if (rc == SEMEL_OK)
                rc = assign(&r, rkt, deadline, err);
        if (rc == SEMEL_OK)
                rc = read_to_end(&r, deadline, err);
        if (rc == SEMEL_OK)
                *ret_found = r.found;
out:
        if (rkt)
                rd_kafka_topic_destroy(rkt);
        if (r.rk)
                rd_kafka_destroy_flags(r.rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        bus_client_release(&client);
        return rc;
}
