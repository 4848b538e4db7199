/* SPDX-License-Identifier: Apache-2.0
 *
 * killer: runs a command and kills it, with all its threads, at its n-th system-call stop.
 *
 *     killer N REPORT COMMAND [ARGS...]
 *     killer +N REPORT COMMAND [ARGS...]
 *
 * With +N stops are counted from the SIGUSR1 that the killer gets until the next one: a program that
 * runs on can be killed in the middle of one piece of its work.
 *
 * Each system call of each thread has two stops, before and after.  N = 0 kills never.
 * Processes that the command forks are let go untraced: what becomes of them when their parent
 * dies is part of what is tested.  REPORT gets one line:
 *
 *     killed STOP main|thread SYSCALL entry|exit      or      ended STOPS CODE FIRST
 *
 * FIRST is the stop at which the first thread was started: before it, programs are only loaded.
 *
 * Exit code: 0 when either happened.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS_MAX = 256 };

/* The threads of the command, and which of their two stops comes next. */
struct task {
        pid_t tid;
        bool inside; /* between entry and exit */
};

struct killer {
        long kill_at, stops, first_thread;
        pid_t pid;
        struct task tasks[TASKS_MAX];
        size_t task_count;
        bool killed;
        bool waits; /* +N: until told */
        FILE *report;
};

static volatile sig_atomic_t told; /* how often */

static void on_told(int signal)
{
        (void)signal;
        told++;
}

static void die(const char *what)
{
        fprintf(stderr, "killer: %s: %s\n", what, strerrordesc_np(errno));
        exit(2);
}

static bool is_thread_of(pid_t tid, pid_t pid)
{
        char path[64], line[128];
        long tgid = -1;
        (void)snprintf(path, sizeof path, "/proc/%ld/status", (long)tid);
        FILE *f = fopen(path, "r");
        while (f && tgid < 0 && fgets(line, sizeof line, f))
                if (strncmp(line, "Tgid:", 5) == 0)
                        tgid = strtol(line + 5, NULL, 10);
        if (f)
                (void)fclose(f);
        return tgid == (long)pid;
}

static struct task *task_find(struct killer *k, pid_t tid)
{
        for (size_t i = 0; i < k->task_count; i++)
                if (k->tasks[i].tid == tid)
                        return &k->tasks[i];
        return NULL;
}

static struct task *task_add(struct killer *k, pid_t tid)
{
        if (k->task_count == TASKS_MAX) {
                errno = E2BIG;
                die("too many threads");
        }
        k->tasks[k->task_count] = (struct task){.tid = tid};
        return &k->tasks[k->task_count++];
}

static void task_remove(struct killer *k, pid_t tid)
{
        struct task *t = task_find(k, tid);
        if (t)
                *t = k->tasks[--k->task_count];
}

static long syscall_number(pid_t tid)
{
#if defined(__x86_64__)
        struct user_regs_struct regs;
        return ptrace(PTRACE_GETREGS, tid, NULL, &regs) == 0 ? (long)regs.orig_rax : -1;
#else
        (void)tid;
        return -1;
#endif
}

static void go_on(pid_t tid, int signal)
{
        if (ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(long)signal) != 0 && errno != ESRCH)
                die("PTRACE_SYSCALL");
}

static void system_call_stop(struct killer *k, struct task *t)
{
        t->inside = !t->inside;
        if (!k->waits || told == 1)
                k->stops++;
        if (k->kill_at == 0 || k->stops < k->kill_at || k->killed || (k->waits && told != 1)) {
                go_on(t->tid, 0);
                return;
        }
        long number = syscall_number(t->tid);
        if (kill(k->pid, SIGKILL) != 0)
                die("kill");
        k->killed = true;
        fprintf(k->report, "killed %ld %s %ld %s\n", k->stops, t->tid == k->pid ? "main" : "thread",
                number, t->inside ? "entry" : "exit");
}

static void stopped(struct killer *k, pid_t tid, int status)
{
        int signal = WSTOPSIG(status);
        struct task *t = task_find(k, tid);
        if (!t) { /* new: a thread, or a process that is let go */
                if (!is_thread_of(tid, k->pid)) {
                        (void)ptrace(PTRACE_DETACH, tid, NULL, NULL);
                        return;
                }
                t = task_add(k, tid);
                if (k->first_thread == 0)
                        k->first_thread = k->stops;
                if (signal == SIGSTOP)
                        signal = 0;
        }
        if (signal == (SIGTRAP | 0x80))
                system_call_stop(k, t);
        else if (status >> 16 || signal == SIGTRAP)
                go_on(tid, 0); /* fork, clone, exec: only the stop matters */
        else
                go_on(tid, signal);
}

/* Returns when the command is gone. */
static void follow(struct killer *k)
{
        for (;;) {
                int status;
                pid_t tid = waitpid(-1, &status, __WALL);
                if (tid < 0 && errno == EINTR)
                        continue;
                if (tid < 0)
                        die("waitpid");
                if (WIFSTOPPED(status)) {
                        stopped(k, tid, status);
                        continue;
                }
                task_remove(k, tid);
                if (tid != k->pid)
                        continue;
                if (!k->killed)
                        fprintf(k->report, "ended %ld %d %ld\n", k->stops,
                                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                                k->first_thread);
                return;
        }
}

int main(int argc, char **argv)
{
        if (argc < 4) {
                fputs("usage: killer [+]N REPORT COMMAND [ARGS...]\n", stderr);
                return 64;
        }
        struct killer k = {.kill_at = strtol(argv[1], NULL, 10), .waits = argv[1][0] == '+',
                           .report = fopen(argv[2], "w")};
        const struct sigaction sa = {.sa_handler = on_told, .sa_flags = SA_RESTART};
        if (sigaction(SIGUSR1, &sa, NULL) != 0)
                die("sigaction");
        if (!k.report)
                die(argv[2]);
        k.pid = fork();
        if (k.pid < 0)
                die("fork");
        if (k.pid == 0) {
                (void)fclose(k.report);
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
                        _exit(126);
                (void)execvp(argv[3], argv + 3);
                _exit(127);
        }
        int status;
        if (waitpid(k.pid, &status, 0) != k.pid || !WIFSTOPPED(status))
                die("the command did not start");
        (void)task_add(&k, k.pid);
        long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                       PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
        if (ptrace(PTRACE_SETOPTIONS, k.pid, NULL, (void *)options) != 0)
                die("PTRACE_SETOPTIONS");
        go_on(k.pid, 0);
        follow(&k);
        return fclose(k.report) == 0 ? 0 : 2;
}
