/* SPDX-License-Identifier: Apache-2.0
 *
 * world: one schedule from its seed: configuration, the steps with faults, and the end, when all
 * faults have stopped and every key has to come to rest.
 */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/memory/memory.h"

/* -- telling --------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 0)))
static void line(const struct world *w, const char *fmt, va_list ap)
{
        printf("%4u  t=%-7lld ", w->step, (long long)w->boot_us);
        vprintf(fmt, ap);
        putchar('\n');
}

void say(struct world *w, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        line(w, fmt, ap);
        va_end(ap);
}

void broken(struct world *w, const char *fmt, ...)
{
        if (w->failed)
                return;
        va_list ap;
        va_start(ap, fmt);
        w->failed = true;
        (void)vsnprintf(w->failure, sizeof w->failure, fmt, ap);
        va_end(ap);
        SAY(w, "BROKEN: %s", w->failure);
}

/* -- small things ------------------------------------------------------------------------ */

struct command_id key_id(uint32_t key)
{
        struct command_id id = {{0}};
        id.b[0] = (uint8_t)(key + 1);
        return id;
}

uint32_t key_of(const struct command_id *id)
{
        return (uint32_t)id->b[0] - 1;
}

struct command_attempt attempt_new(struct world *w)
{
        struct command_attempt a;
        uint64_t no = ++w->attempts;
        struct rng mix = {no ^ w->seed};
        uint64_t nonce = rng_next(&mix);
        memcpy(a.b, &no, 8);
        memcpy(a.b + 8, &nonce, 8);
        return a;
}

uint64_t attempt_no(const struct command_attempt *a)
{
        uint64_t no;
        memcpy(&no, a->b, 8);
        return no;
}

static int64_t clock_boot(void *arg)
{
        return ((struct world *)arg)->boot_us;
}

static int64_t clock_wall(void *arg)
{
        struct world *w = arg;
        return w->boot_us + w->wall_offset_us;
}

static void net_event(void *arg, enum simstore_event what, const struct store_op *op)
{
        struct world *w = arg;
        static const char *const texts[] = {
                "a message is lost",        "a connection breaks, its message is on the way",
                "an answer is lost",        "issued again",
                "given up",                 "a late message is dropped",
                "an orphan claim is released"};
        static const char *const kinds[] = {"claim", "write", "get", "list", "resolve", "sweep"};
        SAY(w, "%s (%s)", texts[what], kinds[op->kind]);
        if (what == SIMSTORE_ORPHAN_RELEASED)
                cover(w, C_ORPHAN);
        if (what != SIMSTORE_LOST_ANSWER)
                return;
        for (uint32_t i = 0; i < WORKERS; i++)
                if (op == &w->workers[i].op)
                        w->workers[i].lost_answer = true;
        for (uint32_t i = 0; i < OPERATORS; i++)
                if (op == &w->operators[i].op)
                        w->operators[i].lost_answer = true;
}

/* -- time ------------------------------------------------------------------------------------ */

/* A moment at which something of this row changes, on the lease clock. */
static int64_t moment_of(struct world *w)
{
        const struct ghost *g = &w->ghosts[rng_below(&w->rng, w->cfg.keys)];
        switch (rng_below(&w->rng, 5)) {
        case 0:
        case 1:
                return g->lease_until_us;
        case 2:
                return g->request_until_us;
        case 3:
                return g->expire_us - w->wall_offset_us;
        default:
                return g->lease_until_us + w->cfg.retention_us;
        }
}

static void time_passes(struct world *w)
{
        if (w->still) {
                w->still--;
                return;
        }
        uint32_t dice = rng_below(&w->rng, 100);
        int64_t to_us = w->boot_us + rng_between(&w->rng, 1, 12);
        if (dice < 40)
                to_us = moment_of(w) + rng_between(&w->rng, -1, 1);
        else if (dice < 48)
                to_us = w->boot_us + rng_between(&w->rng, 1, w->cfg.lease_us);
        else if (dice < 50)
                to_us = w->boot_us + rng_between(&w->rng, 1, w->cfg.retention_us);
        if (to_us <= w->boot_us)
                to_us = w->boot_us + 1;
        w->boot_us = to_us;
}

static void wall_steps(struct world *w)
{
        int64_t wall_us = w->boot_us + w->wall_offset_us;
        const struct ghost *g = &w->ghosts[rng_below(&w->rng, w->cfg.keys)];
        if (w->cfg.same_tokens && g->first_token && g->first_token < wall_us && !g->exists) {
                w->wall_offset_us = g->first_token - w->boot_us;
                w->still = 4;
                SAY(w, "the wall clock steps back to the time of an old row");
                cover(w, C_WALL_BACK);
                return;
        }
        if (!w->cfg.wall_steps)
                return;
        int64_t left_us = w->cfg.retention_us / 2 - w->stepped_back_us;
        int64_t step_us = rng_between(&w->rng, -w->cfg.retention_us / 4, w->cfg.retention_us / 2);
        if (step_us < -left_us)
                return;
        if (step_us < 0) {
                w->stepped_back_us -= step_us;
                cover(w, C_WALL_BACK);
        }
        w->wall_offset_us += step_us;
        SAY(w, "the wall clock steps by %lld", (long long)step_us);
}

