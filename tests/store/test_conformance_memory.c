/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the memory store: its two views are one handle, its clock is ours.  And
 * through the wrappers: tracing changes nothing, and a faulty store without faults is a store.
 */
#include "conformance.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "core/limits.h"
#include "store/memory/memory.h"

struct world {
        int64_t boot_us, wall_us;
        struct sys_clock clock;
        struct store *st; /* the one handle */
        struct store *(*wrap)(struct store *inner);
        int views;
};

static int64_t world_boot(void *arg)
{
        return ((struct world *)arg)->boot_us;
}

static int64_t world_wall(void *arg)
{
        return ((struct world *)arg)->wall_us;
}

static struct store *world_open(void *arg)
{
        struct world *w = arg;
        if (w->views++ == 0) {
                const struct store_env env = {.clock = &w->clock};
                semel_code rc = store_memory_driver.open("memory:", &env, &w->st, NULL);
                assert(rc == SEMEL_OK);
                if (w->wrap)
                        w->st = w->wrap(w->st);
                assert(w->st);
        }
        return w->st;
}

static void world_close(void *arg, struct store *st)
{
        struct world *w = arg;
        if (--w->views == 0)
                st->vt->close(st);
}

static void world_reset(void *arg)
{
        struct world *w = arg;
        assert(w->views == 0); /* the rows went with the handle */
        w->boot_us = 1000 * SECOND;
        w->wall_us = INT64_C(1700000000) * SECOND;
}

static void world_advance(void *arg, int64_t us)
{
        struct world *w = arg;
        w->boot_us += us;
        w->wall_us += us;
}

static void world_step_wall(void *arg, int64_t us)
{
        ((struct world *)arg)->wall_us += us;
}

/* No text of a user is in a trace (H45): "shop" and the rest are the suite's labels. */
static void trace_line(void *arg, const char *text)
{
        static const char *const secrets[] = {"shop", "orders", "key-1", "host-a", "DROP", "made"};
        (void)arg;
        assert((text[0] == '>' || text[0] == '<') && text[1] == ' ');
        for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
                assert(!strstr(text, secrets[i]));
}

static struct store *wrap_trace(struct store *inner)
{
        return store_trace_new(inner, trace_line, NULL);
}

static enum store_fault no_fault(void *arg, const struct store_op *op)
{
        (void)arg;
        (void)op;
        return FAULT_NONE;
}

static struct store *wrap_faulty(struct store *inner)
{
        return store_faulty_new(inner, no_fault, NULL);
}

int main(int argc, char **argv)
{
        enum { TARGETS = 3 };
        struct world worlds[TARGETS] = {
                {.wrap = NULL}, {.wrap = wrap_trace}, {.wrap = wrap_faulty}};
        static const char *const names[TARGETS] = {"memory", "trace_memory", "faulty_memory"};
        struct conformance_target targets[TARGETS];
        for (int i = 0; i < TARGETS; i++) {
                worlds[i].clock = (struct sys_clock){world_boot, world_wall, &worlds[i]};
                targets[i] = (struct conformance_target){.name = names[i],
                                                         .arg = &worlds[i],
                                                         .open = world_open,
                                                         .close = world_close,
                                                         .reset = world_reset,
                                                         .advance = world_advance,
                                                         .step_wall = world_step_wall};
        }
        return conformance_main(targets, TARGETS, argc, argv);
}
