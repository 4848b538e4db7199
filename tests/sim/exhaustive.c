/* SPDX-License-Identifier: Apache-2.0
 *
 * exhaustive: every interleaving of a small world, breadth first, through core/command.c.
 *
 *     exhaustive [hold|retry|flip ...] [--states N]
 *
 * One key, two workers, a plain upstream, an honest operator, the purge pass.  Bounds: three
 * attempts, one lost or cut message, one crash, one extension, two verdicts, seven ticks of time; a
 * lease of two ticks, a request that lives one, a retention of three.  A worker may stop between any
 * two of its steps.  Where the simulator samples deep schedules, this leaves out none of the
 * shallow ones; the shortest way to a broken promise is printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/command.h"

enum { WORKERS = 2, ATTEMPTS_MAX = 3, VERDICTS_MAX = 2, TIME_START = 10, TICKS_MAX = 7 };
enum { LEASE = 2, BUDGET = 2, LIFE = 1, RETENTION = 3 };
enum { HOLD, RETRY, FLIP, MODES };
enum { IDLE, DOUBT, HELD, SENT, GOT };
enum { NOTHING, OK, REFUSED, AMBIGUOUS };

struct worker {
        uint8_t phase, attempt, token, deadline, verdict, retry;
};

struct late { /* a message whose connection broke; used by `attempt` != 0 */
        uint8_t attempt, token, kind, retry; /* kind: CLAIM or a write */
};
enum { CLAIM = 100 };

struct request {
        uint8_t attempt, dies, window, consent;
};

/* Bytes only: states are compared as memory. */
struct state {
        uint8_t exists, state, token, attempt, fingerprint, retry, maybe;
        uint8_t lease_until, claimed, request_until, expire, reply; /* reply: 1 has an effect behind it */
        struct worker workers[WORKERS];
        struct late late;
        struct request requests[ATTEMPTS_MAX];
        uint8_t effects_hold, effects_consent, window;
        uint8_t shown_attempt, shown_token, verdict; /* an operator who has decided: kind + 1 */
        uint8_t looked; /* when, as the first moment that is as good: fewer states */
        uint8_t attempts, losses, crashes, extensions, verdicts, now;
};

static struct state *states;
static uint32_t *parents, *table;
static uint32_t count, states_max = 8000000, table_size;
static int mode;
static const char *wrong; /* what the state that is being made breaks */
static char event_text[96];
static bool telling;
static uint32_t current, wanted;

/* -- rows and back ---------------------------------------------------------------------- */

static struct command_row row_of(const struct state *s)
{
        struct command_row row = {.state = (enum command_state)s->state,
                                  .token = s->token,
                                  .policy = {.retry = s->retry},
                                  .maybe_executed = s->maybe,
                                  .lease_until_us = s->lease_until,
                                  .lease_len_us = LEASE,
                                  .claimed_us = s->claimed,
                                  .request_until_us = s->request_until,
                                  .retention_us = RETENTION,
                                  .expire_us = s->expire};
        row.attempt.b[0] = s->attempt;
        row.fingerprint.b[0] = s->fingerprint;
        return row;
}

static void row_keep(struct state *s, const struct command_row *row)
{
        s->exists = 1;
        s->state = (uint8_t)row->state;
        s->token = (uint8_t)row->token;
        s->attempt = row->attempt.b[0];
        s->fingerprint = row->fingerprint.b[0];
        s->retry = row->policy.retry;
        s->maybe = row->maybe_executed;
        s->lease_until = (uint8_t)row->lease_until_us;
        s->claimed = (uint8_t)row->claimed_us;
        s->request_until = (uint8_t)row->request_until_us;
        s->expire = (uint8_t)row->expire_us;
}

static struct command_now now_of(const struct state *s)
{
        return (struct command_now){.lease_us = s->now, .wall_us = s->now};
}

static void window_end(struct state *s)
{
        s->window++;
        s->effects_hold = s->effects_consent = 0;
        s->reply = 0;
}

/* -- states ------------------------------------------------------------------------------- */

