/* SPDX-License-Identifier: Apache-2.0
 *
 * print_pages: the pages of docs/ that are printed from the program's own tables.  Built twice:
 * print-states writes docs/states.md, print-problems docs/problems.md; tools/print-pages runs both,
 * and a test compares.
 *
 * The diagram is not drawn: every claim, write, verb of an operator and pass of the purge is put to
 * the functions that decide, on a row in each state, and what they do to the row is an arrow.
 */
#include <stdio.h>
#include <string.h>

#include "core/command.h"
#include "core/problem.h"

#ifdef PRINT_STATES

static const struct command_now NOW = {.lease_us = 1000000000, .wall_us = 5000000000};

static const struct {
        struct command_policy policy;
        const char *name;
} policies[] = {{{false, false}, "hold"}, {{true, false}, "retry"}, {{false, true}, "idempotent"}};
enum { POLICIES = sizeof policies / sizeof policies[0] };

/* Labels of the arrows; state number COMMAND_STATES is "no row". */
enum { NO_ROW = COMMAND_STATES, ENDS };
static char arrows[ENDS][ENDS][400];

static void arrow(int from, int to, const char *label)
{
        char *at = arrows[from][to];
        if (strstr(at, label))
                return;
        size_t n = strlen(at);
        snprintf(at + n, sizeof arrows[0][0] - n, "%s%s", n ? ", " : "", label);
}

/* A row in `state` under `policy`; lease and retention over or not. */
static struct command_row row_in(enum command_state state, struct command_policy policy, bool over)
{
        int64_t end = over ? -1 : 1000000;
        struct command_row row = {.state = state,
                                  .token = 7,
                                  .policy = policy,
                                  .lease_len_us = 2000000,
                                  .lease_until_us = NOW.lease_us + end,
                                  .claimed_us = NOW.lease_us - 2000000,
                                  .request_until_us = NOW.lease_us + end,
                                  .retention_us = 1000000,
                                  .expire_us = NOW.wall_us + end};
        if (over)
                row.created_us = NOW.wall_us - 10000000;
        row.attempt.b[0] = 1;
        return row;
}

/* The arrows of one cell: state, policy, lease or retention over. */
static void arrows_of(enum command_state state, unsigned p, bool over)
{
        const char *name = policies[p].name;
        char label[80];
        struct command_row row = row_in(state, policies[p].policy, over);
        struct command_claim claim = {.policy = policies[p].policy, .lease_us = 1000000,
                                      .retention_us = 1000000, .attempt = {{2}}};
        struct command_answer answer = command_claim(&row, true, &claim, NOW);
        if (answer.changed) {
                if (answer.took_over || row.state == COMMAND_UNKNOWN)
                        snprintf(label, sizeof label, "claim after the lease (%s)", name);
                else
                        snprintf(label, sizeof label, "claim%s",
                                 over && state == COMMAND_COMPLETED ? " past retention" : "");
                if (answer.took_over && state == COMMAND_UNKNOWN)
                        snprintf(label, sizeof label, "claim (%s)", name);
                arrow((int)state, (int)row.state, label);
        }
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++) {
                row = row_in(state, policies[p].policy, over);
                struct command_write write = {.kind = (enum command_write_kind)k, .token = 7,
                                              .attempt = row.attempt, .lease_us = 1000000};
                if (command_write(&row, true, &write, NOW).changed)
                        arrow((int)state, (int)row.state, command_write_kind_name(write.kind));
        }
        static const char *const verbs[] = {"resolve executed", "resolve not executed", "forget"};
        for (int k = 0; k <= COMMAND_RESOLVE_FORGET; k++) {
                row = row_in(state, policies[p].policy, over);
                struct command_resolve resolve = {.kind = (enum command_resolve_kind)k,
                                                  .attempt = row.attempt, .new_attempt = {{3}}};
                int64_t wait;
                if (command_resolve(&row, true, &resolve, NOW, &wait) == COMMAND_RESOLVED)
                        arrow((int)state, (int)row.state, verbs[k]);
        }
        row = row_in(state, policies[p].policy, over);
        enum command_sweep sweep = command_sweep(&row, NOW);
        if (sweep != COMMAND_KEEP)
                arrow((int)state, sweep == COMMAND_DELETE ? NO_ROW : (int)row.state, "purge");
}

static void out(void *arg, const char *text)
{
        (void)arg;
        fputs(text, stdout);
}

static void print_page(void)
{
        puts("# States of a key\n\n"
             "Printed from src/core/command.c by tools/print-pages; do not edit.\n\n"
             "```mermaid\nstateDiagram-v2");
        arrow(NO_ROW, COMMAND_IN_FLIGHT, "claim");
        for (int state = 0; state < COMMAND_STATES; state++)
                for (unsigned p = 0; p < POLICIES; p++)
                        for (int over = 0; over < 2; over++)
                                arrows_of((enum command_state)state, p, over);
        for (int from = ENDS - 1; from >= 0; from--)
                for (int to = 0; to < ENDS; to++)
                        if (arrows[from][to][0])
                                printf("        %s --> %s: %s\n",
                                       from == NO_ROW ? "[*]" : command_state_name((enum command_state)from),
                                       to == NO_ROW ? "[*]" : command_state_name((enum command_state)to),
                                       arrows[from][to]);
        puts("```\n\n"
             "A claim is answered by what it finds. The first three columns are the policy that the row and\n"
             "the caller share; a takeover needs the leave of both.\n");
        command_print_tables(out, NULL);
        puts("\nWrites match only with the id, the token and the attempt of the claim they belong to;\n"
             "any other write finds nothing to change and is LOST ([rules A1 and A2](rules.md)).");
}

#else

static void print_page(void)
{
        puts("# Problem replies\n\n"
             "Printed from src/core/problem.c by tools/print-pages; do not edit.\n\n"
             "Every refusal is an `application/problem+json` body (RFC 9457) whose `type` never changes\n"
             "its meaning, and whose `retryable` says whether the same request with the same key may\n"
             "succeed later.\n\n"
             "| type | status | retryable | title |\n|---|---|---|---|");
        for (int i = 0; i < PROBLEM_KINDS; i++) {
                const struct problem_entry *e = problem_entry((enum problem_kind)i);
                printf("| `" PROBLEM_TYPE_BASE "%s` | %d | %s | %s |\n", e->name, e->status,
                       e->retryable ? "yes" : "no", e->title);
        }
}

#endif

int main(void)
{
        print_page();
        return ferror(stdout) || fflush(stdout) != 0;
}
