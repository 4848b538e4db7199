/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty: a store around a store that loses operations and answers, as `decide` says (store.h).
 * For tests: what reaches the inner store and what its caller hears are two things.
 *
 * What it answers by itself waits in a queue for the next step, so that no operation is ever
 * answered inside submit.  FAULT_LATE keeps a copy of the operation, with its bytes, since the
 * original belongs to its submitter again; copies that are never flushed never happen.
 */
#include <stdlib.h>

#include "core/limits.h"
#include "store/store.h"

struct late {
        struct store_op op;
        struct late *next;
        uint8_t bytes[]; /* what the spans of `op` point into */
};

struct faulty {
        struct store st;
        struct store *inner;
        enum store_fault (*decide)(void *arg, const struct store_op *op);
        void *arg;
        struct store_op *first, **last; /* to be answered by us, in the next step */
        struct late *late, **late_last; /* held */
};

/* What the submitter wrote into the operation, while the inner store does it (LOST_REPLY). */
struct passage {
        void (*done)(struct store_op *op);
        void *arg;
};

/* -- answers of our own ----------------------------------------------------------------- */

static void answer_later(struct faulty *f, struct store_op *op, semel_code code)
{
        (void)err_set(&op->err, code,
                      code == SEMEL_ERR_UNKNOWN ? "the answer was lost (a fault for tests)"
                                                : "the store is down (a fault for tests)");
        op->next = NULL;
        *f->last = op;
        f->last = &op->next;
}

static void answer_queued(struct faulty *f)
{
        struct store_op *op = f->first;
        f->first = NULL; /* `done` may submit: that is the next step's work */
        f->last = &f->first;
        while (op) {
                struct store_op *next = op->next;
                op->done(op);
                op = next;
        }
}

/* -- the answer is lost ----------------------------------------------------------------- */

static void lost_done(struct store_op *op)
{
        struct passage *p = op->arg;
        op->done = p->done;
        op->arg = p->arg;
        free(p);

        /* Its caller must not see what the inner store answered. */
        struct store_op blank;
        store_op_init(&blank, op->kind);
        store_op_release(op);
        op->out = blank.out;
        (void)err_set(&op->err, SEMEL_ERR_UNKNOWN, "the answer was lost (a fault for tests)");
        op->done(op);
}

static void submit_lost(struct faulty *f, struct store_op *op)
{
        struct passage *p = malloc(sizeof *p);
        if (!p) {
                answer_later(f, op, SEMEL_ERR_STORE_DOWN); /* it did not happen: true */
                return;
        }
        *p = (struct passage){op->done, op->arg};
        op->done = lost_done;
        op->arg = p;
        store_submit(f->inner, op);
}

/* -- it happens later ------------------------------------------------------------------- */

enum { SPANS_MAX = 4 };

/* The spans of an operation's input. */
static size_t spans_of(struct store_op *op, struct span *ret[SPANS_MAX])
{
        size_t n = 0;
        switch (op->kind) {
        case STORE_CLAIM:
                ret[n++] = &op->in.claim.label.scope;
                ret[n++] = &op->in.claim.label.operation;
                ret[n++] = &op->in.claim.label.key;
                ret[n++] = &op->in.claim.label.holder;
                break;
        case STORE_WRITE:
                ret[n++] = &op->in.write.reply.headers;
                ret[n++] = &op->in.write.reply.body;
                break;
        case STORE_RESOLVE:
                ret[n++] = &op->in.resolve.reply.headers;
                ret[n++] = &op->in.resolve.reply.body;
                ret[n++] = &op->in.resolve.reason;
                ret[n++] = &op->in.resolve.who;
                break;
        case STORE_LIST:
                ret[n++] = &op->in.list.key;
                break;
        case STORE_GET:
        case STORE_SWEEP:
                break;
        }
        return n;
}

