/* SPDX-License-Identifier: Apache-2.0
 *
 * print_states: docs/states.md on stdout, from the tables of src/core/command.c.  A test compares it
 * with the file; `ninja -C build states` writes it anew.
 */
#include <stdio.h>

#include "core/command.h"

static const char head[] =
        "# The states of a key\n"
        "\n"
        "Printed by `tools/print_states.c` from the tables in `src/core/command.c`; do not edit.\n"
        "\n"
        "A key is FREE (no row, or a released one) until somebody claims it. The claim makes it\n"
        "IN_FLIGHT, with a lease, a token that rises with every claim, and a random attempt. What\n"
        "happened makes it COMPLETED (a reply is kept and answers every retry), FREE again (nothing\n"
        "happened), or UNKNOWN (nobody can know: under `hold` it is never run again by itself, and an\n"
        "operator resolves it). Nothing outside those tables sets a state.\n"
        "\n"
        "An edge is drawn where some policy allows it; the tables below say which. *not executed* is\n"
        "a release by somebody who knows that the request never left, or was refused; *takeover* is\n"
        "a claim after somebody else's lease.\n"
        "\n"
        "```mermaid\n";

static const char claims[] =
        "```\n"
        "\n"
        "## What each event does\n"
        "\n"
        "`hold`, `retry` and `idempotent` are the policy that the row and the claim share; where they\n"
        "differ, the more careful one counts. BUSY is a 409 with Retry-After, MISMATCH a 422, and a\n"
        "mismatch wins over BUSY. Each write by the holder must match the row's id, token and attempt,\n"
        "otherwise it is LOST: nothing changes, and the late reply is dropped. *maybe_executed* marks a\n"
        "row whose earlier holder was taken over: releasing it must not make it FREE. An operator's\n"
        "verb must match the attempt that was shown; *not executed* is refused as too early while an\n"
        "earlier request may still be travelling, and later too when that was so when the row was\n"
        "shown: the operator looked too early. The purge pass leaves a row of `retry` or `idempotent`\n"
        "to the next caller for one retention, then makes it UNKNOWN too.\n"
        "\n";

static void out(void *arg, const char *text)
{
        (void)fputs(text, arg);
}

int main(void)
{
        out(stdout, head);
        command_print_diagram(out, stdout);
        out(stdout, claims);
        command_print_tables(out, stdout);
        return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
