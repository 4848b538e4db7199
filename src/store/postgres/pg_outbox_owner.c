/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox_owner: who owns which slot (rules C1, C8a).
 *
 * A renewal writes the relay's own member row and then, in a transaction of its own, reads the
 * slots.  A takeover locks the member rows of owners whose lease is over, which makes it look at the
 * lease again, and takes the slots in the same transaction.  So one of the two waits for the other,
 * and whoever comes second sees what the first did.
 */
#include <stdio.h>

#include "store/postgres/pg_outbox.h"

static bool mode_of(struct span text, enum outbox_mode *ret)
{
        for (int mode = 0; mode < OUTBOX_MODES; mode++) {
                if (span_eq(text, span_str(outbox_mode_name((enum outbox_mode)mode)))) {
                        *ret = (enum outbox_mode)mode;
                        return true;
                }
        }
        return false;
}

/* outbox_view.sql's answer; it is cleared. */
static semel_code take_view(PGresult *res, struct outbox_view *ret_view, semel_error *err)
{
        struct outbox_view view = {.members = 0};
        semel_code code = SEMEL_OK;
        if (PQntuples(res) != EVENT_SLOTS)
                code = err_set(err, SEMEL_ERR_SCHEMA,
                               "the outbox has %d slots in semel.relay_slot instead of %d; for a "
                               "table of your own run what `semel migrate --for-table` prints",
                               PQntuples(res), EVENT_SLOTS);
        for (int i = 0; i < EVENT_SLOTS && code == SEMEL_OK; i++) {
                struct span owner = pg_result_bytes(res, i, 4);
                struct span uuid = pg_result_bytes(res, i, 7);
                struct span owner_id = pg_result_bytes(res, i, 9);
                struct outbox_slot_view *slot = &view.slots[i];
                slot->epoch = pg_result_int(res, i, 1);
                slot->mine = pg_result_bool(res, i, 2);
                slot->free = pg_result_bool(res, i, 3) && !slot->mine;
                (void)snprintf(slot->owner, sizeof slot->owner, "%.*s", (int)owner.n,
                               (const char *)owner.p);
                if (owner_id.n == sizeof slot->owner_id)
                        memcpy(slot->owner_id, owner_id.p, sizeof slot->owner_id);
                slot->lease_left_us = pg_result_int(res, i, 5);
                view.members = (int)pg_result_int(res, i, 6);
                if (uuid.n != sizeof view.uuid ||
                    !mode_of(pg_result_bytes(res, i, 8), &view.mode))
                        code = err_set(err, SEMEL_ERR_CORRUPT,
                                       "semel.outbox_meta has no uuid or no known mode");
                else
                        memcpy(view.uuid, uuid.p, sizeof view.uuid);
        }
        PQclear(res);
        if (code == SEMEL_OK)
                *ret_view = view;
        return code;
}

static void view_params(struct params *p, struct span id)
{
        pg_params_clear(p, 1);
        pg_params_maybe(p, 0, PG_BYTEA, id, id.n == 0);
}

semel_code pg_outbox_check(struct outbox_session *s, enum outbox_mode mode, int64_t deadline_us,
                           struct outbox_view *ret_view, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res[2] = {NULL, NULL};
        (void)mode; /* all modes need the same columns */
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        view_params(&ob->params[0], span_of(NULL, 0));
        const struct pg_step steps[] = {{.query = OQ_VIEW, .params = &ob->params[0]}, {.query = OQ_NAMES}};
        code = pg_outbox_run(ob, steps, 2, false, deadline_us, res, err);
        if (code == SEMEL_OK)
                code = pg_mapping_names_check(ob, res[1], PQntuples(res[0]) > 0, err);
        if (code == SEMEL_OK)
                code = take_view(res[0], ret_view, err);
        else
                PQclear(res[0]);
        PQclear(res[1]);
        if (code == SEMEL_OK)
                ret_view->unordered = ob->unordered;
        return code;
}

static void beat_params(struct params *p, const struct outbox_member *me, int64_t lease_us)
{
        pg_params_clear(p, 3);
        pg_params_maybe(p, 0, PG_BYTEA, span_of(me->id, sizeof me->id), false);
        pg_params_text(p, 1, span_str(me->info));
        pg_params_number(p, 2, PG_INT8, lease_us);
}

semel_code pg_outbox_beat(struct outbox_session *s, const struct outbox_member *me,
                          int64_t lease_us, int64_t deadline_us, struct outbox_view *ret_view,
                          semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res[2] = {NULL, NULL};
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        beat_params(&ob->params[0], me, lease_us);
        view_params(&ob->params[1], span_of(me->id, sizeof me->id));
        /* Two transactions: the second's snapshot is younger than the first's commit. */
        const struct pg_step steps[] = {
                {.query = OQ_BEAT, .params = &ob->params[0], .sync = true},
                {.query = OQ_VIEW, .params = &ob->params[1], .sync = true},
        };
        code = pg_outbox_run(ob, steps, 2, true, deadline_us, res, err);
        PQclear(res[0]);
        return code == SEMEL_OK ? take_view(res[1], ret_view, err) : code;
}

