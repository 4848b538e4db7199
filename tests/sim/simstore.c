/* SPDX-License-Identifier: Apache-2.0
 *
 * simstore: see simstore.h.
 */
#include "simstore.h"

#include <assert.h>
#include <stdlib.h>

enum flight_state { REQUEST, ANSWER, BROKEN, LATE, ORPHAN };

struct flight {
        enum flight_state state;
        struct store_op *op; /* the caller's; LATE and ORPHAN: &own */
        struct store_op own;
        uint8_t *bytes; /* what own's spans point into */
};

struct simstore {
        struct store st;
        struct store *inner;
        struct rng *rng;
        struct simstore_hooks hooks;
        struct simstore_faults faults;
        struct flight **flights;
        uint32_t count, cap;
};

static struct simstore *simstore_of(const struct store *st)
{
        return (struct simstore *)(uintptr_t)st;
}

/* -- flights ---------------------------------------------------------------------- */

/* A simulator that runs out of memory has nothing to say. */
static void *must(void *p)
{
        if (!p)
                abort();
        return p;
}

static struct flight *flight_new(struct simstore *s, enum flight_state state, struct store_op *op)
{
        if (s->count == s->cap) {
                s->cap = s->cap ? s->cap * 2 : 16;
                s->flights = must(realloc(s->flights, s->cap * sizeof(struct flight *)));
        }
        struct flight *f = must(malloc(sizeof *f));
        f->state = state;
        f->op = op;
        f->bytes = NULL;
        s->flights[s->count++] = f;
        return f;
}

static void flight_end(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (f->op == &f->own)
                store_op_release(&f->own);
        free(f->bytes);
        free(f);
        s->flights[i] = s->flights[--s->count];
}

static size_t spans_of(struct store_op *op, struct span *ret[4])
{
        switch (op->kind) {
        case STORE_CLAIM:
                ret[0] = &op->in.claim.label.scope;
                ret[1] = &op->in.claim.label.operation;
                ret[2] = &op->in.claim.label.key;
                ret[3] = &op->in.claim.label.holder;
                return 4;
        case STORE_WRITE:
                ret[0] = &op->in.write.reply.headers;
                ret[1] = &op->in.write.reply.body;
                return 2;
        case STORE_RESOLVE:
                ret[0] = &op->in.resolve.reply.headers;
                ret[1] = &op->in.resolve.reply.body;
                ret[2] = &op->in.resolve.reason;
                ret[3] = &op->in.resolve.who;
                return 4;
        case STORE_LIST:
                ret[0] = &op->in.list.key;
                return 1;
        case STORE_GET:
        case STORE_SWEEP:
                return 0;
        }
        return 0;
}

/* Forget an answer, keep the question. */
static void op_again(struct store_op *op)
{
        struct store_op q = *op;
        store_op_release(op);
        store_op_init(op, q.kind);
        op->deadline_us = q.deadline_us;
        op->done = q.done;
        op->arg = q.arg;
        memcpy(&op->in, &q.in, sizeof op->in);
}

/* Make the flight independent of its caller. */
static void flight_own(struct flight *f, const struct store_op *op)
{
        store_op_init(&f->own, op->kind);
        f->own.deadline_us = op->deadline_us;
        memcpy(&f->own.in, &op->in, sizeof op->in);
        f->op = &f->own;

        struct span *spans[4];
        size_t n = spans_of(&f->own, spans), total = 0;
        for (size_t i = 0; i < n; i++)
                total += spans[i]->n;
        if (total == 0)
                return;
        f->bytes = must(malloc(total));
        for (size_t i = 0, at = 0; i < n; i++) {
                if (spans[i]->n)
                        memcpy(f->bytes + at, spans[i]->p, spans[i]->n);
                spans[i]->p = f->bytes + at;
                at += spans[i]->n;
        }
}

/* -- the inner store ---------------------------------------------------------------- */

static void inner_done(struct store_op *op)
{
        *(bool *)op->arg = true;
}

static void inner_do(struct simstore *s, struct store_op *op)
{
        void (*done)(struct store_op *) = op->done;
        void *arg = op->arg;
        bool over = false;
        op->done = inner_done;
        op->arg = &over;
        store_submit(s->inner, op);
        while (!over)
                s->inner->vt->step(s->inner);
        op->done = done;
        op->arg = arg;
}

static void land(struct simstore *s, struct store_op *op, bool late)
{
        inner_do(s, op);
        if (s->hooks.landed)
                s->hooks.landed(s->hooks.arg, op, late);
        if (!s->hooks.effect || op->kind != STORE_CLAIM || op->err.code != SEMEL_OK ||
            op->out.claim.answer.outcome != COMMAND_RUN || !op->out.claim.answer.changed)
                return;
        struct store_op complete;
        store_op_init(&complete, STORE_WRITE);
        s->hooks.effect(s->hooks.arg, op, &complete);
        inner_do(s, &complete);
        if (s->hooks.landed)
                s->hooks.landed(s->hooks.arg, &complete, late);
        store_op_release(&complete);
}

static void event(struct simstore *s, enum simstore_event what, const struct store_op *op)
{
        if (s->hooks.event)
                s->hooks.event(s->hooks.arg, what, op);
}

/* -- what may happen to a flight -------------------------------------------------------- */

