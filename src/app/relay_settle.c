/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_settle: from reports to marks, and which keys wait afterwards.  Marks are fenced by the
 * slots' epochs and by the row as it was read; none is made after the lease (rule C1).
 */
#include "app/relay_lane.h"
#include "base/err.h"

#define MARK_DEADLINE_US (10 * SECOND)
#define BLOCKED_DEADLINE_US (10 * SECOND)
#define AGAIN_US (100 * MS)
#define HELD_US (1 * SECOND)    /* then the topic is looked at again */
#define REFRESH_US (5 * SECOND) /* has an operator decided about DEAD rows that block? */

/* -- keys that wait --------------------------------------------------------------------------------------- */

static uint32_t slots_to_read(struct lane *l)
{
        uint32_t slots = 0;
        bool room = l->blocked.n < l->blocked.max / 2 && l->blocked.bytes_n < l->blocked.bytes_max / 2;
        for (size_t i = 0; i < l->slot_count; i++) {
                const struct outbox_slot *s = &l->slot[i];
                bool full = l->blocked.full >> s->slot & 1;
                if (l->known_epoch[s->slot] != s->epoch || (full && room))
                        slots |= UINT32_C(1) << s->slot;
        }
        if (clock_boot_us() >= l->refresh_us && blocked_keys_any_dead(&l->blocked))
                for (size_t i = 0; i < l->slot_count; i++)
                        slots |= UINT32_C(1) << l->slot[i].slot;
        return slots;
}

bool lane_blocked_refresh(struct lane *l)
{
        struct relay *r = l->r;
        const struct outbox_blocked *found = NULL;
        struct semel_error err = {0};
        size_t n = 0;
        uint32_t slots = slots_to_read(l);
        if (!slots)
                return true;
        if (l->s->vt->blocked(l->s, slots, (enum outbox_on_dead)r->config->on_dead,
                              LIMIT_OUTBOX_BLOCKED_KEYS,
                              relay_deadline_us(r, clock_boot_us() + BLOCKED_DEADLINE_US), &found,
                              &n, &err) != SEMEL_OK) {
                relay_db_away(r, &err);
                return false;
        }
        relay_db_back(r);
        int64_t now = clock_boot_us();
        blocked_keys_forget_slots(&l->blocked, slots);
        for (size_t i = 0; i < n; i++)
                (void)blocked_keys_add(&l->blocked, found[i].slot, found[i].key, now + found[i].wait_us,
                                       found[i].dead);
        /* There are more dead ones, which come first: the last slot that was shown is not complete, those
         * behind it were not. */
        if (n == LIMIT_OUTBOX_BLOCKED_KEYS && found[n - 1].dead)
                for (int16_t i = found[n - 1].slot; i < EVENT_SLOTS; i++)
                        l->blocked.full |= UINT32_C(1) << i & slots;
        int late = __builtin_popcount(l->blocked.full & slots);
        if (late > 0)
                relay_say(r, "lane %d: DEAD rows block too many keys: no new rows are read of %d slot%s (`semel "
                             "outbox status` shows them)",
                          l->index, late, late == 1 ? "" : "s");
        for (size_t i = 0; i < l->slot_count; i++)
                if (slots >> l->slot[i].slot & 1)
                        l->known_epoch[l->slot[i].slot] = l->slot[i].epoch;
        l->refresh_us = now + REFRESH_US;
        return true;
}

/* -- verdicts -------------------------------------------------------------------------------------------------- */

static uint64_t chance(struct lane *l)
{
        l->chance ^= l->chance << 13;
        l->chance ^= l->chance >> 7;
        l->chance ^= l->chance << 17;
        return l->chance ? l->chance : (l->chance = 1);
}

/* A topic that a restarting cluster does not know yet must not kill its rows (O35), nor one of which some
 * partitions cannot be written. */
static bool may_still_appear(struct lane *l, size_t i, int64_t now_us)
{
        if (l->topic_of[i] < 0)
                return false;
        if (l->topic[l->topic_of[i]].stuck > 0)
                return true;
        int64_t since_us = l->topic[l->topic_of[i]].missing_us;
        if (since_us == 0)
                return false;
        if (l->broker_back_us > since_us)
                since_us = l->broker_back_us;
        return l->broker_away || now_us - since_us < l->r->config->unknown_topic_us;
}

static void decide_failed(struct lane *l, size_t i, int64_t now_us, struct outbox_mark *m)
{
        const struct relay_config *c = l->r->config;
        m->verdict = OUTBOX_RETRY;
        m->retry_after_us = outbox_retry_wait_us(c->retry_min_us, c->retry_max_us, m->attempts,
                                                 chance(l));
        if (m->attempts + 1 >= c->attempts_max && !may_still_appear(l, i, now_us))
                m->verdict = OUTBOX_BURY;
}

/* In memory only: nothing was tried.  What has no room there waits in the database, as if it had been: only so
 * does the next batch have other rows. */
