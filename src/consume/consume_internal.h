/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_internal: the inside of the engine.  Everything in struct consume that is not atomic or
 * the poll thread's own is behind `mu`.
 */
#ifndef CONSUME_INTERNAL_H
#define CONSUME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "consume/consume.h"
#include "core/inbox_plan.h"
#include "core/limits.h"

#define CONSUME_POLL_US (50 * MS)
#define CONSUME_PAUSED_US (5 * MS)         /* the same while something waits to be resumed */
#define CONSUME_QUIET_US (60 * SECOND)
#define CONSUME_COMMIT_US (200 * MS)       /* offsets are committed this often */
#define CONSUME_APPLY_US (300 * SECOND)    /* one transaction */
#define CONSUME_ASK_US (10 * SECOND)       /* one short statement */
#define CONSUME_POST_US (10 * SECOND)      /* one event's --post: no longer than a partition waits to go */
#define CONSUME_REVOKE_US (10 * SECOND)    /* what runs may finish within it when a partition goes */
#define CONSUME_CANCEL_US (2 * SECOND)     /* and then its end is waited for */
#define CONSUME_STALL_US (60 * SECOND)     /* rule D2 */
#define CONSUME_PRUNE_US (60 * SECOND)
/* Nothing is forgotten so soon after an assignment: this part of the retention, at most so long. */
enum { CONSUME_SETTLE_SHARE = 1000 };
#define CONSUME_SETTLE_US (1 * HOUR)
#define CONSUME_LETTER_US (1 * SECOND)
#define CONSUME_LAG_US (2 * SECOND)
#define CONSUME_SAY_US (60 * SECOND)       /* between two lines about a trouble that lasts */
#define CONSUME_LOG_US (5 * SECOND)        /* between two lines of librdkafka's own */
#define CONSUME_DOWN_US (1 * SECOND)       /* between tries of a database that is away */
#define CONSUME_STOP_US (5 * SECOND)       /* of one that only people can help */
enum { CONSUME_POST_ROWS = 16 };           /* events of one step of --post */

struct part {
        struct part *next;
        char topic[LIMIT_EVENT_TOPIC_BYTES + 1];
        int32_t partition;
        struct inbox_plan plan;
        /* a ring */
        struct bus_message **q;
        size_t head, n, cap;
        size_t bytes;
        bool running;  /* a worker has it */
        bool gone;     /* revoked: whoever runs it frees it */
        bool paused;
        bool stalled;  /* said */
        uint64_t served; /* its turn: the lowest is next */
        int64_t not_before_us;
        int64_t progress_us; /* the last time that it moved or had nothing to do */
        int64_t done_offset; /* the next one after what is committed in the database; -1: none */
        int64_t sent_offset; /* the same as told to the broker */
        int64_t lag;
        char reason[LIMIT_INBOX_REASON_BYTES]; /* why the last try failed */
};

/* An event of a batch that is being built: texts are offsets until the batch is complete. */
struct batch_event {
        size_t id_at, headers_at;
        bool id_copied;
        const char *fault; /* there is no usable id, or no room for the headers */
        semel_code code;   /* of what may work another time: no memory */
};

struct worker {
        struct consume *c;
        pthread_t thread;
        bool started;
        struct inbox_session *inbox;
        struct part *part; /* at work on; behind mu */
        struct inbox_event *events;
        struct batch_event *built;
        struct bus_message **messages;
        bool *seen;
        struct buf text;
        struct consume_posting posting;
};

enum counter {
        COUNT_PROCESSED,
        COUNT_DUPLICATES,
        COUNT_DEAD,
        COUNT_ALARMS,
        COUNT_FAILED,   /* tries that failed */
        COUNT_AGAIN,    /* transactions that were nobody's fault */
        COUNT_LOST,     /* connections lost under a transaction */
        COUNT_BATCHES,
        COUNT_RETRIED,  /* letters applied */
        COUNT_REBALANCES,
        COUNT_STALLS,
        COUNTS
};

struct consume {
        struct consume_config config;
        const char *consumer;
        bool needs_headers;
        atomic_uint_fast64_t counts[COUNTS];
        atomic_bool ready, database_down;
        atomic_int_fast64_t log_us; /* when a line of librdkafka was passed on */
        atomic_uint_fast64_t turns;
        uint64_t turns_seen;

        pthread_mutex_t mu;
        pthread_cond_t work; /* for workers */
        pthread_cond_t idle; /* for the poll thread and the keeper: a worker is done, or it ends */
        struct part *parts;
        size_t part_count, running, queued_bytes;
        uint64_t turn;
        bool checked; /* the database, by the poll thread */
        bool draining, stopping, cut;
        int64_t deadline_us;
        semel_error failed; /* why it cannot go on */

        /* the poll thread's own, and consume_close()'s after it */
        pthread_t poll_thread;
        bool poll_started;
        struct bus_consumer *bus;
        int64_t trouble_us; /* when a trouble with the broker was said; 0: there is none */
        semel_code trouble;
        bool caught_up; /* an offset was committed in this run (O65) */
        int64_t settled_us; /* the last assignment is that long ago then that rows may be forgotten */
        atomic_bool may_prune;

        pthread_t keeper_thread;
        bool keeper_started;
        struct inbox_session *keeper;
        struct consume_posting keeper_posting;

        atomic_bool ended;
        struct worker workers[CONSUME_WORKERS_MAX];
};

static inline void count(struct consume *c, enum counter which, size_t n)
{
        atomic_fetch_add_explicit(&c->counts[which], n, memory_order_relaxed);
}

void consume_say(struct consume *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Wait on a condition, at most until `until_us` (CLOCK_BOOTTIME); behind mu. */
void consume_wait(struct consume *c, pthread_cond_t *cond, int64_t until_us);

/* Behind mu: end what this worker is at. */
void consume_cancel_worker(struct worker *w);

/* consume_part.c, all behind mu or on the poll thread */
void part_assign(struct consume *c, const struct bus_partition *p, size_t n);
void part_revoke(struct consume *c, const struct bus_partition *p, size_t n, bool lost);
/* Takes the message.  false: no memory for it: open another consumer, whoever goes on skips it. */
bool part_push(struct consume *c, struct bus_message *m);
/* Pause and resume by how full the queues are. */
void part_regulate(struct consume *c);
/* Tell the broker what the database has. */
void part_commit(struct consume *c);
bool part_any_paused(const struct consume *c); /* on the poll thread */
void part_look(struct consume *c, int64_t now_us); /* stalls and lag */
/* Forget the first n messages; their memory is the caller's to free. */
void part_pop(struct consume *c, struct part *p, size_t n);
void part_free(struct consume *c, struct part *p);
void part_free_all(struct consume *c);

/* consume_event.c */
/* Build the first n messages of w->messages into w->events; returns how many are usable: fewer when
 * one without an id is in between; 0: the first one is such, *ret_fault says what is wrong; NULL: there is
 * no memory for it. */
size_t batch_build(struct worker *w, const struct part *p, size_t n, const char **ret_fault);
/* The headers of an event as JSON, behind w->text, which moves.  As event_headers_encode_any(). */
semel_code headers_build(struct worker *w, const struct bus_message *m, struct inbox_event *e);

void *consume_worker_main(void *arg);
void *consume_keeper_main(void *arg);
void *consume_poll_main(void *arg);

#endif
