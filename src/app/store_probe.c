/* SPDX-License-Identifier: Apache-2.0
 *
 * store_probe: see store_probe.h.
 */
#include "app/store_probe.h"

#include "core/limits.h"
#include "sys/clock.h"

#define PAUSE_US (1 * SECOND)   /* between two questions */
#define ANSWER_US (2 * SECOND)  /* a store that takes longer is down */
#define WANTED_US (30 * SECOND) /* an orchestrator asks again within this */

static void on_answer(struct store_op *op)
{
        struct store_probe *probe = op->arg;
        /* A queue that is full is no reason to send clients elsewhere: the others have it too. */
        bool ok = op->err.code == SEMEL_OK || op->err.code == SEMEL_ERR_NOT_FOUND ||
                  op->err.code == SEMEL_ERR_BUSY;
        atomic_store(&probe->down, !ok);
        store_op_release(op);
        probe->running = false;
        if (probe->timer)
                timer_start(probe->timer, PAUSE_US);
}

void store_probe_look(struct store_probe *probe)
{
        if (probe->running || !probe->timer || timer_is_running(probe->timer) ||
            atomic_load(&probe->wanted_until_us) <= clock_boot_us())
                return;
        store_op_init(&probe->op, STORE_GET); /* of an id that is no key's: one look at the index */
        probe->op.deadline_us = clock_boot_us() + ANSWER_US;
        probe->op.done = on_answer;
        probe->op.arg = probe;
        probe->running = true;
        loop_store_submit(probe->ls, &probe->op);
}

static void on_timer(void *arg)
{
        store_probe_look(arg);
}

bool store_probe_init(struct store_probe *probe, struct loop *loop, struct loop_store *ls)
{
        probe->ls = ls;
        probe->timer = timer_new(loop, on_timer, probe);
        return probe->timer != NULL;
}

bool store_probe_ok(struct store_probe *probe)
{
        atomic_store(&probe->wanted_until_us, clock_boot_us() + WANTED_US);
        return !atomic_load(&probe->down);
}

void store_probe_stop(struct store_probe *probe)
{
        timer_free(probe->timer);
        probe->timer = NULL;
}
