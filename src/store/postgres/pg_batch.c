/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_batch: which operations travel together, and what becomes of them when their batch
 * fails: one bad operation, or one held key, fails alone (rules B1, B2, B4).
 */
#include <assert.h>
#include <stdlib.h>

#include "core/retry.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_store.h"

const struct lane_vt *pg_lane_vt(enum lane lane)
{
        static const struct lane_vt *const lanes[LANES] = {
                [LANE_INSERT] = &pg_lane_insert,
                [LANE_READ] = &pg_lane_read,
                [LANE_TAKE] = &pg_lane_take,
                [LANE_COMPLETE] = &pg_lane_complete,
                [LANE_WRITE] = &pg_lane_write,
                [LANE_LIST] = &pg_lane_list,
                [LANE_SWEEP] = &pg_lane_sweep,
                [LANE_RESOLVE] = &pg_lane_resolve,
                [LANE_SWEEP_APPLY] = &pg_lane_sweep_apply,
                [LANE_REAP] = &pg_lane_reap,
        };
        return lanes[lane];
}

struct batch *pg_batch_new(enum lane lane)
{
        struct batch *b = malloc(sizeof *b); /* not cleared: ops is long */
        if (!b)
                return NULL;
        b->next = NULL;
        b->lane = lane;
        b->whole_bodies = false;
        b->rows = NULL;
        b->gone = NULL;
        b->row_count = 0;
        b->after_us = 0;
        b->n = 0;
        return b;
}

void pg_batch_free(struct batch *b)
{
        if (!b)
                return;
        free(b->rows);
        free(b->gone);
        free(b);
}

/* -- forming ------------------------------------------------------------------------------- */

/* Ids of a batch, by their first bytes (they are digests). */
struct id_set {
        const struct command_id *slot[4 * LIMIT_BATCH_OPS];
};

const struct command_id *pg_op_id(const struct store_op *op)
{
        switch (op->kind) {
        case STORE_CLAIM:
                return &op->in.claim.claim.id;
        case STORE_WRITE:
                return &op->in.write.write.id;
        case STORE_GET:
                return &op->in.get.id;
        case STORE_RESOLVE:
                return &op->in.resolve.resolve.id;
        case STORE_LIST:
        case STORE_SWEEP:
                break;
        }
        return NULL;
}

/* false when it was there. */
static bool id_set_add(struct id_set *set, const struct command_id *id)
{
        enum { SLOTS = 4 * LIMIT_BATCH_OPS };
        uint32_t h;
        memcpy(&h, id->b, sizeof h);
        for (h %= SLOTS; set->slot[h]; h = (h + 1) % SLOTS) {
                if (command_id_eq(set->slot[h], id))
                        return false;
        }
        set->slot[h] = id;
        return true;
}

static void unlink_op(struct op_list *q, struct store_op **at)
{
        struct store_op *op = *at;
        *at = op->next;
        if (q->last == &op->next)
                q->last = at;
        op->next = NULL;
        q->count--;
}

/* As many of a queue's first operations as fit; NULL: none, or no memory. */
static struct batch *form(struct op_list *q, enum lane lane)
{
        const struct lane_vt *vt = pg_lane_vt(lane);
        struct id_set ids;
        struct batch *b = q->first ? pg_batch_new(lane) : NULL;
        if (!b)
                return NULL;
        if (vt->distinct)
                memset(&ids, 0, sizeof ids);
        bool alone = q->first->stage & OP_ALONE;
        size_t max = alone ? 1 : vt->ops_max;
        size_t bytes = 0;
        uint32_t own = q->first->stage & OP_ORPHAN; /* no caller waits for their locks (B2) */
        for (struct store_op **at = &q->first; *at && b->n < max;) {
                struct store_op *op = *at;
                size_t more = vt->bytes ? vt->bytes(op) : 0;
                if (b->n > 0 && bytes + more > LIMIT_BATCH_BYTES)
                        break;
                if ((b->n > 0 && op->stage & OP_ALONE) || (op->stage & OP_ORPHAN) != own ||
                    (vt->distinct && !id_set_add(&ids, pg_op_id(op)))) {
                        at = &op->next;
                        continue;
                }
                bytes += more;
                unlink_op(q, at);
                b->ops[b->n++] = op;
        }
        b->whole_bodies = alone;
        return b;
}

static struct batch *take_formed(struct pg_store *st)
{
        struct batch *b = st->formed;
        if (!b)
                return NULL;
        st->formed = b->next;
        if (!st->formed)
                st->formed_last = &st->formed;
        b->next = NULL;
        return b;
}

