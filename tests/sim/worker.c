/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: a process that runs commands under keys: claim, look at its own deadline, send the
 * request, store what came of it.  It may stop for any time between two steps and wake as if
 * nothing had happened; it may die, and the next step is another process's first.
 */
#include "world.h"

#include "core/limits.h"

static int64_t host_us(const struct world *w, const struct worker *wk)
{
        return w->boot_us + wk->skew_us;
}

static void op_done(struct store_op *op)
{
        struct worker *wk = op->arg;
        wk->op_done = true;
}

static void op_submit(struct world *w, struct worker *wk)
{
        wk->op.deadline_us = host_us(w, wk) + DEFAULT_CALL_TIMEOUT_US;
        wk->op.done = op_done;
        wk->op.arg = wk;
        wk->op_busy = true;
        wk->op_done = false;
        wk->lost_answer = false;
        store_submit(w->st, &wk->op);
}

static struct command_policy policy_now(const struct world *w)
{
        switch (w->cfg.promise) {
        case RETRY:
                return (struct command_policy){.retry = true};
        case FLIP:
                return (struct command_policy){.retry = w->flipped};
        case IDEMPOTENT:
                return (struct command_policy){.retry = w->flipped, .idempotent = true};
        case IDEM_FLIP:
                return (struct command_policy){.idempotent = !w->flipped};
        case HOLD:
        case TX:
        case PROMISES:
                break;
        }
        return (struct command_policy){0};
}

static void go_idle(struct worker *wk)
{
        wk->phase = W_IDLE;
        wk->call = 0;
        wk->was_paused = false;
}

/* -- the steps of a call ---------------------------------------------------------------- */

void worker_claim(struct world *w, struct worker *wk, uint32_t key, uint8_t fingerprint)
{
        wk->call = ++w->calls;
        wk->key = key;
        wk->verdict = V_NONE;
        wk->life_us = rng_between(&w->rng, 4, w->cfg.life_us);
        wk->claim = (struct command_claim){
                .id = key_id(key),
                .attempt = attempt_new(w),
                .policy = policy_now(w),
                .lease_us = w->cfg.lease_us,
                .retention_us = w->cfg.retention_us,
                .request_us = w->cfg.budget_us + wk->life_us,
        };
        wk->claim.fingerprint.b[0] = fingerprint;
        wk->deadline_us = host_us(w, wk) + w->cfg.budget_us; /* before the submit (A4) */
        store_op_init(&wk->op, STORE_CLAIM);
        wk->op.in.claim.claim = wk->claim;
        wk->phase = W_CLAIM;
        SAY(w, "worker %u claims key %u for request %u, attempt %llu, policy%s%s", wk->no, key,
            fingerprint, (unsigned long long)attempt_no(&wk->claim.attempt),
            wk->claim.policy.retry ? " retry" : wk->claim.policy.idempotent ? "" : " hold",
            wk->claim.policy.idempotent ? " idempotent" : "");
        op_submit(w, wk);
}

static void claimed(struct world *w, struct worker *wk)
{
        bool run = wk->op.err.code == SEMEL_OK && wk->op.out.claim.answer.outcome == COMMAND_RUN;
        if (run && wk->lost_answer)
                cover(w, C_CLAIM_AGAIN);
        if (wk->lost_answer && w->cfg.promise == TX && wk->op.err.code == SEMEL_OK &&
            wk->op.out.claim.answer.outcome == COMMAND_REPLAY)
                cover(w, C_TX_AGAIN);
        wk->token = run ? wk->op.out.claim.answer.token : 0;
        if (!run || w->cfg.promise == TX) {
                go_idle(wk);
                return;
        }
        if (host_us(w, wk) >= wk->deadline_us)
                cover(w, C_BORN_EXPIRED);
        wk->phase = W_HELD;
}

