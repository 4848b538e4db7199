/* SPDX-License-Identifier: Apache-2.0
 *
 * check: what must hold, whatever happened.  Two kinds.
 *
 * Effects: what a user sees.  No second effect in one promised window without the consent of
 * every holder that had one; one request per window; replays are the bytes of the completion and
 * its effect is in the window; an upstream that fences never refuses the rightful holder;
 * once faults stop, each key ends COMPLETED.
 *
 * Transitions: each operation as it lands, the row before and after.  Written from the rules,
 * with the checker's own lease, retention and travel times (struct ghost), not from the tables.
 */
#include "world.h"

#define TRANSITION(cond, ...)                                                                     \
        do {                                                                                      \
                if (!w->effects_only && !(cond))                                                  \
                        broken(w, __VA_ARGS__);                                                   \
        } while (0)

/* -- reading -------------------------------------------------------------------------- */

struct seen {
        bool exists;
        struct command_row row;
        struct reply reply;
};

static struct reply reply_of(const struct store_record *rec)
{
        struct reply rep = {0};
        if (!rec->has_reply || rec->row.state != COMMAND_COMPLETED)
                return rep;
        rep.status = rec->status;
        if (rec->body.n == REPLY_BYTES && rec->headers.n == 8 &&
            memcmp(rec->headers.p, rec->body.p, 8) == 0)
                memcpy(rep.body, rec->body.p, REPLY_BYTES);
        return rep;
}

static struct seen look(struct world *w, uint32_t key)
{
        struct seen seen = {0};
        struct store_op op;
        store_op_init(&op, STORE_GET);
        op.in.get.id = key_id(key);
        simstore_direct(w->st, &op);
        if (op.err.code == SEMEL_OK) {
                seen.exists = true;
                seen.row = op.out.get.row;
                seen.reply = reply_of(&op.out.get);
        }
        store_op_release(&op);
        return seen;
}

static bool reply_eq(const struct reply *a, const struct reply *b)
{
        return a->status == b->status && memcmp(a->body, b->body, REPLY_BYTES) == 0;
}

static bool fp_eq(const struct command_fingerprint *a, const struct command_fingerprint *b)
{
        return memcmp(a->b, b->b, sizeof a->b) == 0;
}

static bool unchanged(const struct ghost *g, const struct seen *a)
{
        const struct command_row *b = &g->row;
        if (g->exists != a->exists)
                return false;
        return !a->exists ||
               (b->state == a->row.state && b->token == a->row.token &&
                command_attempt_eq(&b->attempt, &a->row.attempt) &&
                fp_eq(&b->fingerprint, &a->row.fingerprint) &&
                b->policy.retry == a->row.policy.retry &&
                b->policy.idempotent == a->row.policy.idempotent &&
                b->maybe_executed == a->row.maybe_executed &&
                b->lease_until_us == a->row.lease_until_us &&
                b->request_until_us == a->row.request_until_us &&
                b->expire_us == a->row.expire_us && reply_eq(&g->reply, &a->reply));
}

bool ghost_lease_over(const struct world *w, const struct ghost *g)
{
        return g->lease_until_us <= w->boot_us || g->lease_until_us - g->lease_len_us > w->boot_us;
}

static bool expired(const struct world *w, const struct ghost *g)
{
        return g->exists &&
               (g->row.state == COMMAND_COMPLETED || g->row.state == COMMAND_FREE) &&
               g->expire_us <= w->boot_us + w->wall_offset_us;
}

static bool consents(struct command_policy p)
{
        return p.retry || p.idempotent;
}

static void window_end(struct ghost *g)
{
        g->window++;
        g->effects = 0;
}

/* -- claims ----------------------------------------------------------------------------- */

