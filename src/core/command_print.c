/* SPDX-License-Identifier: Apache-2.0
 *
 * command_print: names, and the tables of command.c as text.  What is printed is asked
 * from the tables through the same functions that decide, so it cannot differ from them.
 * (The diagram: command_diagram.c.)
 */
#include "core/command.h"

const char *command_state_name(enum command_state state)
{
        switch (state) {
        case COMMAND_FREE:
                return "FREE";
        case COMMAND_IN_FLIGHT:
                return "IN_FLIGHT";
        case COMMAND_COMPLETED:
                return "COMPLETED";
        case COMMAND_UNKNOWN:
                return "UNKNOWN";
        }
        return "?";
}

const char *command_outcome_name(enum command_outcome outcome)
{
        switch (outcome) {
        case COMMAND_RUN:
                return "RUN";
        case COMMAND_BUSY:
                return "BUSY";
        case COMMAND_REPLAY:
                return "REPLAY";
        case COMMAND_MISMATCH:
                return "MISMATCH";
        case COMMAND_IS_UNKNOWN:
                return "UNKNOWN";
        }
        return "?";
}

const char *command_write_kind_name(enum command_write_kind kind)
{
        switch (kind) {
        case COMMAND_COMPLETE:
                return "complete";
        case COMMAND_RELEASE:
                return "release";
        case COMMAND_RELEASE_NOT_EXECUTED:
                return "release (not executed)";
        case COMMAND_EXTEND:
                return "extend";
        case COMMAND_MARK_UNKNOWN:
                return "mark unknown";
        }
        return "?";
}

const char *command_effect_name(enum command_effect effect)
{
        switch (effect) {
        case EFFECT_LOST:
                return "LOST";
        case EFFECT_NOTHING:
                return "nothing";
        case EFFECT_DONE_BEFORE:
                return "done before";
        case EFFECT_COMPLETE:
                return "-> COMPLETED";
        case EFFECT_FREE:
                return "-> FREE";
        case EFFECT_END_LEASE:
                return "lease ends";
        case EFFECT_EXTEND:
                return "lease longer";
        case EFFECT_UNKNOWN:
                return "-> UNKNOWN";
        }
        return "?";
}

/* The rows of the first table, as example rows that a claim meets. */
struct example {
        const char *name;
        bool exists;
        enum command_state state;
        bool lease_over, expired;
};

static const struct example examples[] = {
        {"no row", false, COMMAND_FREE, false, false},
        {"FREE", true, COMMAND_FREE, false, false},
        {"FREE past retention", true, COMMAND_FREE, false, true},
        {"COMPLETED past retention", true, COMMAND_COMPLETED, false, true},
        {"IN_FLIGHT, lease alive", true, COMMAND_IN_FLIGHT, false, false},
        {"IN_FLIGHT, lease over", true, COMMAND_IN_FLIGHT, true, false},
        {"COMPLETED", true, COMMAND_COMPLETED, false, false},
        {"UNKNOWN", true, COMMAND_UNKNOWN, true, false},
};

static void print_claim_cell(const struct example *ex, struct command_policy policy, bool same,
                             void (*out)(void *, const char *), void *arg)
{
        const struct command_now now = {.lease_us = 1000, .wall_us = 1000};
        struct command_row row = {.state = ex->state,
                                  .token = 1,
                                  .policy = policy,
                                  .lease_len_us = 500,
                                  .lease_until_us = ex->lease_over ? 900 : 1100,
                                  .expire_us = ex->expired ? 900 : 1100};
        struct command_claim claim = {.policy = policy, .lease_us = 500};
        claim.attempt.b[0] = 1;
        claim.fingerprint.b[0] = same ? 0 : 1;
        struct command_answer answer = command_claim(&row, ex->exists, &claim, now);
        out(arg, " | ");
        out(arg, command_outcome_name(answer.outcome));
        if (answer.took_over)
                out(arg, " (takeover)");
        else if (answer.changed && answer.outcome == COMMAND_IS_UNKNOWN)
                out(arg, " (becomes)");
}

static void print_claim_table(void (*out)(void *, const char *), void *arg)
{
        static const struct command_policy hold = {false, false}, retry = {true, false},
                                           idem = {false, true};
        out(arg, "| claim finds | hold | retry | idempotent | other request |\n"
                 "|---|---|---|---|---|\n");
        for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
                out(arg, "| ");
                out(arg, examples[i].name);
                print_claim_cell(&examples[i], hold, true, out, arg);
                print_claim_cell(&examples[i], retry, true, out, arg);
                print_claim_cell(&examples[i], idem, true, out, arg);
                print_claim_cell(&examples[i], hold, false, out, arg);
                out(arg, " |\n");
        }
}

