/* SPDX-License-Identifier: Apache-2.0
 *
 * run_child: runs the command of `semel run`: passes its output through while it comes,
 * keeps it, and passes signals on.
 *
 * Nothing here waits for our own reader once the command has ended: what is not yet passed on
 * stays in `tail` until run_child_flush(), so that the result is recorded first.
 */
#ifndef CMD_RUN_CHILD_H
#define CMD_RUN_CHILD_H

#include "cmd/run_output.h"
#include "sys/signals.h"

struct run_child {
        char *const *argv, *const *env;
        int lock_fd;             /* inherited by the command */
        struct signals *signals;
        struct run_output *output;

        int code;                /* its exit code, 128 + n after signal n */
        struct buf tail[2];      /* of stdout and stderr: not yet passed on */
};

/* 0: it ran to its end.  -1 with errno: it did not begin. */
int run_child(struct run_child *c);

/* Pass on the rest; a reader that is gone is no error. */
void run_child_flush(struct run_child *c);
void run_child_release(struct run_child *c);

#endif