/* RUN: is this caller really the only one who may? */
static void ran(struct world *w, struct ghost *g, const struct store_op *op, const struct seen *a,
                uint32_t key)
{
        const struct command_claim *c = &op->in.claim.claim;
        const struct command_row *b = &g->row;
        bool same = g->exists && fp_eq(&b->fingerprint, &c->fingerprint);
        bool in_flight = g->exists && b->state == COMMAND_IN_FLIGHT;
        bool unknown = g->exists && b->state == COMMAND_UNKNOWN;
        bool completed = g->exists && b->state == COMMAND_COMPLETED;
        bool edge = in_flight && g->lease_until_us == w->boot_us;

        TRANSITION(!in_flight || ghost_lease_over(w, g), "key %u: two holders at a time", key);
        TRANSITION(!completed || expired(w, g), "key %u: a stored completion was lost", key);
        TRANSITION(!(in_flight || unknown) || same, "key %u: another request ran", key);
        TRANSITION(!in_flight || (consents(b->policy) && consents(c->policy)),
                   "key %u: taken over without consent", key);
        TRANSITION(!unknown || (b->policy.idempotent && c->policy.idempotent),
                   "key %u: UNKNOWN ran without an upstream that dedupes", key);
        TRANSITION(a->exists && a->row.state == COMMAND_IN_FLIGHT &&
                           command_attempt_eq(&a->row.attempt, &c->attempt) &&
                           fp_eq(&a->row.fingerprint, &c->fingerprint) &&
                           a->row.policy.retry == c->policy.retry &&
                           a->row.policy.idempotent == c->policy.idempotent,
                   "key %u: RUN, and the row is not the claim's", key);
        TRANSITION(a->row.token == op->out.claim.answer.token, "key %u: RUN with another token",
                   key);
        TRANSITION(w->cfg.same_tokens || a->row.token > g->max_token,
                   "key %u: token %lld after %lld", key, (long long)a->row.token,
                   (long long)g->max_token);
        if (!g->exists && a->row.token <= g->max_token)
                cover(w, C_SAME_TOKEN);

        if (completed)
                window_end(g);
        cover(w, C_RUN);
        if (in_flight || unknown)
                cover(w, in_flight ? C_TAKEOVER : C_TAKEOVER_UNKNOWN);
        if (edge)
                cover(w, C_TAKEOVER_EDGE);
        if (completed)
                cover(w, g->expire_us == w->boot_us + w->wall_offset_us ? C_EXPIRED_EDGE
                                                                        : C_EXPIRED_CLAIM);
        if (!g->exists && g->max_token)
                cover(w, C_PURGE_CLAIM);
        if (g->exists && b->state == COMMAND_FREE && g->resolved)
                cover(w, C_RESOLVED_NOT_RUN);

        int64_t until_us = w->boot_us + c->request_us;
        bool past = (in_flight || unknown) && g->claimed_us <= w->boot_us;
        if (past && g->request_until_us > until_us)
                cover(w, C_TAKEOVER_SHORTER);
        else
                g->request_until_us = until_us;
        g->request_us = c->request_us;
        TRANSITION(a->row.request_until_us >= g->request_until_us,
                   "key %u: claimed, and an earlier request is forgotten", key);
        g->maybe = in_flight || unknown;
        g->claimed_us = w->boot_us;
        g->lease_len_us = c->lease_us;
        g->lease_until_us = w->boot_us + c->lease_us;
        g->retention_us = c->retention_us;
        g->resolved = false;
        if (!g->exists)
                g->first_token = a->row.token;
}

static void replayed(struct world *w, struct ghost *g, const struct store_op *op, uint32_t key)
{
        struct reply rep = reply_of(&op->out.claim.rec);
        cover(w, C_REPLAY);
        if (g->expire_us == w->boot_us + w->wall_offset_us + 1)
                cover(w, C_REPLAY_EDGE);
        TRANSITION(g->exists && g->row.state == COMMAND_COMPLETED && !expired(w, g),
                   "key %u: replay of a row that is not COMPLETED", key);
        MUST(w, fp_eq(&g->row.fingerprint, &op->in.claim.claim.fingerprint),
             "key %u: replay to another request", key);
        MUST(w, reply_eq(&rep, &g->reply), "key %u: replay is not the stored completion", key);

        uint32_t window, effect;
        memcpy(&window, rep.body + 4, 4);
        memcpy(&effect, rep.body + 8, 4);
        if (rep.status != 201)
                return;
        bool idem = w->cfg.promise == IDEMPOTENT || w->cfg.promise == IDEM_FLIP;
        MUST(w, window == g->window || idem, "key %u: replay of an earlier window", key);
        if (effect == UINT32_MAX)
                MUST(w, g->effects > 0 || idem, "key %u: resolved as executed, no effect", key);
        else
                MUST(w, effect < w->effect_count && w->effects[effect].key == key,
                     "key %u: replay of an effect that never was", key);
}