/* The host starts again: its processes are gone, the lease clock begins anew. */
static void reboot(struct world *w)
{
        const struct ghost *g = &w->ghosts[rng_below(&w->rng, w->cfg.keys)];
        int64_t back_us = g->lease_until_us - rng_between(&w->rng, 1, 3 * w->cfg.lease_us);
        if (w->rebooted || !g->exists || back_us >= w->boot_us || back_us <= 0)
                return;
        w->rebooted = true;
        for (uint32_t i = 0; i < w->cfg.workers; i++)
                worker_crash(w, &w->workers[i]);
        upstream_drop_all(w);
        if (g->row.state == COMMAND_IN_FLIGHT && !ghost_lease_over(w, g))
                cover(w, C_REBOOT);
        w->wall_offset_us += w->boot_us - back_us + w->cfg.life_us;
        w->boot_us = back_us;
        SAY(w, "REBOOT: the lease clock starts again");
}

/* -- the steps ---------------------------------------------------------------------------------- */

static void step(struct world *w)
{
        uint32_t dice = rng_below(&w->rng, 1000);
        if (w->cfg.same_tokens && rng_chance(&w->rng, 12)) {
                sweep_pass(w);
                wall_steps(w);
        }
        if (dice < 420 && simstore_event(w->st))
                return;
        if (dice < 780) {
                worker_step(w, &w->workers[rng_below(&w->rng, w->cfg.workers)]);
        } else if (dice < 870) {
                (void)upstream_event(w);
        } else if (dice < 940) {
                time_passes(w);
        } else if (dice < 970) {
                operator_step(w, &w->operators[rng_below(&w->rng, OPERATORS)]);
        } else if (dice < 982) {
                sweep_pass(w);
        } else if (dice < 990) {
                w->flipped = !w->flipped;
        } else if (dice < 997) {
                wall_steps(w);
        } else if (w->cfg.reboot) {
                reboot(w);
        }
}

static bool at_rest(const struct world *w)
{
        if (simstore_flights(w->st))
                return false;
        for (uint32_t i = 0; i < REQUESTS; i++)
                if (w->requests[i].used)
                        return false;
        for (uint32_t i = 0; i < w->cfg.workers; i++)
                if (w->workers[i].phase != W_IDLE || w->workers[i].op_busy)
                        return false;
        return true;
}

/* No faults: let everything that is under way end. */
static void settle(struct world *w)
{
        enum { STEPS_MAX = 2000 };
        for (uint32_t i = 0; !at_rest(w) && !w->failed; i++) {
                w->step++;
                if (i > STEPS_MAX) {
                        broken(w, "without faults, something never ends");
                        return;
                }
                (void)simstore_event(w->st);
                (void)upstream_event(w);
                worker_step(w, &w->workers[i % w->cfg.workers]);
        }
}

static void advance_to(struct world *w, int64_t to_us)
{
        if (to_us > w->boot_us)
                w->boot_us = to_us;
}

/* The faults have stopped; a client retries, an operator answers: the key must end COMPLETED. */
static void come_to_rest(struct world *w, uint32_t key)
{
        enum { TRIES_MAX = 12 };
        struct ghost *g = &w->ghosts[key];
        for (uint32_t tries = 0; !w->failed; tries++) {
                if (g->exists && g->row.state == COMMAND_COMPLETED &&
                    g->expire_us > w->boot_us + w->wall_offset_us)
                        break;
                if (tries == TRIES_MAX) {
                        broken(w, "key %u: %s for ever, though no fault is left", key,
                               g->exists ? command_state_name(g->row.state) : "no row");
                        return;
                }
                check_end(w);
                worker_claim(w, &w->workers[0], key,
                             g->exists ? g->row.fingerprint.b[0] : 0);
                settle(w);
                if (g->exists && g->row.state == COMMAND_IN_FLIGHT)
                        advance_to(w, g->lease_until_us);
                if (g->exists && g->row.state == COMMAND_UNKNOWN && !operator_resolve_now(w, key)) {
                        advance_to(w, g->row.request_until_us); /* as the tool says */
                        advance_to(w, g->lease_until_us);
                        MUST(w, operator_resolve_now(w, key),
                             "key %u: UNKNOWN, and an operator cannot resolve it", key);
                }
        }
        bool idem = w->cfg.promise == IDEMPOTENT || w->cfg.promise == IDEM_FLIP;
        MUST(w, g->reply.status != 201 || g->effects > 0 || idem,
             "key %u: COMPLETED, and it never had its effect", key);
}

static void finish(struct world *w)
{
        w->quiet = true;
        simstore_set_faults(w->st, (struct simstore_faults){
                                           .no_late_claims = w->cfg.faults.no_late_claims});
        SAY(w, "-- no more faults");
        for (uint32_t i = 0; i < w->cfg.workers; i++) {
                struct worker *wk = &w->workers[i];
                if (wk->phase != W_IDLE && rng_chance(&w->rng, 30))
                        worker_crash(w, wk);
                wk->paused = false;
        }
        settle(w);
        for (uint32_t key = 0; key < w->cfg.keys && !w->failed; key++)
                come_to_rest(w, key);
        sweep_pass(w);
        check_end(w);
}