static void decide_held(struct lane *l, size_t i, int64_t now_us, struct outbox_mark *m)
{
        m->verdict = OUTBOX_UNTRIED;
        if (blocked_keys_add(&l->blocked, m->slot, l->key[i], now_us + HELD_US, false))
                return;
        m->reason = LANE_STUCK ": " LANE_STUCK_WHY;
        decide_failed(l, i, now_us, m);
}

static size_t decide(struct lane *l, bool aborted)
{
        struct relay *r = l->r;
        int64_t now = clock_boot_us();
        size_t n = 0;
        for (size_t i = 0; i < l->rows.n; i++) {
                const struct outbox_row *row = &l->rows.row[i];
                struct outbox_mark *m = &l->mark[n];
                *m = (struct outbox_mark){.id = row->id, .slot = row->slot, .attempts = row->attempts,
                                          .place = row->place, .event_id = row->event.id};
                if (l->reason_of[i])
                        m->reason = (const char *)l->reasons.p + l->reason_of[i] - 1;
                else
                        m->reason = "the broker gave no reason";
                switch (wave_fate(&l->wave, (int32_t)i)) {
                case WAVE_DONE:
                        m->verdict = aborted ? OUTBOX_UNTRIED : OUTBOX_DONE;
                        break;
                case WAVE_FAILED:
                        decide_failed(l, i, now, m);
                        break;
                case WAVE_REFUSED:
                        m->verdict = OUTBOX_BURY;
                        break;
                case WAVE_HELD:
                        decide_held(l, i, now, m);
                        break;
                case WAVE_UNTRIED:
                case WAVE_AGAIN:
                case WAVE_SENT:
                        m->verdict = OUTBOX_UNTRIED;
                        break;
                }
                /* Only two-phase has something to take back. */
                if (m->verdict != OUTBOX_UNTRIED || r->mode == OUTBOX_TWO_PHASE)
                        n++;
                else
                        atomic_fetch_add_explicit(&r->metrics.rows[RELAY_UNTRIED], 1,
                                                  memory_order_relaxed);
        }
        return n;
}

/* -- marking ---------------------------------------------------------------------------------------------------- */

/* Wait until the slots are surely ours, or surely not: no mark after the lease (rule C1).  Slots that
 * are not ours any more are dropped; false: none is left, or no time. */
static bool keep_owned(struct lane *l, size_t *n)
{
        struct relay *r = l->r;
        for (;;) {
                int64_t now = clock_boot_us();
                size_t kept = 0;
                uint32_t ours = 0;
                for (size_t i = 0; i < l->slot_count; i++)
                        if (atomic_load(&r->slot[l->slot[i].slot].epoch) == l->slot[i].epoch)
                                ours |= UINT32_C(1) << l->slot[i].slot;
                for (size_t i = 0; i < *n; i++)
                        if (ours >> l->mark[i].slot & 1)
                                l->mark[kept++] = l->mark[i];
                *n = kept;
                if (kept == 0 || relay_is_overdue(r, now))
                        return false;
                if (now < atomic_load(&r->lease_end_us))
                        return true;
                atomic_store(&l->thread.moved_us, now);
                wakeup_wait(&l->wakeup, AGAIN_US);
        }
}

/* in_doubt: marks of these rows may have been made before, and nobody heard of it (O55). */
static void after_mark(struct lane *l, const struct outbox_marked *marked, bool in_doubt)
{
        struct relay *r = l->r;
        for (size_t i = 0; i < l->slot_count; i++)
                if (marked->lost_mask >> l->slot[i].slot & 1)
                        relay_share_lose(r, l->slot[i].slot, l->slot[i].epoch);
        if (marked->lost_mask)
                wakeup_send(&r->keeper_wakeup);
        if (marked->changed > 0 && in_doubt) {
                relay_say(r, "lane %d: the answer to marks was lost; asked again, %zu row%s had been "
                             "marked",
                          l->index, marked->changed, marked->changed == 1 ? "" : "s");
        } else if (marked->changed > 0) {
                atomic_fetch_add(&r->metrics.changed_rows, marked->changed);
                relay_say(r, "lane %d: %zu row%s had been changed by somebody else; their marks "
                             "changed nothing",
                          l->index, marked->changed, marked->changed == 1 ? "" : "s");
        }
}

