/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: an honest person with `semel keys`.  Looks at the row and at the upstream, decides,
 * and confirms some time later, guarded by the attempt that was shown, and by when that was: some
 * look while a request can still travel, see nothing, and say "not executed" when it has had its
 * effect (A5b).  Also the purge pass.
 */
#include "world.h"

/* Fills `resolve` and returns true when there is something to decide. */
static bool decide(struct world *w, uint32_t key, bool may_forget, struct command_resolve *resolve)
{
        struct store_op look;
        store_op_init(&look, STORE_GET);
        look.in.get.id = key_id(key);
        simstore_direct(w->st, &look);
        bool found = look.err.code == SEMEL_OK;
        struct command_row row = look.out.get.row;
        struct command_now now = look.out.get.now;
        store_op_release(&look);
        if (!found || row.state == COMMAND_FREE)
                return false;

        *resolve = (struct command_resolve){
                .id = row.id,
                .attempt = row.attempt,
                .token = row.token,
                .new_attempt = attempt_new(w),
                .looked_us = now.lease_us};
        if (may_forget && (row.state == COMMAND_COMPLETED || rng_chance(&w->rng, 6))) {
                resolve->kind = COMMAND_RESOLVE_FORGET; /* not COMPLETED: a slip of the hand */
                return row.state != COMMAND_COMPLETED || rng_chance(&w->rng, 25);
        }
        if (row.state == COMMAND_COMPLETED)
                return false;
        if (w->ghosts[key].effects > 0) { /* the look at the upstream */
                resolve->kind = COMMAND_RESOLVE_EXECUTED;
                return true;
        }
        resolve->kind = COMMAND_RESOLVE_NOT_EXECUTED;
        return command_settled(&row, now.lease_us) || rng_chance(&w->rng, 50);
}

static void fill(struct world *w, struct store_op *op, uint32_t key, uint8_t *body,
                 const struct command_resolve *resolve)
{
        store_op_init(op, STORE_RESOLVE);
        op->in.resolve.resolve = *resolve;
        struct reply rep = reply_make(V_OK, key, w->ghosts[key].window, UINT32_MAX, 0);
        memcpy(body, rep.body, REPLY_BYTES);
        if (resolve->kind == COMMAND_RESOLVE_EXECUTED)
                op->in.resolve.reply = (struct store_reply){.status = rep.status,
                                                            .headers = span_of(body, 8),
                                                            .body = span_of(body, REPLY_BYTES)};
}

static void op_done(struct store_op *op)
{
        struct operator_ *o = op->arg;
        o->op_done = true;
}

static const char *kind_name(enum command_resolve_kind kind)
{
        static const char *const names[] = {"executed", "not executed", "forget"};
        return names[kind];
}

void operator_step(struct world *w, struct operator_ *o)
{
        switch (o->phase) {
        case O_IDLE:
                o->key = rng_below(&w->rng, w->cfg.keys);
                if (!decide(w, o->key, true, &o->resolve))
                        return;
                o->phase = O_DECIDED;
                SAY(w, "operator %u looks at key %u, attempt %llu, and decides: %s", o->no, o->key,
                    (unsigned long long)attempt_no(&o->resolve.attempt),
                    kind_name(o->resolve.kind));
                return;
        case O_DECIDED:
                if (rng_chance(&w->rng, 40))
                        return; /* thinks */
                fill(w, &o->op, o->key, o->body, &o->resolve);
                o->op.done = op_done;
                o->op.arg = o;
                o->op_done = o->lost_answer = false;
                o->phase = O_SENT;
                SAY(w, "operator %u confirms: %s", o->no, kind_name(o->resolve.kind));
                store_submit(w->st, &o->op);
                return;
        case O_SENT:
                if (!o->op_done)
                        return;
                if (o->lost_answer && o->op.err.code == SEMEL_OK)
                        cover(w, C_RESOLVE_AGAIN);
                o->phase = O_IDLE;
                return;
        }
}

bool operator_resolve_now(struct world *w, uint32_t key)
{
        struct command_resolve resolve;
        if (!decide(w, key, false, &resolve))
                return false;
        struct store_op op;
        uint8_t body[REPLY_BYTES];
        fill(w, &op, key, body, &resolve);
        simstore_direct(w->st, &op);
        SAY(w, "an operator resolves key %u: %s", key, kind_name(resolve.kind));
        check_landed(w, &op, false);
        return op.err.code == SEMEL_OK && op.out.resolve.outcome == COMMAND_RESOLVED;
}

void sweep_pass(struct world *w)
{
        struct store_op op;
        store_op_init(&op, STORE_SWEEP);
        op.in.sweep.max = KEYS + 1;
        SAY(w, "purge pass");
        simstore_direct(w->st, &op);
        check_sweep(w);
        store_op_release(&op);
}
