/* SPDX-License-Identifier: Apache-2.0
 *
 * topic: the producer's topics: handles, limits, and whether they exist.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "bus/producer.h"
#include "core/limits.h"
#include "sys/clock.h"

/* A topic that exists is asked about once a minute, one that does not, or has partitions that cannot be
 * written, more often: somebody waits for it. */
#define LOOK_EVERY_US (60 * SECOND)
#define LOOK_AGAIN_US (1 * SECOND)

/* The broker makes a topic on first use within a moment; ask so often at most. */
enum { CREATION_TRIES = 6, CREATION_PAUSE_MS = 50 };

static size_t bucket_of(struct span name)
{
        uint32_t h = 2166136261u; /* FNV-1a */
        for (size_t i = 0; i < name.n; i++)
                h = (h ^ name.p[i]) * 16777619u;
        return h % TOPIC_BUCKETS;
}

static void topic_free(struct topic *t)
{
        rd_kafka_topic_destroy(t->rkt);
        free(t->partition);
        free(t);
}

/* Forget one that nothing refers to. */
static void forget_one(struct bus_producer *p)
{
        for (size_t i = 0; i < TOPIC_BUCKETS; i++)
                for (struct topic **at = &p->bucket[i]; *at; at = &(*at)->next) {
                        struct topic *t = *at;
                        if (t->unreported > 0)
                                continue;
                        *at = t->next;
                        if (p->last == t)
                                p->last = NULL;
                        topic_free(t);
                        p->topic_count--;
                        return;
                }
}

static bool is_named(const struct topic *t, struct span name)
{
        return t->name_n == name.n && memcmp(t->name, name.p, name.n) == 0;
}

static struct topic *topic_new(struct bus_producer *p, struct span name, semel_error *err)
{
        if (name.n == 0 || name.n > LIMIT_EVENT_TOPIC_BYTES || memchr(name.p, 0, name.n)) {
                (void)err_set(err, SEMEL_ERR_ARGUMENT, "a topic's name has 1 to %d bytes, none of them 0",
                              LIMIT_EVENT_TOPIC_BYTES);
                return NULL;
        }
        struct topic *t = calloc(1, sizeof *t + name.n + 1);
        if (!t) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "out of memory");
                return NULL;
        }
        memcpy(t->name, name.p, name.n);
        t->name_n = name.n;
        rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(p->rk);
        rd_kafka_topic_conf_set_opaque(conf, t);
        t->rkt = rd_kafka_topic_new(p->rk, t->name, conf);
        if (!t->rkt) {
                (void)err_set(err, SEMEL_ERR_ARGUMENT, "topic \"%s\": %s", t->name,
                              rd_kafka_err2str(rd_kafka_last_error()));
                free(t);
                return NULL;
        }
        return t;
}

struct topic *topic_get(struct bus_producer *p, struct span name, semel_error *err)
{
        if (p->last && is_named(p->last, name))
                return p->last;
        size_t at = bucket_of(name);
        struct topic *t = p->bucket[at];
        while (t && !is_named(t, name))
                t = t->next;
        if (!t) {
                if (p->topic_count >= TOPICS_MAX)
                        forget_one(p);
                t = topic_new(p, name, err);
                if (!t)
                        return NULL;
                t->next = p->bucket[at];
                p->bucket[at] = t;
                p->topic_count++;
        }
        p->last = t;
        return t;
}

void topics_free(struct bus_producer *p)
{
        for (size_t i = 0; i < TOPIC_BUCKETS; i++)
                while (p->bucket[i]) {
                        struct topic *t = p->bucket[i];
                        p->bucket[i] = t->next;
                        topic_free(t);
                }
        p->last = NULL;
        p->topic_count = 0;
}

static void note_partitions(struct topic *t, const struct rd_kafka_metadata_topic *md)
{
        struct topic_partition *of = md->partition_cnt > 0 ? calloc((size_t)md->partition_cnt, sizeof *of) : NULL;
        free(t->partition);
        t->partition = of;
        t->partitions = of ? md->partition_cnt : 0;
        for (int32_t i = 0; i < t->partitions; i++) {
                const struct rd_kafka_metadata_partition *p = &md->partitions[i];
                if (p->id >= 0 && p->id < t->partitions && p->leader >= 0)
                        of[p->id] = (struct topic_partition){p->isr_cnt, p->replica_cnt};
        }
}

/* Ask for the metadata once.  In *ret_e what the broker says about the topic. */
static semel_code ask(struct bus_producer *p, struct topic *t, int ms, rd_kafka_resp_err_t *ret_e,
                      semel_error *err)
{
        const struct rd_kafka_metadata *md = NULL;
        rd_kafka_resp_err_t e = rd_kafka_metadata(p->rk, 0, t->rkt, &md, ms < 1 ? 1 : ms);
        (void)rd_kafka_poll(p->rk, 0); /* errors of the time until now */
        if (e) {
                semel_code rc = err_set(err, SEMEL_ERR_STORE_DOWN,
                                        "Kafka does not answer about topic \"%s\": %s", t->name,
                                        rd_kafka_err2str(e));
                return bus_client_explain(&p->client, rc, err);
        }
        bus_client_forget_trouble(&p->client);
        *ret_e = md->topic_cnt == 1 ? md->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        if (*ret_e == RD_KAFKA_RESP_ERR_NO_ERROR)
                note_partitions(t, &md->topics[0]);
        rd_kafka_metadata_destroy(md);
        return SEMEL_OK;
}