/* false: they did not get through, or nothing is left to be marked. */
static bool send_marks(struct lane *l, size_t *n, struct outbox_marked *ret, bool *ret_in_doubt)
{
        struct relay *r = l->r;
        enum outbox_mode mode = l->unlocked ? OUTBOX_OWNED : r->mode;
        struct semel_error err = {0};
        int tries = 0;
        bool in_doubt = false;
        while (keep_owned(l, n)) {
                int64_t now = clock_boot_us();
                atomic_store(&l->thread.moved_us, now);
                semel_code code = l->s->vt->mark(l->s, mode, r->config->done == RELAY_DONE_KEEP,
                                                 l->slot, l->slot_count, l->mark, *n,
                                                 relay_deadline_us(r, now + MARK_DEADLINE_US), ret,
                                                 &err);
                if (code == SEMEL_OK) {
                        relay_db_back(r);
                        *ret_in_doubt = in_doubt;
                        return true;
                }
                in_doubt |= code == SEMEL_ERR_UNKNOWN;
                /* Unknown, or not done, or done in part: the same marks again; a row that was marked is not
                 * as it was read and is left alone.  single: its transaction is gone, its marks are as good under
                 * the epochs. */
                if (mode == OUTBOX_SINGLE)
                        mode = OUTBOX_OWNED;
                relay_db_away(r, &err);
                if (tries++ > 0)
                        wakeup_wait(&l->wakeup, AGAIN_US);
        }
        if (*n > 0)
                atomic_store(&r->cut, true);
        return false;
}

/* The marks are in the order of the rows. */
static void block_failed_keys(struct lane *l, size_t n, uint32_t lost)
{
        int64_t now = clock_boot_us();
        size_t i = 0;
        for (size_t k = 0; k < n; k++) {
                const struct outbox_mark *m = &l->mark[k];
                while (l->rows.row[i].id != m->id || l->rows.row[i].slot != m->slot)
                        i++;
                bool dead = m->verdict == OUTBOX_BURY;
                if ((!dead && m->verdict != OUTBOX_RETRY) || !l->key[i].p || (lost >> m->slot & 1) ||
                    (dead && l->r->config->on_dead == OUTBOX_SKIP))
                        continue;
                (void)blocked_keys_add(&l->blocked, m->slot, l->key[i],
                                       now + m->retry_after_us, dead);
        }
}

static void count_marks(struct lane *l, size_t n)
{
        static const enum relay_outcome outcomes[] = {[OUTBOX_DONE] = RELAY_PUBLISHED,
                                                      [OUTBOX_RETRY] = RELAY_RETRIED,
                                                      [OUTBOX_BURY] = RELAY_BURIED,
                                                      [OUTBOX_UNTRIED] = RELAY_UNTRIED};
        struct relay *r = l->r;
        uint64_t counts[RELAY_OUTCOMES] = {0};
        for (size_t i = 0; i < n; i++) {
                counts[outcomes[l->mark[i].verdict]]++;
                if (l->mark[i].verdict == OUTBOX_BURY)
                        relay_say_dead(r, l->mark[i].id, l->mark[i].reason);
        }
        for (int i = 0; i < RELAY_OUTCOMES; i++)
                if (counts[i])
                        atomic_fetch_add(&r->metrics.rows[i], counts[i]);
        if (counts[RELAY_PUBLISHED] == l->rows.n)
                atomic_fetch_add(&r->metrics.bytes, l->rows.bytes);
}

/* Nothing is left of this slot's suspects, which are its eldest rows: each has been sent alone, or waits. */
static bool is_cleared(const struct lane *l, size_t n, int16_t slot)
{
        int64_t last = l->suspect_last[slot];
        size_t any = 0, left = 0, beyond = 0;
        for (size_t i = 0; i < l->rows.n; i++) {
                const struct outbox_row *row = &l->rows.row[i];
                any += row->slot == slot;
                left += row->slot == slot && row->id <= last;
                beyond += row->slot == slot && row->id >= last;
        }
        for (size_t i = 0; i < n; i++) {
                const struct outbox_mark *m = &l->mark[i];
                left -= m->slot == slot && m->id <= last && m->verdict != OUTBOX_UNTRIED;
        }
        return left == 0 && (beyond > 0 || (any == 0 && !l->cut));
}

/* Rows that were refused together have each been sent alone: back to batches.  Rows of other slots, and those
 * that went with the refused ones before this producer sent one by one, say nothing about them. */
static void clear_suspects(struct lane *l, size_t n)
{
        if (!l->one_by_one)
                return;
        for (int16_t slot = 0; slot < EVENT_SLOTS; slot++)
                if ((l->suspects >> slot & 1) && is_cleared(l, n, slot))
                        l->suspects &= ~(UINT32_C(1) << slot);
        if (l->suspects == 0)
                lane_producer_drop(l, "what was refused together was sent one by one, and goes in batches again");
}

bool lane_settle(struct lane *l, bool aborted)
{
        struct outbox_marked marked = {0};
        bool in_doubt = false;
        size_t n = decide(l, aborted);
        if (n == 0) {
                l->s->vt->abandon(l->s);
                return true;
        }
        if (!send_marks(l, &n, &marked, &in_doubt)) {
                l->s->vt->abandon(l->s);
                return false;
        }
        count_marks(l, n);
        clear_suspects(l, n);
        block_failed_keys(l, n, marked.lost_mask);
        after_mark(l, &marked, in_doubt);
        return marked.changed == 0;
}
