/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/shutdown.h: graceful shutdown, the same in every daemon of semel and in yours.
 *
 * SIGTERM or SIGINT: readiness fails at once; work is still taken for drain_delay; then no new
 * work begins, and what has begun finishes (its transaction commits); one deadline over all of
 * it.  A second signal ends the process at once with 128 + its number.
 *
 *     semel_shutdown *down = semel_shutdown_new(5000, 25000, err);    // before any thread
 *     semel_shutdown_ready(down);
 *     while (semel_shutdown_phase(down) < SEMEL_DRAINING) {
 *             job = next_job(semel_shutdown_fd(down));               // poll(2) it beside your own
 *             run(job);                                              // not interrupted
 *     }
 *     return finish(semel_shutdown_left_ms(down)) ? 0 : 75;
 */
#ifndef SEMEL_SHUTDOWN_H
#define SEMEL_SHUTDOWN_H

#include <stdint.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum semel_phase {
        SEMEL_RUNNING = 0,
        SEMEL_LEAVING = 1,  /* told to end: readiness is false, work is still taken */
        SEMEL_DRAINING = 2, /* no new work */
        SEMEL_OVERDUE = 3   /* the deadline is over */
} semel_phase;

typedef struct semel_shutdown semel_shutdown;

/* Watch SIGTERM and SIGINT.  Call it before any thread is started; one per process.
 * drain_delay_ms 0 .. deadline_ms; deadline_ms 1 .. 1 h.
 * NULL and err: SEMEL_ERR_ARGUMENT, SEMEL_ERR_NO_MEMORY, SEMEL_ERR_INTERNAL. */
SEMEL_API semel_shutdown *semel_shutdown_new(int64_t drain_delay_ms, int64_t deadline_ms,
                                             semel_error *err);
SEMEL_API void semel_shutdown_free(semel_shutdown *down); /* NULL is fine */

/* From any thread. */
SEMEL_API semel_phase semel_shutdown_phase(const semel_shutdown *down);
/* Milliseconds until the deadline; -1 while running; 0 when it is over. */
SEMEL_API int64_t semel_shutdown_left_ms(const semel_shutdown *down);

/* Milliseconds until the next phase comes by itself, or semel_shutdown_alive() is due: for
 * poll(2)'s timeout; -1: neither will. */
SEMEL_API int64_t semel_shutdown_next_ms(const semel_shutdown *down);

/* A descriptor that is readable from the signal on: for poll(2).  Never read it. */
SEMEL_API int semel_shutdown_fd(const semel_shutdown *down);

/* As if SIGTERM had come. */
SEMEL_API void semel_shutdown_begin(semel_shutdown *down);

/* Tell the service manager (sd_notify's protocol) that the start is over; that it stops is told
 * with the signal.  Without a manager nothing happens. */
SEMEL_API void semel_shutdown_ready(semel_shutdown *down);

/* Call it once per turn of your main loop, as often as you like: feeds the service manager's
 * watchdog (WatchdogSec=) when it is due.  From any thread. */
SEMEL_API void semel_shutdown_alive(semel_shutdown *down);

#ifdef __cplusplus
}
#endif
#endif
