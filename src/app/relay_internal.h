/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_internal: what the threads of one relay share.
 *
 * A slot's way:
 *
 *     not ours --take--> ours (epoch, a lane) --hold--> in a batch --let go--> ours
 *         ^                |                                                     |
 *         |<--lost---------+  the database says so, or a mark does               |
 *         |<--give---------------------------------- giving, between batches ----+   (rule C2)
 */
#ifndef APP_RELAY_INTERNAL_H
#define APP_RELAY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "app/daemon.h"
#include "app/relay.h"
#include "app/relay_metrics.h"
#include "bus/bus.h"
#include "core/outbox_plan.h"
#include "store/outbox.h"

struct relay;
struct lane;

struct relay_slot {
        atomic_int_fast64_t epoch; /* 0: not ours */
        int lane;
        bool held;   /* a lane's batch may have rows of it */
        bool giving; /* no new batch begins with it */
        int64_t settled; /* exactly-once: the epoch in which nothing of its batches is unknown */
};

/* A thread of the relay, and its sign of life. */
struct relay_thread {
        pthread_t id;
        bool started;
        atomic_bool ended;
        atomic_int_fast64_t moved_us;
};

/* Wakes one thread that sleeps; a wake that comes before the sleep counts. */
struct wakeup {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool woken;
};
int wakeup_init(struct wakeup *w);
void wakeup_send(struct wakeup *w);
void wakeup_wait(struct wakeup *w, int64_t us);

struct relay {
        const struct relay_config *config;
        const char *url;
        outbox_open_fn *open;
        void (*say_line)(const char *line);
        struct daemon *daemon;
        enum outbox_mode mode;
        struct outbox_mapping mapping;
        struct outbox_member me;
        uint8_t uuid[EVENT_ID_BYTES]; /* of the outbox */
        struct bus_config bus;
        struct bus_property property[PROPERTIES_MAX];
        char info[64];

        pthread_mutex_t lock; /* slots */
        struct relay_slot slot[EVENT_SLOTS];
        atomic_int_fast64_t lease_end_us; /* of all our slots; CLOCK_BOOTTIME (rule C1) */

        struct lane *lane;
        int lane_count;
        struct relay_thread keeper, watcher, chores;
        struct wakeup keeper_wakeup, watcher_wakeup, chores_wakeup;

        atomic_bool draining, cut, failed;
        atomic_int_fast64_t drain_deadline_us;
        atomic_bool joined, db_away;
        atomic_int_fast64_t log_us, dead_us; /* when a line of librdkafka, a DEAD row was said last */
        atomic_int_fast64_t dead_unsaid;
        semel_error failure;        /* when failed */
        struct relay_metrics metrics;
};

void relay_say(struct relay *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A row became DEAD.  Not each of very many is said. */
void relay_say_dead(struct relay *r, int64_t id, const char *reason);
/* For good: the process ends with this error.  From any thread; the first one counts. */
void relay_fail(struct relay *r, const semel_error *err);
/* The database does not answer, or does again: said once. */
void relay_db_away(struct relay *r, const semel_error *err);
void relay_db_back(struct relay *r);
static inline bool relay_is_overdue(struct relay *r, int64_t now_us)
{
        return atomic_load(&r->draining) && now_us >= atomic_load(&r->drain_deadline_us);
}
/* single: how long a batch's rows stay locked; the database ends a transaction that is open for most of
 * the lease (rule C6). */
static inline int64_t relay_locked_us(const struct relay *r)
{
        return r->mode == OUTBOX_SINGLE ? r->config->slot_lease_us / 2 : INT64_MAX / 2;
}
/* The earlier of two deadlines: this one, and that of the shutdown once it has begun. */
int64_t relay_deadline_us(struct relay *r, int64_t deadline_us);

/* -- slots: relay_share.c -------------------------------------------------------------------------- */

/* Begin a batch: the lane's slots, held from now on.  0: none, or the lease is over, or draining. */
size_t relay_share_hold(struct relay *r, int lane, struct outbox_slot *ret /* EVENT_SLOTS */);
void relay_share_let_go(struct relay *r, int lane);
/* Tested before each produce. */
bool relay_share_owns(struct relay *r, const struct outbox_slot *slot);
/* Wake the lanes that have these slots. */
void relay_share_wake(struct relay *r, uint32_t slots);
/* The lane's slots now, without holding them. */
size_t relay_share_of_lane(struct relay *r, int lane, struct outbox_slot *ret);
/* What the database says we own, until lease_end_us. */
void relay_share_update(struct relay *r, const struct outbox_view *view, int64_t lease_end_us);
/* A mark found the slot lost. */
void relay_share_lose(struct relay *r, int16_t slot, int64_t epoch);
/* No new batch begins with these. */
void relay_share_giving(struct relay *r, uint32_t slots);
/* Those of them that no batch holds any more; forget them once they are given. */
uint32_t relay_share_givable(struct relay *r);
void relay_share_given(struct relay *r, uint32_t slots);
uint32_t relay_share_mine(struct relay *r);
/* exactly-once: a lane knows what became of all batches of these slots, or does so no more. */
void relay_share_settle(struct relay *r, const struct outbox_slot *slots, size_t n, bool settled);
/* Of ours: a batch of theirs may be committed and unmarked (rule C8a). */
uint32_t relay_share_unsettled(struct relay *r);

/* -- threads ------------------------------------------------------------------------------------------- */

/* arg is passed to main; err: SEMEL_ERR_INTERNAL. */
semel_code relay_thread_start(struct relay_thread *t, void *(*main)(void *), void *arg,
                              semel_error *err);
bool relay_lanes_ended(const struct relay *r);
void *relay_keeper_main(void *arg);
void *relay_watcher_main(void *arg);
void *relay_chores_main(void *arg);

semel_code relay_session_open(struct relay *r, const char *name, struct outbox_session **ret,
                              semel_error *err);

#endif