static void claim_landed(struct world *w, struct ghost *g, const struct store_op *op,
                         const struct seen *a, uint32_t key, bool late)
{
        const struct command_claim *c = &op->in.claim.claim;
        const struct command_row *b = &g->row;
        const struct command_answer *ans = &op->out.claim.answer;
        bool same = g->exists && fp_eq(&b->fingerprint, &c->fingerprint);
        bool in_flight = g->exists && b->state == COMMAND_IN_FLIGHT;
        bool unknown = g->exists && b->state == COMMAND_UNKNOWN;
        bool own = in_flight && command_attempt_eq(&b->attempt, &c->attempt);
        bool over = ghost_lease_over(w, g);

        switch (ans->outcome) {
        case COMMAND_RUN:
                if (!ans->changed) {
                        TRANSITION(own && unchanged(g, a), "key %u: RUN for two attempts", key);
                        break;
                }
                ran(w, g, op, a, key);
                if (late && w->cfg.promise != TX)
                        cover(w, C_LATE_CLAIM);
                return;
        case COMMAND_BUSY:
                cover(w, C_BUSY);
                if (g->lease_until_us == w->boot_us + 1)
                        cover(w, C_BUSY_EDGE);
                TRANSITION(in_flight && same && !over && unchanged(g, a),
                           "key %u: busy, and nobody's lease is alive", key);
                TRANSITION(ans->lease_left_us > 0, "key %u: busy for no time", key);
                break;
        case COMMAND_REPLAY:
                replayed(w, g, op, key);
                TRANSITION(unchanged(g, a), "key %u: a replay changed the row", key);
                break;
        case COMMAND_MISMATCH:
                cover(w, C_MISMATCH);
                if (in_flight && !over)
                        cover(w, C_MISMATCH_LEASED);
                TRANSITION(g->exists && !same && b->state != COMMAND_FREE && !expired(w, g),
                           "key %u: mismatch where nothing is left of another request", key);
                TRANSITION(unchanged(g, a), "key %u: a mismatch changed the row", key);
                break;
        case COMMAND_IS_UNKNOWN:
                cover(w, C_IS_UNKNOWN);
                TRANSITION(same && ((in_flight && over) || unknown),
                           "key %u: UNKNOWN, and it is not", key);
                TRANSITION(a->exists && a->row.state == COMMAND_UNKNOWN && a->row.token == b->token,
                           "key %u: answered UNKNOWN, and the row is %s", key,
                           command_state_name(a->row.state));
                TRANSITION(!(in_flight ? consents(b->policy) && consents(c->policy)
                                       : b->policy.idempotent && c->policy.idempotent),
                           "key %u: UNKNOWN where both want to run again", key);
                if (in_flight) {
                        cover(w, C_CLAIM_UNKNOWN);
                        if (consents(c->policy))
                                cover(w, C_REFUSED_ROW);
                        if (consents(b->policy))
                                cover(w, C_REFUSED_CALLER);
                }
                break;
        }
        TRANSITION(!own || ans->outcome == COMMAND_RUN, "key %u: a claim that is issued again is %s",
                   key, command_outcome_name(ans->outcome));
        TRANSITION(own || !a->exists || a->row.state != COMMAND_IN_FLIGHT || !same || !over,
                   "key %u: IN_FLIGHT beyond its lease after a claim", key);
}

/* -- writes -------------------------------------------------------------------------------- */

static void ended(struct world *w, struct ghost *g)
{
        g->expire_us = w->boot_us + w->wall_offset_us + g->retention_us;
}

/* Its holder has spoken: whatever of it still lands, it sends no more requests. */
static void lease_ended(struct world *w, struct ghost *g)
{
        g->lease_until_us = w->boot_us;
        g->request_us = 0;
}

static void completed(struct world *w, struct ghost *g, const struct store_op *op,
                      const struct seen *a, uint32_t key)
{
        struct reply rep = {.status = op->in.write.reply.status};
        memcpy(rep.body, op->in.write.reply.body.p, REPLY_BYTES);
        bool before = g->row.state == COMMAND_COMPLETED;
        MUST(w, a->exists && a->row.state == COMMAND_COMPLETED && reply_eq(&a->reply, &rep),
             "key %u: completion answered DONE, and another reply is stored", key);
        TRANSITION(before || g->row.state == COMMAND_IN_FLIGHT || g->row.state == COMMAND_UNKNOWN,
                   "key %u: completed from %s", key, command_state_name(g->row.state));
        TRANSITION(!before || unchanged(g, a), "key %u: a completion was replaced", key);
        if (g->row.state == COMMAND_UNKNOWN) {
                cover(w, C_SELF_RESOLVED);
                TRANSITION(op->out.write.self_resolved, "key %u: not counted as self-resolved",
                           key);
        }
        if (!before)
                ended(w, g);
}