static uint32_t hash_of(const struct state *s)
{
        uint64_t h = UINT64_C(14695981039346656037);
        const uint8_t *p = (const uint8_t *)s;
        for (size_t i = 0; i < sizeof *s; i++)
                h = (h ^ p[i]) * UINT64_C(1099511628211);
        return (uint32_t)(h ^ h >> 32);
}

/* The index of the state; new ones are appended. */
static uint32_t intern(const struct state *s)
{
        uint32_t at = hash_of(s) & (table_size - 1);
        for (; table[at]; at = (at + 1) & (table_size - 1))
                if (memcmp(&states[table[at] - 1], s, sizeof *s) == 0)
                        return table[at] - 1;
        if (count == states_max)
                return UINT32_MAX;
        states[count] = *s;
        parents[count] = current;
        table[at] = ++count;
        return count - 1;
}

static void tell_path(uint32_t i);

/* Forget what nothing depends on any more, so that equal futures are one state. */
static void canonical(struct state *s)
{
        bool flying = s->state == COMMAND_IN_FLIGHT, unknown = s->state == COMMAND_UNKNOWN;
        s->claimed = 0; /* this world has one clock */
        if (flying || unknown)
                s->expire = 0;
        if (!flying)
                s->maybe = unknown && s->maybe;
        if (!flying && !unknown)
                s->lease_until = s->request_until = 0;
        if ((flying || unknown) && s->request_until < s->now)
                s->request_until = s->now;
        if ((unknown || (flying && !s->retry)) && s->lease_until < s->now)
                s->lease_until = s->now;
        for (int i = 0; i < WORKERS; i++) {
                struct worker *w = &s->workers[i];
                if (w->phase == SENT || w->phase == GOT)
                        w->deadline = 0;
                else if (w->phase != IDLE && w->deadline < s->now)
                        w->deadline = s->now;
                if (w->phase == GOT)
                        w->retry = 0;
        }
        for (int n = 0; n < ATTEMPTS_MAX; n++)
                if (s->requests[n].dies <= s->now)
                        s->requests[n] = (struct request){0};
        if (memcmp(&s->workers[0], &s->workers[1], sizeof s->workers[0]) > 0) {
                struct worker w = s->workers[0];
                s->workers[0] = s->workers[1];
                s->workers[1] = w;
        }
}

static void reach(const struct state *made, const char *what, int attempt)
{
        struct state copy = *made, *s = &copy;
        canonical(s);
        if (telling) {
                if (memcmp(s, &states[wanted], sizeof *s) == 0 && !event_text[0])
                        (void)snprintf(event_text, sizeof event_text, "t=%d %s%s%s",
                                       s->now - TIME_START, what,
                                       attempt ? " #" : "", attempt ? (char[]){(char)('0' + attempt), 0}
                                                                    : "");
                return;
        }
        uint32_t i = intern(s);
        if (wrong) {
                printf("BROKEN: %s\n", wrong);
                tell_path(i == UINT32_MAX ? current : i);
                exit(1);
        }
}

/* -- the store --------------------------------------------------------------------------------- */

static struct command_answer store_claim(struct state *s, int attempt, int retry)
{
        struct command_row row = row_of(s);
        struct command_claim claim = {.policy = {.retry = retry},
                                      .lease_us = LEASE,
                                      .retention_us = RETENTION,
                                      .request_us = BUDGET + LIFE};
        claim.attempt.b[0] = (uint8_t)attempt;
        claim.fingerprint.b[0] = mode != HOLD && attempt == ATTEMPTS_MAX; /* another request */
        struct command_answer answer = command_claim(&row, s->exists, &claim, now_of(s));
        if (answer.outcome == COMMAND_REPLAY && s->reply == 0)
                wrong = "a replay without an effect in its window";
        if (answer.changed) {
                if (s->exists && s->state == COMMAND_COMPLETED)
                        window_end(s);
                row_keep(s, &row);
        }
        return answer;
}

