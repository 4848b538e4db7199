/* SPDX-License-Identifier: Apache-2.0
 *
 * stop: see stop.h.
 */
#include "sys/stop.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/notify.h"

static const int watched[] = {SIGTERM, SIGINT};
enum { WATCHED = sizeof watched / sizeof watched[0] };

/* A handler has no argument: hence one for the process. */
static struct {
        atomic_bool open;
        atomic_bool listens; /* between the two ends: what is below may be used */
        atomic_int asking;   /* threads inside ask(): nothing below goes away */
        atomic_int_fast64_t asked_us;
        atomic_int signals;
        int fd;
        void (*wake)(void *arg);
        void *arg;
        const char *last_words;
        struct notify_target manager;
        struct sigaction before[WATCHED];
        bool before_known; /* our handlers stand: what they do is not what was before */
} stop = {.fd = -1};

/* From here to the handler: only what a handler may call. */
static void ask_first(void)
{
        int_fast64_t none = 0;
        int64_t now = clock_boot_us();
        if (!atomic_compare_exchange_strong(&stop.asked_us, &none, now > 0 ? now : 1))
                return;
        uint64_t one = 1;
        if (write(stop.fd, &one, sizeof one) < 0) {
                /* a counter of 1 has room */
        }
        notify_send(&stop.manager, "STOPPING=1");
        if (stop.wake)
                stop.wake(stop.arg);
}

static void ask(void)
{
        atomic_fetch_add(&stop.asking, 1);
        if (atomic_load(&stop.listens))
                ask_first();
        atomic_fetch_sub(&stop.asking, 1);
}

static void on_signal(int signo)
{
        int saved = errno;
        if (atomic_fetch_add(&stop.signals, 1) > 0) {
                if (stop.last_words &&
                    write(STDERR_FILENO, stop.last_words, strlen(stop.last_words)) < 0) {
                        /* nobody listens: it ends all the same */
                }
                _exit(128 + signo);
        }
        ask();
        errno = saved;
}

int stop_open(void (*wake)(void *arg), void *arg, const char *last_words)
{
        if (atomic_exchange(&stop.open, true)) {
                errno = EBUSY;
                return -1;
        }
        stop.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (stop.fd < 0) {
                atomic_store(&stop.open, false);
                return -1;
        }
        atomic_store(&stop.asked_us, 0);
        atomic_store(&stop.signals, 0);
        stop.wake = wake;
        stop.arg = arg;
        stop.last_words = last_words;
        notify_find(&stop.manager);
        atomic_store(&stop.listens, true);
        struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&sa.sa_mask);
        for (int i = 0; i < WATCHED; i++)
                (void)sigaction(watched[i], &sa, /* cannot fail for these */
                                stop.before_known ? NULL : &stop.before[i]);
        stop.before_known = true;
        return 0;
}

/* Who was asked may be done before who asks, in another thread, has said all of it. */
static void close_fd(void)
{
        atomic_store(&stop.listens, false);
        while (atomic_load(&stop.asking) > 0)
                (void)sched_yield();
        (void)close(stop.fd);
        stop.fd = -1;
        atomic_store(&stop.open, false);
}

void stop_close(void)
{
        if (!atomic_load(&stop.open))
                return;
        for (int i = 0; i < WATCHED; i++)
                (void)sigaction(watched[i], &stop.before[i], NULL);
        stop.before_known = false;
        close_fd();
}

void stop_leave(void)
{
        if (atomic_load(&stop.open))
                close_fd();
}

void stop_ask(void)
{
        ask();
}

int64_t stop_asked_us(void)
{
        return atomic_load(&stop.asked_us);
}

int stop_fd(void)
{
        return stop.fd;
}