static void put_slots(struct params *p, int i, uint32_t mask)
{
        pg_params_array(p, i, PG_INT2);
        for (int slot = 0; slot < EVENT_SLOTS; slot++) {
                if (mask & 1u << slot)
                        pg_params_int(p, i, slot);
        }
}

static void slots_and_me(struct params *p, uint32_t mask, const struct outbox_member *me, int n)
{
        pg_params_clear(p, n);
        put_slots(p, 0, mask);
        if (n > 1)
                pg_params_maybe(p, 1, PG_BYTEA, span_of(me->id, sizeof me->id), false);
}

/* -- take ------------------------------------------------------------------------------------- */

struct take {
        struct pg_outbox *ob;
        const struct outbox_member *me;
        enum outbox_mode mode;
        uint32_t mask; /* what is wanted, and then what is free of it */
        int64_t deadline_us;
        PGresult *silent; /* ids of owners whose lease is over, locked */
};

static bool is_silent(const struct take *t, struct span owner)
{
        for (int i = 0; i < PQntuples(t->silent); i++) {
                if (span_eq(pg_result_bytes(t->silent, i, 0), owner))
                        return true;
        }
        return false;
}

/* Rule C8a.  A slot of a relay that is gone, or that was given up unsettled, counts as owned when the mode
 * is exactly-once: its last batch has to be recovered in that mode. */
static semel_code change_mode(struct take *t, enum outbox_mode from, const PGresult *owners,
                              semel_error *err)
{
        PGresult *res = NULL;
        for (int i = 0; i < PQntuples(owners); i++) {
                struct span owner = pg_result_bytes(owners, i, 1);
                if (owner.n > 0 && (from == OUTBOX_EXACTLY_ONCE || !is_silent(t, owner)))
                        return err_set(err, SEMEL_ERR_REFUSED,
                                       "the outbox is in mode %s and slot %d still has an owner; "
                                       "%s, then start with mode %s",
                                       outbox_mode_name(from), (int)pg_result_int(owners, i, 0),
                                       from == OUTBOX_EXACTLY_ONCE
                                               ? "run a relay in that mode, with the broker there, which "
                                                 "recovers it, and stop it"
                                               : "stop the other relays",
                                       outbox_mode_name(t->mode));
        }
        semel_code code = pg_outbox_one(t->ob, OQ_TAKE_PUBLISHING, NULL, false, t->deadline_us,
                                        &res, err);
        if (code != SEMEL_OK)
                return code;
        bool publishing = pg_result_bool(res, 0, 0);
        PQclear(res);
        if (publishing)
                return err_set(err, SEMEL_ERR_REFUSED,
                               "the outbox is in mode %s and rows are PUBLISHING; run a relay in "
                               "that mode until they are done, then start with mode %s",
                               outbox_mode_name(from), outbox_mode_name(t->mode));
        struct params *p = &t->ob->params[0];
        pg_params_clear(p, 1);
        pg_params_text(p, 0, span_str(outbox_mode_name(t->mode)));
        code = pg_outbox_one(t->ob, OQ_TAKE_MODE, p, true, t->deadline_us, &res, err);
        PQclear(res);
        return code;
}

/* Of what is wanted, what is free; in exactly-once whole groups (rule C8). */
static void choose(struct take *t, const PGresult *owners)
{
        uint32_t free = 0, mine = 0;
        struct span me = span_of(t->me->id, sizeof t->me->id);
        for (int i = 0; i < PQntuples(owners); i++) {
                uint32_t bit = 1u << pg_result_int(owners, i, 0);
                struct span owner = pg_result_bytes(owners, i, 1);
                if (span_eq(owner, me))
                        mine |= bit;
                else if (owner.n == 0 || is_silent(t, owner))
                        free |= bit;
        }
        uint32_t take = t->mask & free;
        for (int group = 0; t->mode == OUTBOX_EXACTLY_ONCE && group < EVENT_GROUPS; group++) {
                uint32_t members = 0;
                for (int slot = 0; slot < EVENT_SLOTS; slot++)
                        members |= event_group_of_slot(slot) == group ? 1u << slot : 0;
                if (((take | mine) & members) != members)
                        take &= ~members;
        }
        t->mask = take;
}

