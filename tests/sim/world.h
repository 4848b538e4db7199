/* SPDX-License-Identifier: Apache-2.0
 *
 * world: everything that one schedule consists of, and what its parts call of each other.
 *
 *      workers ---ops---> simstore ---> memory store ---> core/command.c
 *         |                  | landed
 *         | requests         v
 *         v               checks (what must hold, from the outside)
 *      upstream ---effects---^
 *         ^
 *         +--looks-- operators ---resolve---> simstore
 *
 * One thread, virtual time, every choice from one seed.  A step picks one part and lets it do
 * one thing.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "rng.h"
#include "simstore.h"
#include "store/store.h"
#include "sys/clock.h"

enum { KEYS = 2, WORKERS = 4, REQUESTS = 12, EFFECTS = 48, OPERATORS = 2, REPLY_BYTES = 24 };

/* What a schedule is about. */
enum promise {
        HOLD,       /* hold, a plain upstream, honest operators: at most one effect */
        RETRY,      /* takeover after the lease, a plain upstream: at least one */
        FLIP,       /* hold and retry change between claims: no second effect without consent */
        IDEMPOTENT, /* the upstream dedupes: exactly one */
        IDEM_FLIP,  /* the same, and the policy changes between claims */
        TX,         /* record and effect in one transaction: exactly one */
        PROMISES
};

struct config {
        enum promise promise;
        uint32_t keys, workers, steps;
        int64_t lease_us, budget_us, life_us, retention_us;
        bool budgetless;   /* workers that know no deadline (semel_run) */
        bool wall_steps;   /* the wall clock steps, by less than a retention in all backwards */
        bool same_tokens;  /* it also steps back to the very time of an old row's insert */
        bool reboot;       /* the lease clock starts again, once */
        bool fence;        /* the upstream refuses tokens lower than it has seen */
        bool one_request;  /* no second request on a key */
        struct simstore_faults faults;
};

/* What an upstream answered. */
enum verdict {
        V_NONE,
        V_OK,           /* done: stored */
        V_REJECTED,     /* refused for good, such as a 400: stored */
        V_REFUSED,      /* not now, such as a 429: released */
        V_NOT_EXECUTED, /* it says so (Idempotency-Outcome) */
        V_AMBIGUOUS,    /* a 500 without a name, a reset, a timeout */
        V_RUNNING,      /* a deduping upstream: the first one is still running */
};

/* A reply as the bytes that are stored. */
struct reply {
        int32_t status; /* 0: none */
        uint8_t body[REPLY_BYTES];
};

struct effect {
        uint32_t key, window;
        uint64_t attempt;
        uint8_t fingerprint;
        bool consent; /* of the claim: retry or idempotent */
};

struct request {
        bool used, running; /* running: a deduping upstream works on it */
        uint32_t key, window, worker;
        uint64_t call;
        uint64_t attempt;
        int64_t token;
        uint8_t fingerprint;
        bool consent;
        int64_t dies_us; /* boot clock: no effect after this */
};

enum phase { W_IDLE, W_CLAIM, W_HELD, W_SENT, W_GOT, W_WRITE };

struct worker {
        uint32_t no;
        enum phase phase;
        bool paused;
        int64_t skew_us; /* its host's clock against the store's */
        struct store_op op;
        bool op_busy, op_done;
        bool lost_answer; /* of the op */
        bool was_paused;  /* since the claim */
        uint64_t call;
        uint32_t key, window;
        struct command_claim claim;
        int64_t token;
        int64_t deadline_us; /* its own clock: nothing is dispatched from then on (A4) */
        enum verdict verdict;
        struct reply reply;
        uint8_t body[REPLY_BYTES];
        int64_t life_us; /* the longest life of a request, after it was sent */
        bool extending; /* op is an EXTEND; the phase goes on */
};

struct operator_ {
        uint32_t no;
        enum { O_IDLE, O_DECIDED, O_SENT } phase;
        uint32_t key;
        struct command_resolve resolve;
        struct store_op op;
        bool op_done, lost_answer;
        uint8_t body[REPLY_BYTES];
};

/* What the checks know of a key, from the outside: what landed, and when. */
struct ghost {
        bool exists;
        struct command_row row;   /* as last seen */
        struct reply reply;       /* as last seen */
        int64_t max_token;        /* over all incarnations */
        int64_t first_token;      /* of the last insert */
        int64_t lease_until_us, lease_len_us; /* of the holder, from the landing of claim and extend */
        int64_t request_until_us; /* of all holders since the last clean start */
        int64_t claimed_us, request_us;
        int64_t retention_us, expire_us;
        bool maybe;               /* a holder was taken over, or ended without knowing */
        bool resolved;            /* an operator made the row what it is */
        bool resolved_free;       /* "not executed" was said, ever */
        uint32_t window;          /* the promised one: counts up with each expiry and forget */
        uint32_t effects;         /* in this window */
        int64_t seen_token;       /* highest that the upstream saw */
};

