/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the simulator's store: what the schedules are run against answers as
 * every other store does, in any order of messages, and with messages that are lost and issued
 * again.  (No answer is lost here: the second one cannot say any more what the first would have
 * counted, such as took_over.)
 */
#include "conformance.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/limits.h"
#include "simstore.h"
#include "store/memory/memory.h"

struct sea {
        int64_t boot_us, wall_us;
        struct sys_clock clock;
        struct rng rng;
        struct simstore_faults faults;
        struct store *st; /* the one handle */
        int views;
};

static int64_t sea_boot(void *arg)
{
        return ((struct sea *)arg)->boot_us;
}

static int64_t sea_wall(void *arg)
{
        return ((struct sea *)arg)->wall_us;
}

static struct store *sea_open(void *arg)
{
        struct sea *sea = arg;
        if (sea->views++ == 0) {
                const struct store_env env = {.clock = &sea->clock};
                struct store *memory = NULL;
                semel_code rc = store_memory_driver.open("memory:", &env, &memory, NULL);
                assert(rc == SEMEL_OK);
                sea->st = simstore_new(memory, &sea->rng, NULL);
                simstore_set_faults(sea->st, sea->faults);
        }
        return sea->st;
}

static void sea_close(void *arg, struct store *st)
{
        struct sea *sea = arg;
        if (--sea->views == 0)
                st->vt->close(st);
}

static void sea_reset(void *arg)
{
        struct sea *sea = arg;
        assert(sea->views == 0); /* the rows went with the handle */
        sea->boot_us = 1000 * SECOND;
        sea->wall_us = INT64_C(1700000000) * SECOND;
}

static void sea_advance(void *arg, int64_t us)
{
        struct sea *sea = arg;
        sea->boot_us += us;
        sea->wall_us += us;
}

static void sea_step_wall(void *arg, int64_t us)
{
        ((struct sea *)arg)->wall_us += us;
}

int main(int argc, char **argv)
{
        enum { TARGETS = 2 };
        const char *env = getenv("SEMEL_SIM_SEED");
        uint64_t seed = env ? strtoull(env, NULL, 0) : (uint64_t)clock_wall_us();
        printf("# SEMEL_SIM_SEED=%llu\n", (unsigned long long)seed);
        static const char *const names[TARGETS] = {"sim", "sim-lossy"};
        static const struct simstore_faults faults[TARGETS] = {
                {0}, {.lose_request = 40, .cut = 20, .drop_late = 100}};
        struct sea seas[TARGETS] = {{.boot_us = 0}};
        struct conformance_target targets[TARGETS];
        for (int i = 0; i < TARGETS; i++) {
                seas[i].clock = (struct sys_clock){sea_boot, sea_wall, &seas[i]};
                seas[i].rng.s = seed + (uint64_t)i;
                seas[i].faults = faults[i];
                targets[i] = (struct conformance_target){.name = names[i],
                                                         .arg = &seas[i],
                                                         .open = sea_open,
                                                         .close = sea_close,
                                                         .reset = sea_reset,
                                                         .advance = sea_advance,
                                                         .step_wall = sea_step_wall};
        }
        return conformance_main(targets, TARGETS, argc, argv);
}
