/* SPDX-License-Identifier: Apache-2.0
 *
 * process: starts a child whose output comes through pipes, and who does not outlive the
 * thread that started it.
 */
#ifndef SYS_PROCESS_H
#define SYS_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct process {
        pid_t pid;
        int out_fd; /* read end of its stdout */
        int err_fd; /* and of its stderr */
};

/* Start argv[0] (looked up in PATH) with the parent's stdin.
 * argv, env NULL-terminated
 * keep_fd   a descriptor that the child inherits; -1: none
 * mask      its signal mask; SIGPIPE and SIGCHLD get their default action
 * SIGKILL reaches the child when the calling thread ends, however it ends.
 * 0, or -1 with errno: the program did not begin to run (ENOENT: there is no such command). */
int process_start(struct process *ret, char *const *argv, char *const *env, int keep_fd,
                  const sigset_t *mask);

/* Has it ended?  true: *ret_code is its exit code, 128 + n when signal n ended it. */
bool process_try_wait(const struct process *p, int *ret_code);

void process_close(struct process *p);

#endif
