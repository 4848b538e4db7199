/* SPDX-License-Identifier: Apache-2.0
 *
 * process: see process.h.
 */
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ = 0, WRITE = 1 };

static void close_pair(int fds[2])
{
        for (int i = 0; i < 2; i++) {
                if (fds[i] >= 0)
                        (void)close(fds[i]);
                fds[i] = -1;
        }
}

/* In the child, between fork and exec: only what a signal handler may do, since other
 * threads of the parent may have held locks.  Returns only when it failed, with errno. */
static void become(char *const *argv, char *const *env, int out_fd, int err_fd, int keep_fd,
                   const sigset_t *mask, pid_t parent)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
                return;
        if (getppid() != parent) { /* it died before the line above: no signal will come */
                errno = ESRCH;
                return;
        }
        struct sigaction fresh = {.sa_handler = SIG_DFL};
        if (sigaction(SIGPIPE, &fresh, NULL) != 0 || sigaction(SIGCHLD, &fresh, NULL) != 0 ||
            sigprocmask(SIG_SETMASK, mask, NULL) != 0)
                return;
        if (keep_fd >= 0 && fcntl(keep_fd, F_SETFD, 0) != 0)
                return;
        if (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0)
                return;
        (void)execvpe(argv[0], argv, env);
}

int process_start(struct process *ret, char *const *argv, char *const *env, int keep_fd,
                  const sigset_t *mask)
{
        int out[2] = {-1, -1}, err[2] = {-1, -1}, failed[2] = {-1, -1}, why = 0;
        if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
            pipe2(failed, O_CLOEXEC) != 0) {
                why = errno;
                goto out;
        }
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
                why = errno;
                goto out;
        }
        if (pid == 0) {
                become(argv, env, out[WRITE], err[WRITE], keep_fd, mask, parent);
                int reason = errno;
                ssize_t n = write(failed[WRITE], &reason, sizeof reason);
                (void)n;
                _exit(127);
        }
        (void)close(failed[WRITE]);
        failed[WRITE] = -1;
        ssize_t n;
        do
                n = read(failed[READ], &why, sizeof why);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)sizeof why) {
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
                goto out;
        }
        why = 0;
        *ret = (struct process){.pid = pid, .out_fd = out[READ], .err_fd = err[READ]};
        out[READ] = err[READ] = -1;
out:
        close_pair(out);
        close_pair(err);
        close_pair(failed);
        errno = why;
        return why ? -1 : 0;
}

bool process_try_wait(const struct process *p, int *ret_code)
{
        int status;
        pid_t pid = waitpid(p->pid, &status, WNOHANG);
        if (pid != p->pid || !(WIFEXITED(status) || WIFSIGNALED(status)))
                return false;
        *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return true;
}

void process_close(struct process *p)
{
        if (p->out_fd >= 0)
                (void)close(p->out_fd);
        if (p->err_fd >= 0)
                (void)close(p->err_fd);
        p->out_fd = p->err_fd = -1;
}