static void write_submit(struct world *w, struct worker *wk, enum command_write_kind kind)
{
        store_op_init(&wk->op, STORE_WRITE);
        wk->op.in.write.write = (struct command_write){.kind = kind,
                                                       .id = wk->claim.id,
                                                       .token = wk->token,
                                                       .attempt = wk->claim.attempt,
                                                       .lease_us = w->cfg.lease_us};
        if (kind == COMMAND_COMPLETE) {
                memcpy(wk->body, wk->reply.body, REPLY_BYTES);
                wk->op.in.write.reply = (struct store_reply){.status = wk->reply.status,
                                                             .headers = span_of(wk->body, 8),
                                                             .body = span_of(wk->body, REPLY_BYTES)};
        }
        SAY(w, "worker %u writes %s for attempt %llu", wk->no, command_write_kind_name(kind),
            (unsigned long long)attempt_no(&wk->claim.attempt));
        if (kind != COMMAND_EXTEND)
                wk->phase = W_WRITE;
        op_submit(w, wk);
}

static void extend(struct world *w, struct worker *wk)
{
        wk->extending = true;
        write_submit(w, wk, COMMAND_EXTEND);
}

static void extended(struct world *w, struct worker *wk)
{
        wk->extending = false;
        if (wk->op.err.code != SEMEL_OK)
                return;
        if (wk->op.out.write.outcome == COMMAND_DONE)
                wk->deadline_us = wk->op.deadline_us - DEFAULT_CALL_TIMEOUT_US + w->cfg.budget_us;
        else if (wk->phase == W_HELD)
                go_idle(wk); /* somebody else's now */
}

static void written(struct world *w, struct worker *wk)
{
        const struct store_op *op = &wk->op;
        if (op->err.code != SEMEL_OK) {
                if (op->in.write.write.kind == COMMAND_COMPLETE && rng_chance(&w->rng, 50))
                        write_submit(w, wk, COMMAND_COMPLETE);
                else
                        go_idle(wk);
                return;
        }
        if (wk->lost_answer && op->out.write.outcome == COMMAND_DONE)
                cover(w, C_WRITE_AGAIN);
        if (wk->was_paused && op->out.write.outcome == COMMAND_LOST)
                cover(w, C_WOKE_LOST);
        bool ended = op->in.write.write.kind == COMMAND_COMPLETE ||
                     op->in.write.write.kind == COMMAND_MARK_UNKNOWN;
        if (ended && !w->quiet && rng_chance(&w->rng, 10)) {
                cover(w, C_DEFERRED);
                write_submit(w, wk, COMMAND_RELEASE);
        } else {
                go_idle(wk);
        }
}

static bool in_time(const struct world *w, const struct worker *wk)
{
        return w->cfg.budgetless || host_us(w, wk) < wk->deadline_us;
}

static void held(struct world *w, struct worker *wk)
{
        uint32_t dice = w->quiet ? 50 : rng_below(&w->rng, 100);
        if (!in_time(w, wk)) {
                if (dice < 60)
                        write_submit(w, wk, COMMAND_RELEASE_NOT_EXECUTED);
                else
                        extend(w, wk);
        } else if (dice < 10) {
                write_submit(w, wk, COMMAND_RELEASE_NOT_EXECUTED);
        } else if (dice < 22) {
                extend(w, wk);
        } else if (upstream_send(w, wk)) {
                wk->phase = W_SENT;
                wk->verdict = V_NONE;
        }
}

static void sent(struct world *w, struct worker *wk)
{
        if (wk->verdict == V_RUNNING) {
                wk->verdict = V_NONE;
                if (!in_time(w, wk) || !upstream_send(w, wk))
                        wk->verdict = V_AMBIGUOUS;
        }
        if (wk->verdict == V_NONE && !w->quiet) {
                uint32_t dice = rng_below(&w->rng, 100);
                if (dice < 6)
                        wk->verdict = V_AMBIGUOUS; /* its timeout */
                else if (dice < 10 && !wk->op_busy)
                        extend(w, wk);
        }
        if (wk->verdict != V_NONE)
                wk->phase = W_GOT;
}

