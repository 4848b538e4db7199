/* SPDX-License-Identifier: Apache-2.0
 *
 * run: semel_run() and its steps.
 */
#include <semel/run.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "api/claim.h"
#include "api/command_object.h"
#include "api/handle.h"
#include "api/outcome.h"
#include "api/reply_object.h"
#include "base/err.h"

struct semel_claim {
        semel_store *h;
        struct held_entry held; /* id, fingerprint, and our own view of the lease */
        int64_t token;
        struct command_attempt attempt;
        int64_t lease_us;
        size_t reply_bytes_max;
        bool took_over;
};

/* -- begin ------------------------------------------------------------------------------ */

enum {
        POLL_FIRST_US = 10 * 1000, /* a holder elsewhere is asked again after 10 ms, 20 ms, ... */
        POLL_MAX_US = 500 * 1000,
};

static semel_claim *claim_new(semel_store *h, const semel_command *cmd,
                              const struct command_claim *claim)
{
        semel_claim *c = calloc(1, sizeof *c);
        if (!c)
                return NULL;
        c->h = h;
        c->held.id = claim->id;
        c->held.fingerprint = claim->fingerprint;
        c->attempt = claim->attempt;
        c->lease_us = claim->lease_us;
        c->reply_bytes_max = cmd->reply_bytes_max;
        return c;
}

/* One try: ask this process first, then the store.  The handle for a RUN is made before
 * the claim, so that no claim is ever made that nobody can hold. */
static semel_outcome claim_once(semel_claim *c, struct store_op *op, int64_t sent_us,
                                semel_reply **ret_reply, semel_error *err)
{
        const struct command_claim *claim = &op->in.claim.claim;
        struct held *held = handle_held(c->h);
        int64_t held_us, left_us;
        if (held_busy(held, &claim->id, &claim->fingerprint, clock_boot_us(), &held_us, &left_us))
                return outcome_busy(held_us, left_us, err);

        if (handle_call(c->h, op, err) != SEMEL_OK)
                return SEMEL_ERROR;
        if (op->out.claim.answer.outcome != COMMAND_RUN)
                return outcome_of_claim(&op->out.claim.answer, &op->out.claim.rec, ret_reply, err);

        /* Counted from before the claim was sent (A4), and never longer than the store says. */
        int64_t lease_us = op->out.claim.answer.lease_left_us;
        if (lease_us > c->lease_us)
                lease_us = c->lease_us;
        c->token = op->out.claim.answer.token;
        c->took_over = op->out.claim.answer.took_over;
        c->held.claimed_us = sent_us;
        c->held.deadline_us = sent_us + lease_us;
        held_add(held, &c->held);
        return SEMEL_RUN;
}

static semel_outcome claim_waiting(semel_claim *c, struct store_op *op, int64_t wait_us,
                                   semel_reply **ret_reply, semel_error *err)
{
        const int64_t first_us = clock_boot_us();
        struct held_waiter waiter;
        bool waiting = wait_us > 0 &&
                       held_wait_begin(handle_held(c->h), &waiter, &op->in.claim.claim.id);
        int64_t sent_us = first_us, pause_us = POLL_FIRST_US;
        semel_outcome outcome;
        for (;;) {
                err_clear(err);
                outcome = claim_once(c, op, sent_us, ret_reply, err);
                int64_t left_us = first_us + wait_us - clock_boot_us();
                if (outcome != SEMEL_IN_FLIGHT || !waiting || left_us <= 0)
                        break;
                held_wait_sleep(handle_held(c->h), &waiter, pause_us < left_us ? pause_us : left_us);
                pause_us = pause_us * 2 > POLL_MAX_US ? POLL_MAX_US : pause_us * 2;
                sent_us = clock_boot_us();
        }
        if (waiting)
                held_wait_end(handle_held(c->h), &waiter);
        return outcome;
}

