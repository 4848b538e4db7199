/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: the engine of `semel consume` and semel_consume(): from Kafka into a database, each event
 * once (rules D1 to D5).
 *
 *     poll thread ----> partition's queue ----> worker: one transaction a batch
 *      (the group,                                |
 *       offsets) <------- what is committed ------+
 *
 * One thread owns the consumer: it fetches, answers rebalances, and commits offsets after the
 * database has committed.  Workers, each with its own inbox session, take one partition at a time,
 * so that a partition's events keep their order and partitions do not wait for each other.  A keeper
 * applies letters that an operator wants retried, and forgets what is past its retention.
 */
#ifndef CONSUME_CONSUME_H
#define CONSUME_CONSUME_H

#include <pthread.h>

#include "bus/bus.h"
#include "store/inbox.h"

enum { CONSUME_TOPICS_MAX = 64, CONSUME_WORKERS_MAX = 64 };

/* What a handler outside the database said (--post). */
enum consume_posted {
        CONSUME_POSTED_DONE,
        CONSUME_POSTED_REFUSED, /* a final no: counts as a failed try */
        CONSUME_POSTED_UNKNOWN, /* no final reply: again, with the same key */
};

/* What runs for an event outside the database, so that the engine can end it early. */
struct consume_posting {
        pthread_mutex_t *mu;        /* the engine's: of all that follows */
        void (*cancel)(void *call); /* from any thread, and without waiting */
        void *call;                 /* NULL: nothing runs */
        bool cancelled;
};
/* The handler's: around its call.  false: it is to be ended already. */
bool consume_posting_begin(struct consume_posting *p, void (*cancel)(void *call), void *call);
void consume_posting_end(struct consume_posting *p);

/* All borrowed; must outlive the engine. */
struct consume_config {
        const char *db;
        inbox_open_fn *inbox_open;
        struct bus_config bus;
        const char *group;
        const char *const *topics;
        size_t topic_count;
        const char *consumer;         /* NULL: the group */
        const char *source;           /* NULL: the topic */
        const char *event_id_pointer; /* NULL: the header event-id */
        const char *dead_topic;       /* NULL: none */
        struct inbox_handler handler;
        enum consume_posted (*post)(void *arg, const struct inbox_event *event,
                                    int64_t deadline_us, struct consume_posting *posting,
                                    semel_error *why);
        void *post_arg;
        int attempts_max;
        size_t batch_rows;
        int workers;
        int64_t retention_us;
        void (*say)(void *arg, const char *line); /* from any thread */
        void *say_arg;
        void (*on_ended)(void *arg); /* from any thread: consume_ended() may be true now */
        void *ended_arg;
};

struct consume;

/* Check the configuration, start the threads.  The database and the broker may be away: they are
 * waited for.  Errors: SEMEL_ERR_ARGUMENT, SEMEL_ERR_URL, SEMEL_ERR_NO_MEMORY, SEMEL_ERR_INTERNAL. */
semel_code consume_new(const struct consume_config *config, struct consume **ret,
                       semel_error *err);

/* From any thread. */
void consume_drain(struct consume *c, int64_t deadline_us); /* host CLOCK_BOOTTIME */
bool consume_ended(struct consume *c);
bool consume_ready(struct consume *c);
/* Has the poll thread moved since the last call? */
bool consume_alive(struct consume *c);
int consume_metrics(struct consume *c, struct buf *out);

/* After consume_ended(), or to give up: joins the threads.  SEMEL_OK: everything that had begun was
 * finished.  SEMEL_ERR_BUSY: the deadline cut something off; a handler that has not returned may still be
 * running, with everything that was borrowed: end the process.  Others: why it could not go on. */
semel_code consume_close(struct consume *c, semel_error *err);

#endif
