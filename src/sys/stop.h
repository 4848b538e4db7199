/* SPDX-License-Identifier: Apache-2.0
 *
 * stop: SIGTERM and SIGINT ask this process to end, once; the second one ends it.
 *
 * The signals have handlers, so that they reach PID 1 too, and the second one works whatever the
 * threads are busy with.  A service manager hears STOPPING=1 with the first.  One per process.
 */
#ifndef SYS_STOP_H
#define SYS_STOP_H

#include <stdint.h>

/* wake        called in the signal's handler, or in stop_ask(): it may only do what a handler may;
 *             NULL: nothing.
 * last_words  written to stderr when a second signal ends the process; NULL: nothing.
 *             Both must live until stop_close().
 * 0, or -1 with errno; EBUSY: it is open already. */
int stop_open(void (*wake)(void *arg), void *arg, const char *last_words);
/* The signals do again what they did before, and no handler of ours runs any more; not opened:
 * nothing. */
void stop_close(void);
/* The same at the end of a process, which keeps its handlers: a second signal ends it as before, to
 * the last moment.  last_words must live on. */
void stop_leave(void);

/* As if the first signal had come; a signal after it is the first.  From any thread, also while
 * another one closes. */
void stop_ask(void);
/* When it was asked for, on CLOCK_BOOTTIME; 0: not yet.  From any thread. */
int64_t stop_asked_us(void);
/* Readable from then on.  Never read it. */
int stop_fd(void);

#endif
