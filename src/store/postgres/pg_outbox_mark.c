/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox_mark: what became of rows, fenced (rule C1).
 *
 * The fence locks the rows of the slots with the epochs it was told; what follows in the same transaction
 * touches rows of these slots only, and only those that are as they were read.  The answer is both facts:
 * which slots were ours, and how many rows were changed.
 */
#include <stdio.h>

#include "base/utf8.h"
#include "store/postgres/pg_outbox.h"

/* outbox_mark_update.sql's $7. */
enum { WHAT_PUBLISHED, WHAT_AGAIN, WHAT_DEAD, WHAT_UNTRIED };

/* $1, $2: the slots and their epochs. */
static void slot_params(struct params *p, const struct outbox_slot *slots, size_t n)
{
        pg_params_array(p, 0, PG_INT2);
        pg_params_array(p, 1, PG_INT8);
        for (size_t i = 0; i < n; i++) {
                pg_params_int(p, 0, slots[i].slot);
                pg_params_int(p, 1, slots[i].epoch);
        }
}

/* What all marks have: $3 ids, and the status as read in its place. */
static void mark_begin(struct params *p, int n, const struct outbox_slot *slots, size_t slot_count,
                       int status_at, enum outbox_mode mode)
{
        pg_params_clear(p, n);
        slot_params(p, slots, slot_count);
        pg_params_array(p, 2, PG_INT8);
        pg_params_text(p, status_at,
                       span_str(mode == OUTBOX_TWO_PHASE ? "PUBLISHING" : "PENDING"));
}

static void mark_begin_update(struct params *p, const struct outbox_slot *slots, size_t slot_count,
                              enum outbox_mode mode)
{
        mark_begin(p, 9, slots, slot_count, 5, mode);
        pg_params_array(p, 3, PG_INT2);
        pg_params_array(p, 4, PG_INT4);
        pg_params_array(p, 6, PG_INT2);
        pg_params_array(p, 7, PG_INT8);
        pg_params_array(p, 8, PG_TEXT);
}

/* Text that the column takes, whatever a broker said. */
static void add_reason(struct params *p, const char *reason)
{
        char text[LIMIT_REASON_BYTES + 1];
        size_t n = utf8_copy(text, sizeof text, span_str(reason ? reason : "no reason was given"));
        pg_params_bytea(p, 8, span_of(text, n));
}

static void mark_add_update(struct params *p, const struct outbox_mark *mark)
{
        static const int what[] = {
                [OUTBOX_DONE] = WHAT_PUBLISHED,
                [OUTBOX_RETRY] = WHAT_AGAIN,
                [OUTBOX_BURY] = WHAT_DEAD,
                [OUTBOX_UNTRIED] = WHAT_UNTRIED,
        };
        pg_params_int(p, 2, mark->id);
        pg_params_int(p, 3, mark->slot);
        pg_params_int(p, 4, mark->attempts);
        pg_params_int(p, 6, what[mark->verdict]);
        pg_params_int(p, 7, mark->retry_after_us);
        if (mark->verdict == OUTBOX_RETRY || mark->verdict == OUTBOX_BURY)
                add_reason(p, mark->reason);
        else
                pg_params_null(p, 8);
}

struct plan {
        struct pg_step steps[5]; /* the fence, gone, gone by id, changed, COMMIT */
        size_t n, marks;         /* of them, those before COMMIT */
        size_t placed;           /* rows that are looked for where they were seen */
        size_t untried;          /* nothing to write: they are PENDING as they were */
        uint32_t named;          /* slots */
};

struct marks {
        enum outbox_mode mode;
        bool keep;
        const struct outbox_slot *slots;
        size_t slot_count;
        const struct outbox_mark *mark;
        size_t n;
};

static void plan_step(struct plan *plan, enum outbox_query query, struct params *params)
{
        plan->steps[plan->n++] = (struct pg_step){.query = query, .params = params};
}

