/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream: what the command does in the world.  A request travels, may have its effect as long
 * as its longest life is not over, whoever sent it may be dead by then, and its answer may be
 * lost.  A plain upstream executes whatever arrives; a deduping one executes a key once.
 */
#include "world.h"

struct reply reply_make(enum verdict v, uint32_t key, uint32_t window, uint32_t effect,
                        uint64_t attempt)
{
        struct reply rep = {.status = v == V_OK ? 201 : 422};
        memcpy(rep.body, &key, 4);
        memcpy(rep.body + 4, &window, 4);
        memcpy(rep.body + 8, &effect, 4);
        memcpy(rep.body + 16, &attempt, 8);
        return rep;
}

uint32_t effect_add(struct world *w, uint32_t key, uint32_t window, uint64_t attempt,
                    uint8_t fingerprint, bool consent)
{
        uint32_t n = w->effect_count;
        if (n == EFFECTS)
                return n - 1;
        w->effect_count++;
        w->effects[n] = (struct effect){key, window, attempt, fingerprint, consent};
        SAY(w, "EFFECT %u on key %u by attempt %llu", n, key, (unsigned long long)attempt);
        check_effect(w, n);
        return n;
}

bool upstream_send(struct world *w, struct worker *wk)
{
        for (uint32_t i = 0; i < REQUESTS; i++) {
                struct request *r = &w->requests[i];
                if (r->used)
                        continue;
                int64_t life_us = w->quiet ? wk->life_us : rng_between(&w->rng, 1, wk->life_us);
                *r = (struct request){.used = true,
                                      .key = wk->key,
                                      .window = wk->window,
                                      .worker = wk->no,
                                      .call = wk->call,
                                      .attempt = attempt_no(&wk->claim.attempt),
                                      .token = wk->token,
                                      .fingerprint = wk->claim.fingerprint.b[0],
                                      .consent = wk->claim.policy.retry ||
                                                 wk->claim.policy.idempotent,
                                      .dies_us = w->boot_us + life_us};
                SAY(w, "worker %u sends the request of attempt %llu", wk->no,
                    (unsigned long long)r->attempt);
                return true;
        }
        return false;
}

static void answer(struct world *w, struct request *r, enum verdict v, struct reply rep)
{
        struct worker *wk = &w->workers[r->worker];
        r->used = false;
        if (wk->call != r->call || wk->phase != W_SENT)
                return; /* nobody waits any more */
        if (!w->quiet && v != V_RUNNING && rng_chance(&w->rng, 12)) {
                SAY(w, "the upstream's answer to worker %u is lost", wk->no);
                v = V_AMBIGUOUS;
        }
        wk->verdict = v;
        wk->reply = rep;
}

static bool is_deduping(const struct world *w)
{
        return w->cfg.promise == IDEMPOTENT || w->cfg.promise == IDEM_FLIP;
}

/* Returns true when it was answered without an effect. */
static bool dedupe(struct world *w, struct request *r)
{
        for (uint32_t i = 0; i < w->effect_count; i++) {
                const struct effect *e = &w->effects[i];
                if (e->key != r->key)
                        continue;
                bool same = e->fingerprint == r->fingerprint;
                if (same)
                        cover(w, C_DEDUPED);
                SAY(w, "the upstream has key %u already", r->key);
                answer(w, r, same ? V_OK : V_REJECTED,
                       reply_make(same ? V_OK : V_REJECTED, r->key, r->window, i, e->attempt));
                return true;
        }
        if (r->running)
                return false;
        for (uint32_t i = 0; i < REQUESTS; i++)
                if (w->requests[i].used && w->requests[i].running &&
                    w->requests[i].key == r->key) {
                        cover(w, C_STILL_RUNNING);
                        answer(w, r, V_RUNNING, (struct reply){0});
                        return true;
                }
        r->running = true;
        r->dies_us = INT64_MAX; /* it is there now: nothing stops it */
        return true;
}

static void request_event(struct world *w, struct request *r)
{
        if (w->boot_us >= r->dies_us) {
                SAY(w, "the request of attempt %llu is gone", (unsigned long long)r->attempt);
                answer(w, r, V_AMBIGUOUS, (struct reply){0});
                return;
        }
        check_seen(w, r);
        if (w->cfg.fence && r->token < w->ghosts[r->key].seen_token) {
                cover(w, C_FENCED);
                answer(w, r, V_REFUSED, (struct reply){0});
                return;
        }
        if (is_deduping(w) && r->running) {
                if (dedupe(w, r))
                        return;
        } else if (!w->quiet) {
                uint32_t dice = rng_below(&w->rng, 100);
                enum verdict v = dice < 12   ? V_REFUSED
                                 : dice < 18 ? V_NOT_EXECUTED
                                 : dice < 24 ? V_AMBIGUOUS
                                 : dice < 30 ? V_REJECTED
                                             : V_NONE;
                if (v != V_NONE) {
                        SAY(w, "the upstream refuses attempt %llu (%d)",
                            (unsigned long long)r->attempt, (int)v);
                        struct reply rep = {0};
                        if (v == V_REJECTED)
                                rep = reply_make(v, r->key, r->window, 0, r->attempt);
                        answer(w, r, v, rep);
                        return;
                }
        }
        if (is_deduping(w) && !r->running) {
                (void)dedupe(w, r);
                return;
        }
        uint32_t n = effect_add(w, r->key, r->window, r->attempt, r->fingerprint, r->consent);
        answer(w, r, V_OK, reply_make(V_OK, r->key, r->window, n, r->attempt));
}

bool upstream_event(struct world *w)
{
        uint32_t start = rng_below(&w->rng, REQUESTS);
        for (uint32_t i = 0; i < REQUESTS; i++) {
                struct request *r = &w->requests[(start + i) % REQUESTS];
                if (!r->used)
                        continue;
                request_event(w, r);
                return true;
        }
        return false;
}

void upstream_drop_all(struct world *w)
{
        for (uint32_t i = 0; i < REQUESTS; i++)
                if (!w->requests[i].running)
                        w->requests[i].used = false;
}
