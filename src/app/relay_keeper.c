/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_keeper: the thread that makes the relay a member and keeps it one: renews, takes what is free, gives
 * what is too much, and leaves at the end.  Nothing else is asked on its session, so that nothing delays a
 * renewal.
 */
#include "app/relay_internal.h"
#include "app/relay_lane.h"
#include "base/err.h"

#define AGAIN_US (250 * MS)     /* after a database that did not answer */
#define LEAVE_US (2 * SECOND)   /* for giving up everything at the end, within the deadline */

struct keeper {
        struct relay *r;
        struct outbox_session *s;
        unsigned start; /* where to begin looking for free slots */
        bool member;    /* the others count us when they share the slots */
        bool refused;   /* the mode is another one: said */
};

/* Each owner has the number of his first slot, from 1 on. */
static struct outbox_owners owners_of(const struct outbox_view *view)
{
        struct outbox_owners owners = {.members = view->members};
        for (int i = 0; i < EVENT_SLOTS; i++) {
                const struct outbox_slot_view *slot = &view->slots[i];
                int first = 0;
                while (memcmp(view->slots[first].owner_id, slot->owner_id, sizeof slot->owner_id) != 0)
                        first++;
                owners.of[i] = (int8_t)(slot->mine ? OUTBOX_MINE : slot->free ? OUTBOX_NOBODY : first + 1);
        }
        return owners;
}

static uint32_t my_slots(const struct outbox_view *view)
{
        uint32_t mask = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (view->slots[i].mine)
                        mask |= UINT32_C(1) << i;
        return mask;
}

static int64_t step_us(struct relay *r)
{
        return r->config->slot_lease_us / 3;
}

static semel_code take(struct keeper *k, uint32_t slots, semel_error *err)
{
        struct relay *r = k->r;
        struct outbox_view view;
        uint32_t had = relay_share_mine(r);
        int64_t before_us = clock_boot_us(); /* rules A4, C1 */
        semel_code code = k->s->vt->take(k->s, &r->me, r->mode, slots, r->config->slot_lease_us,
                                         before_us + step_us(r), &view, err);
        if (code == SEMEL_ERR_REFUSED) {
                if (!k->refused)
                        relay_say(r, "waiting for slots: %s", err->text);
                k->refused = true;
                return SEMEL_OK;
        }
        if (code != SEMEL_OK)
                return code;
        k->refused = false;
        k->member = true;
        relay_share_update(r, &view, before_us + r->config->slot_lease_us);
        uint32_t got = my_slots(&view) & ~had;
        if (got)
                relay_say(r, "took %d slot%s, owns %d of %d; %d relay%s", __builtin_popcount(got),
                          __builtin_popcount(got) == 1 ? "" : "s",
                          __builtin_popcount(my_slots(&view)), EVENT_SLOTS, view.members,
                          view.members == 1 ? "" : "s");
        return SEMEL_OK;
}

/* Rule C2: only what no batch holds. */
static semel_code give(struct keeper *k, semel_error *err)
{
        struct relay *r = k->r;
        uint32_t slots = relay_share_givable(r);
        if (r->mode == OUTBOX_EXACTLY_ONCE)
                for (int g = 0; g < EVENT_GROUPS; g++)
                        if ((slots & outbox_group_mask(g)) != outbox_group_mask(g))
                                slots &= ~outbox_group_mask(g);
        if (!slots)
                return SEMEL_OK;
        semel_code code = k->s->vt->give(k->s, &r->me, slots, slots & relay_share_unsettled(r),
                                         clock_boot_us() + step_us(r), err);
        if (code != SEMEL_OK)
                return code;
        relay_share_given(r, slots);
        relay_say(r, "gave up %d slot%s to other relays", __builtin_popcount(slots),
                  __builtin_popcount(slots) == 1 ? "" : "s");
        return SEMEL_OK;
}

/* No member before the outbox is in our mode (rule C8a): the others would leave us a share of the slots, and
 * nobody would send it. */
