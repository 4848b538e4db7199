/* SPDX-License-Identifier: Apache-2.0
 *
 * signals: signals as events on a descriptor, for a program that has a child to look after.
 */
#ifndef SYS_SIGNALS_H
#define SYS_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct signals {
        int fd;          /* readable when one has come */
        sigset_t before; /* the mask as it was, for the child */
};

/* Block the signals that ask a program to end or to do something (TERM, INT, HUP, QUIT, USR1,
 * USR2) and SIGCHLD, and read them from a descriptor.  Call it before any thread is started.
 * Those that were ignored stay ignored (nohup).  0, or -1 with errno. */
int signals_open(struct signals *s);

/* The next signal that has come, or 0.  *ret_by_terminal: the terminal sent it, to the whole
 * foreground group, so a child in it has got it too. */
int signals_next(struct signals *s, bool *ret_by_terminal);

/* Sleep, at most ms, while nothing asks the program to end.  Returns the signal that does (TERM,
 * INT, HUP, QUIT), or 0; other signals are forgotten. */
int signals_sleep(struct signals *s, int64_t ms);

/* As it was before. */
void signals_close(struct signals *s);

#endif