static void released(struct world *w, struct ghost *g, const struct store_op *op,
                     const struct seen *a, uint32_t key)
{
        enum command_state was = g->row.state, is = a->row.state;
        bool said = op->in.write.write.kind == COMMAND_RELEASE_NOT_EXECUTED;
        if (is == COMMAND_FREE && was != COMMAND_FREE) {
                TRANSITION(!g->maybe, "key %u: freed, though an earlier holder may have executed it",
                           key);
                TRANSITION(was == COMMAND_IN_FLIGHT || (said && was == COMMAND_UNKNOWN),
                           "key %u: released from %s", key, command_state_name(was));
                cover(w, was == COMMAND_UNKNOWN ? C_FREED_UNKNOWN : C_RELEASED);
                ended(w, g);
        } else if (is == COMMAND_IN_FLIGHT) {
                TRANSITION(was == COMMAND_IN_FLIGHT && g->maybe, "key %u: not released", key);
                cover(w, C_RELEASE_MAYBE);
                lease_ended(w, g);
                TRANSITION(a->row.lease_until_us <= w->boot_us,
                           "key %u: released, and the lease goes on", key);
        } else {
                TRANSITION(unchanged(g, a), "key %u: a release changed a %s row", key,
                           command_state_name(was));
        }
}

static void marked(struct world *w, struct ghost *g, const struct seen *a, uint32_t key)
{
        if (g->row.state != COMMAND_IN_FLIGHT) {
                TRANSITION(unchanged(g, a), "key %u: mark-unknown changed a %s row", key,
                           command_state_name(g->row.state));
                return;
        }
        if (consents(g->row.policy)) {
                cover(w, C_LEASE_ENDED);
                TRANSITION(a->row.state == COMMAND_IN_FLIGHT && a->row.lease_until_us <= w->boot_us,
                           "key %u: unknown under retry waits for the lease", key);
                lease_ended(w, g);
                g->maybe = true;
                return;
        }
        cover(w, C_MARKED);
        TRANSITION(a->row.state == COMMAND_UNKNOWN, "key %u: marked unknown, and it is %s", key,
                   command_state_name(a->row.state));
}

static void extended(struct world *w, struct ghost *g, const struct store_op *op,
                     const struct seen *a, uint32_t key)
{
        TRANSITION(g->row.state == COMMAND_IN_FLIGHT, "key %u: extended a %s row", key,
                   command_state_name(g->row.state));
        TRANSITION(!ghost_lease_over(w, g) || g->row.request_until_us > w->boot_us,
                   "key %u: extended when an operator may have looked already", key);
        cover(w, ghost_lease_over(w, g) ? C_EXTENDED_OVER : C_EXTENDED);
        int64_t len_us = op->in.write.write.lease_us;
        g->lease_len_us = len_us;
        g->lease_until_us = w->boot_us + len_us;
        if (w->boot_us + g->request_us > g->request_until_us)
                g->request_until_us = w->boot_us + g->request_us;
        TRANSITION(a->row.request_until_us >= g->request_until_us,
                   "key %u: extended, and its request is not waited for", key);
}

/* The second table, as "LOST only when somebody else holds it or it has moved on". */
static bool may_lose(const struct world *w, const struct ghost *g, enum command_write_kind kind)
{
        enum command_state state = g->row.state;
        switch (kind) {
        case COMMAND_COMPLETE:
                return state == COMMAND_FREE;
        case COMMAND_RELEASE:
                return state == COMMAND_COMPLETED || state == COMMAND_UNKNOWN;
        case COMMAND_RELEASE_NOT_EXECUTED:
                return state == COMMAND_COMPLETED;
        case COMMAND_EXTEND:
                return state != COMMAND_IN_FLIGHT ||
                       (ghost_lease_over(w, g) && g->row.request_until_us <= w->boot_us);
        case COMMAND_MARK_UNKNOWN:
                return false;
        }
        return false;
}

