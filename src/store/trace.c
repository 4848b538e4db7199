/* SPDX-License-Identifier: Apache-2.0
 *
 * trace: a store around a store that tells what passes through, one line when an operation is
 * submitted and one when it is answered:
 *
 *     > claim 1f0c9a5511223344 attempt 9be1a03c
 *     < claim 1f0c9a5511223344 RUN token 1790000000000000 lease 60000000
 *     < write 1f0c9a5511223344 complete: error store-down
 *
 * Ids are digests and printed in part; no key, scope, operation, holder or body is (H45).  It
 * changes nothing: an operation for which there is no memory passes without its second line.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/store.h"

enum { LINE_BYTES = 160 };

struct trace {
        struct store st;
        struct store *inner;
        void (*line)(void *arg, const char *text);
        void *arg;
};

/* What the submitter wrote into the operation, while it is the inner store's. */
struct passage {
        struct trace *t;
        void (*done)(struct store_op *op);
        void *arg;
};

/* -- text --------------------------------------------------------------------------------- */

static void hex(char *out, const uint8_t *p, size_t n)
{
        static const char digits[] = "0123456789abcdef";
        for (size_t i = 0; i < n; i++) {
                out[2 * i] = digits[p[i] >> 4];
                out[2 * i + 1] = digits[p[i] & 15];
        }
        out[2 * n] = 0;
}

static const char *resolve_name(enum command_resolve_kind kind)
{
        switch (kind) {
        case COMMAND_RESOLVE_EXECUTED:
                return "executed";
        case COMMAND_RESOLVE_NOT_EXECUTED:
                return "not executed";
        case COMMAND_RESOLVE_FORGET:
                return "forget";
        }
        return "?";
}

/* Which operation: kind, id, and what it asks for. */
static void describe(const struct store_op *op, char *out, size_t n)
{
        enum { ID_SHOWN = 8, ATTEMPT_SHOWN = 4 };
        char id[2 * ID_SHOWN + 1], attempt[2 * ATTEMPT_SHOWN + 1];
        switch (op->kind) {
        case STORE_CLAIM:
                hex(id, op->in.claim.claim.id.b, ID_SHOWN);
                hex(attempt, op->in.claim.claim.attempt.b, ATTEMPT_SHOWN);
                (void)snprintf(out, n, "claim %s attempt %s", id, attempt);
                break;
        case STORE_WRITE:
                hex(id, op->in.write.write.id.b, ID_SHOWN);
                hex(attempt, op->in.write.write.attempt.b, ATTEMPT_SHOWN);
                (void)snprintf(out, n, "write %s %s attempt %s", id,
                               command_write_kind_name(op->in.write.write.kind), attempt);
                break;
        case STORE_GET:
                hex(id, op->in.get.id.b, ID_SHOWN);
                (void)snprintf(out, n, "get %s", id);
                break;
        case STORE_LIST:
                (void)snprintf(out, n, "list%s%s max %zu", op->in.list.stuck ? " stuck" : "",
                               op->in.list.key.n ? " of one key" : "", op->in.list.max);
                break;
        case STORE_RESOLVE:
                hex(id, op->in.resolve.resolve.id.b, ID_SHOWN);
                (void)snprintf(out, n, "resolve %s %s", id,
                               resolve_name(op->in.resolve.resolve.kind));
                break;
        case STORE_SWEEP:
                (void)snprintf(out, n, "sweep max %zu", op->in.sweep.max);
                break;
        }
}

