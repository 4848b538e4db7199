/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_part: the partitions that this consumer has: their queues, what of them is paused, their
 * offsets, and how they come and go (rule D4).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "consume/consume_internal.h"
#include "sys/clock.h"

static size_t message_bytes(const struct bus_message *m)
{
        size_t n = sizeof *m + m->event.key.n + m->event.payload.n;
        for (size_t i = 0; i < m->event.header_count; i++)
                n += m->event.headers[i].name.n + m->event.headers[i].value.n;
        return n;
}

static struct part *find(struct consume *c, const char *topic, int32_t partition)
{
        for (struct part *p = c->parts; p; p = p->next)
                if (p->partition == partition && strcmp(p->topic, topic) == 0)
                        return p;
        return NULL;
}

static struct part *add(struct consume *c, const char *topic, int32_t partition)
{
        struct part *p = find(c, topic, partition);
        if (p)
                return p;
        p = calloc(1, sizeof *p);
        if (!p)
                return NULL;
        (void)snprintf(p->topic, sizeof p->topic, "%s", topic);
        p->partition = partition;
        p->done_offset = p->sent_offset = -1;
        p->lag = -1;
        p->progress_us = clock_boot_us();
        inbox_plan_init(&p->plan, c->config.attempts_max, c->config.batch_rows);
        p->next = c->parts;
        c->parts = p;
        c->part_count++;
        return p;
}

void part_pop(struct consume *c, struct part *p, size_t n)
{
        assert(n <= p->n);
        for (size_t i = 0; i < n; i++) {
                size_t bytes = message_bytes(p->q[(p->head + i) % p->cap]);
                p->bytes -= bytes;
                c->queued_bytes -= bytes;
        }
        p->head = p->cap ? (p->head + n) % p->cap : 0;
        p->n -= n;
}

/* Forget and free what is queued. */
static void empty(struct consume *c, struct part *p)
{
        size_t head = p->head, n = p->n;
        part_pop(c, p, n);
        for (size_t i = 0; i < n; i++)
                bus_message_free(p->q[(head + i) % p->cap]);
}

void part_free(struct consume *c, struct part *p)
{
        empty(c, p);
        free(p->q);
        free(p);
}

static void unlink_part(struct consume *c, struct part *p)
{
        struct part **at = &c->parts;
        while (*at != p)
                at = &(*at)->next;
        *at = p->next;
        p->next = NULL;
        c->part_count--;
}

void part_free_all(struct consume *c)
{
        while (c->parts) {
                struct part *p = c->parts;
                unlink_part(c, p);
                part_free(c, p);
        }
}

/* -- messages ---------------------------------------------------------------------------------- */

static bool grow(struct part *p)
{
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct bus_message **q = malloc(cap * sizeof(struct bus_message *));
        if (!q)
                return false;
        for (size_t i = 0; i < p->n; i++)
                q[i] = p->q[(p->head + i) % p->cap];
        free(p->q);
        p->q = q;
        p->head = 0;
        p->cap = cap;
        return true;
}

bool part_push(struct consume *c, struct bus_message *m)
{
        char topic[LIMIT_EVENT_TOPIC_BYTES + 1];
        (void)snprintf(topic, sizeof topic, "%.*s", (int)m->event.topic.n,
                       (const char *)m->event.topic.p);
        (void)pthread_mutex_lock(&c->mu);
        struct part *p = find(c, topic, m->partition);
        /* Of a partition that is not ours (any more): whoever has it reads it. */
        bool fits = !p || p->n < p->cap || grow(p);
        if (!p || !fits) {
                (void)pthread_mutex_unlock(&c->mu);
                bus_message_free(m);
                return fits;
        }
        if (p->n == 0)
                p->progress_us = clock_boot_us();
        p->q[(p->head + p->n++) % p->cap] = m;
        size_t bytes = message_bytes(m);
        p->bytes += bytes;
        c->queued_bytes += bytes;
        if (p->n == 1 && !p->running)
                (void)pthread_cond_signal(&c->work);
        (void)pthread_mutex_unlock(&c->mu);
        return true;
}

