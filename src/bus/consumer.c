/* SPDX-License-Identifier: Apache-2.0
 *
 * consumer: a member of a group that decides itself when an offset is committed (rule D4).
 *
 * One message at a time: the batch call of librdkafka 2.0.2 gives up the order of offsets at a
 * rebalance.  The eager protocol: all partitions are given up, finished and committed, before
 * new ones come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bus/client.h"
#include "core/limits.h"

/* A commit's answer; longer than the default session, after which there is nothing to commit. */
enum { COMMIT_MS = 10000 };

/* What ends a partition need not be a message: transactions leave their own records behind.  So
 * "nothing is left" is known from the end that was reached, and not from offsets alone. */
enum { PLACES_MAX = 4096 };
struct place {
        char topic[LIMIT_EVENT_TOPIC_BYTES + 1];
        int32_t partition;
        int64_t end;  /* where nothing was left */
        int64_t next; /* behind the last message that was delivered */
};

struct bus_consumer {
        rd_kafka_t *rk;
        struct bus_client client;
        struct bus_consumer_hooks hooks;
        struct place *place;
        size_t place_count, last_place;
        bool left; /* the group, by ourselves */
        bool lost; /* the group has put us out; librdkafka 2.0.2 forgets it before it revokes */
        semel_error trouble; /* of the client as a whole, not told yet; code 0: none */
};

/* -- rebalancing --------------------------------------------------------------------------------- */

static struct bus_partition *partitions_of(const rd_kafka_topic_partition_list_t *list)
{
        size_t n = (size_t)list->cnt;
        struct bus_partition *p = calloc(n > 0 ? n : 1, sizeof *p);
        for (size_t i = 0; p && i < n; i++)
                p[i] = (struct bus_partition){.topic = list->elems[i].topic,
                                              .partition = list->elems[i].partition,
                                              .offset = list->elems[i].offset};
        return p;
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t e,
                         rd_kafka_topic_partition_list_t *list, void *opaque)
{
        const struct bus_client *client = opaque;
        struct bus_consumer *c = client->owner;
        struct bus_partition *p = partitions_of(list);
        if (e == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
                c->lost = false;
                (void)rd_kafka_assign(rk, list);
                /* librdkafka 2.0.2 remembers over a rebalance what was paused before it. */
                (void)rd_kafka_resume_partitions(rk, list);
                if (p && c->hooks.assigned)
                        c->hooks.assigned(c->hooks.arg, p, (size_t)list->cnt);
        } else {
                if (p && c->hooks.revoked && list->cnt > 0)
                        c->hooks.revoked(c->hooks.arg, p, (size_t)list->cnt,
                                         c->lost || rd_kafka_assignment_lost(rk) != 0);
                (void)rd_kafka_assign(rk, NULL);
        }
        free(p);
}

/* Troubles of connections.  What one broker has, another may make up for: only when all are away, or
 * none lets us in, is it an error of the consumer. */
static void on_error(rd_kafka_t *rk, int e, const char *reason, void *opaque)
{
        struct bus_client *client = opaque;
        struct bus_consumer *c = client->owner;
        semel_code code = bus_code_of((rd_kafka_resp_err_t)e);
        bus_client_on_error(rk, e, reason, client);
        if (e == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || code == SEMEL_ERR_ACCESS) {
                (void)err_set(&c->trouble, code, "Kafka: %s", reason);
                c->trouble.code = bus_client_explain(client, code, &c->trouble);
        } else {
                bus_client_log(client, 4, reason);
        }
}

/* -- opening and closing --------------------------------------------------------------------------- */

static semel_code subscribe(struct bus_consumer *c, const char *const *topics, size_t n,
                            semel_error *err)
{
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
        for (size_t i = 0; i < n; i++)
                rd_kafka_topic_partition_list_add(list, topics[i], RD_KAFKA_PARTITION_UA);
        rd_kafka_resp_err_t e = rd_kafka_subscribe(c->rk, list);
        rd_kafka_topic_partition_list_destroy(list);
        if (e)
                return err_set(err, SEMEL_ERR_ARGUMENT, "Kafka does not take this subscription: %s",
                               rd_kafka_err2str(e));
        return SEMEL_OK;
}