static enum command_write_outcome store_write(struct state *s, int kind, int attempt, int token)
{
        struct command_row row = row_of(s);
        struct command_write w = {
                .kind = (enum command_write_kind)kind, .token = token, .lease_us = LEASE};
        w.attempt.b[0] = (uint8_t)attempt;
        struct command_write_answer answer = command_write(&row, s->exists, &w, now_of(s));
        if (answer.changed) {
                row_keep(s, &row);
                if (kind == COMMAND_COMPLETE) {
                        s->reply = 1;
                        if (s->effects_hold + s->effects_consent == 0)
                                wrong = "completed, and its window has no effect";
                }
        }
        return answer.outcome;
}

/* -- workers -------------------------------------------------------------------------------------- */

static void take_claim(struct state *s, int i, struct command_answer answer)
{
        struct worker *w = &s->workers[i];
        if (answer.outcome == COMMAND_RUN) {
                w->phase = HELD;
                w->token = (uint8_t)answer.token;
        } else {
                *w = (struct worker){0};
        }
}

static bool lose(struct state *s)
{
        return s->losses++ == 0; /* counted up to 2 in a state that is thrown away */
}

static void claim_steps(const struct state *from, int i, int retry)
{
        struct state s = *from;
        struct worker *w = &s.workers[i];
        *w = (struct worker){.phase = DOUBT,
                             .attempt = ++s.attempts,
                             .deadline = (uint8_t)(s.now + BUDGET),
                             .retry = (uint8_t)retry};
        struct state t = s;
        take_claim(&t, i, store_claim(&t, w->attempt, retry));
        reach(&t, retry ? "claims, retry" : "claims, hold", s.attempts);
        t = s;
        if (lose(&t)) {
                (void)store_claim(&t, w->attempt, retry);
                reach(&t, "claims, the answer is lost", s.attempts);
                t = s;
                t.losses = 1;
                t.late = (struct late){w->attempt, 0, CLAIM, (uint8_t)retry};
                reach(&t, "claims, the message is on its way", s.attempts);
        }
}

static int kind_of(const struct worker *w)
{
        return w->verdict == OK ? COMMAND_COMPLETE
               : w->verdict == REFUSED ? COMMAND_RELEASE
                                       : COMMAND_MARK_UNKNOWN;
}

static void got_steps(const struct state *from, int i)
{
        const struct worker *w = &from->workers[i];
        int kind = kind_of(w);
        struct state t = *from;
        (void)store_write(&t, kind, w->attempt, w->token);
        if (!from->losses) {
                struct state again = t;
                again.losses = 1;
                reach(&again, "writes what came of it, the answer is lost", w->attempt);
                again = *from;
                again.losses = 1;
                again.late = (struct late){w->attempt, w->token, (uint8_t)kind, 0};
                reach(&again, "writes what came of it, the message is on its way", w->attempt);
        }
        t.workers[i] = (struct worker){0};
        reach(&t, command_write_kind_name((enum command_write_kind)kind), w->attempt);
}

static void held_steps(const struct state *from, int i)
{
        const struct worker *w = &from->workers[i];
        struct state t = *from;
        if (from->now < w->deadline) {
                struct request *r = &t.requests[w->attempt - 1];
                if (r->attempt == 0) {
                        *r = (struct request){w->attempt, (uint8_t)(t.now + LIFE), t.window, w->retry};
                        t.workers[i].phase = SENT;
                        reach(&t, "sends its request", w->attempt);
                }
        }
        t = *from;
        (void)store_write(&t, COMMAND_RELEASE_NOT_EXECUTED, w->attempt, w->token);
        t.workers[i] = (struct worker){0};
        reach(&t, "releases what it did not send", w->attempt);
        t = *from;
        if (t.extensions++ == 0) {
                if (store_write(&t, COMMAND_EXTEND, w->attempt, w->token) == COMMAND_DONE)
                        t.workers[i].deadline = (uint8_t)(t.now + BUDGET);
                else
                        t.workers[i] = (struct worker){0};
                reach(&t, "extends", w->attempt);
        }
}

