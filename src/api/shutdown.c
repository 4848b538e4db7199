/* SPDX-License-Identifier: Apache-2.0
 *
 * shutdown: semel/shutdown.h, over sys/stop.h (the signals) and core/shutdown.h (the phases).
 */
#include <semel/shutdown.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "core/shutdown.h"
#include "sys/clock.h"
#include "sys/notify.h"
#include "sys/stop.h"

enum { DEADLINE_MS_MAX = 3600 * 1000 };

struct semel_shutdown {
        struct shutdown_times times;
        int64_t watchdog_us;            /* 0: nobody watches */
        atomic_int_fast64_t told_at_us; /* when the watchdog was fed last */
};

/* The public phases are these. */
_Static_assert((int)SEMEL_RUNNING == (int)SHUTDOWN_RUNNING &&
                       (int)SEMEL_LEAVING == (int)SHUTDOWN_LEAVING &&
                       (int)SEMEL_DRAINING == (int)SHUTDOWN_DRAINING &&
                       (int)SEMEL_OVERDUE == (int)SHUTDOWN_OVERDUE,
               "one list of phases");

semel_shutdown *semel_shutdown_new(int64_t drain_delay_ms, int64_t deadline_ms, semel_error *err)
{
        if (deadline_ms < 1 || deadline_ms > DEADLINE_MS_MAX || drain_delay_ms < 0 ||
            drain_delay_ms > deadline_ms) {
                (void)err_set(err, SEMEL_ERR_ARGUMENT,
                              "a shutdown has a deadline of 1 ms to 1 h, and a delay that is not longer");
                return NULL;
        }
        semel_shutdown *down = calloc(1, sizeof *down);
        if (!down) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the shutdown");
                return NULL;
        }
        down->times = (struct shutdown_times){.delay_us = drain_delay_ms * 1000,
                                              .allowed_us = deadline_ms * 1000};
        down->watchdog_us = notify_watchdog_us() / 2;
        if (stop_open(NULL, NULL, NULL) == 0)
                return down;
        if (errno == EBUSY)
                (void)err_set(err, SEMEL_ERR_ARGUMENT,
                              "signals belong to the process: it has a semel_shutdown already");
        else
                (void)err_set_errno(err, SEMEL_ERR_INTERNAL, errno, "no watch over signals");
        free(down);
        return NULL;
}

void semel_shutdown_free(semel_shutdown *down)
{
        if (!down)
                return;
        stop_close();
        free(down);
}

semel_phase semel_shutdown_phase(const semel_shutdown *down)
{
        return (semel_phase)shutdown_phase(&down->times, stop_asked_us(), clock_boot_us());
}

int64_t semel_shutdown_left_ms(const semel_shutdown *down)
{
        int64_t asked_us = stop_asked_us();
        if (asked_us == 0)
                return -1;
        int64_t left_us = shutdown_deadline_us(&down->times, asked_us) - clock_boot_us();
        return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

int64_t semel_shutdown_next_ms(const semel_shutdown *down)
{
        int64_t now_us = clock_boot_us();
        int64_t us = shutdown_next_us(&down->times, stop_asked_us(), now_us);
        if (down->watchdog_us > 0) {
                int64_t due_us = atomic_load(&down->told_at_us) + down->watchdog_us - now_us;
                if (due_us < us)
                        us = due_us > 0 ? due_us : 0;
        }
        return us == INT64_MAX ? -1 : (us + 999) / 1000;
}

int semel_shutdown_fd(const semel_shutdown *down)
{
        (void)down;
        return stop_fd();
}

void semel_shutdown_begin(semel_shutdown *down)
{
        (void)down;
        stop_ask();
}

void semel_shutdown_ready(semel_shutdown *down)
{
        (void)down;
        notify_manager("READY=1");
}

void semel_shutdown_alive(semel_shutdown *down)
{
        if (down->watchdog_us != 0 && clock_is_time(&down->told_at_us, down->watchdog_us))
                notify_manager("WATCHDOG=1");
}