static struct late *late_new(struct store_op *op)
{
        struct span *spans[SPANS_MAX];
        size_t n = spans_of(op, spans), bytes = 0;
        for (size_t i = 0; i < n; i++)
                bytes += spans[i]->n;
        struct late *late = malloc(sizeof *late + bytes);
        if (!late)
                return NULL;
        store_op_init(&late->op, op->kind);
        late->op.in = op->in;
        late->next = NULL;
        uint8_t *at = late->bytes;
        n = spans_of(&late->op, spans);
        for (size_t i = 0; i < n; i++) {
                if (spans[i]->n > 0)
                        memcpy(at, spans[i]->p, spans[i]->n);
                spans[i]->p = at;
                at += spans[i]->n;
        }
        return late;
}

static void late_done(struct store_op *op)
{
        store_op_release(op);
        free(op); /* the operation is the first member of its struct late */
}

static void submit_late(struct faulty *f, struct store_op *op)
{
        struct late *late = late_new(op);
        if (!late) {
                answer_later(f, op, SEMEL_ERR_STORE_DOWN);
                return;
        }
        *f->late_last = late;
        f->late_last = &late->next;
        answer_later(f, op, SEMEL_ERR_UNKNOWN);
}

static struct late *take_late(struct faulty *f)
{
        struct late *late = f->late;
        f->late = NULL;
        f->late_last = &f->late;
        return late;
}

void store_faulty_flush(struct store *st)
{
        struct faulty *f = (struct faulty *)st;
        struct late *late = take_late(f);
        while (late) {
                struct late *next = late->next;
                late->op.done = late_done;
                late->op.deadline_us = clock_boot_us() + 30 * SECOND;
                store_submit(f->inner, &late->op);
                late = next;
        }
}

/* -- the interface ---------------------------------------------------------------------- */

static void faulty_submit(struct store *st, struct store_op *op)
{
        struct faulty *f = (struct faulty *)st;
        switch (f->decide ? f->decide(f->arg, op) : FAULT_NONE) {
        case FAULT_NONE:
                store_submit(f->inner, op);
                break;
        case FAULT_BEFORE:
                answer_later(f, op, SEMEL_ERR_STORE_DOWN);
                break;
        case FAULT_LOST_REPLY:
                submit_lost(f, op);
                break;
        case FAULT_LATE:
                submit_late(f, op);
                break;
        }
}

static int faulty_fd(struct store *st)
{
        struct store *inner = ((struct faulty *)st)->inner;
        return inner->vt->fd(inner);
}

static short faulty_events(struct store *st)
{
        struct store *inner = ((struct faulty *)st)->inner;
        return inner->vt->events(inner);
}

static int64_t faulty_deadline_us(struct store *st)
{
        struct faulty *f = (struct faulty *)st;
        return f->first ? 0 : f->inner->vt->deadline_us(f->inner);
}

static void faulty_step(struct store *st)
{
        struct faulty *f = (struct faulty *)st;
        answer_queued(f);
        f->inner->vt->step(f->inner);
}

static void faulty_close(struct store *st)
{
        struct faulty *f = (struct faulty *)st;
        while (f->first)
                answer_queued(f);
        f->inner->vt->close(f->inner);
        for (struct late *late = take_late(f), *next; late; late = next) {
                next = late->next;
                free(late);
        }
        free(f);
}

static const struct store_vt faulty_vt = {
        .name = "faulty",
        .submit = faulty_submit,
        .fd = faulty_fd,
        .events = faulty_events,
        .deadline_us = faulty_deadline_us,
        .step = faulty_step,
        .close = faulty_close,
};

struct store *store_faulty_new(struct store *inner,
                               enum store_fault (*decide)(void *arg, const struct store_op *op),
                               void *arg)
{
        struct faulty *f = calloc(1, sizeof *f);
        if (!f)
                return NULL;
        f->st.vt = &faulty_vt;
        f->inner = inner;
        f->decide = decide;
        f->arg = arg;
        f->last = &f->first;
        f->late_last = &f->late;
        return &f->st;
}
