/* SPDX-License-Identifier: Apache-2.0
 *
 * renewal: keeps a claim's lease alive from a thread of its own, while a command runs.
 *
 * A store that does not answer is asked again until it does.  When the claim is lost, it
 * says so once on stderr and stops; the command goes on.
 */
#ifndef CMD_RENEWAL_H
#define CMD_RENEWAL_H

#include <pthread.h>

#include <semel/run.h>

struct renewal {
        semel_claim *claim; /* the thread's alone until renewal_stop() */
        int64_t lease_ms;
        int stop_fd;
        pthread_t thread;
};

/* 0, or -1 with errno. */
int renewal_start(struct renewal *r, semel_claim *claim, int64_t lease_ms);

/* Waits for a write that is under way: at most the store's call timeout. */
void renewal_stop(struct renewal *r);

#endif