static semel_code take_slots(struct take *t, semel_error *err)
{
        struct params *p = &t->ob->params[0];
        PGresult *res = NULL;
        slots_and_me(p, t->mask, t->me, 3);
        pg_params_array(p, 2, PG_BYTEA);
        for (int i = 0; i < PQntuples(t->silent); i++)
                pg_params_bytea(p, 2, pg_result_bytes(t->silent, i, 0));
        semel_code code = pg_outbox_one(t->ob, OQ_TAKE_SLOTS, p, true, t->deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        int taken = PQntuples(res);
        PQclear(res);
        if (t->mode == OUTBOX_EXACTLY_ONCE && taken != __builtin_popcount(t->mask))
                return err_set(err, SEMEL_ERR_CONFLICT,
                               "a slot of the group got another owner meanwhile; look again");
        return SEMEL_OK;
}

/* In the transaction that is open. */
static semel_code take_in_tx(struct take *t, enum outbox_mode stored, semel_error *err)
{
        PGresult *res[3] = {NULL, NULL, NULL};
        slots_and_me(&t->ob->params[0], t->mode != stored ? EVENT_ALL_SLOTS : t->mask, t->me, 1);
        const struct pg_step steps[] = {
                {.query = OQ_TAKE_ORPHANS},
                {.query = OQ_TAKE_SILENT, .params = &t->ob->params[0]},
                {.query = OQ_TAKE_OWNERS},
        };
        semel_code code = pg_outbox_run(t->ob, steps, 3, true, t->deadline_us, res, err);
        if (code != SEMEL_OK)
                return code;
        t->silent = res[1];
        if (stored != t->mode)
                code = change_mode(t, stored, res[2], err);
        choose(t, res[2]);
        if (code == SEMEL_OK && t->mask != 0)
                code = take_slots(t, err);
        PQclear(res[0]);
        PQclear(res[1]);
        PQclear(res[2]);
        t->silent = NULL;
        return code;
}

semel_code pg_outbox_take(struct outbox_session *s, const struct outbox_member *me,
                          enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                          int64_t deadline_us, struct outbox_view *ret_view, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct take t = {.ob = ob, .me = me, .mode = mode, .mask = slot_mask & EVENT_ALL_SLOTS,
                         .deadline_us = deadline_us};
        PGresult *res[3] = {NULL, NULL, NULL};
        enum outbox_mode stored = mode;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        beat_params(&ob->params[0], me, lease_us);
        const struct pg_step begin[] = {
                {.query = OQ_BEGIN},
                {.query = OQ_TAKE_META}, /* one take at a time: its order of locks is the only one */
                {.query = OQ_BEAT, .params = &ob->params[0]},
        };
        code = pg_outbox_run(ob, begin, 3, false, deadline_us, res, err);
        ob->in_tx = ob->pg != NULL;
        if (code == SEMEL_OK && (PQntuples(res[1]) != 1 ||
                                 !mode_of(pg_result_bytes(res[1], 0, 0), &stored)))
                code = err_set(err, SEMEL_ERR_SCHEMA,
                               "the outbox has no row in semel.outbox_meta; for a table of your own "
                               "run what `semel migrate --for-table` prints");
        for (int i = 0; i < 3; i++) {
                PQclear(res[i]);
                res[i] = NULL;
        }
        if (code == SEMEL_OK)
                code = take_in_tx(&t, stored, err);
        if (code == SEMEL_OK)
                code = pg_outbox_one(ob, OQ_COMMIT, NULL, true, deadline_us, &res[0], err);
        PQclear(res[0]);
        if (code != SEMEL_OK) {
                s->vt->abandon(s);
                return code;
        }
        ob->in_tx = false;
        return pg_outbox_beat(s, me, lease_us, deadline_us, ret_view, err);
}

/* -- give ------------------------------------------------------------------------------------- */

static void give_params(struct params *p, uint32_t mask, uint32_t unsettled,
                        const struct outbox_member *me)
{
        slots_and_me(p, mask, me, 3);
        put_slots(p, 2, unsettled);
}

semel_code pg_outbox_give(struct outbox_session *s, const struct outbox_member *me,
                          uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                          semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res = NULL;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        give_params(&ob->params[0], slot_mask, unsettled, me);
        code = pg_outbox_one(ob, OQ_GIVE, &ob->params[0], true, deadline_us, &res, err);
        PQclear(res);
        return code;
}

semel_code pg_outbox_leave(struct outbox_session *s, const struct outbox_member *me,
                           uint32_t unsettled, int64_t deadline_us, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res[3] = {NULL, NULL, NULL};
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        give_params(&ob->params[0], EVENT_ALL_SLOTS, unsettled, me);
        view_params(&ob->params[1], span_of(me->id, sizeof me->id));
        const struct pg_step steps[] = {
                {.query = OQ_GIVE, .params = &ob->params[0]},
                {.query = OQ_LEAVE, .params = &ob->params[1], .sync = true},
                {.query = OQ_FORGET, .sync = true},
        };
        code = pg_outbox_run(ob, steps, 3, true, deadline_us, res, err);
        for (int i = 0; i < 3; i++)
                PQclear(res[i]);
        return code;
}