bool pg_batch_waiting(const struct pg_store *st)
{
        if (st->formed)
                return true;
        for (int i = 0; i < LANE_QUEUES; i++) {
                if (st->queues[i].first)
                        return true;
        }
        return false;
}

struct batch *pg_batch_next(struct pg_store *st, int64_t now_us)
{
        if (now_us >= st->reap_us) {
                struct batch *reap = pg_batch_new(LANE_REAP);
                st->reap_us = now_us + st->config.reap_us / 2;
                if (reap) {
                        reap->after_us = st->config.reap_us;
                        return reap;
                }
        }
        /* In turn, so that neither many claims nor many parts of a failed batch starve others. */
        for (int i = 0; i <= LANE_QUEUES; i++) {
                unsigned turn = st->turn++ % (LANE_QUEUES + 1);
                struct batch *b = turn == LANE_QUEUES
                                          ? take_formed(st)
                                          : form(&st->queues[turn], (enum lane)turn);
                if (b)
                        return b;
        }
        return NULL;
}

/* -- what became of it --------------------------------------------------------------------- */

void pg_batch_done(struct pg_store *st, struct batch *b, const PGresult *res)
{
        pg_lane_vt(b->lane)->take(st, b, res);
        pg_batch_free(b);
}

void pg_batch_lost(struct pg_store *st, struct batch *b, bool in_doubt)
{
        for (size_t i = b->n; i-- > 0;) {
                if (in_doubt && pg_lane_vt(b->lane)->writes)
                        b->ops[i]->stage |= OP_IN_DOUBT;
                pg_restart(st, b->ops[i], 0);
        }
        pg_batch_free(b);
}

/* Each part goes its own way; what cannot be formed for want of memory begins again. */
static void split(struct pg_store *st, const struct batch *b, size_t parts)
{
        size_t size = (b->n + parts - 1) / parts;
        for (size_t at = 0; at < b->n; at += size) {
                struct batch *part = pg_batch_new(b->lane);
                size_t n = b->n - at < size ? b->n - at : size;
                for (size_t i = 0; i < n; i++) {
                        if (part)
                                part->ops[part->n++] = b->ops[at + i];
                        else
                                pg_restart(st, b->ops[at + i], PG_BACKOFF_MAX_US);
                }
                if (part)
                        pg_form(st, part);
        }
}

static int64_t again_us(struct store_op *op)
{
        int64_t us = retry_wait_us(10 * MS, 160 * MS, op->tries++);
        return us + (int64_t)(((uintptr_t)op >> 4) % 8) * MS; /* two that collide do not again */
}

/* A claim that cannot look at its row: somebody else is at work on the key. */
static void answer_held(struct pg_store *st, struct store_op *op)
{
        err_clear(&op->err);
        op->out.claim.answer = (struct command_answer){.outcome = COMMAND_BUSY,
                                                       .lease_left_us = PG_HELD_KEY_US};
        pg_answer(st, op);
}

static void single_failed(struct pg_store *st, struct store_op *op, enum pg_verdict verdict)
{
        enum { TRIES = 3 };
        bool in_doubt = op->stage & OP_IN_DOUBT;
        switch (verdict) {
        case PG_VERDICT_LOCKED:
                if (op->kind == STORE_CLAIM && !in_doubt)
                        answer_held(st, op);
                else
                        pg_restart(st, op, again_us(op));
                break;
        case PG_VERDICT_BLAME:
                if (op->err.code == SEMEL_ERR_STORE_DOWN && op->tries + 1 < TRIES)
                        pg_restart(st, op, again_us(op)); /* a trigger that raises once */
                else
                        pg_fail(st, op);
                break;
        case PG_VERDICT_ALL:
                pg_fail(st, op);
                break;
        case PG_VERDICT_AGAIN:
        case PG_VERDICT_LATER:
        case PG_VERDICT_PLAN:
                pg_restart(st, op, again_us(op));
                break;
        }
}

void pg_batch_failed(struct pg_store *st, struct batch *b, const PGresult *res)
{
        const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
        enum pg_verdict verdict = pg_error_verdict(sqlstate ? sqlstate : "08006");
        bool blames_one = verdict == PG_VERDICT_BLAME || verdict == PG_VERDICT_LOCKED;
        if (b->n > 1 && (blames_one || verdict == PG_VERDICT_AGAIN)) {
                split(st, b, blames_one ? PG_SPLIT_PARTS : b->n);
        } else {
                for (size_t i = b->n; i-- > 0;) {
                        (void)pg_error_from_result(&b->ops[i]->err, res);
                        single_failed(st, b->ops[i], verdict);
                }
        }
        pg_batch_free(b);
}
