/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon: see daemon.h.
 */
#include "app/daemon.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "core/shutdown.h"
#include "net/message_buffers.h"
#include "sys/clock.h"
#include "sys/notify.h"
#include "sys/stop.h"

#define WATCH_US (20 * MS) /* how often it is looked whether the work has ended */

struct daemon {
        struct daemon_work work;
        struct shutdown_times times;
        void (*say_line)(const char *line);
        struct loop *loop;
        struct deadline_list *deadlines;
        struct timer *timer, *watchdog;
        int64_t watchdog_us; /* 0: nobody watches */
        struct admin *admin;
        bool leaving, draining, watching;
        bool over; /* the loop has run: nobody is asked any more, since what was asked may be gone */
};

void daemon_say(struct daemon *d, const char *fmt, ...)
{
        char line[512];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        d->say_line(line);
}

/* -- the end ----------------------------------------------------------------------------------- */

/* On the loop's thread, at each wake-up and when the timer fires. */
static void look(void *arg)
{
        struct daemon *d = arg;
        int64_t asked_us = stop_asked_us(), now_us = clock_boot_us();
        enum shutdown_phase phase = shutdown_phase(&d->times, asked_us, now_us);
        if (phase == SHUTDOWN_RUNNING || d->over)
                return;
        if (!d->leaving) {
                d->leaving = true;
                daemon_say(d, "draining: what runs is finished within %lld s",
                           (long long)(d->times.allowed_us / SECOND));
                if (d->work.leaving)
                        d->work.leaving(d->work.arg);
        }
        if (phase >= SHUTDOWN_DRAINING && !d->draining) {
                d->draining = true;
                d->work.drain(d->work.arg, shutdown_deadline_us(&d->times, asked_us));
        }
        if (phase == SHUTDOWN_OVERDUE || (d->draining && d->work.ended(d->work.arg))) {
                loop_stop(d->loop);
                return;
        }
        int64_t next_us = shutdown_next_us(&d->times, asked_us, now_us);
        timer_start(d->timer, d->draining && next_us > WATCH_US ? WATCH_US : next_us);
}

/* In a signal's handler too: loop_wake() is fit for it. */
static void wake(void *arg)
{
        struct daemon *d = arg;
        loop_wake(d->loop);
}

/* A service manager's watchdog is fed while everything moves. */
static void on_watchdog(void *arg)
{
        struct daemon *d = arg;
        if (!d->work.alive || d->work.alive(d->work.arg))
                notify_manager("WATCHDOG=1");
        timer_start(d->watchdog, d->watchdog_us);
}

/* -- what the admin listener tells --------------------------------------------------------------- */

static bool is_ready(void *arg)
{
        struct daemon *d = arg;
        return stop_asked_us() == 0 && (!d->work.ready || d->work.ready(d->work.arg));
}

static int tell_metrics(void *arg, struct buf *out)
{
        struct daemon *d = arg;
        return d->work.metrics ? d->work.metrics(d->work.arg, out) : BUF_OK;
}

/* -- start ----------------------------------------------------------------------------------------- */

static semel_code open_daemon(struct daemon *d, const struct daemon_config *config,
                              semel_error *err)
{
        d->loop = loop_new(err);
        if (!d->loop)
                return SEMEL_ERR_INTERNAL;
        d->deadlines = deadline_list_new(d->loop);
        d->timer = timer_new(d->loop, look, d);
        d->watchdog = timer_new(d->loop, on_watchdog, d);
        if (!d->deadlines || !d->timer || !d->watchdog)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the daemon");
        semel_code code = loop_on_wake(d->loop, look, d, err);
        if (code != SEMEL_OK)
                return code;
        if (stop_open(wake, d, "semel: a second signal: leaving at once; what was under way is as "
                               "after a crash\n") != 0)
                return err_set_errno(err, SEMEL_ERR_INTERNAL, errno, "no watch over signals");
        d->watching = true;
        const struct admin_source source = {is_ready, tell_metrics, d};
        if (config->admin && config->admin[0])
                return admin_new(d->loop, d->deadlines, config->admin, config->admin_token_file,
                                 &source, &d->admin, err);
        return SEMEL_OK;
}

semel_code daemon_new(const struct daemon_config *config, const struct daemon_work *work,
                      struct daemon **ret, semel_error *err)
{
        struct daemon *d = calloc(1, sizeof *d);
        if (!d)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the daemon");
        d->work = *work;
        d->say_line = config->say;
        d->times = (struct shutdown_times){.delay_us = config->drain_delay_us,
                                           .allowed_us = config->shutdown_deadline_us};
        semel_code code = open_daemon(d, config, err);
        if (code != SEMEL_OK) {
                daemon_free(d);
                return code;
        }
        *ret = d;
        return SEMEL_OK;
}

void daemon_run(struct daemon *d)
{
        d->watchdog_us = notify_watchdog_us() / 2;
        if (d->watchdog_us > 0)
                timer_start(d->watchdog, 0);
        notify_manager("READY=1");
        loop_wake(d->loop); /* it may have been told to end already */
        loop_run(d->loop);
        d->over = true;
}

void daemon_free(struct daemon *d)
{
        if (!d)
                return;
        d->over = true; /* a start that failed: nobody is asked */
        if (d->watching)
                stop_leave();
        admin_free(d->admin);
        timer_free(d->timer);
        timer_free(d->watchdog);
        if (d->loop)
                loop_settle(d->loop);
        deadline_list_free(d->deadlines);
        loop_free(d->loop);
        message_buffers_free_kept(); /* of the admin listener: a thread that ran a daemon may go on */
        free(d);
}

uint16_t daemon_admin_port(const struct daemon *d)
{
        return d->admin ? admin_port(d->admin) : 0;
}

void daemon_look(struct daemon *d)
{
        loop_wake(d->loop);
}

void daemon_stop(struct daemon *d)
{
        (void)d;
        stop_ask();
}