semel_outcome semel_begin(semel_store *h, const semel_command *cmd, semel_claim **ret_claim,
                          semel_reply **ret_reply, semel_error *err)
{
        return claim_begin(h, cmd, MODE_RUN, ret_claim, ret_reply, err);
}

semel_outcome claim_begin(semel_store *h, const semel_command *cmd, enum command_mode mode,
                          semel_claim **ret_claim, semel_reply **ret_reply, semel_error *err)
{
        struct store_op op;
        semel_claim *c = NULL;
        semel_outcome outcome = SEMEL_ERROR;
        int cancel_state; /* who is cancelled as a waiter would keep the lock, and stay in the list */
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        err_clear(err);
        store_op_init(&op, STORE_CLAIM);
        if (command_claim_fill(cmd, mode, handle_holder(h), &op.in.claim.claim,
                               &op.in.claim.label, err) != SEMEL_OK)
                goto out;
        c = claim_new(h, cmd, &op.in.claim.claim);
        if (!c) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a claim");
                goto out;
        }
        outcome = claim_waiting(c, &op, cmd->wait_us, ret_reply, err);
        if (outcome == SEMEL_RUN) {
                *ret_claim = c;
                c = NULL;
        }
out:
        free(c);
        store_op_release(&op);
        (void)pthread_setcancelstate(cancel_state, NULL);
        return outcome;
}

bool claim_took_over(const semel_claim *claim)
{
        return claim->took_over;
}

int64_t semel_claim_token(const semel_claim *claim)
{
        return claim->token;
}

int64_t semel_claim_lease_left_ms(const semel_claim *claim)
{
        return (claim->held.deadline_us - clock_boot_us()) / MS;
}

void semel_claim_free(semel_claim *claim)
{
        if (!claim)
                return;
        held_remove(handle_held(claim->h), &claim->held);
        free(claim);
}

/* -- the writes -------------------------------------------------------------------------- */

static semel_code lost(semel_error *err)
{
        return err_set(err, SEMEL_ERR_LOST,
                       "the claim was lost: its lease was over and somebody else took the key, or an "
                       "operator resolved it; this late write was dropped");
}

static semel_code claim_write(semel_claim *c, enum command_write_kind kind,
                              const struct store_reply *rep, int64_t lease_us, semel_error *err)
{
        struct store_op op;
        err_clear(err);
        store_op_init(&op, STORE_WRITE);
        op.in.write.write = (struct command_write){.kind = kind,
                                                   .id = c->held.id,
                                                   .token = c->token,
                                                   .attempt = c->attempt,
                                                   .lease_us = lease_us};
        if (rep)
                op.in.write.reply = *rep;
        semel_code code = handle_call(c->h, &op, err);
        if (code == SEMEL_OK && op.out.write.outcome == COMMAND_LOST)
                code = lost(err);
        store_op_release(&op);
        return code;
}

/* A write after which the claim is nothing that this process holds any more. */
static semel_code claim_end(semel_claim *c, enum command_write_kind kind,
                            const struct store_reply *rep, semel_error *err)
{
        semel_code code = claim_write(c, kind, rep, 0, err);
        if (code == SEMEL_OK || code == SEMEL_ERR_LOST)
                held_remove(handle_held(c->h), &c->held);
        return code;
}

semel_code semel_complete(semel_claim *claim, const semel_reply *reply, semel_error *err)
{
        struct store_reply view = reply_view(reply, claim->reply_bytes_max);
        return claim_end(claim, COMMAND_COMPLETE, &view, err);
}

semel_code semel_release(semel_claim *claim, semel_error *err)
{
        return claim_end(claim, COMMAND_RELEASE, NULL, err);
}

semel_code claim_release_not_executed(semel_claim *claim, semel_error *err)
{
        return claim_end(claim, COMMAND_RELEASE_NOT_EXECUTED, NULL, err);
}

semel_code semel_unknown(semel_claim *claim, semel_error *err)
{
        return claim_end(claim, COMMAND_MARK_UNKNOWN, NULL, err);
}