/* A queue holds many batches ahead (what is paused is fetched anew); past that, or when all together hold too much, the partition is
 * paused, and goes on when its queue is half empty. */
void part_regulate(struct consume *c)
{
        size_t high = LIMIT_CONSUME_QUEUED_ROWS;
        for (;;) {
                struct part *p;
                bool pause = false;
                (void)pthread_mutex_lock(&c->mu);
                size_t share = LIMIT_CONSUME_QUEUED_BYTES / (c->part_count ? c->part_count : 1);
                bool is_full = c->queued_bytes > LIMIT_CONSUME_QUEUED_BYTES / 2;
                for (p = c->parts; p; p = p->next) {
                        bool over = p->n >= high || (is_full && p->bytes > share / 2);
                        bool under = p->n <= high / 2 && (!is_full || p->bytes < share / 4);
                        if (!p->paused && over)
                                pause = true;
                        else if (!p->paused || !under)
                                continue;
                        p->paused = pause;
                        break;
                }
                (void)pthread_mutex_unlock(&c->mu);
                if (!p) /* only this thread adds and removes partitions */
                        return;
                (void)bus_consumer_pause(c->bus, p->topic, p->partition, pause, NULL);
        }
}

bool part_any_paused(const struct consume *c)
{
        for (const struct part *p = c->parts; p; p = p->next) /* `paused` is this thread's */
                if (p->paused)
                        return true;
        return false;
}

/* -- offsets -------------------------------------------------------------------------------------- */

/* One request for those that moved. */
static void commit_some(struct consume *c)
{
        struct bus_partition list[LIMIT_CONSUME_PARTITIONS]; /* part_assign() takes no more */
        struct part *who[LIMIT_CONSUME_PARTITIONS];
        size_t n = 0;
        semel_error err = {0};
        (void)pthread_mutex_lock(&c->mu);
        for (struct part *p = c->parts; p; p = p->next) {
                if (p->done_offset < 0 || p->done_offset == p->sent_offset)
                        continue;
                list[n] = (struct bus_partition){p->topic, p->partition, p->done_offset};
                who[n++] = p;
        }
        (void)pthread_mutex_unlock(&c->mu);
        if (n == 0)
                return;
        semel_code code = bus_consumer_commit(c->bus, list, n, &err);
        /* A generation that is over, a broker that is away: the events come again, and their ids are
         * in the database (O73). */
        if (code != SEMEL_OK && code != SEMEL_ERR_LOST)
                return;
        for (size_t i = 0; i < n; i++)
                who[i]->sent_offset = list[i].offset;
        c->caught_up |= code == SEMEL_OK;
}

void part_commit(struct consume *c)
{
        commit_some(c);
        /* Rows may be forgotten once what a lost offset could bring again was seen (O65): every
         * partition has committed an offset in this run, or was quiet for long.  They are forgotten for
         * all members of the group: one that has got a partition just now needs time to read it, and who
         * has none knows nothing. */
        int64_t now_us = clock_boot_us(), quiet_us = now_us - CONSUME_QUIET_US;
        bool may = c->caught_up && c->parts && now_us >= c->settled_us;
        (void)pthread_mutex_lock(&c->mu);
        for (const struct part *p = c->parts; p; p = p->next)
                may &= p->sent_offset >= 0 || (p->n == 0 && p->progress_us < quiet_us);
        (void)pthread_mutex_unlock(&c->mu);
        atomic_store(&c->may_prune, may);
}

/* -- rebalances ------------------------------------------------------------------------------------ */

void part_assign(struct consume *c, const struct bus_partition *list, size_t n)
{
        int64_t settle_us = c->config.retention_us / CONSUME_SETTLE_SHARE;
        c->settled_us = clock_boot_us() +
                        (settle_us < CONSUME_SETTLE_US ? settle_us : CONSUME_SETTLE_US);
        atomic_store(&c->may_prune, false);
        count(c, COUNT_REBALANCES, 1);
        consume_say(c, "%zu partition%s assigned", n, n == 1 ? "" : "s");
        (void)pthread_mutex_lock(&c->mu);
        for (size_t i = 0; i < n && c->part_count < LIMIT_CONSUME_PARTITIONS; i++)
                if (!add(c, list[i].topic, list[i].partition))
                        break;
        (void)pthread_mutex_unlock(&c->mu);
        atomic_store(&c->ready, true);
}

