/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/shutdown.h as a program uses it.  What a second signal does, and a whole daemon's end, is in
 * tests/system/test_shutdown.py.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <semel/shutdown.h>

static int wait_fd(semel_shutdown *down, int ms)
{
        struct pollfd p = {.fd = semel_shutdown_fd(down), .events = POLLIN};
        return poll(&p, 1, ms); /* a signal's handler may end the wait: the descriptor is asked again */
}

static void arguments_are_checked(void **state)
{
        (void)state;
        static const int64_t bad[][2] = {{-1, 1000}, {0, 0}, {0, -1}, {1001, 1000}, {0, 3600001}};
        semel_error *err = semel_error_new();
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                assert_null(semel_shutdown_new(bad[i][0], bad[i][1], err));
                assert_int_equal(semel_error_code(err), SEMEL_ERR_ARGUMENT);
        }
        semel_shutdown_free(NULL);
        semel_error_free(err);
}

static void a_process_has_one(void **state)
{
        (void)state;
        semel_error *err = semel_error_new();
        semel_shutdown *down = semel_shutdown_new(0, 1000, err);
        assert_non_null(down);
        assert_null(semel_shutdown_new(0, 1000, err));
        assert_int_equal(semel_error_code(err), SEMEL_ERR_ARGUMENT);
        semel_shutdown_free(down);
        down = semel_shutdown_new(0, 1000, err); /* one after the other is fine */
        assert_non_null(down);
        assert_int_equal(semel_shutdown_phase(down), SEMEL_RUNNING);
        semel_shutdown_free(down);
        semel_error_free(err);
}

static void a_signal_begins_it(void **state)
{
        (void)state;
        static const int signals[] = {SIGTERM, SIGINT};
        for (int i = 0; i < 2; i++) {
                semel_shutdown *down = semel_shutdown_new(0, 60000, NULL);
                assert_non_null(down);
                assert_int_equal(semel_shutdown_phase(down), SEMEL_RUNNING);
                assert_int_equal(semel_shutdown_left_ms(down), -1);
                assert_int_equal(semel_shutdown_next_ms(down), -1);
                assert_int_equal(wait_fd(down, 0), 0);
                raise(signals[i]);
                assert_int_equal(semel_shutdown_phase(down), SEMEL_DRAINING);
                assert_int_equal(wait_fd(down, 0), 1);
                assert_int_equal(wait_fd(down, 0), 1); /* and it stays readable */
                int64_t left = semel_shutdown_left_ms(down);
                assert_true(left > 50000 && left <= 60000);
                assert_true(semel_shutdown_next_ms(down) <= left);
                semel_shutdown_free(down);
        }
}

static void the_phases_follow_by_themselves(void **state)
{
        (void)state;
        semel_shutdown *down = semel_shutdown_new(100, 200, NULL);
        semel_phase last = SEMEL_RUNNING, phase;
        assert_non_null(down);
        semel_shutdown_begin(down);
        while ((phase = semel_shutdown_phase(down)) != SEMEL_OVERDUE) {
                assert_true(phase >= last && phase != SEMEL_RUNNING);
                last = phase;
                (void)poll(NULL, 0, (int)semel_shutdown_next_ms(down));
        }
        assert_int_equal(semel_shutdown_left_ms(down), 0);
        assert_int_equal(semel_shutdown_next_ms(down), -1);
        semel_shutdown_free(down);
}

/* In a child: `asks` first, then so many signals; returns how it ended. */
static int child(int asks, int signals)
{
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
                semel_shutdown *down = semel_shutdown_new(0, 60000, NULL);
                if (asks)
                        semel_shutdown_begin(down);
                for (int i = 0; i < signals; i++)
                        raise(SIGTERM);
                _exit(7); /* still here */
        }
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void a_second_signal_ends_the_process(void **state)
{
        (void)state;
        assert_int_equal(child(0, 1), 7);
        assert_int_equal(child(0, 2), 128 + SIGTERM);
        assert_int_equal(child(1, 1), 7); /* what the program asked of itself is no signal */
        assert_int_equal(child(1, 2), 128 + SIGTERM);
}

static void free_gives_the_signals_back(void **state)
{
        (void)state;
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
                semel_shutdown_free(semel_shutdown_new(0, 1000, NULL));
                raise(SIGTERM);
                _exit(7);
        }
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static atomic_bool enough;

static void *takes_signals(void *arg)
{
        while (!atomic_load(&enough))
                (void)poll(NULL, 0, 1);
        return arg;
}

/* The handler runs in another thread, and its first word is seen before its last: whoever frees at once closes
 * nothing that it still writes to, which may be somebody else's file by then. */
static void free_waits_for_a_handler_of_another_thread(void **state)
{
        (void)state;
        enum { ROUNDS = 1000 };
        pthread_t thread;
        int next = -1;
        assert_int_equal(pthread_create(&thread, NULL, takes_signals, NULL), 0);
        for (int i = 0; i < ROUNDS; i++) {
                semel_shutdown *down = semel_shutdown_new(0, 60000, NULL);
                assert_non_null(down);
                assert_int_equal(pthread_kill(thread, SIGTERM), 0);
                while (semel_shutdown_phase(down) == SEMEL_RUNNING)
                        ;
                if (next >= 0) { /* the handler before this one has ended */
                        eventfd_t written = 0;
                        assert_int_equal(eventfd_read(next, &written), -1);
                        assert_int_equal(written, 0);
                        assert_int_equal(close(next), 0);
                }
                semel_shutdown_free(down);
                next = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
                assert_true(next >= 0);
        }
        assert_int_equal(close(next), 0);
        atomic_store(&enough, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(arguments_are_checked),
                cmocka_unit_test(a_process_has_one),
                cmocka_unit_test(a_signal_begins_it),
                cmocka_unit_test(the_phases_follow_by_themselves),
                cmocka_unit_test(a_second_signal_ends_the_process),
                cmocka_unit_test(free_gives_the_signals_back),
                cmocka_unit_test(free_waits_for_a_handler_of_another_thread),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
