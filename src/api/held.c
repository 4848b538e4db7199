/* SPDX-License-Identifier: Apache-2.0
 *
 * held: see held.h.
 */
#include "api/held.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "core/limits.h"

enum {
        BUCKETS = 256,
        /* Waiters hold a thread each; past this the answer is "in flight" at once. */
        WAITERS_MAX = 4096,
};

struct held {
        pthread_mutex_t lock;
        pthread_cond_t ended; /* some key ended: waiters look whether it was theirs */
        struct held_entry *entries[BUCKETS];
        struct held_waiter *waiters[BUCKETS];
        size_t waiter_count;
};

struct held *held_new(void)
{
        struct held *held = calloc(1, sizeof *held);
        if (!held)
                return NULL;
        pthread_condattr_t attr;
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&held->ended, &attr);
        (void)pthread_condattr_destroy(&attr);
        (void)pthread_mutex_init(&held->lock, NULL);
        return held;
}

void held_free(struct held *held)
{
        if (!held)
                return;
        (void)pthread_cond_destroy(&held->ended);
        (void)pthread_mutex_destroy(&held->lock);
        free(held);
}

/* Ids are digests: any byte is a hash. */
static size_t bucket_of(const struct command_id *id)
{
        return id->b[0];
}

void held_add(struct held *held, struct held_entry *entry)
{
        pthread_mutex_lock(&held->lock);
        struct held_entry **at = &held->entries[bucket_of(&entry->id)];
        entry->next = *at;
        *at = entry;
        entry->linked = true;
        pthread_mutex_unlock(&held->lock);
}

void held_extend(struct held *held, struct held_entry *entry, int64_t deadline_us)
{
        pthread_mutex_lock(&held->lock);
        entry->deadline_us = deadline_us;
        pthread_mutex_unlock(&held->lock);
}

void held_remove(struct held *held, struct held_entry *entry)
{
        pthread_mutex_lock(&held->lock);
        if (entry->linked) {
                struct held_entry **at = &held->entries[bucket_of(&entry->id)];
                while (*at != entry)
                        at = &(*at)->next;
                *at = entry->next;
                entry->linked = false;
                bool any = false;
                struct held_waiter *w = held->waiters[bucket_of(&entry->id)];
                for (; w; w = w->next)
                        if (command_id_eq(&w->id, &entry->id))
                                any = w->woken = true;
                if (any)
                        (void)pthread_cond_broadcast(&held->ended);
        }
        pthread_mutex_unlock(&held->lock);
}

bool held_busy(struct held *held, const struct command_id *id,
               const struct command_fingerprint *fingerprint, int64_t now_us,
               int64_t *ret_held_us, int64_t *ret_left_us)
{
        bool busy = false;
        pthread_mutex_lock(&held->lock);
        for (struct held_entry *e = held->entries[bucket_of(id)]; e && !busy; e = e->next) {
                if (!command_id_eq(&e->id, id) || now_us >= e->deadline_us ||
                    memcmp(e->fingerprint.b, fingerprint->b, sizeof fingerprint->b) != 0)
                        continue;
                *ret_held_us = now_us - e->claimed_us;
                *ret_left_us = e->deadline_us - now_us;
                busy = true;
        }
        pthread_mutex_unlock(&held->lock);
        return busy;
}

bool held_wait_begin(struct held *held, struct held_waiter *w, const struct command_id *id)
{
        pthread_mutex_lock(&held->lock);
        bool room = held->waiter_count < WAITERS_MAX;
        if (room) {
                *w = (struct held_waiter){.id = *id, .next = held->waiters[bucket_of(id)]};
                held->waiters[bucket_of(id)] = w;
                held->waiter_count++;
        }
        pthread_mutex_unlock(&held->lock);
        return room;
}

void held_wait_sleep(struct held *held, struct held_waiter *w, int64_t us)
{
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = (int64_t)until.tv_nsec + us % SECOND * 1000;
        until.tv_sec += (time_t)(us / SECOND + ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);

        pthread_mutex_lock(&held->lock);
        int rc = 0;
        while (!w->woken && rc == 0)
                rc = pthread_cond_timedwait(&held->ended, &held->lock, &until);
        w->woken = false;
        pthread_mutex_unlock(&held->lock);
}

void held_wait_end(struct held *held, struct held_waiter *w)
{
        pthread_mutex_lock(&held->lock);
        struct held_waiter **at = &held->waiters[bucket_of(&w->id)];
        while (*at != w) {
                assert(*at);
                at = &(*at)->next;
        }
        *at = w->next;
        held->waiter_count--;
        pthread_mutex_unlock(&held->lock);
}
