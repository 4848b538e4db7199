/* SPDX-License-Identifier: Apache-2.0
 *
 * process, lock_file: a child keeps the lock it inherited, whoever else dies (rule A10).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/files.h"
#include "sys/lock_file.h"
#include "sys/process.h"

static char dir[] = "/tmp/semel-test-XXXXXX";

static int make_dir(void **state)
{
        (void)state;
        return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
        (void)state;
        return rmdir(dir);
}

static void path_in(char *ret, const char *name)
{
        (void)snprintf(ret, FILES_PATH_BYTES_MAX, "%s/%s", dir, name);
}

static int wait_code(struct process *p)
{
        int code = -1;
        while (!process_try_wait(p, &code))
                (void)poll(NULL, 0, 5);
        process_close(p);
        return code;
}

static int run(const char *script, int keep_fd, struct process *p)
{
        char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
        sigset_t none;
        sigemptyset(&none);
        return process_start(p, argv, environ, keep_fd, &none);
}

static void exit_codes_and_signals(void **state)
{
        (void)state;
        struct process p;
        assert_int_equal(run("exit 7", -1, &p), 0);
        assert_int_equal(wait_code(&p), 7);
        assert_int_equal(run("kill -TERM $$", -1, &p), 0);
        assert_int_equal(wait_code(&p), 128 + SIGTERM);
}

static void what_cannot_start_says_why(void **state)
{
        (void)state;
        struct process p = {0};
        char *missing[] = {(char *)"/nowhere/at/all", NULL}, *folder[] = {dir, NULL};
        sigset_t none;
        sigemptyset(&none);
        assert_int_equal(process_start(&p, missing, environ, -1, &none), -1);
        assert_int_equal(errno, ENOENT);
        assert_int_equal(process_start(&p, folder, environ, -1, &none), -1);
        assert_int_equal(errno, EACCES);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie is left */
}

static void a_lock_has_one_holder(void **state)
{
        (void)state;
        struct lock_file a, b;
        char path[FILES_PATH_BYTES_MAX];
        path_in(path, "one");
        assert_int_equal(lock_file_test(path), 0);
        assert_int_equal(lock_file_open(&a, path), 0);
        assert_int_equal(lock_file_open(&b, path), 0);
        assert_int_equal(lock_file_try(&a), 1);
        assert_int_equal(lock_file_try(&b), 0);
        assert_int_equal(lock_file_test(path), 1);
        /* the holder unlinks it: the next one must not lock the file that is gone */
        lock_file_remove(&a);
        assert_int_equal(lock_file_test(path), 0);
        assert_int_equal(lock_file_try(&b), 1);
        assert_int_equal(lock_file_test(path), 1);
        assert_int_equal(lock_file_try(&a), 0);
        lock_file_remove(&b);
        lock_file_close(&a);
        lock_file_close(&b);
}

static void a10_the_child_keeps_the_lock(void **state)
{
        (void)state;
        struct lock_file lock;
        struct process p;
        char path[FILES_PATH_BYTES_MAX], byte;
        path_in(path, "child");
        assert_int_equal(lock_file_open(&lock, path), 0);
        assert_int_equal(lock_file_try(&lock), 1);
        assert_int_equal(run("echo; exec sleep 100", lock.fd, &p), 0);
        assert_int_equal(read(p.out_fd, &byte, 1), 1);
        lock_file_close(&lock); /* as if this process had died */
        assert_int_equal(lock_file_test(path), 1);
        assert_int_equal(kill(p.pid, SIGKILL), 0);
        assert_int_equal(wait_code(&p), 128 + SIGKILL);
        assert_int_equal(lock_file_test(path), 0);
        assert_int_equal(unlink(path), 0);
}

static void a10_the_child_dies_with_its_parent(void **state)
{
        (void)state;
        int report[2];
        assert_int_equal(pipe(report), 0);
        assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
        pid_t middle = fork();
        assert_true(middle >= 0);
        if (middle == 0) {
                struct process p;
                if (run("exec sleep 100", -1, &p) != 0)
                        _exit(1);
                ssize_t n = write(report[1], &p.pid, sizeof p.pid);
                (void)n;
                (void)pause();
        }
        pid_t child;
        assert_int_equal(read(report[0], &child, sizeof child), sizeof child);
        assert_int_equal(kill(middle, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(middle, &status, 0), middle);
        assert_int_equal(waitpid(child, &status, 0), child); /* reparented to us */
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        (void)close(report[0]);
        (void)close(report[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(exit_codes_and_signals),
                cmocka_unit_test(what_cannot_start_says_why),
                cmocka_unit_test(a_lock_has_one_holder),
                cmocka_unit_test(a10_the_child_keeps_the_lock),
                cmocka_unit_test(a10_the_child_dies_with_its_parent),
        };
        return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