semel_code bus_consumer_open(const struct bus_config *config, const char *group,
                             const char *const *topics, size_t topic_count,
                             const struct bus_consumer_hooks *hooks, struct bus_consumer **ret,
                             semel_error *err)
{
        const struct bus_fixed defaults[] = {
                {"session.timeout.ms", "6000"}, /* 45 s, the default, is a long pause after a crash */
                {"heartbeat.interval.ms", "2000"},
                {"topic.metadata.refresh.interval.ms", "5000"}, /* how soon a new topic is noticed */
                /* Of all partitions together.  Past either, librdkafka 2.0 looks again only a second
                 * later: one answer (1 MB of each partition) must stay below both. */
                {"queued.min.messages", "100000"},
                {"queued.max.messages.kbytes", "32768"},
                {"fetch.wait.max.ms", "100"},
                {NULL, NULL}};
        const struct bus_fixed fixed[] = {{"group.id", group},
                                          {"enable.auto.commit", "false"},
                                          {"enable.auto.offset.store", "false"},
                                          {"auto.offset.reset", "earliest"},
                                          {"partition.assignment.strategy", "range"},
                                          {"isolation.level", "read_committed"},
                                          {"enable.partition.eof", "true"}, /* see place */
                                          {"allow.auto.create.topics", "false"},
                                          {NULL, NULL}};
        if (!group || !group[0] || topic_count == 0)
                return err_set(err, SEMEL_ERR_ARGUMENT, "a consumer needs a group and a topic");
        struct bus_consumer *c = calloc(1, sizeof *c);
        if (!c)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
        rd_kafka_conf_t *conf;
        semel_code rc = bus_conf_new(config, defaults, fixed, &c->client, &conf, err);
        if (rc != SEMEL_OK) {
                free(c);
                return rc;
        }
        c->client.owner = c;
        c->client.tells_troubles = true;
        if (hooks)
                c->hooks = *hooks;
        rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
        rd_kafka_conf_set_error_cb(conf, on_error);
        rc = bus_client_open(conf, RD_KAFKA_CONSUMER, &c->rk, err);
        if (rc == SEMEL_OK) {
                (void)rd_kafka_poll_set_consumer(c->rk);
                rc = subscribe(c, topics, topic_count, err);
        }
        if (rc != SEMEL_OK) {
                bus_consumer_close(c);
                return rc;
        }
        *ret = c;
        return SEMEL_OK;
}

void bus_consumer_leave(struct bus_consumer *c)
{
        if (!c->left)
                (void)rd_kafka_consumer_close(c->rk); /* revokes: the hook runs here */
        c->left = true;
}

void bus_consumer_close(struct bus_consumer *c)
{
        if (!c)
                return;
        if (c->rk) {
                bus_consumer_leave(c);
                rd_kafka_destroy(c->rk);
        }
        bus_client_release(&c->client);
        free(c->place);
        free(c);
}

/* -- messages -------------------------------------------------------------------------------------- */

static void fill_headers(const rd_kafka_headers_t *h, struct event_header *ret, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char *name;
                const void *value;
                size_t size;
                if (rd_kafka_header_get_all(h, i, &name, &value, &size))
                        return;
                ret[i] = (struct event_header){.name = span_str(name),
                                               .value = span_of(value, value ? size : 0),
                                               .value_is_null = value == NULL};
        }
}

/* Takes m. */
static struct bus_message *message_new(rd_kafka_message_t *m)
{
        rd_kafka_headers_t *h = NULL;
        size_t n = rd_kafka_message_headers(m, &h) ? 0 : rd_kafka_header_cnt(h);
        struct bus_message *msg = calloc(1, sizeof *msg + n * sizeof(struct event_header));
        if (!msg)
                return NULL;
        struct event_header *headers = (struct event_header *)(msg + 1);
        if (n > 0)
                fill_headers(h, headers, n);
        rd_kafka_timestamp_type_t type;
        int64_t ms = rd_kafka_message_timestamp(m, &type);
        msg->event = (struct event){.topic = span_str(rd_kafka_topic_name(m->rkt)),
                                    .key = span_of(m->key, m->key ? m->key_len : 0),
                                    .payload = span_of(m->payload, m->payload ? m->len : 0),
                                    .key_is_null = m->key == NULL,
                                    .payload_is_null = m->payload == NULL,
                                    .partition = m->partition,
                                    .headers = headers,
                                    .header_count = n};
        msg->partition = m->partition;
        msg->offset = m->offset;
        msg->timestamp_us = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || ms < 0 ? 0 : ms * MS;
        msg->driver = m;
        return msg;
}

