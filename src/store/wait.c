/* SPDX-License-Identifier: Apache-2.0
 *
 * wait: the smallest loop around a store, for tests and tools.
 */
#include <poll.h>

#include "store/store.h"
#include "sys/clock.h"

struct wait {
        void (*done)(struct store_op *op);
        void *arg;
        bool over;
};

static void wait_done(struct store_op *op)
{
        struct wait *w = op->arg;
        op->done = w->done;
        op->arg = w->arg;
        w->over = true;
}

void store_wait(struct store *st, struct store_op *op)
{
        struct wait w = {.done = op->done, .arg = op->arg};
        op->done = wait_done;
        op->arg = &w;
        store_submit(st, op);
        while (!w.over) {
                int64_t left_us = st->vt->deadline_us(st) - clock_boot_us();
                int timeout_ms = left_us <= 0       ? 0
                                 : left_us > 1000000 ? 1000
                                                     : (int)(left_us / 1000) + 1;
                struct pollfd pfd = {.fd = st->vt->fd(st), .events = st->vt->events(st)};
                (void)poll(&pfd, 1, timeout_ms);
                st->vt->step(st);
        }
        if (op->done)
                op->done(op);
}
