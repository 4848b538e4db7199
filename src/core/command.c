/* SPDX-License-Identifier: Apache-2.0
 *
 * command: see command.h.  The rule numbers (A1..A9) are those of docs/rules.md.
 */
#include "core/command.h"

/* -- the first table: a claim ------------------------------------------------------- */

/* What a claim may find. */
enum situation {
        SIT_ABSENT,     /* no row */
        SIT_FREE,       /* released or resolved as not executed */
        SIT_EXPIRED,    /* COMPLETED past its retention */
        SIT_LEASED,     /* IN_FLIGHT, lease alive */
        SIT_LEASE_OVER, /* IN_FLIGHT, lease over */
        SIT_COMPLETED,
        SIT_UNKNOWN,
        SITUATIONS
};

enum claim_action {
        CLAIM_INSERT,    /* RUN: a new row, first token = the wall clock */
        CLAIM_NEXT,      /* RUN: nothing of the past matters any more; token + 1 */
        CLAIM_TAKE_OVER, /* RUN: an earlier holder may have executed it; token + 1 */
        CLAIM_BUSY,
        CLAIM_REPLAY,
        CLAIM_MISMATCH,
        CLAIM_TO_UNKNOWN, /* the row becomes UNKNOWN, and that is the answer */
        CLAIM_UNKNOWN,
};

/* Columns: same request and both policies allow running again; same request and they do
 * not; another request.  A mismatch wins over everything that still has a meaning (H58). */
static const enum claim_action claim_table[SITUATIONS][3] = {
        [SIT_ABSENT]     = {CLAIM_INSERT,    CLAIM_INSERT,     CLAIM_INSERT},
        [SIT_FREE]       = {CLAIM_NEXT,      CLAIM_NEXT,       CLAIM_NEXT},
        [SIT_EXPIRED]    = {CLAIM_NEXT,      CLAIM_NEXT,       CLAIM_NEXT},
        [SIT_LEASED]     = {CLAIM_BUSY,      CLAIM_BUSY,       CLAIM_MISMATCH},
        [SIT_LEASE_OVER] = {CLAIM_TAKE_OVER, CLAIM_TO_UNKNOWN, CLAIM_MISMATCH},
        [SIT_COMPLETED]  = {CLAIM_REPLAY,    CLAIM_REPLAY,     CLAIM_MISMATCH},
        [SIT_UNKNOWN]    = {CLAIM_TAKE_OVER, CLAIM_UNKNOWN,    CLAIM_MISMATCH},
};

/* -- the second table: a write by the holder ---------------------------------------- */

/* Columns by state: FREE, IN_FLIGHT, COMPLETED, UNKNOWN; the row's (id, token, attempt) match.
 * COMPLETED absorbs (A2): its only possible writer with this attempt is the holder itself. */
static const enum command_effect write_table[COMMAND_WRITE_KINDS][COMMAND_STATES] = {
        [COMMAND_COMPLETE] =
                {EFFECT_LOST, EFFECT_COMPLETE, EFFECT_DONE_BEFORE, EFFECT_COMPLETE},
        [COMMAND_RELEASE] =
                {EFFECT_DONE_BEFORE, EFFECT_FREE, EFFECT_LOST, EFFECT_LOST},
        [COMMAND_RELEASE_NOT_EXECUTED] =
                {EFFECT_DONE_BEFORE, EFFECT_FREE, EFFECT_LOST, EFFECT_FREE},
        [COMMAND_EXTEND] =
                {EFFECT_LOST, EFFECT_EXTEND, EFFECT_LOST, EFFECT_LOST},
        [COMMAND_MARK_UNKNOWN] =
                {EFFECT_NOTHING, EFFECT_UNKNOWN, EFFECT_NOTHING, EFFECT_DONE_BEFORE},
};

enum command_effect command_write_effect(enum command_write_kind kind, enum command_state state,
                                         struct command_policy policy, bool maybe_executed)
{
        enum command_effect effect = write_table[kind][state];

        /* An earlier holder may have executed it, and this one cannot speak for that one:
         * the row never becomes FREE, where any request could claim it (A5a). */
        if (effect == EFFECT_FREE && maybe_executed)
                return state == COMMAND_IN_FLIGHT ? EFFECT_END_LEASE : EFFECT_DONE_BEFORE;