void bus_message_free(struct bus_message *m)
{
        if (!m)
                return;
        rd_kafka_message_destroy(m->driver);
        free(m);
}

static struct place *find_place(struct bus_consumer *c, const char *topic, int32_t partition)
{
        struct place *p = c->last_place < c->place_count ? &c->place[c->last_place] : NULL;
        if (p && p->partition == partition && strcmp(p->topic, topic) == 0)
                return p;
        for (size_t i = 0; i < c->place_count; i++) {
                p = &c->place[i];
                if (p->partition == partition && strcmp(p->topic, topic) == 0) {
                        c->last_place = i;
                        return p;
                }
        }
        return NULL;
}

/* Only for the lag: without memory for it, it is told a little too high. */
static struct place *get_place(struct bus_consumer *c, const rd_kafka_message_t *m)
{
        const char *topic = rd_kafka_topic_name(m->rkt);
        struct place *p = find_place(c, topic, m->partition);
        if (p || c->place_count == PLACES_MAX)
                return p;
        struct place *more = realloc(c->place, (c->place_count + 1) * sizeof *more);
        if (!more)
                return NULL;
        c->place = more;
        p = &more[c->place_count++];
        *p = (struct place){.partition = m->partition};
        (void)snprintf(p->topic, sizeof p->topic, "%s", topic);
        return p;
}

static void keep_end(struct bus_consumer *c, const rd_kafka_message_t *m)
{
        struct place *p = get_place(c, m);
        if (p)
                p->end = m->offset;
}

static void keep_delivered(struct bus_consumer *c, const rd_kafka_message_t *m)
{
        struct place *p = get_place(c, m);
        if (p)
                p->next = m->offset + 1;
}

/* An event that is no message: is it worth an error? */
static semel_code event_of(struct bus_consumer *c, const rd_kafka_message_t *m, semel_error *err)
{
        char why[256];
        if (rd_kafka_fatal_error(c->rk, why, sizeof why))
                return err_set(err, SEMEL_ERR_INTERNAL, "the Kafka consumer is finished: %s", why);
        switch (m->err) {
        case RD_KAFKA_RESP_ERR__PARTITION_EOF:
                keep_end(c, m);
                return SEMEL_OK;
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART: /* it may be made later */
        case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
                return SEMEL_OK;
        case RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED:
                c->lost = true;
                return err_set(err, SEMEL_ERR_LOST,
                               "the work took longer than max.poll.interval.ms: Kafka has given the partitions away");
        default:
                break;
        }
        semel_code code = bus_code_of(m->err);
        return err_set(err, code == SEMEL_ERR_ACCESS ? code : SEMEL_ERR_STORE_DOWN, "Kafka: %s (%s)",
                       rd_kafka_message_errstr(m), rd_kafka_err2name(m->err));
}

semel_code bus_consume(struct bus_consumer *c, int64_t timeout_us, struct bus_message **ret,
                       semel_error *err)
{
        rd_kafka_message_t *m = rd_kafka_consumer_poll(c->rk, bus_ms(timeout_us));
        if (!m && c->trouble.code != SEMEL_OK) {
                semel_code rc = err_copy(err, &c->trouble);
                err_clear(&c->trouble);
                return rc;
        }
        if (!m) {
                *ret = NULL;
                return SEMEL_OK;
        }
        if (m->err) {
                semel_code rc = event_of(c, m, err);
                rd_kafka_message_destroy(m);
                if (rc == SEMEL_OK)
                        *ret = NULL;
                return rc;
        }
        keep_delivered(c, m);
        struct bus_message *msg = message_new(m);
        if (!msg) {
                /* The message is dropped here but not committed: whoever goes on would skip it. */
                rd_kafka_message_destroy(m);
                return err_set(err, SEMEL_ERR_INTERNAL, "out of memory for a message; open another consumer");
        }
        *ret = msg;
        return SEMEL_OK;
}

/* -- positions ------------------------------------------------------------------------------------- */

