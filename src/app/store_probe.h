/* SPDX-License-Identifier: Apache-2.0
 *
 * store_probe: does the store answer?  For /readyz: the answer is at hand at once, and the store
 * is asked at most once a second, and only while somebody wants to know.
 *
 * A probe belongs to the thread of its loop, except store_probe_ok().
 */
#ifndef APP_STORE_PROBE_H
#define APP_STORE_PROBE_H

#include <stdatomic.h>

#include "net/loop.h"

struct store_probe {
        struct loop_store *ls;
        struct timer *timer; /* running: it was asked less than a second ago; NULL: over */
        struct store_op op;
        bool running;
        atomic_int_fast64_t wanted_until_us;
        atomic_bool down;
};

/* A store that was just opened counts as one that answers.  false: no memory. */
bool store_probe_init(struct store_probe *probe, struct loop *loop, struct loop_store *ls);

/* From any thread: what it answered last; it is asked again for a while, every second.  The caller
 * wakes the loop, which calls store_probe_look(). */
bool store_probe_ok(struct store_probe *probe);
void store_probe_look(struct store_probe *probe);

/* No question any more; the one under way ends before the store is closed. */
void store_probe_stop(struct store_probe *probe);

#endif