static void write_landed(struct world *w, struct ghost *g, const struct store_op *op,
                         const struct seen *a, uint32_t key, bool late)
{
        const struct command_write *wr = &op->in.write.write;
        bool match = g->exists && g->row.token == wr->token &&
                     command_attempt_eq(&g->row.attempt, &wr->attempt);
        bool same = unchanged(g, a);

        TRANSITION(match || (same && op->out.write.outcome == COMMAND_LOST),
                   "key %u: %s by one who does not hold it", key,
                   command_write_kind_name(wr->kind));
        TRANSITION(a->exists == g->exists, "key %u: a write deleted the row", key);
        TRANSITION(a->row.token == g->row.token &&
                           command_attempt_eq(&a->row.attempt, &g->row.attempt),
                   "key %u: a write made another holder", key);
        if (late)
                cover(w, op->out.write.outcome == COMMAND_LOST ? C_LATE_WRITE_LOST
                                                               : C_LATE_WRITE);
        if (op->out.write.outcome == COMMAND_LOST) {
                TRANSITION(same && (!match || may_lose(w, g, wr->kind)),
                           "key %u: the holder's %s is LOST", key,
                           command_write_kind_name(wr->kind));
                if (!match && g->resolved && !late)
                        cover(w, C_RESOLVE_RACE);
                return;
        }
        switch (wr->kind) {
        case COMMAND_COMPLETE:
                completed(w, g, op, a, key);
                break;
        case COMMAND_RELEASE:
        case COMMAND_RELEASE_NOT_EXECUTED:
                released(w, g, op, a, key);
                break;
        case COMMAND_EXTEND:
                extended(w, g, op, a, key);
                break;
        case COMMAND_MARK_UNKNOWN:
                marked(w, g, a, key);
                break;
        }
}

/* -- operators and the purge pass -------------------------------------------------------------- */

static void resolved(struct world *w, struct ghost *g, const struct command_resolve *r,
                     const struct seen *a, uint32_t key)
{
        enum command_state was = g->row.state;
        bool open = was == COMMAND_UNKNOWN ||
                    (was == COMMAND_IN_FLIGHT && ghost_lease_over(w, g));
        TRANSITION(g->exists && command_attempt_eq(&g->row.attempt, &r->attempt) &&
                           g->row.token == r->token,
                   "key %u: resolved though it had changed since it was shown", key);
        TRANSITION(a->exists && a->row.token > g->row.token &&
                           (w->cfg.same_tokens || a->row.token > g->max_token) &&
                           !command_attempt_eq(&a->row.attempt, &g->row.attempt),
                   "key %u: resolved, and the late holder still matches", key);
        switch (r->kind) {
        case COMMAND_RESOLVE_EXECUTED:
                cover(w, C_RESOLVED_EXECUTED);
                TRANSITION(open && a->row.state == COMMAND_COMPLETED, "key %u: resolved a %s row",
                           key, command_state_name(was));
                break;
        case COMMAND_RESOLVE_NOT_EXECUTED:
                cover(w, C_RESOLVED_NOT);
                TRANSITION(open && a->row.state == COMMAND_FREE, "key %u: resolved a %s row", key,
                           command_state_name(was));
                TRANSITION(g->claimed_us > w->boot_us || g->request_until_us <= w->boot_us,
                           "key %u: not executed, and a request may still travel", key);
                TRANSITION(g->claimed_us > r->looked_us || g->request_until_us <= r->looked_us,
                           "key %u: not executed, from a look while a request could travel", key);
                g->resolved_free = true;
                break;
        case COMMAND_RESOLVE_FORGET:
                cover(w, C_FORGOTTEN);
                TRANSITION(was == COMMAND_COMPLETED && a->row.state == COMMAND_FREE,
                           "key %u: forgot a %s row", key, command_state_name(was));
                if (was == COMMAND_COMPLETED)
                        window_end(g);
                break;
        }
        g->resolved = true;
        ended(w, g);
}