static rd_kafka_topic_partition_list_t *list_of(const struct bus_partition *p, size_t n)
{
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
        for (size_t i = 0; i < n; i++)
                rd_kafka_topic_partition_list_add(list, p[i].topic, p[i].partition)->offset =
                        p[i].offset;
        return list;
}

/* The first error of a list, or 0. */
static rd_kafka_resp_err_t first_error(const rd_kafka_topic_partition_list_t *list)
{
        for (int i = 0; i < list->cnt; i++)
                if (list->elems[i].err)
                        return list->elems[i].err;
        return RD_KAFKA_RESP_ERR_NO_ERROR;
}

semel_code bus_consumer_pause(struct bus_consumer *c, const char *topic, int32_t partition,
                              bool paused, semel_error *err)
{
        const struct bus_partition p = {topic, partition, 0};
        rd_kafka_topic_partition_list_t *list = list_of(&p, 1);
        rd_kafka_resp_err_t e = paused ? rd_kafka_pause_partitions(c->rk, list)
                                       : rd_kafka_resume_partitions(c->rk, list);
        if (!e)
                e = first_error(list);
        rd_kafka_topic_partition_list_destroy(list);
        if (e)
                return err_set(err, bus_code_of(e), "partition %s/%d cannot be %s: %s", topic,
                               (int)partition, paused ? "paused" : "resumed", rd_kafka_err2str(e));
        return SEMEL_OK;
}

semel_code bus_consumer_commit(struct bus_consumer *c, const struct bus_partition *p, size_t n,
                               semel_error *err)
{
        if (n == 0)
                return SEMEL_OK;
        rd_kafka_topic_partition_list_t *list = list_of(p, n);
        /* Not rd_kafka_commit(): it waits for a coordinator without a bound. */
        rd_kafka_queue_t *queue = rd_kafka_queue_new(c->rk);
        rd_kafka_resp_err_t e = rd_kafka_commit_queue(c->rk, list, queue, NULL, NULL);
        if (!e) {
                rd_kafka_event_t *ev = rd_kafka_queue_poll(queue, COMMIT_MS);
                e = ev ? rd_kafka_event_error(ev) : RD_KAFKA_RESP_ERR__TIMED_OUT;
                if (ev && !e)
                        e = first_error(rd_kafka_event_topic_partition_list(ev));
                if (ev)
                        rd_kafka_event_destroy(ev);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_partition_list_destroy(list);
        if (!e || e == RD_KAFKA_RESP_ERR__NO_OFFSET)
                return SEMEL_OK;
        if (e == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION || e == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID ||
            e == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID)
                c->lost = true;
        return err_set(err, bus_code_of(e), "Kafka did not take the offsets: %s (%s)",
                       rd_kafka_err2str(e), rd_kafka_err2name(e));
}

int64_t bus_consumer_lag(struct bus_consumer *c, const struct bus_partition *p)
{
        int64_t low, high;
        if (rd_kafka_get_watermark_offsets(c->rk, p->topic, p->partition, &low, &high) || high < 0 ||
            p->offset < 0)
                return -1;
        const struct place *place = find_place(c, p->topic, p->partition);
        if (place && place->end >= high && p->offset >= place->next)
                return 0;
        return high > p->offset ? high - p->offset : 0;
}

semel_code bus_topic_retention(struct bus_consumer *c, const char *topic, int64_t timeout_us,
                               int64_t *ret_ms, semel_error *err)
{
        struct bus_setting settings[] = {
                {"cleanup.policy", ""}, {"retention.ms", ""}, {"segment.ms", ""}};
        const char *policy = settings[0].value;
        if (!bus_topic_settings(c->rk, topic, settings, sizeof settings / sizeof settings[0],
                                bus_ms(timeout_us)))
                return err_set(err, SEMEL_ERR_STORE_DOWN, "Kafka does not answer about topic \"%s\"",
                               topic);
        int64_t ms = strtoll(settings[1].value, NULL, 10); /* "" is 0: not known */
        int64_t segment_ms = strtoll(settings[2].value, NULL, 10);
        if (ms > 0 && segment_ms > 0)
                ms = segment_ms < INT64_MAX - ms ? ms + segment_ms : INT64_MAX;
        if (policy[0] && !strstr(policy, "delete"))
                ms = -1; /* compacted: the last record of each key stays */
        *ret_ms = ms;
        return SEMEL_OK;
}
