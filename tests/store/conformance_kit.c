/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_kit: see conformance_kit.h.
 */
#include "conformance_kit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { STUCK_AFTER_MS = 60 * 1000 }; /* a batch of the suite takes milliseconds */

const struct command_policy cf_hold = {false, false}, cf_retry = {true, false},
                            cf_idempotent = {false, true};

#define TEXT(s) {(const uint8_t *)(s), sizeof(s) - 1}
const struct store_label cf_label = {
        .mode = MODE_RUN,
        .scope = TEXT("shop"),
        .operation = TEXT("POST /orders"),
        .key = TEXT("key-1"),
        .holder = TEXT("host-a pid 1"),
};

/* -- identities ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
        x += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
        for (size_t i = 0; i < n; i += 8) {
                uint64_t w = mix(seed + (i << 32));
                memcpy(p + i, &w, 8);
        }
}

struct command_id cf_id(uint64_t n)
{
        struct command_id id;
        fill(id.b, sizeof id.b, n * 3 + 1);
        return id;
}

struct command_fingerprint cf_fingerprint(uint64_t n)
{
        struct command_fingerprint fp;
        fill(fp.b, sizeof fp.b, n * 3 + 2);
        return fp;
}

struct command_attempt cf_attempt(struct cf *c)
{
        struct command_attempt attempt;
        fill(attempt.b, sizeof attempt.b, ++c->serial * 3);
        return attempt;
}

uint64_t cf_random(struct cf *c)
{
        c->rng += UINT64_C(0x9e3779b97f4a7c15);
        return mix(c->rng);
}

struct command_claim cf_claim_of(struct cf *c, struct command_id id, uint64_t fingerprint,
                                 struct command_policy policy)
{
        return (struct command_claim){.id = id,
                                      .attempt = cf_attempt(c),
                                      .fingerprint = cf_fingerprint(fingerprint),
                                      .policy = policy,
                                      .lease_us = CF_LEASE_US,
                                      .retention_us = CF_RETENTION_US,
                                      .request_us = CF_REQUEST_US};
}

/* -- operations in flight --------------------------------------------------------------------- */

struct store_op *cf_ops_new(size_t n)
{
        struct store_op *ops = calloc(n ? n : 1, sizeof *ops);
        assert_non_null(ops);
        return ops;
}

void cf_ops_free(struct store_op *ops, size_t n)
{
        for (size_t i = 0; i < n; i++)
                store_op_release(&ops[i]);
        free(ops);
}

void cf_op_claim(struct store_op *op, const struct command_claim *claim)
{
        store_op_init(op, STORE_CLAIM);
        op->in.claim.claim = *claim;
        op->in.claim.label = cf_label;
}

void cf_op_write(struct store_op *op, enum command_write_kind kind, struct command_id id,
                 int64_t token, struct command_attempt attempt)
{
        store_op_init(op, STORE_WRITE);
        op->in.write.write = (struct command_write){
                .kind = kind,
                .id = id,
                .token = token,
                .attempt = attempt,
                .lease_us = CF_LEASE_US};
        if (kind == COMMAND_COMPLETE)
                op->in.write.reply = (struct store_reply){
                        .status = 201, .headers = span_str("h"), .body = span_str("made")};
}

void cf_op_get(struct store_op *op, struct command_id id)
{
        store_op_init(op, STORE_GET);
        op->in.get.id = id;
}

void cf_op_resolve(struct store_op *op, enum command_resolve_kind kind, struct command_id id,
                   struct command_attempt shown, struct command_attempt fresh)
{
        store_op_init(op, STORE_RESOLVE);
        op->in.resolve.resolve = (struct command_resolve){
                .kind = kind, .id = id, .attempt = shown, .new_attempt = fresh, .looked_us = INT64_MAX};
        op->in.resolve.reason = span_str("looked at the bank's site");
        op->in.resolve.who = span_str("ada");
        if (kind == COMMAND_RESOLVE_EXECUTED)
                op->in.resolve.reply =
                        (struct store_reply){.status = 200, .body = span_str("by hand")};
}

/* BUSY without a token: another statement held the row for too long, and nobody could look (B2).
 * On a slow machine that is no answer for a test: the same claim again. */
static bool was_held(const struct store_op *op)
{
        return op->kind == STORE_CLAIM && op->err.code == SEMEL_OK &&
               op->out.claim.answer.outcome == COMMAND_BUSY && op->out.claim.answer.token == 0;
}