static void resolve_landed(struct world *w, struct ghost *g, const struct store_op *op,
                           const struct seen *a, uint32_t key)
{
        const struct command_resolve *r = &op->in.resolve.resolve;
        bool again = g->exists && command_attempt_eq(&g->row.attempt, &r->new_attempt);
        switch (op->out.resolve.outcome) {
        case COMMAND_RESOLVED:
                if (!again) {
                        resolved(w, g, r, a, key);
                        return;
                }
                break;
        case COMMAND_RESOLVE_CHANGED:
                cover(w, C_RESOLVE_CHANGED);
                TRANSITION(!again, "key %u: a resolve issued again does not know its own work",
                           key);
                break;
        case COMMAND_RESOLVE_LEASED:
                cover(w, C_RESOLVE_LEASED);
                break;
        case COMMAND_RESOLVE_TOO_EARLY:
                cover(w, C_RESOLVE_EARLY);
                break;
        case COMMAND_RESOLVE_LOOKED_EARLY:
                cover(w, C_RESOLVE_LOOKED_EARLY);
                break;
        case COMMAND_RESOLVE_STATE:
                if (r->kind == COMMAND_RESOLVE_FORGET)
                        cover(w, C_RESOLVE_STATE);
                break;
        }
        TRANSITION(unchanged(g, a), "key %u: a refused resolve changed the row", key);
}

static void swept(struct world *w, struct ghost *g, const struct seen *a, uint32_t key)
{
        if (g->exists && !a->exists) {
                TRANSITION(expired(w, g), "key %u: a %s row was purged", key,
                           command_state_name(g->row.state));
                cover(w, g->row.state == COMMAND_COMPLETED ? C_PURGED_COMPLETED : C_PURGED_FREE);
                if (g->row.state == COMMAND_COMPLETED)
                        window_end(g);
                return;
        }
        TRANSITION(!expired(w, g), "key %u: an expired row was not purged", key);
        bool over = g->exists && g->row.state == COMMAND_IN_FLIGHT && ghost_lease_over(w, g);
        bool hold = !consents(g->row.policy);
        if (unchanged(g, a)) {
                TRANSITION(!over || !hold, "key %u: hold, lease over, and still IN_FLIGHT", key);
                TRANSITION(!over || g->lease_until_us + g->retention_us > w->boot_us,
                           "key %u: nobody retries, and it is IN_FLIGHT for ever", key);
                return;
        }
        TRANSITION(over && a->row.state == COMMAND_UNKNOWN, "key %u: the purge pass changed a %s row",
                   key, command_state_name(g->row.state));
        TRANSITION(hold || g->lease_until_us > w->boot_us ||
                           g->lease_until_us + g->retention_us <= w->boot_us,
                   "key %u: UNKNOWN before its next caller could come", key);
        cover(w, hold ? C_SWEEP_UNKNOWN : C_SWEEP_UNKNOWN_RETRY);
}

/* -- entries ------------------------------------------------------------------------------------ */

static void trace_landed(struct world *w, const struct store_op *op, const struct seen *a,
                         uint32_t key, bool late)
{
        const char *what = "", *outcome = "";
        unsigned long long no = 0;
        static const char *const resolves[] = {"resolved", "changed", "leased", "too early",
                                               "wrong state"};
        static const char *const writes[] = {"done", "nothing", "LOST"};
        if (op->kind == STORE_CLAIM) {
                what = "claim";
                outcome = command_outcome_name(op->out.claim.answer.outcome);
                no = attempt_no(&op->in.claim.claim.attempt);
        } else if (op->kind == STORE_WRITE) {
                what = command_write_kind_name(op->in.write.write.kind);
                outcome = writes[op->out.write.outcome];
                no = attempt_no(&op->in.write.write.attempt);
        } else if (op->kind == STORE_RESOLVE) {
                what = "resolve";
                outcome = resolves[op->out.resolve.outcome];
                no = attempt_no(&op->in.resolve.resolve.attempt);
        }
        say(w, "%s%s of attempt %llu lands on key %u -> %s", late ? "LATE " : "", what, no, key,
            outcome);
        if (!a->exists) {
                say(w, "    key %u: no row", key);
                return;
        }
        say(w, "    key %u: %s token %lld attempt %llu%s, lease until %lld, request until %lld, "
            "expires %lld", key, command_state_name(a->row.state), (long long)a->row.token,
            (unsigned long long)attempt_no(&a->row.attempt),
            a->row.maybe_executed ? " maybe-executed" : "", (long long)a->row.lease_until_us,
            (long long)a->row.request_until_us, (long long)(a->row.expire_us - w->wall_offset_us));
}