static semel_code join(struct keeper *k, semel_error *err)
{
        struct relay *r = k->r;
        struct outbox_view view;
        semel_code code = k->s->vt->check(k->s, r->mode, clock_boot_us() + step_us(r), &view, err);
        if (code != SEMEL_OK)
                return code;
        atomic_store(&r->joined, true);
        k->member = view.mode == r->mode;
        return k->member ? SEMEL_OK : take(k, EVENT_ALL_SLOTS, err); /* which changes the mode, or is refused */
}

static semel_code beat(struct keeper *k, semel_error *err)
{
        struct relay *r = k->r;
        struct outbox_view view;
        int64_t before_us = clock_boot_us();
        semel_code code = k->s->vt->beat(k->s, &r->me, r->config->slot_lease_us,
                                         before_us + step_us(r), &view, err);
        if (code != SEMEL_OK)
                return code;
        relay_share_update(r, &view, before_us + r->config->slot_lease_us);
        atomic_store(&r->metrics.owned_slots, __builtin_popcount(my_slots(&view)));
        if (atomic_load(&r->draining))
                return SEMEL_OK;
        if (view.mode != r->mode && my_slots(&view) == 0) { /* changed by another one meanwhile */
                k->member = false;
                return k->s->vt->leave(k->s, &r->me, 0, before_us + step_us(r), err);
        }
        const struct outbox_owners owners = owners_of(&view);
        struct outbox_share_plan plan = outbox_share_plan(&owners, r->mode == OUTBOX_EXACTLY_ONCE, k->start);
        if (plan.give)
                relay_share_giving(r, plan.give);
        return plan.take ? take(k, plan.take, err) : SEMEL_OK;
}

static semel_code join_or_beat(struct keeper *k, semel_error *err)
{
        semel_code code = k->member || atomic_load(&k->r->draining) ? SEMEL_OK : join(k, err);
        return code == SEMEL_OK && k->member ? beat(k, err) : code;
}

static void leave(struct keeper *k)
{
        struct relay *r = k->r;
        struct semel_error err = {0};
        int64_t now = clock_boot_us();
        uint32_t unsettled = relay_share_unsettled(r);
        if (k->s->vt->leave(k->s, &r->me, unsettled, relay_deadline_us(r, now + LEAVE_US), &err) ==
            SEMEL_OK)
                relay_say(r, unsettled ? "gave up all slots; the last batch of some is not known to be marked: "
                                         "a relay in this mode recovers it, and until then the outbox "
                                         "stays in it"
                                       : "gave up all slots");
        else
                relay_say(r, "could not give the slots up, others take them after %lld ms: %s",
                          (long long)(r->config->slot_lease_us / MS), err.text);
}

void *relay_keeper_main(void *arg)
{
        struct relay *r = arg;
        struct keeper k = {.r = r, .start = (unsigned)r->me.id[0]};
        struct semel_error err = {0};
        int64_t next_us = 0;
        if (relay_session_open(r, "semel relay keeper", &k.s, &err) != SEMEL_OK)
                relay_fail(r, &err);
        while (k.s && !(atomic_load(&r->draining) && relay_lanes_ended(r))) {
                int64_t now = clock_boot_us();
                atomic_store(&r->keeper.moved_us, now);
                semel_code code = SEMEL_OK;
                if (now >= next_us) {
                        code = join_or_beat(&k, &err);
                        next_us = now + (code == SEMEL_OK ? step_us(r) : AGAIN_US);
                }
                if (code == SEMEL_OK)
                        code = give(&k, &err);
                if (code == SEMEL_OK) {
                        relay_db_back(r);
                } else if (code == SEMEL_ERR_SCHEMA || code == SEMEL_ERR_ARGUMENT ||
                           code == SEMEL_ERR_ACCESS) {
                        relay_fail(r, &err);
                        break;
                } else {
                        relay_db_away(r, &err);
                }
                wakeup_wait(&r->keeper_wakeup, next_us - clock_boot_us());
        }
        if (k.s) {
                leave(&k);
                k.s->vt->close(k.s);
        }
        atomic_store(&r->keeper.ended, true);
        daemon_look(r->daemon);
        return NULL;
}