static void describe_answer(const struct store_op *op, char *out, size_t n)
{
        static const char *const writes[] = {"done", "nothing", "lost"};
        static const char *const resolves[] = {
                [COMMAND_RESOLVED] = "resolved",
                [COMMAND_RESOLVE_CHANGED] = "changed",
                [COMMAND_RESOLVE_LEASED] = "leased",
                [COMMAND_RESOLVE_TOO_EARLY] = "too early",
                [COMMAND_RESOLVE_LOOKED_EARLY] = "looked too early",
                [COMMAND_RESOLVE_STATE] = "wrong state",
        };
        if (op->err.code != SEMEL_OK) {
                (void)snprintf(out, n, "error %s", err_code_name(op->err.code));
                return;
        }
        switch (op->kind) {
        case STORE_CLAIM:
                (void)snprintf(out, n, "%s%s token %lld lease %lld",
                               command_outcome_name(op->out.claim.answer.outcome),
                               op->out.claim.answer.took_over ? " (takeover)" : "",
                               (long long)op->out.claim.answer.token,
                               (long long)op->out.claim.answer.lease_left_us);
                break;
        case STORE_WRITE:
                (void)snprintf(out, n, "%s%s", writes[op->out.write.outcome],
                               op->out.write.self_resolved ? " (self-resolved)" : "");
                break;
        case STORE_GET:
                (void)snprintf(out, n, "%s token %lld",
                               command_state_name(op->out.get.row.state),
                               (long long)op->out.get.row.token);
                break;
        case STORE_LIST:
                (void)snprintf(out, n, "%zu rows%s", op->out.list.count,
                               op->out.list.end ? ", end" : "");
                break;
        case STORE_RESOLVE:
                (void)snprintf(out, n, "%s", resolves[op->out.resolve.outcome]);
                break;
        case STORE_SWEEP:
                (void)snprintf(out, n, "%lld deleted, %lld unknown%s",
                               (long long)op->out.sweep.deleted,
                               (long long)op->out.sweep.unknown, op->out.sweep.end ? ", end" : "");
                break;
        }
}

/* -- passing through -------------------------------------------------------------------------- */

static void trace_done(struct store_op *op)
{
        struct passage *p = op->arg;
        struct trace *t = p->t;
        char what[LINE_BYTES / 2], answer[LINE_BYTES / 2], text[LINE_BYTES + 8];
        op->done = p->done;
        op->arg = p->arg;
        free(p);
        describe(op, what, sizeof what);
        describe_answer(op, answer, sizeof answer);
        (void)snprintf(text, sizeof text, "< %s: %s", what, answer);
        t->line(t->arg, text);
        op->done(op); /* last: it may free the operation */
}

static void trace_submit(struct store *st, struct store_op *op)
{
        struct trace *t = (struct trace *)st;
        char what[LINE_BYTES / 2], text[LINE_BYTES];
        describe(op, what, sizeof what);
        (void)snprintf(text, sizeof text, "> %s", what);
        t->line(t->arg, text);
        struct passage *p = malloc(sizeof *p);
        if (p) {
                *p = (struct passage){t, op->done, op->arg};
                op->done = trace_done;
                op->arg = p;
        }
        store_submit(t->inner, op);
}

static int trace_fd(struct store *st)
{
        struct store *inner = ((struct trace *)st)->inner;
        return inner->vt->fd(inner);
}

static short trace_events(struct store *st)
{
        struct store *inner = ((struct trace *)st)->inner;
        return inner->vt->events(inner);
}

static int64_t trace_deadline_us(struct store *st)
{
        struct store *inner = ((struct trace *)st)->inner;
        return inner->vt->deadline_us(inner);
}

static void trace_step(struct store *st)
{
        struct store *inner = ((struct trace *)st)->inner;
        inner->vt->step(inner);
}

static void trace_close(struct store *st)
{
        struct trace *t = (struct trace *)st;
        t->inner->vt->close(t->inner);
        free(t);
}

static const struct store_vt trace_vt = {
        .name = "trace",
        .submit = trace_submit,
        .fd = trace_fd,
        .events = trace_events,
        .deadline_us = trace_deadline_us,
        .step = trace_step,
        .close = trace_close,
};

struct store *store_trace_new(struct store *inner, void (*line)(void *arg, const char *text),
                              void *arg)
{
        struct trace *t = malloc(sizeof *t);
        if (!t)
                return NULL;
        *t = (struct trace){.st = {.vt = &trace_vt}, .inner = inner, .line = line, .arg = arg};
        return &t->st;
}
