/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_chores: what nobody waits for, on a clock and a connection of its own, so that it happens
 * under load too (O48) and never delays a renewal: deleting kept rows, counting for the metrics, ending
 * sessions of stopped relays that hold locks (rule B3).
 */
#include "app/relay_internal.h"
#include "base/err.h"

#define PRUNE_EACH_US (1 * SECOND)
#define PRUNE_SLICE_US (200 * MS)
#define COUNT_EACH_US (15 * SECOND)
#define REAP_US_MIN (3 * SECOND) /* a slow line is not a stopped process */
#define CHORE_DEADLINE_US (5 * SECOND)

static void prune(struct relay *r, struct outbox_session *s)
{
        struct semel_error err = {0};
        int64_t begun_us = clock_boot_us(), rows = LIMIT_OUTBOX_PRUNE_ROWS;
        while (rows >= LIMIT_OUTBOX_PRUNE_ROWS && !atomic_load(&r->draining) &&
               clock_boot_us() - begun_us < PRUNE_SLICE_US) {
                rows = 0;
                if (s->vt->prune(s, r->config->keep_us, false, clock_boot_us() + CHORE_DEADLINE_US,
                                 &rows, &err) != SEMEL_OK)
                        return;
                atomic_fetch_add(&r->metrics.pruned_rows, (uint64_t)rows);
        }
}

static void count(struct relay *r, struct outbox_session *s)
{
        struct outbox_stats stats = {0};
        struct semel_error err = {0};
        int64_t by_state[OUTBOX_STATES] = {0};
        if (s->vt->stats(s, clock_boot_us() + CHORE_DEADLINE_US, &stats, &err) != SEMEL_OK)
                return;
        for (size_t i = 0; i < stats.n; i++)
                by_state[stats.count[i].state] += stats.count[i].rows;
        for (int i = 0; i < OUTBOX_STATES; i++)
                atomic_store(&r->metrics.counted[i], by_state[i]);
        atomic_store(&r->metrics.oldest_pending_us, stats.oldest_pending_us);
        atomic_store(&r->metrics.oldest_xmin_us, stats.oldest_xmin_us);
        if (stats.release)
                stats.release(stats.driver);
}

/* A relay that was stopped, or cut off, between a batch's statement and its end. */
static void reap(struct relay *r, struct outbox_session *s, int64_t after_us)
{
        struct semel_error err = {0};
        int64_t ended = 0;
        if (s->vt->reap(s, after_us, clock_boot_us() + CHORE_DEADLINE_US, &ended, &err) == SEMEL_OK &&
            ended > 0)
                relay_say(r, "ended %lld database session%s of semel that had stopped in the middle of a "
                             "request and held its locks",
                          (long long)ended, ended == 1 ? "" : "s");
}

void *relay_chores_main(void *arg)
{
        struct relay *r = arg;
        struct outbox_session *s = NULL;
        struct semel_error err = {0};
        bool prunes = r->config->done == RELAY_DONE_KEEP, counts = r->config->admin[0];
        int64_t prune_us = 0, count_us = 0, reap_us = 0;
        int64_t after_us = r->config->slot_lease_us > REAP_US_MIN ? r->config->slot_lease_us : REAP_US_MIN;
        if (relay_session_open(r, "semel relay chores", &s, &err) != SEMEL_OK)
                relay_fail(r, &err);
        if (s && !s->vt->reap && !prunes && !counts) {
                s->vt->close(s);
                s = NULL;
        }
        while (s && !atomic_load(&r->draining)) {
                int64_t now = clock_boot_us();
                atomic_store(&r->chores.moved_us, now);
                if (prunes && now >= prune_us) {
                        prune(r, s);
                        prune_us = now + PRUNE_EACH_US;
                }
                if (counts && now >= count_us) {
                        count(r, s);
                        count_us = now + COUNT_EACH_US;
                }
                if (s->vt->reap && now >= reap_us) {
                        reap(r, s, after_us);
                        reap_us = now + after_us / 2;
                }
                wakeup_wait(&r->chores_wakeup, PRUNE_EACH_US);
        }
        if (s)
                s->vt->close(s);
        atomic_store(&r->chores.ended, true);
        daemon_look(r->daemon);
        return NULL;
}
