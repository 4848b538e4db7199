/* SPDX-License-Identifier: Apache-2.0
 *
 * request_claim: the claim of a key, what its answers mean, and waiting for a duplicate.
 */
#include <stdio.h>

#include "app/request.h"
#include "core/retry.h"
#include "sys/random.h"

enum {
        PAUSE_FIRST_US = 100 * 1000, /* a holder in another process is asked again after this, ... */
        PAUSE_MAX_US = 1000 * 1000,  /* ... and at most this */
};
#define CLAIM_CALL_US (5 * SECOND)
/* A request that was sent just before its lease was over may still be on the wire for so long. */
#define TRAVEL_US (5 * SECOND)

/* -- Prefer: wait=N ------------------------------------------------------------------------------ */

static int64_t wait_of(struct span value)
{
        struct span token;
        while (header_token_next(&value, &token)) {
                if (token.n < 6 || memcmp(token.p, "wait=", 5) != 0)
                        continue;
                int64_t s = 0;
                for (size_t i = 5; i < token.n && token.p[i] >= '0' && token.p[i] <= '9'; i++)
                        if (s < 100000)
                                s = s * 10 + (token.p[i] - '0');
                return s * SECOND;
        }
        return 0;
}

static int64_t wait_wanted(const struct request *r)
{
        const struct http_header *h = header_find(r->headers, r->header_count, "Prefer");
        int64_t us = h ? wait_of(h->value) : 0;
        return us < r->policy->wait_max_us ? us : r->policy->wait_max_us;
}

/* -- waiting --------------------------------------------------------------------------------------- */

struct request **request_waiting(struct worker *w, const struct command_id *id)
{
        return &w->waiting[(id->b[0] | id->b[1] << 8) % WAIT_BUCKETS];
}

static bool wait_enter(struct request *r)
{
        struct gateway *gw = r->w->gw;
        struct request **list = request_waiting(r->w, &r->claim.id);
        if (r->waiting)
                return true;
        if (atomic_fetch_add(&gw->waiters, 1) >= gw->config->waiters_max) {
                atomic_fetch_sub(&gw->waiters, 1);
                return false;
        }
        r->waiting = true;
        r->wait_prev = NULL;
        r->wait_next = *list;
        if (r->wait_next)
                r->wait_next->wait_prev = r;
        *list = r;
        hot_inbox_waiting(gw->hot, &r->w->inbox, 1);
        return true;
}

void request_unwait(struct request *r)
{
        if (!r->waiting)
                return;
        r->waiting = false;
        *(r->wait_prev ? &r->wait_prev->wait_next : request_waiting(r->w, &r->claim.id)) =
                r->wait_next;
        if (r->wait_next)
                r->wait_next->wait_prev = r->wait_prev;
        hot_inbox_waiting(r->w->gw->hot, &r->w->inbox, -1);
        atomic_fetch_sub(&r->w->gw->waiters, 1);
}

static void busy(struct request *r, int64_t held_us, int64_t left_us)
{
        int64_t now_us = loop_now_us(r->w->loop);
        bool may_wait = r->ex && now_us < r->wait_until_us && !atomic_load(&r->w->gw->draining);
        if (may_wait && wait_enter(r)) {
                int64_t pause_us = r->pause_us ? r->pause_us : PAUSE_FIRST_US;
                r->pause_us = pause_us * 2 < PAUSE_MAX_US ? pause_us * 2 : PAUSE_MAX_US;
                if (pause_us > r->wait_until_us - now_us)
                        pause_us = r->wait_until_us - now_us;
                r->stage = REQUEST_WAIT;
                request_timeout_in(r, pause_us);
                return;
        }
        request_set_outcome(r, OUTCOME_IN_FLIGHT);
        answer_problem(r, PROBLEM_IN_FLIGHT, "", retry_after_s(held_us, left_us));
}

bool request_waits_for_another(const struct request *r)
{
        return r->stage == REQUEST_WAIT && !r->maybe_executed;
}

void request_wait_over(struct request *r)
{
        deadline_clear(&r->timeout);
        if (request_waits_for_another(r))
                request_claim(r);
        else
                request_forward(r);
}

/* -- answers ------------------------------------------------------------------------------------------ */

