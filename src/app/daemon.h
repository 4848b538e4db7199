/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon: what every daemon shares: its main loop, signals, admin listener, service manager, and
 * the one way to end.
 *
 *     running --SIGTERM--> not ready, still working (drain_delay) --> draining --> ended
 *                                            one deadline over all of it
 *
 * A second signal ends at once with 128 + its number.  Works as PID 1: the signals have handlers.
 * The phases are core/shutdown.h's; programs that only have libsemel use them through
 * semel/shutdown.h.
 */
#ifndef APP_DAEMON_H
#define APP_DAEMON_H

#include "app/admin.h"
#include "net/loop.h"

struct daemon_config {
        int64_t drain_delay_us, shutdown_deadline_us;
        const char *admin, *admin_token_file; /* NULL or empty: none */
        void (*say)(const char *line);        /* one line for people */
};

/* What one daemon does.  All run on the main loop's thread. */
struct daemon_work {
        bool (*ready)(void *arg); /* asked for /readyz while nothing else says no; NULL: yes */
        int (*metrics)(void *arg, struct buf *out); /* NULL: none */
        /* No new work from now on; what runs ends by deadline_us (host CLOCK_BOOTTIME). */
        void (*drain)(void *arg, int64_t deadline_us);
        /* Has everything ended?  Asked after drain, again and again. */
        bool (*ended)(void *arg);
        /* For the watchdog: has every thread moved since the last time?  NULL: always. */
        bool (*alive)(void *arg);
        void *arg;
        /* Told to end, and work is still taken; before drain.  NULL: nothing. */
        void (*leaving)(void *arg);
};

struct daemon;

/* From here on the signals are heard.  One per process; before other threads are started.
 * Errors: SEMEL_ERR_ARGUMENT (the admin address or token), SEMEL_ERR_NO_MEMORY,
 * SEMEL_ERR_INTERNAL. */
semel_code daemon_new(const struct daemon_config *config, const struct daemon_work *work,
                      struct daemon **ret, semel_error *err);
void daemon_say(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 0: no admin listener. */
uint16_t daemon_admin_port(const struct daemon *d);
/* From any thread: look at `ended` now, or end without a signal (a thread failed for good). */
void daemon_look(struct daemon *d);
void daemon_stop(struct daemon *d);
/* Says READY, runs until drained and ended.  A daemon whose work has not ended at the deadline
 * returns from here too: the caller knows what it cut off. */
void daemon_run(struct daemon *d);
void daemon_free(struct daemon *d);

#endif
