/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_share: which slots are ours, who of our lanes has them, until when (rules C1, C2).
 */
#include "app/relay_internal.h"
#include "app/relay_lane.h"

static bool lease_is_over(struct relay *r)
{
        int64_t now = clock_boot_us();
        return now >= atomic_load(&r->lease_end_us);
}

size_t relay_share_of_lane(struct relay *r, int lane, struct outbox_slot *ret)
{
        size_t n = 0;
        pthread_mutex_lock(&r->lock);
        for (int16_t i = 0; i < EVENT_SLOTS; i++) {
                const struct relay_slot *s = &r->slot[i];
                if (s->lane == lane && !s->giving && atomic_load(&s->epoch) != 0)
                        ret[n++] = (struct outbox_slot){i, atomic_load(&s->epoch)};
        }
        pthread_mutex_unlock(&r->lock);
        return n;
}

size_t relay_share_hold(struct relay *r, int lane, struct outbox_slot *ret)
{
        size_t n = 0;
        if (lease_is_over(r))
                return 0;
        pthread_mutex_lock(&r->lock);
        for (int16_t i = 0; i < EVENT_SLOTS && !atomic_load(&r->draining); i++) {
                struct relay_slot *s = &r->slot[i];
                if (s->lane != lane || s->giving || atomic_load(&s->epoch) == 0)
                        continue;
                s->held = true;
                ret[n++] = (struct outbox_slot){i, atomic_load(&s->epoch)};
        }
        pthread_mutex_unlock(&r->lock);
        return n;
}

void relay_share_let_go(struct relay *r, int lane)
{
        bool wanted = false;
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++) {
                struct relay_slot *s = &r->slot[i];
                if (s->lane != lane || !s->held)
                        continue;
                s->held = false;
                wanted |= s->giving;
        }
        pthread_mutex_unlock(&r->lock);
        if (wanted)
                wakeup_send(&r->keeper_wakeup);
}

static void wake_lanes(struct relay *r, uint32_t lanes)
{
        for (int i = 0; i < r->lane_count; i++)
                if (lanes >> i & 1)
                        lane_wake(&r->lane[i]);
}

void relay_share_wake(struct relay *r, uint32_t slots)
{
        uint32_t lanes = 0;
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++)
                if ((slots >> i & 1) && atomic_load(&r->slot[i].epoch) != 0)
                        lanes |= UINT32_C(1) << r->slot[i].lane;
        pthread_mutex_unlock(&r->lock);
        wake_lanes(r, lanes);
}

bool relay_share_owns(struct relay *r, const struct outbox_slot *slot)
{
        return atomic_load(&r->slot[slot->slot].epoch) == slot->epoch && !lease_is_over(r);
}

/* In exactly-once the group's own; else whoever has the fewest.  The caller holds the lock. */
static int lane_for(struct relay *r, int slot)
{
        int counts[RELAY_LANES_MAX] = {0}, best = 0;
        if (r->mode == OUTBOX_EXACTLY_ONCE)
                return event_group_of_slot(slot);
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (atomic_load(&r->slot[i].epoch) != 0)
                        counts[r->slot[i].lane]++;
        for (int i = 1; i < r->lane_count; i++)
                if (counts[i] < counts[best])
                        best = i;
        return best;
}

void relay_share_update(struct relay *r, const struct outbox_view *view, int64_t lease_end_us)
{
        uint32_t news = 0, lost = 0;
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++) {
                struct relay_slot *s = &r->slot[i];
                int64_t had = atomic_load(&s->epoch);
                int64_t has = view->slots[i].mine ? view->slots[i].epoch : 0;
                if (had == has)
                        continue;
                if (had != 0)
                        lost |= UINT32_C(1) << i;
                if (has != 0 && !s->held) /* a batch under way keeps its lane (rule C2) */
                        s->lane = lane_for(r, i);
                if (has != 0)
                        news |= UINT32_C(1) << s->lane;
                s->giving = false;
                atomic_store(&s->epoch, has);
        }
        /* A lane that found it over a moment ago sleeps until it is woken. */
        int64_t before_us = atomic_exchange(&r->lease_end_us, lease_end_us);
        bool was_over = clock_boot_us() >= before_us;
        pthread_mutex_unlock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (lost >> i & 1) {
                        atomic_fetch_add(&r->metrics.lost_slots, 1);
                        relay_say(r, "lost slot %d to %s: nothing more of it is published here", i,
                                  view->slots[i].owner[0] ? view->slots[i].owner : "nobody");
                }
        wake_lanes(r, was_over ? UINT32_MAX : news);
}

void relay_share_lose(struct relay *r, int16_t slot, int64_t epoch)
{
        bool was = false;
        pthread_mutex_lock(&r->lock);
        if (atomic_load(&r->slot[slot].epoch) == epoch) {
                atomic_store(&r->slot[slot].epoch, 0);
                r->slot[slot].giving = false;
                was = true;
        }
        pthread_mutex_unlock(&r->lock);
        if (!was)
                return;
        atomic_fetch_add(&r->metrics.lost_slots, 1);
        relay_say(r, "lost slot %d: a mark found another owner; nothing more of it is published here",
                  slot);
}

void relay_share_giving(struct relay *r, uint32_t slots)
{
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++)
                if ((slots >> i & 1) && atomic_load(&r->slot[i].epoch) != 0)
                        r->slot[i].giving = true;
        pthread_mutex_unlock(&r->lock);
}

uint32_t relay_share_givable(struct relay *r)
{
        uint32_t slots = 0;
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (r->slot[i].giving && !r->slot[i].held)
                        slots |= UINT32_C(1) << i;
        pthread_mutex_unlock(&r->lock);
        return slots;
}

void relay_share_given(struct relay *r, uint32_t slots)
{
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS; i++) {
                if ((slots >> i & 1) == 0)
                        continue;
                r->slot[i].giving = false;
                atomic_store(&r->slot[i].epoch, 0);
        }
        pthread_mutex_unlock(&r->lock);
}

uint32_t relay_share_mine(struct relay *r)
{
        uint32_t slots = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (atomic_load(&r->slot[i].epoch) != 0)
                        slots |= UINT32_C(1) << i;
        return slots;
}

void relay_share_settle(struct relay *r, const struct outbox_slot *slots, size_t n, bool settled)
{
        pthread_mutex_lock(&r->lock);
        for (size_t i = 0; i < n; i++)
                r->slot[slots[i].slot].settled = settled ? slots[i].epoch : 0;
        pthread_mutex_unlock(&r->lock);
}

uint32_t relay_share_unsettled(struct relay *r)
{
        uint32_t slots = 0;
        pthread_mutex_lock(&r->lock);
        for (int i = 0; i < EVENT_SLOTS && r->mode == OUTBOX_EXACTLY_ONCE; i++) {
                const struct relay_slot *s = &r->slot[i];
                int64_t epoch = atomic_load(&s->epoch);
                if (epoch != 0 && (s->held || s->settled != epoch))
                        slots |= UINT32_C(1) << i;
        }
        pthread_mutex_unlock(&r->lock);
        return slots;
}