        /* Who chose to run again, or has a deduping other side, needs no operator (A5a). */
        if (effect == EFFECT_UNKNOWN && (policy.retry || policy.idempotent))
                return EFFECT_END_LEASE;
        return effect;
}

/* -- small questions ------------------------------------------------------------------ */

bool command_id_eq(const struct command_id *a, const struct command_id *b)
{
        return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool command_attempt_eq(const struct command_attempt *a, const struct command_attempt *b)
{
        return memcmp(a->b, b->b, sizeof a->b) == 0;
}

static bool fingerprint_eq(const struct command_fingerprint *a,
                           const struct command_fingerprint *b)
{
        return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool command_lease_over(const struct command_row *row, struct command_now now)
{
        return row->lease_until_us <= now.lease_us ||
               row->lease_until_us - row->lease_len_us > now.lease_us;
}

bool command_expired(const struct command_row *row, struct command_now now)
{
        if (row->state != COMMAND_COMPLETED && row->state != COMMAND_FREE)
                return false;
        return !now.expiry_frozen && row->expire_us <= now.wall_us;
}

/* A claim time in the future was given by another clock (a reboot, a restored snapshot): that
 * request is long gone. */
bool command_settled(const struct command_row *row, int64_t lease_clock_us)
{
        return row->claimed_us > lease_clock_us || command_settled_us(row) <= lease_clock_us;
}

int64_t command_settled_us(const struct command_row *row)
{
        return row->lease_until_us > row->request_until_us ? row->lease_until_us
                                                           : row->request_until_us;
}

bool command_stuck(const struct command_row *row, struct command_now now)
{
        return row->state == COMMAND_UNKNOWN ||
               (row->state == COMMAND_IN_FLIGHT && command_lease_over(row, now));
}

/* -- claim ------------------------------------------------------------------------------ */

static enum situation situation_of(const struct command_row *row, bool exists,
                                   struct command_now now)
{
        if (!exists)
                return SIT_ABSENT;
        switch (row->state) {
        case COMMAND_FREE:
                return SIT_FREE;
        case COMMAND_IN_FLIGHT:
                return command_lease_over(row, now) ? SIT_LEASE_OVER : SIT_LEASED;
        case COMMAND_COMPLETED:
                return command_expired(row, now) ? SIT_EXPIRED : SIT_COMPLETED;
        case COMMAND_UNKNOWN:
                return SIT_UNKNOWN;
        }
        return SIT_UNKNOWN; /* a state of a newer version: nobody here can know */
}

/* Rule A5: the row's policy and the caller's must both allow it.  From UNKNOWN only a
 * deduping other side does: a person may be looking at it. */
static bool may_run_again(const struct command_row *row, const struct command_claim *claim)
{
        if (row->state == COMMAND_UNKNOWN)
                return row->policy.idempotent && claim->policy.idempotent;
        return (row->policy.retry || row->policy.idempotent) &&
               (claim->policy.retry || claim->policy.idempotent);
}

static void row_take(struct command_row *row, const struct command_claim *claim,
                     struct command_now now)
{
        row->state = COMMAND_IN_FLIGHT;
        row->attempt = claim->attempt;
        row->fingerprint = claim->fingerprint;
        row->policy = claim->policy;
        row->lease_len_us = claim->lease_us;
        row->lease_until_us = now.lease_us + claim->lease_us;
        row->claimed_us = now.lease_us;
        row->request_until_us = now.lease_us + claim->request_us;
        row->retention_us = claim->retention_us;
}

static void row_insert(struct command_row *row, const struct command_claim *claim,
                       struct command_now now)
{
        *row = (struct command_row){.id = claim->id, .created_us = now.wall_us};
        row->token = now.wall_us; /* so that tokens rise over purges too (A1) */
        row_take(row, claim, now);
}

static struct command_answer answer_run(const struct command_row *row, struct command_now now)
{
        return (struct command_answer){.outcome = COMMAND_RUN,
                                       .changed = true,
                                       .token = row->token,
                                       .lease_left_us = row->lease_until_us - now.lease_us};
}

/* The earlier holder's request may outlive the new one's (A5b). */
static struct command_answer row_take_over(struct command_row *row,
                                           const struct command_claim *claim,
                                           struct command_now now)
{
        int64_t earlier_us = row->claimed_us <= now.lease_us ? row->request_until_us : 0;
        row->token++;
        row->maybe_executed = true;
        row_take(row, claim, now);
        if (earlier_us > row->request_until_us)
                row->request_until_us = earlier_us;
        struct command_answer answer = answer_run(row, now);
        answer.took_over = true;
        return answer;
}

struct command_answer command_claim(struct command_row *row, bool exists,
                                    const struct command_claim *claim, struct command_now now)
{
        if (exists && row->state == COMMAND_IN_FLIGHT &&
            command_attempt_eq(&row->attempt, &claim->attempt)) {
                struct command_answer own = answer_run(row, now);
                own.changed = false;
                own.took_over = row->maybe_executed; /* as the first time: only a takeover sets it */
                return own;
        }

        enum situation sit = situation_of(row, exists, now);
        bool same = exists && fingerprint_eq(&row->fingerprint, &claim->fingerprint);
        int column = !same ? 2 : may_run_again(row, claim) ? 0 : 1;
        struct command_answer answer = {.token = row->token};

        switch (claim_table[sit][column]) {
        case CLAIM_INSERT:
                row_insert(row, claim, now);
                answer = answer_run(row, now);
                answer.inserted = true;
                break;
        case CLAIM_NEXT:
                row->token++;
                row->maybe_executed = false;
                row_take(row, claim, now);
                answer = answer_run(row, now);
                break;
        case CLAIM_TAKE_OVER:
                answer = row_take_over(row, claim, now);
                break;
        case CLAIM_BUSY:
                answer.outcome = COMMAND_BUSY;
                answer.lease_left_us = row->lease_until_us - now.lease_us;
                break;
        case CLAIM_REPLAY:
                answer.outcome = COMMAND_REPLAY;
                break;
        case CLAIM_MISMATCH:
                answer.outcome = COMMAND_MISMATCH;
                break;
        case CLAIM_TO_UNKNOWN:
                row->state = COMMAND_UNKNOWN;
                answer.outcome = COMMAND_IS_UNKNOWN;
                answer.changed = true;
                break;
        case CLAIM_UNKNOWN:
                answer.outcome = COMMAND_IS_UNKNOWN;
                break;
        }
        return answer;
}

/* -- writes ------------------------------------------------------------------------------- */

/* Every write that enters COMPLETED or FREE starts the retention anew (A3). */
static void row_end(struct command_row *row, enum command_state state, struct command_now now)
{
        row->state = state;
        row->expire_us = now.wall_us + row->retention_us;
}

static void row_end_lease(struct command_row *row, struct command_now now)
{
        row->lease_until_us = now.lease_us;
        row->maybe_executed = true;
}

/* Nobody may send a request for this row any more, and none is travelling: from now on an operator
 * may look and say "not executed", so a holder that comes back must not get its lease again (A5b). */
static bool request_over(const struct command_row *row, struct command_now now)
{
        return command_lease_over(row, now) && row->request_until_us <= now.lease_us;
}

/* The request may now be sent as much later as the lease ends later (A5b). */
static void row_extend(struct command_row *row, int64_t lease_us, struct command_now now)
{
        int64_t until_us = now.lease_us + lease_us;
        if (until_us > row->lease_until_us)
                row->request_until_us += until_us - row->lease_until_us;
        row->lease_len_us = lease_us;
        row->lease_until_us = until_us;
}

struct command_write_answer command_write(struct command_row *row, bool exists,
                                          const struct command_write *write,
                                          struct command_now now)
{
        struct command_write_answer lost = {.outcome = COMMAND_LOST};
        if (!exists || row->token != write->token ||
            !command_attempt_eq(&row->attempt, &write->attempt))
                return lost;

        struct command_write_answer done = {.outcome = COMMAND_DONE, .changed = true};
        switch (command_write_effect(write->kind, row->state, row->policy, row->maybe_executed)) {
        case EFFECT_LOST:
                return lost;
        case EFFECT_NOTHING:
                return (struct command_write_answer){.outcome = COMMAND_NOTHING};
        case EFFECT_DONE_BEFORE:
                return (struct command_write_answer){.outcome = COMMAND_DONE};
        case EFFECT_COMPLETE:
                done.self_resolved = row->state == COMMAND_UNKNOWN;
                row_end(row, COMMAND_COMPLETED, now);
                break;
        case EFFECT_FREE:
                row_end(row, COMMAND_FREE, now);
                break;
        case EFFECT_END_LEASE:
                row_end_lease(row, now);
                break;
        case EFFECT_EXTEND:
                if (request_over(row, now))
                        return lost;
                row_extend(row, write->lease_us, now);
                done.lease_left_us = write->lease_us;
                break;
        case EFFECT_UNKNOWN:
                row->state = COMMAND_UNKNOWN;
                break;
        }
        return done;
}

/* -- operator --------------------------------------------------------------------------------- */

/* May an operator decide this row now?  COMMAND_RESOLVED means yes. */
static enum command_resolve_outcome may_resolve(const struct command_row *row,
                                                const struct command_resolve *resolve,
                                                struct command_now now, int64_t *ret_wait_us)
{
        if (resolve->kind == COMMAND_RESOLVE_FORGET)
                return row->state == COMMAND_COMPLETED ? COMMAND_RESOLVED : COMMAND_RESOLVE_STATE;
        if (row->state != COMMAND_UNKNOWN && row->state != COMMAND_IN_FLIGHT)
                return COMMAND_RESOLVE_STATE;
        if (row->state == COMMAND_IN_FLIGHT && !command_lease_over(row, now)) {
                *ret_wait_us = row->lease_until_us - now.lease_us;
                return COMMAND_RESOLVE_LEASED;
        }
        if (resolve->kind == COMMAND_RESOLVE_EXECUTED)
                return COMMAND_RESOLVED;

        /* "Not executed" must still be true after the look at the other side, however long ago
         * that was: the lease must have been over then, and the request have had its longest life. */
        if (!command_settled(row, now.lease_us)) {
                *ret_wait_us = command_settled_us(row) - now.lease_us;
                return COMMAND_RESOLVE_TOO_EARLY;
        }
        if (!command_settled(row, resolve->looked_us))
                return COMMAND_RESOLVE_LOOKED_EARLY;
        return COMMAND_RESOLVED;
}

enum command_resolve_outcome command_resolve(struct command_row *row, bool exists,
                                             const struct command_resolve *resolve,
                                             struct command_now now, int64_t *ret_wait_us)
{
        if (exists && command_attempt_eq(&row->attempt, &resolve->new_attempt))
                return COMMAND_RESOLVED; /* issued again: it was done (A7) */
        if (!exists || !command_attempt_eq(&row->attempt, &resolve->attempt))
                return COMMAND_RESOLVE_CHANGED;
        /* A claim that lands twice acquires twice with one attempt. */
        if (resolve->token != 0 && row->token != resolve->token)
                return COMMAND_RESOLVE_CHANGED;
        enum command_resolve_outcome may = may_resolve(row, resolve, now, ret_wait_us);
        if (may != COMMAND_RESOLVED)
                return may;

        /* The token rises and the attempt changes: whatever the late holder still sends finds
         * nothing (A1). */
        row->token++;
        row->attempt = resolve->new_attempt;
        row_end(row, resolve->kind == COMMAND_RESOLVE_EXECUTED ? COMMAND_COMPLETED : COMMAND_FREE,
                now);
        return COMMAND_RESOLVED;
}

/* -- purge pass ----------------------------------------------------------------------------------- */

enum command_sweep command_sweep(struct command_row *row, struct command_now now)
{
        if (command_expired(row, now))
                return COMMAND_DELETE;
        if (row->state != COMMAND_IN_FLIGHT || !command_lease_over(row, now))
                return COMMAND_KEEP;

        /* Hold rows are listed as soon as nobody can be working on them; rows that the next
         * caller would run are left to that caller for the retention (A5). */
        bool next_caller_runs = row->policy.retry || row->policy.idempotent;
        bool waited = row->lease_until_us + row->retention_us <= now.lease_us ||
                      row->lease_until_us > now.lease_us;
        if (next_caller_runs && !waited)
                return COMMAND_KEEP;
        row->state = COMMAND_UNKNOWN;
        return COMMAND_TO_UNKNOWN;
}
