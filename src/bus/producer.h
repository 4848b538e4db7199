/* SPDX-License-Identifier: Apache-2.0
 *
 * producer: its inside, for tx.c and topic.c.  Inside src/bus only.
 */
#ifndef BUS_PRODUCER_H
#define BUS_PRODUCER_H

#include "bus/client.h"

/* Topics that a producer remembers.  Past it, one without unreported messages is forgotten. */
enum { TOPIC_BUCKETS = 128, TOPICS_MAX = 1024 };

struct topic_partition {
        int32_t in_sync; /* replicas; 0: it has no leader */
        int32_t replicas;
};

struct topic {
        struct topic *next;
        rd_kafka_topic_t *rkt;
        size_t unreported;      /* messages */
        size_t bytes;           /* of those since there were none */
        int64_t looked_at_us;   /* 0: never */
        int64_t bytes_max;      /* the broker's limit for a batch; 0: not known */
        bool exists;
        rd_kafka_resp_err_t said;  /* about it, by the broker */
        int32_t partitions, stuck; /* stuck: of these, so many cannot be written */
        struct topic_partition *partition;
        int32_t min_in_sync;       /* min.insync.replicas, at least 1 */
        int32_t turn;              /* the partition of the last record without a key, while some are stuck */
        size_t name_n;
        char name[];
};

struct bus_producer {
        rd_kafka_t *rk;
        struct bus_client client;
        void (*on_report)(void *arg, const struct bus_report *report);
        void *arg;
        size_t unreported;
        bool compressed;
        bool broken; /* a report was BROKEN, or it was abandoned */
        bool abandoned;
        semel_error why;
        struct topic *last; /* most messages go where the one before went */
        struct topic *bucket[TOPIC_BUCKETS];
        size_t topic_count;
};

/* NULL: out of memory, or librdkafka does not take the name (err says so). */
struct topic *topic_get(struct bus_producer *p, struct span name, semel_error *err);
void topics_free(struct bus_producer *p);
/* Which partition is asked for; RD_KAFKA_PARTITION_UA: librdkafka's choice. */
int32_t topic_partition(struct topic *t, const struct event *event);

#endif