static void mismatch(struct request *r, const struct store_record *rec)
{
        char detail[LIMIT_OPERATION_BYTES + 64];
        (void)snprintf(detail, sizeof detail, "The key was first used for %.*s.",
                       (int)rec->operation.n, (const char *)rec->operation.p);
        request_set_outcome(r, OUTCOME_MISMATCH);
        answer_problem(r, PROBLEM_KEY_REUSED, rec->operation.n > 0 ? detail : "", 0);
}

static void store_failed(struct request *r)
{
        if (r->policy->store_down == STORE_DOWN_OPEN && r->ex) {
                metrics_count(&r->w->gw->metrics, COUNTER_FAILED_OPEN);
                r->unprotected = true;
                r->key.n = 0; /* the upstream gets the client's own field, as if nobody looked */
                request_forward(r);
                return;
        }
        request_set_outcome(r, OUTCOME_STORE_DOWN);
        answer_problem(r, PROBLEM_STORE_DOWN, "", 1);
}

/* The kept reply, for this client, and for the next ones of this second. */
static void replay(struct request *r, const struct store_record *rec)
{
        bool tombstone = (rec->flags & STORE_REPLY_TOMBSTONE) != 0;
        int64_t kept_us = rec->row.expire_us - rec->now.wall_us;
        hot_finished(r->w->gw->hot, &r->claim.id, &rec->row.fingerprint, &rec->row.attempt,
                     r->claimed_us + (kept_us < SECOND ? kept_us : SECOND), rec->status, tombstone,
                     buf_span(&rec->headers), buf_span(&rec->body));
        request_set_outcome(r, OUTCOME_REPLAYED);
        answer_replay(r, rec->status, tombstone, buf_span(&rec->headers), buf_span(&rec->body));
}

/* The claim is ours. */
static void run(struct request *r, const struct command_answer *answer)
{
        struct worker *w = r->w;
        int64_t now_us = loop_now_us(w->loop), lease_us = answer->lease_left_us;
        if (lease_us > r->claim.lease_us)
                lease_us = r->claim.lease_us;
        r->token = answer->token;
        r->holding = true;
        r->deadline_us = r->claimed_us + lease_us; /* from before the submit (A4) */
        if (answer->took_over)
                metrics_count(&w->gw->metrics, COUNTER_TAKEOVERS);
        hot_running(w->gw->hot, &r->claim.id, &r->claim.fingerprint, &r->claim.attempt,
                    r->claimed_us, r->deadline_us);
        if (!r->ex) {
                request_set_outcome(r, OUTCOME_GONE);
                request_record(r, COMMAND_RELEASE_NOT_EXECUTED, TELL_NOTHING);
        } else if (r->deadline_us - now_us < r->policy->upstream_timeout_us) {
                request_set_outcome(r, OUTCOME_STORE_DOWN); /* it was too slow to be of use */
                r->problem = PROBLEM_STORE_DOWN;
                request_record(r, COMMAND_RELEASE_NOT_EXECUTED, TELL_PROBLEM);
        } else {
                request_forward(r);
        }
}

static void claim_done(struct store_op *op)
{
        struct request *r = op->arg;
        struct metrics *m = &r->w->gw->metrics;
        const struct command_answer *answer = &op->out.claim.answer;
        const struct store_record *rec = &op->out.claim.rec;
        request_enter(r);
        r->op_busy = false;
        atomic_fetch_sub(&m->store_queue, 1);
        metrics_observe(m, HISTOGRAM_CLAIM, loop_now_us(r->w->loop) - r->claimed_us);
        if (op->err.code != SEMEL_OK) {
                store_failed(r);
        } else {
                switch (answer->outcome) {
                case COMMAND_RUN:
                        run(r, answer);
                        break;
                case COMMAND_BUSY:
                        busy(r, rec->now.lease_us - rec->row.claimed_us, answer->lease_left_us);
                        break;
                case COMMAND_REPLAY:
                        replay(r, rec);
                        break;
                case COMMAND_MISMATCH:
                        mismatch(r, rec);
                        break;
                case COMMAND_IS_UNKNOWN:
                        request_set_outcome(r, OUTCOME_UNKNOWN);
                        answer_problem(r, PROBLEM_OUTCOME_UNKNOWN,
                                       "An operator decides: semel keys list --stuck.", 0);
                        break;
                }
        }
        if (!r->op_busy)
                store_op_release(op);
        request_leave(r);
}

