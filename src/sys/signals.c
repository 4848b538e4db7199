/* SPDX-License-Identifier: Apache-2.0
 *
 * signals: see signals.h.
 */
#include "sys/signals.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int taken[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

/* A blocked signal is kept and read though it is ignored: those that are ignored stay out. */
static void set_fill(sigset_t *set)
{
        struct sigaction now;
        sigemptyset(set);
        for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
                if (taken[i] == SIGCHLD || sigaction(taken[i], NULL, &now) != 0 ||
                    now.sa_handler != SIG_IGN)
                        sigaddset(set, taken[i]);
}

int signals_open(struct signals *s)
{
        sigset_t set, before;
        set_fill(&set);
        /* Whoever started us may ignore SIGCHLD; then a child's exit code would be lost. */
        struct sigaction fresh = {.sa_handler = SIG_DFL};
        if (sigaction(SIGCHLD, &fresh, NULL) != 0 || sigprocmask(SIG_BLOCK, &set, &before) != 0)
                return -1;
        int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd < 0) {
                int saved = errno;
                (void)sigprocmask(SIG_SETMASK, &before, NULL);
                errno = saved;
                return -1;
        }
        *s = (struct signals){.fd = fd, .before = before};
        return 0;
}

int signals_next(struct signals *s, bool *ret_by_terminal)
{
        struct signalfd_siginfo info;
        ssize_t n;
        do
                n = read(s->fd, &info, sizeof info);
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof info)
                return 0;
        *ret_by_terminal = info.ssi_code == SI_KERNEL;
        return (int)info.ssi_signo;
}

static bool asks_to_end(int signal)
{
        return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

int signals_sleep(struct signals *s, int64_t ms)
{
        struct pollfd pfd = {.fd = s->fd, .events = POLLIN};
        (void)poll(&pfd, 1, ms < INT_MAX ? (int)ms : INT_MAX);
        bool by_terminal;
        int signal;
        while ((signal = signals_next(s, &by_terminal)) != 0)
                if (asks_to_end(signal))
                        return signal;
        return 0;
}

void signals_close(struct signals *s)
{
        if (s->fd < 0)
                return;
        (void)close(s->fd);
        s->fd = -1;
        (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
}