/* -- one schedule ---------------------------------------------------------------------------------- */

static void configure(struct world *w)
{
        struct rng *r = &w->rng;
        struct config *c = &w->cfg;
        static const enum promise mix[] = {HOLD, HOLD,  HOLD,       RETRY,      RETRY,
                                           FLIP, FLIP, IDEMPOTENT, IDEMPOTENT, IDEM_FLIP, TX};
        c->promise = mix[rng_below(r, sizeof mix / sizeof mix[0])];
        c->keys = rng_chance(r, 80) ? 1 : 2;
        c->workers = 2 + rng_below(r, WORKERS - 1);
        c->steps = 60 + rng_below(r, 140);
        c->lease_us = rng_between(r, 8, 90);
        c->budget_us = rng_chance(r, 30) ? c->lease_us : rng_between(r, c->lease_us / 2, c->lease_us);
        c->life_us = rng_between(r, 4, 80);
        c->retention_us = rng_between(r, 300, 900);
        c->budgetless = (c->promise == RETRY || c->promise == IDEMPOTENT ||
                         c->promise == IDEM_FLIP) && rng_chance(r, 40);
        c->wall_steps = rng_chance(r, 20);
        c->same_tokens = rng_chance(r, 10);
        if (c->same_tokens)
                c->retention_us = rng_between(r, 15, 60);
        c->reboot = rng_chance(r, 8);
        c->fence = !c->same_tokens && rng_chance(r, 30);
        c->one_request = rng_chance(r, 30);
        if (rng_chance(r, 85))
                c->faults = (struct simstore_faults){.lose_request = rng_below(r, 12),
                                                     .cut = rng_below(r, 25),
                                                     .lose_answer = rng_below(r, 25),
                                                     .give_up = rng_below(r, 30),
                                                     .drop_late = rng_below(r, 30),
                                                     .linger = rng_below(r, 90)};
        if (c->same_tokens) { /* what an old row's holder sent must still be on its way */
                c->faults.cut = 30;
                c->faults.linger = 97;
                c->faults.drop_late = 0;
                c->faults.no_late_claims = true; /* the same token and the same attempt: no guard is left */
        }
}

static void begin(struct world *w)
{
        w->boot_us = 1000000;
        w->wall_offset_us = INT64_C(1700000000000000);
        w->clock = (struct sys_clock){.boot_us = clock_boot, .wall_us = clock_wall, .arg = w};
        const struct store_env env = {.clock = &w->clock};
        semel_error err;
        if (store_memory_driver.open("memory:", &env, &w->memory, &err) != SEMEL_OK)
                abort();
        const struct simstore_hooks hooks = {.arg = w,
                                             .event = net_event,
                                             .landed = check_landed,
                                             .effect = w->cfg.promise == TX ? tx_effect : NULL};
        w->st = simstore_new(w->memory, &w->rng, &hooks);
        simstore_set_faults(w->st, w->cfg.faults);
        for (uint32_t i = 0; i < WORKERS; i++) {
                w->workers[i].no = i;
                w->workers[i].skew_us = rng_between(&w->rng, -200, 200);
                store_op_init(&w->workers[i].op, STORE_SWEEP);
        }
        for (uint32_t i = 0; i < OPERATORS; i++)
                w->operators[i].no = i;
        static const char *const promises[] = {"hold", "retry", "flip", "idempotent",
                                               "idempotent-flip", "transaction"};
        SAY(w, "%s, %u keys, %u workers, %u steps, lease %lld, budget %lld, life %lld, "
            "retention %lld%s%s%s%s%s", promises[w->cfg.promise], w->cfg.keys, w->cfg.workers,
            w->cfg.steps, (long long)w->cfg.lease_us, (long long)w->cfg.budget_us,
            (long long)w->cfg.life_us, (long long)w->cfg.retention_us,
            w->cfg.budgetless ? ", no deadlines" : "", w->cfg.wall_steps ? ", wall clock steps" : "",
            w->cfg.same_tokens ? ", back to old rows' times" : "",
            w->cfg.reboot ? ", reboot" : "", w->cfg.fence ? ", fencing upstream" : "");
}

bool world_run(struct world *w, uint64_t seed, bool trace, bool effects_only)
{
        memset(w, 0, sizeof *w);
        w->seed = seed;
        w->rng.s = seed;
        w->trace = trace;
        w->effects_only = effects_only;
        configure(w);
        begin(w);
        for (; w->step < w->cfg.steps && !w->failed; w->step++)
                step(w);
        if (!w->failed)
                finish(w);
        for (uint32_t i = 0; i < WORKERS; i++)
                worker_crash(w, &w->workers[i]);
        bool failed = w->failed;
        w->failed = true; /* what lands while it closes is no longer looked at */
        w->trace = false;
        w->st->vt->close(w->st);
        w->failed = failed;
        return !failed;
}
