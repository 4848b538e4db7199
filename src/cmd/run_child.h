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

/* Output that could not be passed on.  A reader that is gone is no error. */
struct run_unwritten {
        int why; /* errno of the first one; 0: none */
        enum run_stream name;
};

struct run_child {
        char *const *argv, *const *env;
        int lock_fd;             /* inherited by the command */
        struct signals *signals;
        struct run_output *output;

        int code;                /* its exit code, 128 + n after signal n */
        struct buf tail[2];      /* of stdout and stderr: not yet passed on */
        struct run_unwritten unwritten;
};

/* 0: it ran to its end.  -1 with errno: it did not begin. */
int run_child(struct run_child *c);

/* Pass on the rest. */
void run_child_flush(struct run_child *c);

/* Write to our own stdout or stderr; nothing follows what could not be written. */
void run_write(struct run_unwritten *u, enum run_stream name, struct span bytes);
/* One sentence: that it could not be written, and `then`. */
void run_unwritten_say(const struct run_unwritten *u, const char *then);
void run_child_release(struct run_child *c);

#endif
