/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the memory store: its two views are one handle, its clock is ours.
 */
#include "conformance.h"

#include <assert.h>
#include <stddef.h>

#include "core/limits.h"
#include "store/memory/memory.h"

struct world {
        int64_t boot_us, wall_us;
        struct sys_clock clock;
        struct store *st; /* the one handle */
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

int main(int argc, char **argv)
{
        struct world w = {.clock = {world_boot, world_wall, &w}};
        const struct conformance_target target = {.name = "memory",
                                                  .arg = &w,
                                                  .open = world_open,
                                                  .close = world_close,
                                                  .reset = world_reset,
                                                  .advance = world_advance,
                                                  .step_wall = world_step_wall};
        return conformance_main(&target, 1, argc, argv);
}
