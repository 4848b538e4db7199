/* SPDX-License-Identifier: Apache-2.0
 *
 * shutdown: the phases of an end, as a function of two numbers: when it was asked for, and now.
 *
 *     running --asked--> leaving --delay_us--> draining --allowed_us (from the start)--> overdue
 *
 * leaving: not ready any more, and work is still taken, for balancers look only now and then.
 * A phase never goes back.  One deadline over all of them: the delay is part of it.
 */
#ifndef CORE_SHUTDOWN_H
#define CORE_SHUTDOWN_H

#include <stdint.h>

struct shutdown_times {
        int64_t delay_us;   /* at most allowed_us counts */
        int64_t allowed_us; /* for everything, from the moment it was asked for */
};

enum shutdown_phase { SHUTDOWN_RUNNING, SHUTDOWN_LEAVING, SHUTDOWN_DRAINING, SHUTDOWN_OVERDUE };

/* asked_us  0: nobody has asked.  Both on one clock that never steps. */
enum shutdown_phase shutdown_phase(const struct shutdown_times *t, int64_t asked_us,
                                   int64_t now_us);
/* When everything is over; INT64_MAX while nobody has asked. */
int64_t shutdown_deadline_us(const struct shutdown_times *t, int64_t asked_us);
/* How long this phase still lasts, more than 0; INT64_MAX: nothing follows by itself. */
int64_t shutdown_next_us(const struct shutdown_times *t, int64_t asked_us, int64_t now_us);

#endif
