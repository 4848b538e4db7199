/* SPDX-License-Identifier: Apache-2.0
 *
 * print_problems: writes docs/problems.md from the table in src/core/problem.c.
 */
#include <stdio.h>

#include "core/problem.h"

int main(void)
{
        puts("# Problem replies\n\n"
             "Printed by `tools/print_problems.c` from the table in `src/core/problem.c`; do not edit.\n\n"
             "Every refusal is an `application/problem+json` body (RFC 9457) whose `type` never changes\n"
             "its meaning, and whose `retryable` says whether the same request with the same key may\n"
             "succeed later.\n\n"
             "| type | status | retryable | title |\n|---|---|---|---|");
        for (int i = 0; i < PROBLEM_KINDS; i++) {
                const struct problem_entry *e = problem_entry((enum problem_kind)i);
                printf("| `" PROBLEM_TYPE_BASE "%s` | %d | %s | %s |\n", e->name, e->status,
                       e->retryable ? "yes" : "no", e->title);
        }
        return ferror(stdout) || fflush(stdout) != 0;
}