semel_code semel_extend(semel_claim *claim, int64_t lease_ms, semel_error *err)
{
        if (lease_ms < 1 || lease_ms > LIMIT_LEASE_US / MS)
                return err_set(err, SEMEL_ERR_ARGUMENT, "a lease must be 1 to %lld ms, not %lld",
                               (long long)(LIMIT_LEASE_US / MS), (long long)lease_ms);
        int64_t sent_us = clock_boot_us();
        semel_code code = claim_write(claim, COMMAND_EXTEND, NULL, lease_ms * MS, err);
        if (code == SEMEL_OK)
                held_extend(handle_held(claim->h), &claim->held, sent_us + lease_ms * MS);
        else if (code == SEMEL_ERR_LOST)
                held_remove(handle_held(claim->h), &claim->held);
        return code;
}

/* -- the decorator -------------------------------------------------------------------------- */

static void pause_us(int64_t us)
{
        struct timespec ts = {.tv_sec = us / SECOND, .tv_nsec = us % SECOND * 1000};
        while (nanosleep(&ts, &ts) != 0)
                ; /* EINTR: the rest of it */
}

static semel_code try_to_end(semel_claim *c, enum command_write_kind kind,
                             const struct store_reply *rep, semel_error *err)
{
        const int64_t deadline_us = clock_boot_us() + handle_call_timeout_us(c->h);
        int64_t wait_us = POLL_FIRST_US;
        for (;;) {
                semel_code code = claim_end(c, kind, rep, err);
                if (code == SEMEL_OK || code == SEMEL_ERR_LOST ||
                    clock_boot_us() + wait_us >= deadline_us)
                        return code;
                pause_us(wait_us);
                wait_us = wait_us * 2 > POLL_MAX_US ? POLL_MAX_US : wait_us * 2;
        }
}

/* Write the end of a claim, again and again until the call timeout: after the effect there is
 * nothing better to do, and writing it twice is harmless (A2).  Nor does a cancellation end it: the
 * effect is there, and nobody else knows. */
static semel_code end_stubbornly(semel_claim *c, enum command_write_kind kind,
                                 const struct store_reply *rep, semel_error *err)
{
        int cancel_state;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        semel_code code = try_to_end(c, kind, rep, err);
        (void)pthread_setcancelstate(cancel_state, NULL);
        return code;
}

static semel_outcome run_claimed(semel_claim *c, semel_command_fn fn, void *arg,
                                 semel_reply *rep, semel_error *err)
{
        semel_effect effect = fn(arg, c, rep);
        if (effect == SEMEL_EFFECT_FAILED) {
                (void)end_stubbornly(c, COMMAND_RELEASE, NULL, err);
                return SEMEL_FAILED; /* a release that failed: the lease ends it; err says so */
        }
        if (effect != SEMEL_EFFECT_DONE) {
                (void)end_stubbornly(c, COMMAND_MARK_UNKNOWN, NULL, err);
                return SEMEL_UNKNOWN;
        }
        struct store_reply view = reply_view(rep, c->reply_bytes_max);
        if (end_stubbornly(c, COMMAND_COMPLETE, &view, err) != SEMEL_OK)
                return SEMEL_RAN_UNRECORDED; /* never released: the effect is there */
        return SEMEL_RAN;
}

semel_outcome semel_run(semel_store *st, const semel_command *cmd, semel_command_fn fn, void *arg,
                        semel_reply **ret_reply, semel_error *err)
{
        /* Before the claim: no claim without the memory to answer it. */
        semel_reply *rep = semel_reply_new();
        semel_claim *claim = NULL;
        if (!rep) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a reply");
                return SEMEL_ERROR;
        }
        semel_outcome outcome = semel_begin(st, cmd, &claim, ret_reply, err);
        if (outcome == SEMEL_RUN) {
                outcome = run_claimed(claim, fn, arg, rep, err);
                *ret_reply = rep;
                rep = NULL;
        }
        semel_reply_free(rep);
        semel_claim_free(claim);
        return outcome;
}