static void worker_steps(const struct state *from, int i)
{
        const struct worker *w = &from->workers[i];
        struct state t = *from;
        switch (w->phase) {
        case IDLE:
                if (from->attempts < ATTEMPTS_MAX && mode != RETRY)
                        claim_steps(from, i, 0);
                if (from->attempts < ATTEMPTS_MAX && mode != HOLD)
                        claim_steps(from, i, 1);
                return;
        case DOUBT:
                take_claim(&t, i, store_claim(&t, w->attempt, w->retry));
                reach(&t, "issues its claim again", w->attempt);
                break;
        case HELD:
                held_steps(from, i);
                break;
        case SENT:
                t.workers[i].phase = GOT;
                t.workers[i].verdict = AMBIGUOUS;
                reach(&t, "waits no longer", w->attempt);
                break;
        case GOT:
                got_steps(from, i);
                break;
        }
        t = *from;
        if (t.crashes++ == 0) {
                t.workers[i] = (struct worker){0};
                reach(&t, "CRASHES", w->attempt);
        }
}

/* -- everything else ---------------------------------------------------------------------------------- */

static void answer_worker(struct state *s, int attempt, int verdict)
{
        for (int i = 0; i < WORKERS; i++)
                if (s->workers[i].phase == SENT && s->workers[i].attempt == attempt) {
                        s->workers[i].phase = GOT;
                        s->workers[i].verdict = (uint8_t)verdict;
                }
}

static void request_steps(const struct state *from, int n)
{
        const struct request *r = &from->requests[n];
        if (!r->attempt || from->now >= r->dies)
                return;
        struct state t = *from;
        t.requests[n].dies = 0;
        answer_worker(&t, r->attempt, REFUSED);
        reach(&t, "upstream refuses", r->attempt);
        t = *from;
        t.requests[n].dies = 0;
        answer_worker(&t, r->attempt, OK);
        if (r->window == t.window) {
                uint8_t *effects = r->consent ? &t.effects_consent : &t.effects_hold;
                (*effects)++;
                if (t.effects_hold && t.effects_hold + t.effects_consent > 1)
                        wrong = "two effects, and not all had consented";
        }
        reach(&t, "EFFECT", r->attempt);
}

static void late_step(const struct state *from)
{
        struct state t = *from;
        const struct late m = from->late;
        if (!m.attempt)
                return;
        t.late = (struct late){0};
        if (m.kind == CLAIM)
                (void)store_claim(&t, m.attempt, m.retry);
        else
                (void)store_write(&t, m.kind, m.attempt, m.token);
        reach(&t, "a late message lands", m.attempt);
}

static struct command_resolve resolve_of(const struct state *s, int kind, int attempt, int token,
                                         int looked)
{
        struct command_resolve r = {
                .kind = (enum command_resolve_kind)kind, .token = token, .looked_us = looked};
        r.attempt.b[0] = (uint8_t)attempt;
        r.new_attempt.b[0] = (uint8_t)(200 + s->verdicts);
        return r;
}

static void operator_steps(const struct state *from)
{
        struct state t = *from;
        struct command_row row = row_of(from);
        int64_t wait_us = 0;
        if (!from->verdict) {
                bool effect = from->effects_hold + from->effects_consent > 0;
                int kind = effect ? COMMAND_RESOLVE_EXECUTED : COMMAND_RESOLVE_NOT_EXECUTED;
                bool open = from->state == COMMAND_IN_FLIGHT || from->state == COMMAND_UNKNOWN;
                bool early = !command_settled(&row, from->now);
                if (!from->exists || from->verdicts == VERDICTS_MAX || !open ||
                    (early && !effect && mode == RETRY)) /* it promises nothing that this breaks */
                        return;
                t.verdicts++;
                t.verdict = (uint8_t)(kind + 1);
                t.shown_attempt = from->attempt;
                t.shown_token = from->token;
                t.looked = effect ? 0 : early ? from->claimed : (uint8_t)command_settled_us(&row);
                reach(&t, effect ? "an operator looks: executed" : "an operator looks: not executed",
                      0);
                return;
        }
        struct command_resolve r =
                resolve_of(from, from->verdict - 1, from->shown_attempt, from->shown_token,
                           from->looked);
        if (command_resolve(&row, from->exists, &r, now_of(from), &wait_us) == COMMAND_RESOLVED) {
                row_keep(&t, &row);
                t.reply = r.kind == COMMAND_RESOLVE_EXECUTED;
                if (t.reply && t.effects_hold + t.effects_consent == 0)
                        wrong = "resolved as executed, and its window has no effect";
        }
        t.verdict = t.shown_attempt = t.shown_token = t.looked = 0;
        reach(&t, "the operator's verdict lands", 0);
}

