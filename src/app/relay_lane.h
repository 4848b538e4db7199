/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_lane: one lane of a relay: a thread with a database session and a producer.
 *
 * Round by round: hold the slots, read, publish, wait for every report, mark, let go.  The next
 * read is issued after the mark was acknowledged, so that no snapshot can still show rows that are
 * published (rule C3), and one batch of a lane is unmarked at a time (rule C12).
 */
#ifndef APP_RELAY_LANE_H
#define APP_RELAY_LANE_H

#include "app/relay_internal.h"

#define LANE_STUCK "PARTITION_NOT_WRITABLE"
#define LANE_STUCK_WHY "no leader, or fewer replicas in sync than min.insync.replicas"

enum {
        LANE_TOPICS_MAX = 64,
        LANE_REASONS_BYTES_MAX = 256 * 1024,
        LANE_BATCH_SIZE = 1000000, /* librdkafka's default */
        LANE_APART_ROWS = 100,     /* of a batch whose rows are sent one by one: a request each */
};

struct lane_topic {
        char name[LIMIT_EVENT_TOPIC_BYTES + 1];
        size_t name_n;
        uint64_t batch;      /* the last one that has rows of it */
        bool exists;
        size_t stuck;        /* so many of its partitions cannot be written now */
        int64_t bytes_max;   /* of a record batch; 0: not known */
        int64_t looked_us;   /* 0: look again before the next record */
        int64_t missing_us;  /* since when it is not there; 0: it is, or was never looked for */
};

struct lane {
        struct relay *r;
        int index;
        struct relay_thread thread;
        struct wakeup wakeup;
        pthread_mutex_t busy; /* let go only while idle; whoever has it may read what follows */
        bool may_peek;        /* idle because there was nothing */
        struct blocked_keys blocked;

        struct outbox_session *s;
        struct outbox_quotas quotas;
        struct outbox_slot slot[EVENT_SLOTS]; /* held */
        size_t slot_count;
        int64_t known_epoch[EVENT_SLOTS]; /* whose blocked keys are in the set */
        int64_t refresh_us;               /* when DEAD rows that block are looked at again */
        int64_t unstick_us;

        /* the batch */
        struct outbox_rows rows;
        struct wave wave;
        struct span *key;      /* of each row; p NULL: none */
        int16_t *topic_of;     /* index into topic; -1: no room, not looked at */
        uint32_t *reason_of;   /* offset into reasons + 1; 0: none */
        struct outbox_mark *mark;
        struct span *blocked_span;
        struct buf reasons;
        bool cut;              /* it is full: nobody looked what else there is */
        int64_t batch_end_us;  /* when the broker has had its time */
        int64_t locked_end_us; /* single: when its transaction has had its own */
        bool unlocked;         /* single: it had; the batch goes on as one of owned */
        bool slow;             /* so did the last batch */
        bool purge, broken, rejected; /* rejected: a row that was sent was not taken */
        bool refused_together;        /* so that nobody knows which of them was */

        /* the broker */
        struct bus_producer *p;
        struct lane_topic topic[LANE_TOPICS_MAX];
        size_t topic_count;
        uint64_t batch; /* counts them */
        int64_t batch_size; /* librdkafka's batch.size for the next producer: no larger than a topic takes */
        int64_t used_size;  /* this producer's; INT64_MAX: not ours */
        uint32_t suspects;  /* slots with rows that were refused together: each of those is sent alone */
        int64_t suspect_last[EVENT_SLOTS]; /* the youngest of them */
        bool one_by_one;    /* this producer does so */
        bool broker_away;
        int64_t broker_back_us; /* since when it answers */
        uint64_t chance;

        /* exactly-once */
        bool recovered; /* nothing is unknown since the last init_transactions: lane_recovered() */
        bool marker_sent;
        struct buf marker;
};

semel_code lane_init(struct lane *l, struct relay *r, int index, semel_error *err);
semel_code lane_start(struct lane *l, semel_error *err);
/* The thread has ended, or never began. */
void lane_release(struct lane *l);
void lane_wake(struct lane *l);

/* -- relay_wave.c: from rows to reports ------------------------------------------------------------ */

/* A producer, if there is none.  false: said why. */
bool lane_producer_open(struct lane *l);
/* Throw it away; what it had in its queue is reported as untried. */
void lane_producer_drop(struct lane *l, const char *why);
/* Is the broker there, when it was not?  Looks at a topic. */
bool lane_broker_ready(struct lane *l);
/* Prepare the rows that were read: keys, topics.  false: the broker does not answer. */
bool lane_wave_begin(struct lane *l);
/* Publish them and wait for all reports, or until the batch's time is over.  marker: not NULL: a
 * last message, made when it is known which rows are under way. */
void lane_wave_run(struct lane *l, bool (*last)(struct lane *l));
bool lane_owns_all(struct lane *l);
void lane_broker_is_away(struct lane *l, const semel_error *why);
void lane_broker_is_back(struct lane *l);
/* Nobody asks any more.  false: it was not away. */
bool lane_broker_forget(struct lane *l);
enum { LANE_NO_OPAQUE = -1 };

/* -- relay_settle.c: from reports to marks ---------------------------------------------------------- */

/* Mark what is known.  aborted: the transaction is gone: nothing was published. */
/* false: the marks did not get through. */
bool lane_settle(struct lane *l, bool aborted);
bool lane_blocked_refresh(struct lane *l);

/* -- relay_exactly_once.c ------------------------------------------------------------------------------ */

/* A producer of this epoch, and what its forerunner left is finished.  false: not now. */
bool lane_recover(struct lane *l);
/* Nothing is unknown of the slots that are held, or something is. */
void lane_recovered(struct lane *l, bool yes);
/* Publish the batch in one Kafka transaction and mark it. */
void lane_transaction(struct lane *l);

#endif
