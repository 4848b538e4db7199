/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_plan: see outbox_plan.h.  Shares, quotas, blocked keys, retries; waves are in wave.c.
 */
#include "core/outbox_plan.h"

#include <assert.h>

#include "core/retry.h"

/* A slot that had little keeps this much room: it is looked at in each batch all the same. */
enum { DEMAND_MIN = 64 };

/* A slot with much may take so many equal parts of a batch: what others do not have, when they end, is
 * not left empty then.  More would make the others wait for more batches. */
enum { MUCH = 4 };

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

static uint32_t unit_mask(int unit, bool groups)
{
        return groups ? outbox_group_mask(unit) : UINT32_C(1) << unit;
}

/* A group that is not whole belongs to us if any of it does, and is free only as a whole. */
static int8_t unit_owner(const struct outbox_owners *o, int unit, bool groups)
{
        uint32_t mask = unit_mask(unit, groups);
        int8_t owner = OUTBOX_NOBODY;
        for (int slot = 0; slot < EVENT_SLOTS; slot++)
                if ((mask >> slot & 1) && (owner == OUTBOX_NOBODY || o->of[slot] == OUTBOX_MINE))
                        owner = o->of[slot];
        return owner;
}

/* What others need of the free units until each of them has `least`. */
static int missing(const int8_t *unit, int units, int members, int least)
{
        int have[EVENT_SLOTS + 1] = {0}, others = members - 1, sum = 0;
        for (int i = 0; i < units; i++)
                if (unit[i] > OUTBOX_MINE && unit[i] <= EVENT_SLOTS)
                        have[unit[i]]++;
        for (int i = 1; i <= EVENT_SLOTS; i++)
                if (have[i] > 0) {
                        others--;
                        sum += have[i] < least ? least - have[i] : 0;
                }
        return sum + (others > 0 ? others * least : 0);
}

struct outbox_share_plan outbox_share_plan(const struct outbox_owners *owners, bool groups, unsigned start)
{
        struct outbox_share_plan plan = {0, 0};
        int units = groups ? EVENT_GROUPS : EVENT_SLOTS, members = owners->members > 1 ? owners->members : 1;
        int least = units / members, most = least + (units % members > 0), have = 0, free = 0;
        int8_t unit[EVENT_SLOTS];
        for (int i = 0; i < units; i++) {
                unit[i] = unit_owner(owners, i, groups);
                free += unit[i] == OUTBOX_NOBODY;
        }
        int need = missing(unit, units, members, least);
        int keep = need > free ? least : most, want = need < free ? most : least;
        for (int i = 0; i < units; i++) {
                int at = (int)((start + (unsigned)i) % (unsigned)units);
                if (unit[at] == OUTBOX_MINE && have++ >= keep)
                        plan.give |= unit_mask(at, groups);
        }
        for (int i = 0; i < units && have < want; i++) {
                int at = (int)((start + (unsigned)i) % (unsigned)units);
                if (unit[at] == OUTBOX_NOBODY) {
                        plan.take |= unit_mask(at, groups);
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

/* Max-min fair: who wants less than an equal part gets it, the others share the rest.  Returns that
 * part, and what nobody wants. */
static int32_t fair_part(const struct outbox_quotas *q, const int16_t *slots, size_t n, int32_t total,
                         int32_t *ret_left)
{
        bool has[EVENT_SLOTS] = {false};
        int32_t left = total, part = 0;
        size_t open = n, before = 0;
        while (open > 0 && open != before) {
                before = open;
                part = left / (int32_t)open;
                for (size_t i = 0; i < n; i++) {
                        if (has[i] || q->demand[slots[i]] > part)
                                continue;
                        has[i] = true;
                        left -= q->demand[slots[i]];
                        open--;
                }
        }
        *ret_left = open > 0 ? 0 : left;
        return part;
}

/* The slots of one kind, from `turn` on. */
static size_t in_turn(const struct outbox_quotas *q, const int16_t *slots, size_t n, int32_t part,
                      bool little, int16_t *ret)
{
        size_t k = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                for (size_t j = 0; j < n; j++)
                        if (slots[j] == (q->turn + i) % EVENT_SLOTS &&
                            (q->demand[slots[j]] <= part) == little)
                                ret[k++] = slots[j];
        return k;
}

void outbox_quotas_plan(const struct outbox_quotas *q, const int16_t *slots, size_t n, int32_t total,
                        int16_t *ret_order, int32_t *ret_rows)
{
        int32_t left;
        assert(n <= EVENT_SLOTS);
        int32_t part = fair_part(q, slots, n, total, &left);
        size_t little = in_turn(q, slots, n, part, true, ret_order);
        (void)in_turn(q, slots, n, part, false, ret_order + little);
        for (size_t i = 0; i < n; i++) {
                int32_t rows = i < little ? q->demand[ret_order[i]] + left : MUCH * part;
                ret_rows[i] = rows > total ? total : rows > 0 ? rows : 1;
        }
}

void outbox_quotas_learn(struct outbox_quotas *q, const int16_t *order, const int32_t *rows,
                         const int32_t *got, size_t n, bool cut)
{
        size_t seen = n; /* of these it is known what they have */
        for (size_t i = 0; i < n; i++) {
                if (got[i] == 0)
                        continue;
                q->turn = (int16_t)((order[i] + 1) % EVENT_SLOTS);
                if (cut)
                        seen = i;
        }
        for (size_t i = 0; i < n; i++) {
                if (got[i] >= rows[i] || i >= seen)
                        q->demand[order[i]] = INT32_MAX;
                else
                        q->demand[order[i]] = got[i] > DEMAND_MIN / 2 ? 2 * got[i] : DEMAND_MIN;
        }
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
                set->full |= (uint32_t)dead << slot;
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