static void purge_step(const struct state *from)
{
        struct state t = *from;
        struct command_row row = row_of(from);
        if (!from->exists)
                return;
        switch (command_sweep(&row, now_of(from))) {
        case COMMAND_KEEP:
                return;
        case COMMAND_TO_UNKNOWN:
                row_keep(&t, &row);
                break;
        case COMMAND_DELETE:
                if (from->state == COMMAND_COMPLETED)
                        window_end(&t);
                memset(&t, 0, offsetof(struct state, reply));
                break;
        }
        reach(&t, "purge pass", 0);
}

static void steps(const struct state *from)
{
        for (int i = 0; i < WORKERS; i++)
                worker_steps(from, i);
        for (int n = 0; n < ATTEMPTS_MAX; n++)
                request_steps(from, n);
        late_step(from);
        operator_steps(from);
        purge_step(from);
        struct state t = *from;
        if (++t.now <= TIME_START + TICKS_MAX)
                reach(&t, "time passes", 0);
}

static void tell_path(uint32_t i)
{
        if (i == 0)
                return;
        tell_path(parents[i]);
        telling = true;
        wanted = i;
        event_text[0] = 0;
        struct state from = states[parents[i]];
        steps(&from);
        struct command_row row = row_of(&states[i]);
        printf("  %-60s %s token %lld attempt %d\n", event_text,
               states[i].exists ? command_state_name(row.state) : "no row", (long long)row.token,
               row.attempt.b[0]);
}

/* -- main ------------------------------------------------------------------------------------------- */

static void search(int which)
{
        static const char *const names[MODES] = {"hold", "retry", "flip"};
        struct state start = {.now = TIME_START};
        mode = which;
        count = 0;
        memset(table, 0, table_size * sizeof *table);
        printf("%s: ", names[which]);
        (void)fflush(stdout);
        current = 0;
        (void)intern(&start);
        for (current = 0; current < count && count < states_max; current++) {
                struct state from = states[current];
                steps(&from);
        }
        printf("%" PRIu32 " states, %s, no promise broken\n", count,
               count < states_max ? "all there are" : "as many as asked for, breadth first");
}

int main(int argc, char **argv)
{
        bool chosen[MODES] = {false};
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--states") == 0 && i + 1 < argc)
                        states_max = (uint32_t)strtoul(argv[++i], NULL, 10);
                else if (strcmp(argv[i], "hold") == 0)
                        chosen[HOLD] = true;
                else if (strcmp(argv[i], "retry") == 0)
                        chosen[RETRY] = true;
                else if (strcmp(argv[i], "flip") == 0)
                        chosen[FLIP] = true;
                else
                        return (void)fprintf(stderr, "usage: exhaustive [hold|retry|flip ...] "
                                                     "[--states N]\n"), 2;
        }
        for (table_size = 1024; table_size < states_max * UINT64_C(2) && table_size < 1u << 30;)
                table_size *= 2;
        states = malloc(states_max * sizeof *states);
        parents = malloc(states_max * sizeof *parents);
        table = malloc(table_size * sizeof *table);
        if (!states || !parents || !table || states_max == 0) {
                (void)fprintf(stderr, "exhaustive: not enough memory for --states\n");
                return 2;
        }
        bool all = !chosen[HOLD] && !chosen[RETRY] && !chosen[FLIP];
        for (int m = 0; m < MODES; m++)
                if (all || chosen[m])
                        search(m);
        free(states);
        free(parents);
        free(table);
        return 0;
}
