/* SPDX-License-Identifier: Apache-2.0
 *
 * stop: what a signal does at each moment of a process.  (Seen from outside: tests/api/test_shutdown.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/stop.h"

enum { DIED = 1000, ENDS_BY_ITSELF = 7 };

/* Exit code of a child that does this, or DIED + the signal that ended it. */
static int child(void (*does)(void))
{
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
                does();
                _exit(ENDS_BY_ITSELF);
        }
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : DIED + WTERMSIG(status);
}

static void open_and_ask(void)
{
        if (stop_open(NULL, NULL, NULL) != 0)
                _exit(1);
        raise(SIGTERM);
        struct pollfd p = {.fd = stop_fd(), .events = POLLIN};
        if (stop_asked_us() == 0 || poll(&p, 1, 0) != 1)
                _exit(2);
}

static void close_then_signal(void)
{
        open_and_ask();
        stop_close();
        raise(SIGTERM);
}

static void leave_then_signal(void)
{
        open_and_ask();
        stop_leave();
        raise(SIGTERM);
}

static void leave_unasked_then_signal(void)
{
        if (stop_open(NULL, NULL, NULL) != 0)
                _exit(1);
        stop_leave();
        raise(SIGTERM); /* too late to ask for anything: the process ends anyway */
}

static void leave_then_open_and_close_then_signal(void)
{
        leave_unasked_then_signal();
        close_then_signal();
}

static void a_closed_one_gives_the_signals_back(void **state)
{
        (void)state;
        assert_int_equal(child(close_then_signal), DIED + SIGTERM);
        assert_int_equal(child(leave_then_open_and_close_then_signal), DIED + SIGTERM);
}

static void one_that_is_left_ends_by_the_second_signal_as_before(void **state)
{
        (void)state;
        assert_int_equal(child(leave_then_signal), 128 + SIGTERM);
        assert_int_equal(child(leave_unasked_then_signal), ENDS_BY_ITSELF);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_closed_one_gives_the_signals_back),
                cmocka_unit_test(one_that_is_left_ends_by_the_second_signal_as_before),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