static void answered(struct store_op *op)
{
        struct cf *c = op->arg;
        assert_non_null(c); /* a second answer finds none */
        if (c->a && was_held(op)) {
                store_op_release(op);
                memset(&op->out, 0, sizeof op->out);
                store_record_init(&op->out.claim.rec);
                store_submit(c->a, op);
                return;
        }
        assert_true(c->pending > 0);
        op->arg = NULL;
        c->pending--;
}

void cf_submit(struct cf *c, struct store *st, struct store_op *op)
{
        cf_submit_by(c, st, op, clock_boot_us() + 30 * SECOND);
}

void cf_submit_by(struct cf *c, struct store *st, struct store_op *op, int64_t deadline_us)
{
        op->done = answered;
        op->arg = c;
        op->deadline_us = deadline_us;
        size_t before = ++c->pending;
        store_submit(st, op);
        assert_int_equal(c->pending, before); /* never answered inside submit */
}

void cf_turn(struct cf *c, int wait_ms)
{
        struct store *const views[2] = {c->a, c->b};
        struct pollfd fds[2] = {{.fd = -1}, {.fd = -1}};
        int64_t now_us = clock_boot_us();
        for (int i = 0; i < 2; i++) {
                if (!views[i])
                        continue;
                fds[i].fd = views[i]->vt->fd(views[i]);
                fds[i].events = views[i]->vt->events(views[i]);
                int64_t deadline_us = views[i]->vt->deadline_us(views[i]);
                if (deadline_us <= now_us)
                        wait_ms = 0;
                else if (deadline_us - now_us < wait_ms * MS)
                        wait_ms = (int)((deadline_us - now_us) / MS) + 1;
        }
        (void)poll(fds, 2, wait_ms);
        if (c->a)
                c->a->vt->step(c->a);
        if (c->b && c->b != c->a)
                c->b->vt->step(c->b);
}

void cf_finish(struct cf *c)
{
        int64_t end_us = clock_boot_us() + STUCK_AFTER_MS * MS;
        while (c->pending > 0) {
                cf_turn(c, 1000);
                if (clock_boot_us() > end_us)
                        fail_msg("%zu operations are never answered", c->pending);
        }
}

void cf_do(struct cf *c, struct store *st, struct store_op *op)
{
        cf_submit(c, st, op);
        cf_finish(c);
}

void cf_ok(const struct store_op *op)
{
        if (op->err.code != SEMEL_OK)
                fail_msg("operation of kind %d failed: %s", (int)op->kind, op->err.text);
}

/* -- one at a time ---------------------------------------------------------------------------- */

struct command_answer cf_claim(struct cf *c, struct store *st, const struct command_claim *claim)
{
        struct store_op op;
        cf_op_claim(&op, claim);
        cf_do(c, st, &op);
        cf_ok(&op);
        struct command_answer answer = op.out.claim.answer;
        store_op_release(&op);
        return answer;
}

struct command_write_answer cf_write(struct cf *c, struct store *st, enum command_write_kind kind,
                                     struct command_id id, int64_t token,
                                     struct command_attempt attempt)
{
        struct store_op op;
        cf_op_write(&op, kind, id, token, attempt);
        cf_do(c, st, &op);
        cf_ok(&op);
        struct command_write_answer answer = op.out.write;
        store_op_release(&op);
        return answer;
}

enum command_write_outcome cf_complete(struct cf *c, struct store *st, struct command_id id,
                                       int64_t token, struct command_attempt attempt,
                                       const struct store_reply *rep)
{
        struct store_op op;
        cf_op_write(&op, COMMAND_COMPLETE, id, token, attempt);
        op.in.write.reply = *rep;
        cf_do(c, st, &op);
        cf_ok(&op);
        enum command_write_outcome outcome = op.out.write.outcome;
        store_op_release(&op);
        return outcome;
}

bool cf_get(struct cf *c, struct store *st, struct command_id id, struct store_record *ret_rec)
{
        struct store_op op;
        cf_op_get(&op, id);
        cf_do(c, st, &op);
        bool found = op.err.code != SEMEL_ERR_NOT_FOUND;
        if (found)
                cf_ok(&op);
        *ret_rec = op.out.get; /* ownership moves */
        return found;
}

struct command_row cf_row(struct cf *c, struct command_id id)
{
        struct store_record rec;
        assert_true(cf_get(c, c->a, id, &rec));
        struct command_row row = rec.row;
        assert_int_equal(rec.has_reply, row.state == COMMAND_COMPLETED); /* H17 */
        store_record_release(&rec);
        return row;
}

