/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox_mark: what became of rows, fenced (rule C1).
 *
 * Each statement locks the rows of its slots with the epochs it was told, and only then touches
 * rows of the outbox, only those that are as they were read.  Its answer is both facts: which slots were
 * ours, and how many rows it changed.
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

/* What both statements have: $3 ids, $5 attempts as read, $6 the status. */
static void mark_begin(struct params *p, int n, const struct outbox_slot *slots, size_t slot_count,
                       enum outbox_mode mode)
{
        pg_params_clear(p, n);
        slot_params(p, slots, slot_count);
        pg_params_array(p, 2, PG_INT8);
        pg_params_array(p, 4, PG_INT4);
        pg_params_text(p, 5, span_str(mode == OUTBOX_TWO_PHASE ? "PUBLISHING" : "PENDING"));
}

static void mark_begin_delete(struct params *p, const struct outbox_slot *slots, size_t slot_count,
                              enum outbox_mode mode)
{
        mark_begin(p, 6, slots, slot_count, mode);
        pg_params_array(p, 3, PG_INT8);
}

static void mark_begin_update(struct params *p, const struct outbox_slot *slots, size_t slot_count,
                              enum outbox_mode mode)
{
        mark_begin(p, 9, slots, slot_count, mode);
        pg_params_array(p, 3, PG_INT2);
        pg_params_array(p, 6, PG_INT2);
        pg_params_array(p, 7, PG_INT8);
        pg_params_array(p, 8, PG_TEXT);
}

static void mark_add_delete(struct params *p, const struct outbox_mark *mark)
{
        if (mark->attempts == 0) {
                pg_params_int(p, 2, mark->id);
                return;
        }
        pg_params_int(p, 3, mark->id);
        pg_params_int(p, 4, mark->attempts);
}

/* One line that the column takes, whatever a broker said. */
static struct span reason_of(const char *reason)
{
        struct span s = span_str(reason ? reason : "no reason was given");
        if (s.n > LIMIT_REASON_BYTES) {
                s.n = LIMIT_REASON_BYTES;
                while (s.n > 0 && (s.p[s.n] & 0xc0) == 0x80)
                        s.n--;
        }
        return utf8_valid(s) ? s : span_str("the reason is no UTF-8");
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
                pg_params_bytea(p, 8, reason_of(mark->reason));
        else
                pg_params_null(p, 8);
}

struct plan {
        struct pg_step steps[3]; /* delete, update, COMMIT */
        size_t n, marks;         /* of them, statements that mark */
        size_t untried;          /* nothing to write: they are PENDING as they were */
        uint32_t named;          /* slots */
};

static void plan_marks(struct pg_outbox *ob, enum outbox_mode mode, bool keep,
                       const struct outbox_slot *slots, size_t slot_count,
                       const struct outbox_mark *marks, size_t mark_count, struct plan *plan)
{
        struct params *gone = &ob->params[0], *changed = &ob->params[1];
        size_t deletes = 0, updates = 0;
        *plan = (struct plan){.n = 0};
        for (size_t i = 0; i < slot_count; i++)
                plan->named |= 1u << slots[i].slot;
        mark_begin_delete(gone, slots, slot_count, mode);
        mark_begin_update(changed, slots, slot_count, mode);
        for (size_t i = 0; i < mark_count; i++) {
                if (marks[i].verdict == OUTBOX_DONE && !keep) {
                        mark_add_delete(gone, &marks[i]);
                        deletes++;
                } else if (marks[i].verdict == OUTBOX_UNTRIED && mode != OUTBOX_TWO_PHASE) {
                        plan->untried++;
                } else {
                        mark_add_update(changed, &marks[i]);
                        updates++;
                }
        }
        if (deletes > 0 || updates == 0)
                plan->steps[plan->n++] = (struct pg_step){.query = OQ_MARK_DELETE, .params = gone};
        if (updates > 0)
                plan->steps[plan->n++] =
                        (struct pg_step){.query = OQ_MARK_UPDATE, .params = changed};
        plan->marks = plan->n;
        if (ob->in_tx)
                plan->steps[plan->n++] = (struct pg_step){.query = OQ_COMMIT};
}

/* How many of the marks were for slots that we still have. */
static size_t count_owned(const struct outbox_mark *marks, size_t n, uint32_t owned,
                          enum outbox_mode mode)
{
        size_t count = 0;
        for (size_t i = 0; i < n; i++) {
                bool written = marks[i].verdict != OUTBOX_UNTRIED || mode == OUTBOX_TWO_PHASE;
                count += written && owned & 1u << marks[i].slot;
        }
        return count;
}

semel_code pg_outbox_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                          const struct outbox_slot *slots, size_t slot_count,
                          const struct outbox_mark *marks, size_t mark_count, int64_t deadline_us,
                          struct outbox_marked *ret, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res[3] = {NULL, NULL, NULL};
        struct plan plan;
        semel_code code = SEMEL_OK;
        if (mode == OUTBOX_SINGLE && !ob->in_tx)
                return err_set(err, SEMEL_ERR_STORE_DOWN,
                               "the transaction that locked these rows is gone; they are read again");
        if (!ob->in_tx)
                code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        plan_marks(ob, mode, keep, slots, slot_count, marks, mark_count, &plan);
        code = pg_outbox_run(ob, plan.steps, plan.n, true, deadline_us, res, err);
        if (code != SEMEL_OK) {
                s->vt->abandon(s);
                return code;
        }
        ob->in_tx = false;
        uint32_t owned = plan.named;
        int64_t rows = 0;
        for (size_t i = 0; i < plan.n; i++) {
                if (i < plan.marks) {
                        owned &= (uint32_t)pg_result_int(res[i], 0, 0);
                        rows += pg_result_int(res[i], 0, 1);
                }
                PQclear(res[i]);
        }
        size_t ours = count_owned(marks, mark_count, owned, mode);
        uint32_t lost = plan.named & ~owned;
        *ret = (struct outbox_marked){
                .marked = (size_t)rows + plan.untried,
                .lost_slots = (size_t)__builtin_popcount(lost),
                .lost_mask = lost,
                .changed = ours > (size_t)rows ? ours - (size_t)rows : 0,
        };
        return SEMEL_OK;
}

semel_code pg_outbox_recover(struct outbox_session *s, bool keep, const struct outbox_slot *slots,
                             size_t slot_count, const int64_t *ids,
                             const uint8_t (*event_ids)[EVENT_ID_BYTES], size_t n,
                             int64_t deadline_us, size_t *ret_finished, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct params *p = &ob->params[0];
        PGresult *res = NULL;
        uint32_t named = 0;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_clear(p, 5);
        slot_params(p, slots, slot_count);
        pg_params_array(p, 2, PG_INT8);
        pg_params_array(p, 3, PG_UUID);
        pg_params_scalar(p, 4, PG_BOOL);
        for (size_t i = 0; i < slot_count; i++)
                named |= 1u << slots[i].slot;
        for (size_t i = 0; i < n; i++) {
                pg_params_int(p, 2, ids[i]);
                pg_params_bytea(p, 3, span_of(event_ids[i], EVENT_ID_BYTES));
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