static void plan_begin(struct pg_outbox *ob, const struct marks *m, struct plan *plan)
{
        struct params *fence = &ob->params[0], *by_id = &ob->params[2];
        *plan = (struct plan){.n = 0};
        for (size_t i = 0; i < m->slot_count; i++)
                plan->named |= 1u << m->slots[i].slot;
        pg_params_clear(fence, 2);
        slot_params(fence, m->slots, m->slot_count);
        plan_step(plan, OQ_FENCE, fence);
        mark_begin(by_id, 5, m->slots, m->slot_count, 4, m->mode);
        pg_params_array(by_id, 3, PG_INT4);
}

static void add_gone_by_id(struct params *p, const struct outbox_mark *mark)
{
        pg_params_int(p, 2, mark->id);
        pg_params_int(p, 3, mark->attempts);
}

static bool is_placed(const struct marks *m, const struct outbox_mark *mark)
{
        return mark->verdict == OUTBOX_DONE && !m->keep && mark->attempts == 0 && mark->place != 0;
}

static void plan_marks(struct pg_outbox *ob, const struct marks *m, struct plan *plan)
{
        struct params *gone = &ob->params[1], *by_id = &ob->params[2], *changed = &ob->params[3];
        size_t by_ids = 0, changes = 0;
        plan_begin(ob, m, plan);
        mark_begin(gone, 5, m->slots, m->slot_count, 3, m->mode);
        pg_params_array(gone, 4, PG_TID);
        mark_begin_update(changed, m->slots, m->slot_count, m->mode);
        for (size_t i = 0; i < m->n; i++) {
                const struct outbox_mark *mark = &m->mark[i];
                if (mark->verdict == OUTBOX_UNTRIED && m->mode != OUTBOX_TWO_PHASE) {
                        plan->untried++;
                } else if (mark->verdict != OUTBOX_DONE || m->keep) {
                        mark_add_update(changed, mark);
                        changes++;
                } else if (is_placed(m, mark)) {
                        pg_params_int(gone, 2, mark->id);
                        pg_params_int(gone, 4, mark->place);
                        plan->placed++;
                } else {
                        add_gone_by_id(by_id, mark);
                        by_ids++;
                }
        }
        if (plan->placed > 0)
                plan_step(plan, OQ_MARK_DELETE, gone);
        if (by_ids > 0)
                plan_step(plan, OQ_MARK_DELETE_TRIED, by_id);
        if (changes > 0)
                plan_step(plan, OQ_MARK_UPDATE, changed);
        plan->marks = plan->n;
        if (ob->in_tx)
                plan_step(plan, OQ_COMMIT, NULL);
}

/* The rows that are not where they were seen: somebody rewrote the table, or the row. */
static void plan_moved(struct pg_outbox *ob, const struct marks *m, struct plan *plan)
{
        plan_begin(ob, m, plan);
        for (size_t i = 0; i < m->n; i++)
                if (is_placed(m, &m->mark[i]))
                        add_gone_by_id(&ob->params[2], &m->mark[i]);
        plan_step(plan, OQ_MARK_DELETE_TRIED, &ob->params[2]);
        plan->marks = plan->n;
}

/* Adds up the rows that were changed; the slots that are ours. */
static semel_code run_plan(struct pg_outbox *ob, const struct plan *plan, int64_t deadline_us,
                           size_t *rows, uint32_t *owned, semel_error *err)
{
        PGresult *res[5];
        semel_code code = pg_outbox_run(ob, plan->steps, plan->n, true, deadline_us, res, err);
        if (code != SEMEL_OK) {
                ob->session.vt->abandon(&ob->session);
                return code;
        }
        ob->in_tx = false;
        *owned &= (uint32_t)pg_result_int(res[0], 0, 0);
        for (size_t i = 1; i < plan->marks; i++)
                *rows += (size_t)pg_result_changed(res[i]);
        for (size_t i = 0; i < plan->n; i++)
                PQclear(res[i]);
        return SEMEL_OK;
}

/* How many of the marks were for slots that we still have. */
static size_t count_owned(const struct marks *m, uint32_t owned)
{
        size_t count = 0;
        for (size_t i = 0; i < m->n; i++) {
                bool written = m->mark[i].verdict != OUTBOX_UNTRIED || m->mode == OUTBOX_TWO_PHASE;
                count += written && owned & 1u << m->mark[i].slot;
        }
        return count;
}