struct world {
        uint64_t seed;
        struct rng rng;
        struct config cfg;
        bool trace, effects_only;
        bool failed, quiet;
        char failure[256];
        uint32_t step;

        int64_t boot_us, wall_offset_us, stepped_back_us;
        uint32_t still; /* steps in which no time passes */
        struct sys_clock clock;
        struct store *memory; /* owned by st */
        struct store *st;

        uint64_t attempts, calls;
        bool flipped; /* the policy that claims carry now is the other one */
        bool rebooted;
        struct worker workers[WORKERS];
        struct operator_ operators[OPERATORS];
        struct request requests[REQUESTS];
        struct effect effects[EFFECTS];
        uint32_t effect_count;
        struct ghost ghosts[KEYS];

        uint64_t seen; /* bits of enum cover */
};

/* -- coverage: schedules in which it happened ---------------------------------------------- */

#define COVERS(X)                                                                                 \
        X(RUN, "a claim ran")                                                                     \
        X(BUSY, "busy")                                                                           \
        X(REPLAY, "replay")                                                                       \
        X(MISMATCH, "mismatch")                                                                   \
        X(MISMATCH_LEASED, "mismatch while the lease is alive")                                   \
        X(IS_UNKNOWN, "answered UNKNOWN")                                                         \
        X(TAKEOVER, "takeover")                                                                   \
        X(TAKEOVER_EDGE, "takeover at the first moment after the lease")                          \
        X(BUSY_EDGE, "busy at the last moment of the lease")                                      \
        X(TAKEOVER_SHORTER, "takeover by one whose request ends before the earlier one's")        \
        X(TAKEOVER_UNKNOWN, "takeover from UNKNOWN (idempotent)")                                 \
        X(REFUSED_ROW, "takeover refused by the row's policy alone")                              \
        X(REFUSED_CALLER, "takeover refused by the caller's policy alone")                        \
        X(CLAIM_AGAIN, "a claim's answer lost, issued again, RUN")                                \
        X(WRITE_AGAIN, "a write's answer lost, issued again, DONE")                               \
        X(LATE_CLAIM, "a late claim landed as RUN: an orphan")                                    \
        X(LATE_WRITE, "a late write landed and changed the row")                                  \
        X(LATE_WRITE_LOST, "a late write landed and was fenced off")                              \
        X(ORPHAN, "a claim that was given up, claimed again and released")                        \
        X(BORN_EXPIRED, "a claim born expired: its answer came after the deadline")               \
        X(EXTENDED, "extended")                                                                   \
        X(EXTENDED_OVER, "extended after the lease was over")                                     \
        X(WOKE_LOST, "a paused holder woke and was LOST")                                         \
        X(CRASH_HELD, "crash between claim and completion")                                       \
        X(CRASH_EFFECT, "crash after the effect, before the completion")                          \
        X(SELF_RESOLVED, "late complete on UNKNOWN")                                              \
        X(FREED_UNKNOWN, "late \"not executed\" on UNKNOWN")                                      \
        X(MARKED, "marked unknown")                                                               \
        X(DEFERRED, "a release behind a completion or a mark, as deferred calls do")              \
        X(LEASE_ENDED, "outcome unknown under retry: the lease ended")                            \
        X(RELEASE_MAYBE, "release after a takeover: the row stays")                               \
        X(RELEASED, "released")                                                                   \
        X(CLAIM_UNKNOWN, "IN_FLIGHT -> UNKNOWN by a claim")                                       \
        X(SWEEP_UNKNOWN, "IN_FLIGHT -> UNKNOWN by the purge pass")                                \
        X(SWEEP_UNKNOWN_RETRY, "the same for a retry row, after the retention")                   \
        X(PURGED_COMPLETED, "purge of a COMPLETED row")                                           \
        X(PURGED_FREE, "purge of a FREE row")                                                     \
        X(PURGE_CLAIM, "purge, then a new claim")                                                 \
        X(EXPIRED_CLAIM, "claim of an expired row that is still there")                           \
        X(EXPIRED_EDGE, "claim of a COMPLETED row at the first moment past its retention")        \
        X(REPLAY_EDGE, "replay at the last moment of the retention")                              \
        X(RESOLVED_EXECUTED, "resolved: executed")                                                \
        X(RESOLVED_NOT, "resolved: not executed")                                                 \
        X(RESOLVED_NOT_RUN, "freed by an operator, and it ran again")                           \
        X(FORGOTTEN, "a COMPLETED row forgotten")                                                 \
        X(RESOLVE_CHANGED, "resolve of a row that had changed since it was shown")                \
        X(RESOLVE_LEASED, "resolve while the lease is alive")                                     \
        X(RESOLVE_EARLY, "not-executed while a request may travel")                               \
        X(RESOLVE_LOOKED_EARLY, "not-executed from a look while a request could travel")          \
        X(RESOLVE_STATE, "forget of a row that is not COMPLETED")                                 \
        X(RESOLVE_AGAIN, "a resolve's answer lost, issued again")                                 \
        X(RESOLVE_RACE, "a late holder found its row resolved")                                   \
        X(ZOMBIE, "a request had its effect after its holder had lost the key")                   \
        X(TWO_EFFECTS, "two effects under retry: at least once, as promised")                     \
        X(FENCED, "an upstream that fences refused an old token")                                 \
        X(DEDUPED, "an upstream deduped")                                                         \
        X(STILL_RUNNING, "an upstream answered: still running")                                   \
        X(TX_AGAIN, "a transaction's COMMIT answer lost, called again, REPLAY")                   \
        X(WALL_BACK, "wall clock stepped back")                                                   \
        X(SAME_TOKEN, "a new row got an old row's token")                                         \
        X(REBOOT, "lease clock started again under a live lease")