static void got(struct world *w, struct worker *wk)
{
        switch (wk->verdict) {
        case V_OK:
        case V_REJECTED:
                write_submit(w, wk, COMMAND_COMPLETE);
                break;
        case V_REFUSED:
                write_submit(w, wk, COMMAND_RELEASE);
                break;
        case V_NOT_EXECUTED:
                write_submit(w, wk, COMMAND_RELEASE_NOT_EXECUTED);
                break;
        case V_AMBIGUOUS:
        case V_RUNNING:
        case V_NONE:
                write_submit(w, wk, COMMAND_MARK_UNKNOWN);
                break;
        }
}

/* -- transactions ------------------------------------------------------------------------ */

void tx_effect(void *arg, const struct store_op *claim, struct store_op *complete)
{
        struct world *w = arg;
        const struct command_claim *c = &claim->in.claim.claim;
        uint32_t key = key_of(&c->id), window = w->ghosts[key].window;
        uint64_t attempt = attempt_no(&c->attempt);
        uint32_t n = effect_add(w, key, window, attempt, c->fingerprint.b[0], false);
        static uint8_t body[REPLY_BYTES]; /* one transaction at a time */
        struct reply rep = reply_make(V_OK, key, window, n, attempt);
        memcpy(body, rep.body, REPLY_BYTES);
        complete->in.write.write = (struct command_write){.kind = COMMAND_COMPLETE,
                                                          .id = c->id,
                                                          .token = claim->out.claim.answer.token,
                                                          .attempt = c->attempt};
        complete->in.write.reply = (struct store_reply){.status = rep.status,
                                                        .headers = span_of(body, 8),
                                                        .body = span_of(body, REPLY_BYTES)};
}

/* -- one step ------------------------------------------------------------------------------ */

void worker_crash(struct world *w, struct worker *wk)
{
        if (wk->op_busy && !wk->op_done)
                simstore_abandon(w->st, &wk->op);
        store_op_release(&wk->op);
        store_op_init(&wk->op, STORE_SWEEP);
        if (wk->phase >= W_HELD) {
                cover(w, C_CRASH_HELD);
                for (uint32_t i = 0; i < w->effect_count; i++)
                        if (w->effects[i].attempt == attempt_no(&wk->claim.attempt) &&
                            w->ghosts[wk->key].row.state == COMMAND_IN_FLIGHT)
                                cover(w, C_CRASH_EFFECT);
        }
        if (wk->phase != W_IDLE)
                SAY(w, "worker %u CRASHES", wk->no);
        wk->op_busy = wk->op_done = wk->extending = wk->paused = false;
        go_idle(wk);
}

static void take_answer(struct world *w, struct worker *wk)
{
        wk->op_busy = wk->op_done = false;
        if (wk->extending)
                extended(w, wk);
        else if (wk->phase == W_CLAIM)
                claimed(w, wk);
        else if (wk->phase == W_WRITE)
                written(w, wk);
        if (!wk->op_busy) {
                store_op_release(&wk->op);
                store_op_init(&wk->op, STORE_SWEEP); /* owns nothing */
        }
}

void worker_step(struct world *w, struct worker *wk)
{
        if (wk->paused) {
                if (!w->quiet && !rng_chance(&w->rng, 12))
                        return;
                SAY(w, "worker %u wakes", wk->no);
                wk->paused = false;
        } else if (!w->quiet && wk->phase != W_IDLE) {
                uint32_t dice = rng_below(&w->rng, 100);
                if (dice < 2) {
                        worker_crash(w, wk);
                        return;
                }
                if (dice < 6) {
                        SAY(w, "worker %u is stopped", wk->no);
                        wk->paused = wk->was_paused = true;
                        return;
                }
        }
        if (wk->op_done) {
                take_answer(w, wk);
                return;
        }
        if (wk->op_busy && wk->phase != W_SENT)
                return;
        switch (wk->phase) {
        case W_IDLE:
                if (!w->quiet)
                        worker_claim(w, wk, rng_below(&w->rng, w->cfg.keys),
                                     !w->cfg.one_request && rng_chance(&w->rng, 15));
                break;
        case W_HELD:
                held(w, wk);
                break;
        case W_SENT:
                sent(w, wk);
                break;
        case W_GOT:
                got(w, wk);
                break;
        case W_CLAIM:
        case W_WRITE:
                break;
        }
}
