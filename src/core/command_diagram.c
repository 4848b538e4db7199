/* SPDX-License-Identifier: Apache-2.0
 *
 * command_diagram: the transitions of command.c as a Mermaid state diagram.  Every event is tried
 * on every row that can be told apart; what changed is an edge.  Nothing is drawn by hand.
 */
#include "core/command.h"

enum event {
        EVENT_CLAIM,
        EVENT_TAKEOVER,
        EVENT_COMPLETE,
        EVENT_RELEASE,
        EVENT_RELEASE_NOT_EXECUTED,
        EVENT_EXTEND,
        EVENT_MARK_UNKNOWN,
        EVENT_RESOLVE_EXECUTED,
        EVENT_RESOLVE_NOT_EXECUTED,
        EVENT_FORGET,
        EVENT_PURGE,
        EVENTS
};

static const char *const event_names[EVENTS] = {
        "claim",          "takeover",
        "complete",       "release",
        "not executed",   "extend",
        "mark unknown",   "resolve executed",
        "resolve not executed", "forget",
        "purge",
};

/* Where an edge may begin or end: no row, or a state. */
enum { NODE_NONE = COMMAND_STATES, NODES };

/* Everything about a row that a decision may depend on, as bits of a number. */
enum {
        BIT_RETRY = 1,
        BIT_IDEMPOTENT = 2,
        BIT_MAYBE_EXECUTED = 4,
        BIT_LEASE_OVER = 8,
        BIT_EXPIRED = 16,
        BIT_OTHER_REQUEST = 32,
        VARIANTS = 64,
};

static const struct command_now now = {.lease_us = 10000, .wall_us = 10000};

static struct command_row row_of(int node, int bits)
{
        bool over = bits & BIT_LEASE_OVER;
        struct command_row row = {.token = 1,
                                  .policy = {bits & BIT_RETRY, bits & BIT_IDEMPOTENT},
                                  .maybe_executed = bits & BIT_MAYBE_EXECUTED,
                                  .lease_len_us = 1000,
                                  .lease_until_us = over ? 5000 : 10500,
                                  .claimed_us = over ? 4000 : 9500,
                                  .request_until_us = over ? 5000 : 10500,
                                  .retention_us = 1000,
                                  .expire_us = bits & BIT_EXPIRED ? 9000 : 11000};
        if (node != NODE_NONE)
                row.state = (enum command_state)node;
        return row;
}

/* A claim or a takeover, whichever `event` asks for; the node after it. */
static int after_claim(enum event event, int node, int bits)
{
        struct command_row row = row_of(node, bits);
        struct command_claim claim = {.policy = row.policy, .lease_us = 1000};
        claim.attempt.b[0] = 1;
        claim.fingerprint.b[0] = bits & BIT_OTHER_REQUEST ? 1 : 0;
        struct command_answer answer = command_claim(&row, node != NODE_NONE, &claim, now);
        if (!answer.changed || answer.took_over != (event == EVENT_TAKEOVER))
                return -1;
        return (int)row.state;
}

static int after_write(enum event event, int node, int bits)
{
        struct command_row row = row_of(node, bits);
        const struct command_write write = {
                .kind = (enum command_write_kind)(event - EVENT_COMPLETE), .token = 1};
        return command_write(&row, true, &write, now).changed ? (int)row.state : -1;
}

static int after_resolve(enum event event, int node, int bits)
{
        struct command_row row = row_of(node, bits);
        const struct command_resolve resolve = {
                .kind = (enum command_resolve_kind)(event - EVENT_RESOLVE_EXECUTED),
                .new_attempt = {{1}},
                .looked_us = now.lease_us};
        int64_t wait_us;
        if (command_resolve(&row, true, &resolve, now, &wait_us) != COMMAND_RESOLVED)
                return -1;
        return (int)row.state;
}

static int after_purge(int node, int bits)
{
        struct command_row row = row_of(node, bits);
        switch (command_sweep(&row, now)) {
        case COMMAND_KEEP:
                return -1;
        case COMMAND_DELETE:
                return NODE_NONE;
        case COMMAND_TO_UNKNOWN:
                return (int)row.state;
        }
        return -1;
}

/* The node after this event, or -1 when the row does not change. */
static int after(enum event event, int node, int bits)
{
        if (event <= EVENT_TAKEOVER)
                return after_claim(event, node, bits);
        if (node == NODE_NONE)
                return -1;
        if (event <= EVENT_MARK_UNKNOWN)
                return after_write(event, node, bits);
        if (event <= EVENT_FORGET)
                return after_resolve(event, node, bits);
        return after_purge(node, bits);
}

static bool leads(enum event event, int from, int to)
{
        for (int bits = 0; bits < VARIANTS; bits++)
                if (after(event, from, bits) == to)
                        return true;
        return false;
}

static const char *node_name(int node)
{
        return node == NODE_NONE ? "[*]" : command_state_name((enum command_state)node);
}

static void print_edge(int from, int to, void (*out)(void *, const char *), void *arg)
{
        bool any = false;
        for (int e = 0; e < EVENTS; e++) {
                if (!leads((enum event)e, from, to))
                        continue;
                if (!any) {
                        out(arg, "    ");
                        out(arg, node_name(from));
                        out(arg, " --> ");
                        out(arg, node_name(to));
                }
                out(arg, any ? ", " : ": ");
                out(arg, event_names[e]);
                any = true;
        }
        if (any)
                out(arg, "\n");
}

void command_print_diagram(void (*out)(void *arg, const char *text), void *arg)
{
        out(arg, "stateDiagram-v2\n");
        for (int i = 0; i < NODES; i++)
                for (int to = 0; to < NODES; to++)
                        print_edge((i + NODE_NONE) % NODES, to, out, arg); /* no row first */
}
