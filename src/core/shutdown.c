/* SPDX-License-Identifier: Apache-2.0
 *
 * shutdown: see shutdown.h.
 */
#include "core/shutdown.h"

/* Two threads may read the clock and the request in another order than they happened. */
static int64_t elapsed_us(int64_t asked_us, int64_t now_us)
{
        return now_us > asked_us ? now_us - asked_us : 0;
}

enum shutdown_phase shutdown_phase(const struct shutdown_times *t, int64_t asked_us,
                                   int64_t now_us)
{
        if (asked_us == 0)
                return SHUTDOWN_RUNNING;
        int64_t us = elapsed_us(asked_us, now_us);
        if (us >= t->allowed_us)
                return SHUTDOWN_OVERDUE;
        return us < t->delay_us ? SHUTDOWN_LEAVING : SHUTDOWN_DRAINING;
}

int64_t shutdown_deadline_us(const struct shutdown_times *t, int64_t asked_us)
{
        if (asked_us == 0 || asked_us > INT64_MAX - t->allowed_us)
                return INT64_MAX;
        return asked_us + t->allowed_us;
}

int64_t shutdown_next_us(const struct shutdown_times *t, int64_t asked_us, int64_t now_us)
{
        int64_t us = elapsed_us(asked_us, now_us);
        switch (shutdown_phase(t, asked_us, now_us)) {
        case SHUTDOWN_LEAVING:
                return (t->delay_us < t->allowed_us ? t->delay_us : t->allowed_us) - us;
        case SHUTDOWN_DRAINING:
                return t->allowed_us - us;
        case SHUTDOWN_RUNNING:
        case SHUTDOWN_OVERDUE:
                break;
        }
        return INT64_MAX;
}