/* -- asking ---------------------------------------------------------------------------------------------- */

/* A system call for many: the kernel gives up to 256 bytes at once. */
static bool attempt_new(struct worker *w, struct command_attempt *ret)
{
        if (w->random_left < sizeof ret->b) {
                if (random_bytes(w->random, sizeof w->random) != 0)
                        return false;
                w->random_left = sizeof w->random;
        }
        w->random_left -= sizeof ret->b;
        memcpy(ret->b, w->random + w->random_left, sizeof ret->b);
        return true;
}

static bool fill(struct request *r)
{
        const struct policy *p = r->policy;
        if (r->claim.lease_us > 0)
                return true; /* asked before: with the same attempt (A7) */
        identity_id(sha256_sink(r->w->hash), MODE_GATEWAY, span_of(NULL, 0),
                    span_of(r->principal, r->principal_n), span_of(r->key.text, r->key.n),
                    &r->claim.id);
        if (!attempt_new(r->w, &r->claim.attempt))
                return false;
        r->claim.policy.retry = p->on_unknown == ON_UNKNOWN_RETRY;
        r->claim.policy.idempotent = p->dedupes == UPSTREAM_IDEMPOTENT;
        r->claim.lease_us = p->lease_us;
        r->claim.retention_us = p->retention_us;
        r->claim.request_us = p->lease_us + TRAVEL_US;
        r->wait_until_us = loop_now_us(r->w->loop) + wait_wanted(r);

        const uint8_t *query = memchr(r->path.p, '?', r->path.n);
        size_t path_n = query ? (size_t)(query - r->path.p) : r->path.n;
        struct buf operation = {.p = (uint8_t *)r->operation,
                                .cap = sizeof r->operation,
                                .max = sizeof r->operation - 1};
        const struct span pieces[] = {span_of(r->method.p, r->method.n < 50 ? r->method.n : 50),
                                      span_str(" "), span_of(r->path.p, path_n < 200 ? path_n : 200)};
        (void)buf_append_spans(&operation, pieces, 3);
        r->operation[operation.n] = 0;
        return true;
}

/* Answered without the store? */
static bool answer_hot(struct request *r)
{
        struct hot_reply reply = {0};
        int64_t held_us, left_us;
        buf_init(&reply.headers, LIMIT_REPLY_HEADERS_BYTES);
        buf_init(&reply.body, LIMIT_REPLY_BODY_BYTES);
        enum hot_answer found =
                hot_find(r->w->gw->hot, &r->claim.id, &r->claim.fingerprint,
                         loop_now_us(r->w->loop), &held_us, &left_us, &reply);
        if (found != HOT_ABSENT)
                metrics_count(&r->w->gw->metrics, COUNTER_HOT_HITS);
        if (found == HOT_RUNNING) {
                busy(r, held_us, left_us);
        } else if (found == HOT_FINISHED) {
                request_set_outcome(r, OUTCOME_REPLAYED);
                answer_replay(r, reply.status, reply.tombstone, buf_span(&reply.headers),
                              buf_span(&reply.body));
        }
        buf_release(&reply.headers);
        buf_release(&reply.body);
        return found != HOT_ABSENT;
}

void request_claim(struct request *r)
{
        if (!fill(r)) {
                request_set_outcome(r, OUTCOME_OVERLOADED);
                answer_problem(r, PROBLEM_OVERLOADED, "", 1);
                return;
        }
        if (answer_hot(r))
                return;
        r->stage = REQUEST_CLAIM;
        r->claimed_us = loop_now_us(r->w->loop);
        store_op_init(&r->op, STORE_CLAIM);
        r->op.in.claim.claim = r->claim;
        r->op.in.claim.label = (struct store_label){
                .mode = MODE_GATEWAY,
                .operation = span_str(r->operation),
                .key = span_of(r->key.text,
                               r->policy->key_text == KEY_TEXT_KEPT ? r->key.n : 0),
                .holder = span_str(r->w->gw->holder)};
        request_submit(r, CLAIM_CALL_US, claim_done);
}