enum cover {
#define X(name, text) C_##name,
        COVERS(X)
#undef X
        COVER_COUNT
};

_Static_assert(COVER_COUNT <= 64, "world.seen has one bit for each");

static inline void cover(struct world *w, enum cover c)
{
        w->seen |= UINT64_C(1) << c;
}

/* -- world.c ---------------------------------------------------------------------------------- */

/* Run one schedule; false: a promise was broken (w->failure). */
bool world_run(struct world *w, uint64_t seed, bool trace, bool effects_only);

void say(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A promise is broken.  The first one is kept. */
void broken(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define SAY(w, ...)                                                                               \
        do {                                                                                      \
                if ((w)->trace)                                                                   \
                        say((w), __VA_ARGS__);                                                    \
        } while (0)
/* A check of effects: what a user sees. */
#define MUST(w, cond, ...)                                                                        \
        do {                                                                                      \
                if (!(cond))                                                                      \
                        broken((w), __VA_ARGS__);                                                 \
        } while (0)

static inline struct command_now world_now(const struct world *w)
{
        return (struct command_now){.lease_us = w->boot_us,
                                    .wall_us = w->boot_us + w->wall_offset_us};
}

struct command_id key_id(uint32_t key);
uint32_t key_of(const struct command_id *id);
struct command_attempt attempt_new(struct world *w);
/* The number of an attempt, for people. */
uint64_t attempt_no(const struct command_attempt *a);

/* -- worker.c ---------------------------------------------------------------------------------- */

void worker_step(struct world *w, struct worker *wk);
void worker_crash(struct world *w, struct worker *wk);
void worker_claim(struct world *w, struct worker *wk, uint32_t key, uint8_t fingerprint);
/* A claim inside a transaction: its effect, and the completion that commits with it. */
void tx_effect(void *arg, const struct store_op *claim, struct store_op *complete);

/* -- upstream.c -------------------------------------------------------------------------------- */

bool upstream_send(struct world *w, struct worker *wk);
/* One thing happens to one request; false when there is none. */
bool upstream_event(struct world *w);
void upstream_drop_all(struct world *w);
uint32_t effect_add(struct world *w, uint32_t key, uint32_t window, uint64_t attempt,
                    uint8_t fingerprint, bool consent);
struct reply reply_make(enum verdict v, uint32_t key, uint32_t window, uint32_t effect,
                        uint64_t attempt);

/* -- operator.c -------------------------------------------------------------------------------- */

void operator_step(struct world *w, struct operator_ *o);
/* Look and decide at once, without the network; used when all faults have stopped. */
bool operator_resolve_now(struct world *w, uint32_t key);
void sweep_pass(struct world *w);

/* -- check.c: what must hold ------------------------------------------------------------------- */

void check_landed(void *arg, const struct store_op *op, bool late);
void check_sweep(struct world *w);
void check_effect(struct world *w, uint32_t effect);
void check_seen(struct world *w, const struct request *r);
void check_end(struct world *w);
bool ghost_lease_over(const struct world *w, const struct ghost *g);

#endif