static void request_event(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (rng_chance(s->rng, s->faults.lose_request)) {
                event(s, SIMSTORE_LOST_REQUEST, f->op);
                f->state = BROKEN;
        } else if (rng_chance(s->rng, s->faults.cut)) {
                event(s, SIMSTORE_CUT, f->op);
                f->state = BROKEN;
                flight_own(flight_new(s, LATE, NULL), f->op);
        } else {
                land(s, f->op, false);
                f->state = ANSWER;
        }
}

static void finish(struct simstore *s, uint32_t i)
{
        struct store_op *op = s->flights[i]->op;
        flight_end(s, i);
        op->done(op);
}

static void answer_event(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (!rng_chance(s->rng, s->faults.lose_answer)) {
                finish(s, i);
                return;
        }
        event(s, SIMSTORE_LOST_ANSWER, f->op);
        op_again(f->op);
        f->state = BROKEN;
}

static void broken_event(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (!rng_chance(s->rng, s->faults.give_up)) {
                event(s, SIMSTORE_ISSUED_AGAIN, f->op);
                f->state = REQUEST;
                return;
        }
        event(s, SIMSTORE_GAVE_UP, f->op);
        (void)err_set(&f->op->err, SEMEL_ERR_UNKNOWN, "gave up");
        if (f->op->kind == STORE_CLAIM && !s->hooks.effect)
                flight_own(flight_new(s, ORPHAN, NULL), f->op);
        finish(s, i);
}

static void late_event(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (rng_chance(s->rng, s->faults.linger))
                return;
        if (rng_chance(s->rng, s->faults.drop_late) ||
            (s->faults.no_late_claims && f->op->kind == STORE_CLAIM))
                event(s, SIMSTORE_DROPPED, f->op);
        else
                land(s, f->op, true);
        flight_end(s, i);
}

/* The claim again, then its release. */
static void orphan_event(struct simstore *s, uint32_t i)
{
        struct flight *f = s->flights[i];
        if (rng_chance(s->rng, s->faults.lose_answer))
                return; /* the store is still away */
        land(s, f->op, true);
        if (f->op->err.code == SEMEL_OK && f->op->out.claim.answer.outcome == COMMAND_RUN) {
                event(s, SIMSTORE_ORPHAN_RELEASED, f->op);
                struct flight *rel = flight_new(s, LATE, NULL);
                store_op_init(&rel->own, STORE_WRITE);
                rel->own.deadline_us = f->op->deadline_us;
                rel->own.in.write.write = (struct command_write){
                        .kind = COMMAND_RELEASE_NOT_EXECUTED,
                        .id = f->op->in.claim.claim.id,
                        .attempt = f->op->in.claim.claim.attempt,
                        .token = f->op->out.claim.answer.token,
                };
                rel->op = &rel->own;
        }
        flight_end(s, i);
}

bool simstore_event(struct store *st)
{
        struct simstore *s = simstore_of(st);
        if (s->count == 0)
                return false;
        uint32_t i = rng_below(s->rng, s->count);
        switch (s->flights[i]->state) {
        case REQUEST:
                request_event(s, i);
                break;
        case ANSWER:
                answer_event(s, i);
                break;
        case BROKEN:
                broken_event(s, i);
                break;
        case LATE:
                late_event(s, i);
                break;
        case ORPHAN:
                orphan_event(s, i);
                break;
        }
        return true;
}

void simstore_abandon(struct store *st, struct store_op *op)
{
        struct simstore *s = simstore_of(st);
        for (uint32_t i = 0; i < s->count; i++) {
                struct flight *f = s->flights[i];
                if (f->op != op)
                        continue;
                if (f->state == REQUEST) {
                        f->state = LATE;
                        flight_own(f, op);
                } else {
                        flight_end(s, i);
                }
                return;
        }
}

void simstore_direct(struct store *st, struct store_op *op)
{
        inner_do(simstore_of(st), op);
}

uint32_t simstore_flights(const struct store *st)
{
        return simstore_of(st)->count;
}

void simstore_set_faults(struct store *st, struct simstore_faults faults)
{
        simstore_of(st)->faults = faults;
}

/* -- the interface ------------------------------------------------------------------------ */

static void simstore_submit(struct store *st, struct store_op *op)
{
        (void)flight_new(simstore_of(st), REQUEST, op);
}

static int simstore_fd(struct store *st)
{
        (void)st;
        return -1;
}

static short simstore_events(struct store *st)
{
        (void)st;
        return 0;
}

static int64_t simstore_deadline_us(struct store *st)
{
        return simstore_of(st)->count ? 0 : INT64_MAX;
}

static void simstore_step(struct store *st)
{
        (void)simstore_event(st);
}

static void simstore_close(struct store *st)
{
        struct simstore *s = simstore_of(st);
        s->faults = (struct simstore_faults){.drop_late = 100};
        while (simstore_event(st))
                ;
        s->inner->vt->close(s->inner);
        free(s->flights);
        free(s);
}

static const struct store_vt simstore_vt = {
        .name = "sim",
        .submit = simstore_submit,
        .fd = simstore_fd,
        .events = simstore_events,
        .deadline_us = simstore_deadline_us,
        .step = simstore_step,
        .close = simstore_close,
};

struct store *simstore_new(struct store *inner, struct rng *rng,
                           const struct simstore_hooks *hooks)
{
        struct simstore *s = must(calloc(1, sizeof *s));
        s->st.vt = &simstore_vt;
        s->inner = inner;
        s->rng = rng;
        if (hooks)
                s->hooks = *hooks;
        return &s->st;
}