/* All replicas are enough, however many min.insync.replicas wants: so says Kafka since 3.7. */
static bool is_stuck(const struct topic *t, int32_t partition)
{
        if (partition < 0 || partition >= t->partitions)
                return false;
        const struct topic_partition *p = &t->partition[partition];
        int32_t least = t->min_in_sync < p->replicas ? t->min_in_sync : p->replicas;
        return p->in_sync < (least > 1 ? least : 1);
}

static semel_code look(struct bus_producer *p, struct topic *t, int64_t deadline_us,
                       semel_error *err)
{
        rd_kafka_resp_err_t e = RD_KAFKA_RESP_ERR_NO_ERROR;
        /* One that is known to be missing had its time; it is asked about again soon enough. */
        int tries = t->looked_at_us != 0 && !t->exists ? 1 : CREATION_TRIES;
        for (int i = 1;; i++) {
                semel_code rc = ask(p, t, bus_ms(deadline_us - clock_boot_us()), &e, err);
                if (rc != SEMEL_OK)
                        return rc;
                bool may_come = e == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
                                e == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
                if (!may_come || i == tries || clock_boot_us() + CREATION_PAUSE_MS * MS > deadline_us)
                        break;
                struct timespec pause = {0, CREATION_PAUSE_MS * 1000000L};
                (void)nanosleep(&pause, NULL);
        }
        t->said = e;
        t->exists = e == RD_KAFKA_RESP_ERR_NO_ERROR;
        struct bus_setting s[] = {{"max.message.bytes", ""}, {"min.insync.replicas", ""}};
        if (t->exists && bus_topic_settings(p->rk, t->name, s, sizeof s / sizeof s[0],
                                            bus_ms(deadline_us - clock_boot_us()))) {
                t->bytes_max = strtoll(s[0].value, NULL, 10);
                t->min_in_sync = (int32_t)strtol(s[1].value, NULL, 10);
        }
        t->stuck = 0;
        for (int32_t i = 0; i < t->partitions; i++)
                t->stuck += is_stuck(t, i);
        t->looked_at_us = clock_boot_us();
        return SEMEL_OK;
}

semel_code bus_topic_look(struct bus_producer *p, const char *topic, int64_t timeout_us,
                          bool *ret_exists, int64_t *ret_bytes_max, semel_error *err)
{
        struct topic *t = topic_get(p, span_str(topic), err);
        if (!t)
                return err ? err->code : SEMEL_ERR_ARGUMENT;
        int64_t now = clock_boot_us();
        bool fresh = t->looked_at_us != 0 &&
                     now - t->looked_at_us <
                             (t->exists && t->stuck == 0 ? LOOK_EVERY_US : LOOK_AGAIN_US);
        if (!fresh) {
                semel_code rc = look(p, t, now + timeout_us, err);
                if (rc != SEMEL_OK)
                        return rc;
        }
        *ret_exists = t->exists;
        *ret_bytes_max = p->compressed ? 0 : t->bytes_max;
        return SEMEL_OK;
}

void bus_topic_why_not(struct bus_producer *p, const char *topic, const char **ret_name, const char **ret_text)
{
        const struct topic *t = topic_get(p, span_str(topic), NULL);
        bool said = t && t->looked_at_us != 0 && t->said != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART &&
                    t->said != RD_KAFKA_RESP_ERR_NO_ERROR;
        *ret_name = said ? rd_kafka_err2name(t->said) : "UNKNOWN_TOPIC";
        *ret_text = said ? rd_kafka_err2str(t->said) : "the broker has no such topic";
}

/* -- partitions that cannot be written --------------------------------------------------------------- */

size_t bus_topic_stuck(struct bus_producer *p, const char *topic)
{
        const struct topic *t = topic_get(p, span_str(topic), NULL);
        return t ? (size_t)t->stuck : 0;
}

bool bus_is_stuck(struct bus_producer *p, const struct event *event)
{
        const struct topic *t = topic_get(p, event->topic, NULL);
        if (!t || t->stuck == 0)
                return false;
        if (event->partition != EVENT_NO_PARTITION)
                return is_stuck(t, event->partition);
        if (event->key_is_null)
                return t->stuck == t->partitions;
        const void *key = event->key.n > 0 ? (const void *)event->key.p : "";
        return is_stuck(t, rd_kafka_msg_partitioner_murmur2(t->rkt, key, event->key.n, t->partitions,
                                                            NULL, NULL));
}

/* A record without a key may go anywhere, so it goes where it is taken. */
int32_t topic_partition(struct topic *t, const struct event *event)
{
        if (event->partition != EVENT_NO_PARTITION)
                return event->partition;
        for (int32_t i = 0; i < t->partitions && t->stuck > 0 && event->key_is_null; i++) {
                t->turn = (t->turn + 1) % t->partitions;
                if (!is_stuck(t, t->turn))
                        return t->turn;
        }
        return RD_KAFKA_PARTITION_UA;
}