static void remember(struct ghost *g, const struct seen *a)
{
        g->exists = a->exists;
        g->row = a->row;
        g->reply = a->reply;
        if (a->exists && a->row.token > g->max_token)
                g->max_token = a->row.token;
}

void check_landed(void *arg, const struct store_op *op, bool late)
{
        struct world *w = arg;
        const struct command_id *id = op->kind == STORE_CLAIM   ? &op->in.claim.claim.id
                                      : op->kind == STORE_WRITE ? &op->in.write.write.id
                                                                : &op->in.resolve.resolve.id;
        uint32_t key = key_of(id);
        struct ghost *g = &w->ghosts[key];
        struct seen a = look(w, key);
        if (w->trace)
                trace_landed(w, op, &a, key, late);
        if (op->err.code != SEMEL_OK) {
                broken(w, "key %u: the inner store failed: %s", key, op->err.text);
                return;
        }
        if (op->kind == STORE_CLAIM)
                claim_landed(w, g, op, &a, key, late);
        else if (op->kind == STORE_WRITE)
                write_landed(w, g, op, &a, key, late);
        else
                resolve_landed(w, g, op, &a, key);
        remember(g, &a);
        if (op->kind == STORE_CLAIM && !late)
                for (uint32_t i = 0; i < WORKERS; i++)
                        if (op == &w->workers[i].op)
                                w->workers[i].window = g->window;
}

void check_sweep(struct world *w)
{
        for (uint32_t key = 0; key < w->cfg.keys; key++) {
                struct seen a = look(w, key);
                swept(w, &w->ghosts[key], &a, key);
                remember(&w->ghosts[key], &a);
        }
}

void check_effect(struct world *w, uint32_t n)
{
        const struct effect *e = &w->effects[n];
        struct ghost *g = &w->ghosts[e->key];
        bool idem = w->cfg.promise == IDEMPOTENT || w->cfg.promise == IDEM_FLIP;
        if (e->window == g->window)
                g->effects++;
        if (attempt_no(&g->row.attempt) != e->attempt)
                cover(w, C_ZOMBIE);
        for (uint32_t i = 0; i < n; i++) {
                const struct effect *o = &w->effects[i];
                if (o->key != e->key || (o->window != e->window && !idem))
                        continue;
                MUST(w, !idem, "key %u: two effects at an upstream that dedupes", e->key);
                MUST(w, o->consent && e->consent,
                     "key %u: TWO EFFECTS, of attempts %llu and %llu, without consent", e->key,
                     (unsigned long long)o->attempt, (unsigned long long)e->attempt);
                MUST(w, o->fingerprint == e->fingerprint || (w->cfg.budgetless && g->resolved_free),
                     "key %u: two requests had an effect in one window", e->key);
                cover(w, C_TWO_EFFECTS);
        }
}

void check_seen(struct world *w, const struct request *r)
{
        struct ghost *g = &w->ghosts[r->key];
        bool holder = g->row.state == COMMAND_IN_FLIGHT && g->row.token == r->token &&
                      attempt_no(&g->row.attempt) == r->attempt;
        MUST(w, !holder || r->token >= g->seen_token || w->cfg.same_tokens,
             "key %u: an upstream that fences would refuse the rightful holder: token %lld after %lld",
             r->key, (long long)r->token, (long long)g->seen_token);
        if (r->token > g->seen_token)
                g->seen_token = r->token;
}

/* Everything that is not at rest must be listed, and nothing else. */
void check_end(struct world *w)
{
        struct store_op op;
        store_op_init(&op, STORE_LIST);
        op.in.list.stuck = true;
        op.in.list.max = KEYS + 1;
        simstore_direct(w->st, &op);
        for (uint32_t key = 0; key < w->cfg.keys; key++) {
                const struct ghost *g = &w->ghosts[key];
                bool stuck = g->exists && (g->row.state == COMMAND_UNKNOWN ||
                                           (g->row.state == COMMAND_IN_FLIGHT &&
                                            ghost_lease_over(w, g)));
                bool listed = false;
                for (size_t i = 0; i < op.out.list.count; i++)
                        if (key_of(&op.out.list.recs[i].row.id) == key)
                                listed = true;
                MUST(w, stuck == listed, "key %u: %s, and it is %slisted as stuck", key,
                     command_state_name(g->row.state), listed ? "" : "not ");
        }
        store_op_release(&op);
}