bool cf_row_exists(struct cf *c, struct command_id id)
{
        struct store_record rec;
        bool found = cf_get(c, c->a, id, &rec);
        store_record_release(&rec);
        return found;
}

enum command_resolve_outcome cf_resolve(struct cf *c, struct store *st,
                                        enum command_resolve_kind kind, struct command_id id,
                                        struct command_attempt shown)
{
        struct store_op op;
        cf_op_resolve(&op, kind, id, shown, cf_attempt(c));
        cf_do(c, st, &op);
        cf_ok(&op);
        enum command_resolve_outcome outcome = op.out.resolve.outcome;
        store_op_release(&op);
        return outcome;
}

void cf_sweep(struct cf *c, struct store *st, size_t max, int64_t *ret_deleted,
              int64_t *ret_unknown)
{
        struct store_cursor at = {0};
        int64_t deleted = 0, unknown = 0;
        for (int steps = 0;; steps++) {
                struct store_op op;
                store_op_init(&op, STORE_SWEEP);
                op.in.sweep.after = at;
                op.in.sweep.max = max;
                cf_do(c, st, &op);
                cf_ok(&op);
                assert_true(op.out.sweep.deleted + op.out.sweep.unknown <= (int64_t)max);
                deleted += op.out.sweep.deleted;
                unknown += op.out.sweep.unknown;
                at = op.out.sweep.next;
                store_op_release(&op);
                if (op.out.sweep.end)
                        break;
                assert_true(steps < 10000); /* it ends */
        }
        if (ret_deleted)
                *ret_deleted = deleted;
        if (ret_unknown)
                *ret_unknown = unknown;
}

void cf_advance(struct cf *c, int64_t us)
{
        c->target->advance(c->target->arg, us);
}

/* -- comparing -------------------------------------------------------------------------------- */

bool cf_near(const struct cf *c, int64_t a_us, int64_t b_us)
{
        int64_t apart_us = a_us < b_us ? b_us - a_us : a_us - b_us;
        return apart_us <= c->target->slack_us;
}

static void expect_number(const char *what, const char *field, int64_t want, int64_t got)
{
        if (want != got)
                fail_msg("%s: %s is %lld, not %lld", what, field, (long long)got, (long long)want);
}

static void expect_time(const struct cf *c, const char *what, const char *field, int64_t want,
                        int64_t got)
{
        if (!cf_near(c, want, got))
                expect_number(what, field, want, got);
}

void cf_expect_row(const struct cf *c, const char *what, const struct command_row *want,
                   const struct command_row *got)
{
        if (want->state != got->state)
                fail_msg("%s: the row is %s, not %s", what, command_state_name(got->state),
                         command_state_name(want->state));
        if (!command_id_eq(&want->id, &got->id))
                fail_msg("%s: another id", what);
        if (!command_attempt_eq(&want->attempt, &got->attempt))
                fail_msg("%s: another attempt", what);
        if (memcmp(&want->fingerprint, &got->fingerprint, sizeof want->fingerprint) != 0)
                fail_msg("%s: another fingerprint", what);
        expect_number(what, "token", want->token, got->token);
        expect_number(what, "policy.retry", want->policy.retry, got->policy.retry);
        expect_number(what, "policy.idempotent", want->policy.idempotent, got->policy.idempotent);
        expect_number(what, "maybe_executed", want->maybe_executed, got->maybe_executed);
        expect_number(what, "lease_len", want->lease_len_us, got->lease_len_us);
        expect_number(what, "retention", want->retention_us, got->retention_us);
        expect_number(what, "created", want->created_us, got->created_us);
        expect_time(c, what, "lease_until", want->lease_until_us, got->lease_until_us);
        expect_time(c, what, "claimed", want->claimed_us, got->claimed_us);
        expect_time(c, what, "request_until", want->request_until_us, got->request_until_us);
        if (want->state == COMMAND_COMPLETED || want->state == COMMAND_FREE)
                expect_time(c, what, "expire", want->expire_us, got->expire_us);
}

void cf_expect_span(const char *what, struct span want, struct span got)
{
        if (!span_eq(want, got))
                fail_msg("%s: %zu bytes come back as %zu, or different", what, want.n, got.n);
}

void cf_expect_state(struct cf *c, struct command_id id, enum command_state state)
{
        struct command_row row = cf_row(c, id);
        if (row.state != state)
                fail_msg("the row is %s, not %s", command_state_name(row.state),
                         command_state_name(state));
}