static bool any_running(struct consume *c, const struct bus_partition *list, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const struct part *p = find(c, list[i].topic, list[i].partition);
                if (p && p->running)
                        return true;
        }
        return false;
}

static void cancel_running(struct consume *c, const struct bus_partition *list, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const struct part *p = find(c, list[i].topic, list[i].partition);
                for (int k = 0; p && p->running && k < c->config.workers; k++) {
                        struct worker *w = &c->workers[k];
                        if (w->part == p)
                                consume_cancel_worker(w);
                }
        }
}

/* Finish what runs, commit, give up; bounded (O72, O76). */
void part_revoke(struct consume *c, const struct bus_partition *list, size_t n, bool lost)
{
        count(c, COUNT_REBALANCES, 1);
        (void)pthread_mutex_lock(&c->mu);
        for (size_t i = 0; i < n; i++) {
                struct part *p = find(c, list[i].topic, list[i].partition);
                if (!p)
                        continue;
                p->gone = true;
                if (!p->running) /* else its worker pops what it is at; the rest goes with the partition */
                        empty(c, p);
        }
        int64_t until_us = clock_boot_us() + CONSUME_REVOKE_US;
        if (c->draining && c->deadline_us - CONSUME_CANCEL_US < until_us)
                until_us = c->deadline_us - CONSUME_CANCEL_US;
        while (any_running(c, list, n) && clock_boot_us() < until_us)
                consume_wait(c, &c->idle, until_us);
        if (any_running(c, list, n)) {
                cancel_running(c, list, n);
                until_us = clock_boot_us() + CONSUME_CANCEL_US;
                while (any_running(c, list, n) && clock_boot_us() < until_us)
                        consume_wait(c, &c->idle, until_us);
        }
        (void)pthread_mutex_unlock(&c->mu);
        if (!lost)
                part_commit(c);
        (void)pthread_mutex_lock(&c->mu);
        for (size_t i = 0; i < n; i++) {
                struct part *p = find(c, list[i].topic, list[i].partition);
                if (!p)
                        continue;
                unlink_part(c, p);
                if (!p->running) /* else its worker frees it, whenever it wakes */
                        part_free(c, p);
        }
        (void)pthread_mutex_unlock(&c->mu);
        consume_say(c, "%zu partition%s %s", n, n == 1 ? "" : "s", lost ? "lost" : "given up");
}

/* -- looks ------------------------------------------------------------------------------------------ */

/* A partition that has events and does not move is said, once (rule D2). */
static void look_at(struct consume *c, struct part *p, int64_t now_us)
{
        char reason[128] = "";
        (void)pthread_mutex_lock(&c->mu);
        bool is_stalled = p->n > 0 && now_us - p->progress_us > CONSUME_STALL_US;
        bool say = is_stalled && !p->stalled;
        p->stalled = is_stalled;
        if (say)
                (void)snprintf(reason, sizeof reason, "%.120s", p->reason);
        int64_t position = p->done_offset;
        (void)pthread_mutex_unlock(&c->mu);
        if (say) {
                count(c, COUNT_STALLS, 1);
                consume_say(c, "partition %s/%d makes no progress at offset %lld: %s", p->topic,
                            (int)p->partition, (long long)position,
                            *reason ? reason : "its handler has not returned");
        }
        const struct bus_partition at = {p->topic, p->partition, position};
        int64_t lag = position >= 0 ? bus_consumer_lag(c->bus, &at) : -1;
        (void)pthread_mutex_lock(&c->mu);
        p->lag = lag;
        (void)pthread_mutex_unlock(&c->mu);
}

void part_look(struct consume *c, int64_t now_us)
{
        for (struct part *p = c->parts; p; p = p->next) /* only this thread changes the list */
                look_at(c, p, now_us);
}