static void print_write_row(enum command_write_kind kind, struct command_policy policy,
                            bool maybe_executed, const char *note,
                            void (*out)(void *, const char *), void *arg)
{
        out(arg, "| ");
        out(arg, command_write_kind_name(kind));
        out(arg, note);
        for (int s = 0; s < COMMAND_STATES; s++) {
                out(arg, " | ");
                out(arg, command_effect_name(command_write_effect(kind, (enum command_state)s,
                                                                  policy, maybe_executed)));
        }
        out(arg, " |\n");
}

static void print_write_table(void (*out)(void *, const char *), void *arg)
{
        static const struct command_policy hold = {false, false}, retry = {true, false};
        out(arg, "| write by the holder | FREE | IN_FLIGHT | COMPLETED | UNKNOWN |\n"
                 "|---|---|---|---|---|\n");
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++)
                print_write_row((enum command_write_kind)k, hold, false, "", out, arg);
        print_write_row(COMMAND_RELEASE, hold, true, ", maybe_executed", out, arg);
        print_write_row(COMMAND_RELEASE_NOT_EXECUTED, hold, true, ", maybe_executed", out, arg);
        print_write_row(COMMAND_MARK_UNKNOWN, retry, false, ", retry or idempotent", out, arg);
}

/* The rows that an operator or the purge pass may find: those of the first table that exist. */
static struct command_row row_of(const struct example *ex, bool retry)
{
        return (struct command_row){.state = ex->state,
                                    .token = 1,
                                    .policy = {.retry = retry},
                                    .lease_len_us = 500,
                                    .lease_until_us = ex->lease_over ? 900 : 1100,
                                    .claimed_us = 600,
                                    .request_until_us = 1000,
                                    .retention_us = 500,
                                    .expire_us = ex->expired ? 900 : 1100};
}

static const struct command_now print_now = {.lease_us = 1000, .wall_us = 1000};

static const char *resolve_text(const struct example *ex, enum command_resolve_kind kind)
{
        struct command_row row = row_of(ex, false);
        const struct command_resolve resolve = {
                .kind = kind, .new_attempt = {{1}}, .looked_us = print_now.lease_us};
        int64_t wait_us;
        switch (command_resolve(&row, true, &resolve, print_now, &wait_us)) {
        case COMMAND_RESOLVED:
                return row.state == COMMAND_FREE ? "-> FREE" : "-> COMPLETED";
        case COMMAND_RESOLVE_CHANGED:
                return "changed";
        case COMMAND_RESOLVE_LEASED:
                return "refused: leased";
        case COMMAND_RESOLVE_TOO_EARLY:
                return "refused: too early";
        case COMMAND_RESOLVE_LOOKED_EARLY:
                return "refused: looked too early";
        case COMMAND_RESOLVE_STATE:
                return "refused";
        }
        return "?";
}

static const char *sweep_text(const struct example *ex, bool retry)
{
        struct command_row row = row_of(ex, retry);
        switch (command_sweep(&row, print_now)) {
        case COMMAND_KEEP:
                return "keep";
        case COMMAND_DELETE:
                return "delete";
        case COMMAND_TO_UNKNOWN:
                return "-> UNKNOWN";
        }
        return "?";
}

static void print_operator_table(void (*out)(void *, const char *), void *arg)
{
        out(arg, "| operator, purge pass | resolve: executed | resolve: not executed | forget | "
                 "purge, hold | purge, retry or idempotent |\n"
                 "|---|---|---|---|---|---|\n");
        for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
                const struct example *ex = &examples[i];
                if (!ex->exists)
                        continue;
                const char *const cells[] = {
                        ex->name,
                        resolve_text(ex, COMMAND_RESOLVE_EXECUTED),
                        resolve_text(ex, COMMAND_RESOLVE_NOT_EXECUTED),
                        resolve_text(ex, COMMAND_RESOLVE_FORGET),
                        sweep_text(ex, false),
                        sweep_text(ex, true),
                };
                for (size_t c = 0; c < sizeof cells / sizeof cells[0]; c++) {
                        out(arg, c ? " | " : "| ");
                        out(arg, cells[c]);
                }
                out(arg, " |\n");
        }
}

void command_print_tables(void (*out)(void *arg, const char *text), void *arg)
{
        print_claim_table(out, arg);
        out(arg, "\n");
        print_write_table(out, arg);
        out(arg, "\n");
        print_operator_table(out, arg);
}