semel_code pg_outbox_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                          const struct outbox_slot *slots, size_t slot_count,
                          const struct outbox_mark *marks, size_t mark_count, int64_t deadline_us,
                          struct outbox_marked *ret, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        const struct marks m = {mode, keep, slots, slot_count, marks, mark_count};
        struct plan plan, moved;
        semel_code code = SEMEL_OK;
        size_t rows = 0;
        if (mode == OUTBOX_SINGLE && !ob->in_tx)
                return err_set(err, SEMEL_ERR_STORE_DOWN,
                               "the transaction that locked these rows is gone; they are read again");
        if (!ob->in_tx)
                code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        plan_marks(ob, &m, &plan);
        uint32_t owned = plan.named;
        code = run_plan(ob, &plan, deadline_us, &rows, &owned, err);
        if (code == SEMEL_OK && plan.placed > 0 && rows < count_owned(&m, owned)) {
                plan_moved(ob, &m, &moved);
                code = run_plan(ob, &moved, deadline_us, &rows, &owned, err);
        }
        if (code != SEMEL_OK)
                return code;
        size_t ours = count_owned(&m, owned);
        uint32_t lost = plan.named & ~owned;
        *ret = (struct outbox_marked){
                .marked = rows + plan.untried,
                .lost_slots = (size_t)__builtin_popcount(lost),
                .lost_mask = lost,
                .changed = ours > rows ? ours - rows : 0,
        };
        return SEMEL_OK;
}

semel_code pg_outbox_recover(struct outbox_session *s, bool keep, const struct outbox_slot *slots,
                             size_t slot_count, const int64_t *ids,
                             const uint8_t (*event_ids)[EVENT_ID_BYTES], const int64_t *published_us,
                             size_t n, int64_t deadline_us, size_t *ret_finished, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct params *p = &ob->params[0];
        PGresult *res = NULL;
        uint32_t named = 0;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_clear(p, 6);
        slot_params(p, slots, slot_count);
        pg_params_array(p, 2, PG_INT8);
        pg_params_array(p, 3, PG_UUID);
        pg_params_scalar(p, 4, PG_BOOL);
        pg_params_array(p, 5, PG_TIMESTAMPTZ);
        for (size_t i = 0; i < slot_count; i++)
                named |= 1u << slots[i].slot;
        for (size_t i = 0; i < n; i++) {
                pg_params_int(p, 2, ids[i]);
                pg_params_bytea(p, 3, span_of(event_ids[i], EVENT_ID_BYTES));
                if (published_us[i] == 0)
                        pg_params_null(p, 5);
                else
                        pg_params_time(p, 5, published_us[i]);
        }
        pg_params_int(p, 4, keep);
        code = pg_outbox_one(ob, OQ_RECOVER, p, true, deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        uint32_t owned = (uint32_t)pg_result_int(res, 0, 0);
        size_t finished = (size_t)pg_result_int(res, 0, 1);
        PQclear(res);
        if ((owned & named) != named)
                return err_set(err, SEMEL_ERR_LOST,
                               "slots that were to be recovered have another owner now");
        *ret_finished = finished;
        return SEMEL_OK;
}

semel_code pg_outbox_unstick(struct outbox_session *s, const struct outbox_slot *slots,
                             size_t slot_count, int64_t stuck_after_us, int64_t deadline_us,
                             size_t *ret_rows, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct params *p = &ob->params[0];
        PGresult *res = NULL;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_clear(p, 3);
        slot_params(p, slots, slot_count);
        pg_params_scalar(p, 2, PG_INT8);
        pg_params_int(p, 2, stuck_after_us);
        code = pg_outbox_one(ob, OQ_UNSTICK, p, true, deadline_us, &res, err);
        if (code == SEMEL_OK)
                *ret_rows = (size_t)pg_result_int(res, 0, 1);
        PQclear(res);
        return code;
}
