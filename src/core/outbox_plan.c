/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_plan: see outbox_plan.h.  Shares, quotas, blocked keys, retries; waves are in wave.c.
 */
#include "core/outbox_plan.h"

#include <assert.h>

#include "core/retry.h"

/* A slot that had little keeps this much room: it is looked at in each batch all the same. */
enum { DEMAND_MIN = 64 };

#define LOOK_PAUSE_MAX_US INT64_C(1000000) /* a second */

/* -- shares ---------------------------------------------------------------------------------- */

uint32_t outbox_group_mask(int group)
{
        uint32_t mask = 0;
        for (int slot = 0; slot < EVENT_SLOTS; slot++)
                if (event_group_of_slot(slot) == group)
                        mask |= UINT32_C(1) << slot;
        return mask;
}

struct outbox_share_plan outbox_share_plan(uint32_t mine, uint32_t free, int members, bool groups,
                                           unsigned start)
{
        struct outbox_share_plan plan = {0, 0};
        int units = groups ? EVENT_GROUPS : EVENT_SLOTS, have = 0;
        if (members < 1)
                members = 1;
        int fair = (units + members - 1) / members;
        for (int i = 0; i < units; i++) {
                int unit = (int)((start + (unsigned)i) % (unsigned)units);
                uint32_t mask = groups ? outbox_group_mask(unit) : UINT32_C(1) << unit;
                if ((mine & mask) == 0)
                        continue;
                if (have < fair)
                        have++;
                else
                        plan.give |= mine & mask;
        }
        for (int i = 0; i < units && have < fair; i++) {
                int unit = (int)((start + (unsigned)i) % (unsigned)units);
                uint32_t mask = groups ? outbox_group_mask(unit) : UINT32_C(1) << unit;
                if ((free & mask) == mask) {
                        plan.take |= mask;
                        have++;
                }
        }
        return plan;
}

/* -- quotas ------------------------------------------------------------------------------------ */

void outbox_quotas_init(struct outbox_quotas *q)
{
        for (int i = 0; i < EVENT_SLOTS; i++)
                q->demand[i] = INT32_MAX;
        q->turn = 0;
}

void outbox_quotas_plan(struct outbox_quotas *q, const int16_t *slots, size_t n, int32_t total,
                        int16_t *ret_order, int32_t *ret_rows)
{
        int32_t left = total;
        size_t open = n;
        assert(n <= EVENT_SLOTS);
        for (size_t i = 0; i < n; i++) {
                ret_order[i] = slots[(i + q->turn) % n];
                ret_rows[i] = 0;
        }
        q->turn++;
        /* Max-min fair: who wants less than an equal part gets it, the others share the rest. */
        while (open > 0) {
                int32_t part = left / (int32_t)open;
                size_t before = open;
                for (size_t i = 0; i < n; i++) {
                        int32_t want = q->demand[ret_order[i]];
                        if (ret_rows[i] == 0 && want <= part) {
                                ret_rows[i] = want;
                                left -= want;
                                open--;
                        }
                }
                if (open != before)
                        continue;
                for (size_t i = 0; i < n; i++)
                        if (ret_rows[i] == 0)
                                ret_rows[i] = part > 0 ? part : 1;
                break;
        }
}

void outbox_quotas_learn(struct outbox_quotas *q, int16_t slot, int32_t quota, int32_t got, bool cut)
{
        if (got >= quota)
                q->demand[slot] = INT32_MAX;
        else if (!cut)
                q->demand[slot] = got > DEMAND_MIN / 2 ? 2 * got : DEMAND_MIN;
}

/* -- blocked keys -------------------------------------------------------------------------------- */

void blocked_keys_init(struct blocked_keys *set, struct blocked_key *space, size_t max,
                       uint8_t *bytes, size_t bytes_max)
{
        *set = (struct blocked_keys){.key = space, .max = max, .bytes = bytes,
                                     .bytes_max = bytes_max};
}

bool blocked_keys_add(struct blocked_keys *set, int16_t slot, struct span key, int64_t due_us,
                      bool dead)
{
        if (set->n == set->max || set->bytes_max - set->bytes_n < key.n) {
                set->full |= UINT32_C(1) << slot;
                return false;
        }
        if (key.n > 0)
                memcpy(set->bytes + set->bytes_n, key.p, key.n);
        set->key[set->n++] = (struct blocked_key){.due_us = due_us, .slot = slot, .dead = dead,
                                                  .at = (uint32_t)set->bytes_n, .len = (uint32_t)key.n};
        set->bytes_n += key.n;
        return true;
}

/* Keep those that `keep` says, and move their bytes together. */
static size_t sift(struct blocked_keys *set, int64_t now_us, uint32_t slots)
{
        size_t kept = 0, bytes = 0;
        for (size_t i = 0; i < set->n; i++) {
                struct blocked_key k = set->key[i];
                bool due = !k.dead && k.due_us <= now_us;
                if (due || (slots >> k.slot & 1) != 0)
                        continue;
                memmove(set->bytes + bytes, set->bytes + k.at, k.len);
                k.at = (uint32_t)bytes;
                bytes += k.len;
                set->key[kept++] = k;
        }
        size_t gone = set->n - kept;
        set->n = kept;
        set->bytes_n = bytes;
        return gone;
}

size_t blocked_keys_release_due(struct blocked_keys *set, int64_t now_us)
{
        return blocked_keys_next_due(set) <= now_us ? sift(set, now_us, 0) : 0;
}

void blocked_keys_forget_slots(struct blocked_keys *set, uint32_t slots)
{
        (void)sift(set, INT64_MIN, slots);
        set->full &= ~slots;
}

int64_t blocked_keys_next_due(const struct blocked_keys *set)
{
        int64_t due = INT64_MAX;
        for (size_t i = 0; i < set->n; i++)
                if (!set->key[i].dead && set->key[i].due_us < due)
                        due = set->key[i].due_us;
        return due;
}

bool blocked_keys_any_dead(const struct blocked_keys *set)
{
        for (size_t i = 0; i < set->n; i++)
                if (set->key[i].dead)
                        return true;
        return false;
}

/* -- retries --------------------------------------------------------------------------------------- */

int64_t outbox_retry_wait_us(int64_t min_us, int64_t max_us, int32_t attempts, uint64_t chance)
{
        int64_t most = retry_wait_us(min_us, max_us, (unsigned)attempts);
        return most <= 0 ? 0 : (int64_t)(chance % ((uint64_t)most + 1));
}

/* -- looking for rows -------------------------------------------------------------------------------- */

int64_t outbox_look_pause_us(int64_t pause_us, int64_t max_us, int64_t took_us)
{
        int64_t next_us = pause_us < max_us / 2 ? 2 * pause_us : max_us;
        int64_t share_us = took_us < LOOK_PAUSE_MAX_US / 9 ? 9 * took_us : LOOK_PAUSE_MAX_US;
        return next_us > share_us ? next_us : share_us;
}
