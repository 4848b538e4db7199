/* SPDX-License-Identifier: Apache-2.0
 *
 * sim: runs random schedules of the whole protocol against what it promises.
 *
 *     sim [--seed N] [--schedules N] [--jobs N] [--effects-only]
 *     sim --trace SEED
 *
 * Prints its base seed, what the schedules reached (each line must be reached), and schedules a
 * second.  A broken promise prints the schedule line by line and the seed that plays it again.
 * --effects-only leaves out the checks of single transitions: what a user sees must suffice.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#include "sys/clock.h"

enum { JOBS_MAX = 64, CHUNK = 256 };

/* Fewer than this, and a rare thing may be missing by chance. */
enum { COVER_NEEDS = 50000 };

struct shared {
        _Atomic uint64_t next;   /* schedules handed out */
        _Atomic uint64_t done;
        _Atomic uint64_t failed_seed;
        _Atomic int failed;
        _Atomic uint64_t covered[COVER_COUNT];
};

struct options {
        uint64_t seed, schedules, trace;
        int jobs;
        bool tracing, effects_only;
};

static const char *const cover_texts[COVER_COUNT] = {
#define X(name, text) text,
        COVERS(X)
#undef X
};

static uint64_t schedule_seed(uint64_t base, uint64_t n)
{
        struct rng r = {base + n * UINT64_C(0x632BE59BD9B4E019)};
        return rng_next(&r);
}

static void job(struct shared *sh, const struct options *opt)
{
        static struct world w;
        uint64_t covered[COVER_COUNT] = {0};
        for (;;) {
                uint64_t from = atomic_fetch_add(&sh->next, CHUNK);
                if (from >= opt->schedules || atomic_load(&sh->failed))
                        break;
                uint64_t to = from + CHUNK < opt->schedules ? from + CHUNK : opt->schedules;
                for (uint64_t n = from; n < to; n++) {
                        uint64_t seed = schedule_seed(opt->seed, n);
                        if (!world_run(&w, seed, false, opt->effects_only)) {
                                if (!atomic_exchange(&sh->failed, 1))
                                        atomic_store(&sh->failed_seed, seed);
                                goto out;
                        }
                        for (int c = 0; c < COVER_COUNT; c++)
                                covered[c] += w.seen >> c & 1;
                }
                atomic_fetch_add(&sh->done, to - from);
        }
out:
        for (int c = 0; c < COVER_COUNT; c++)
                atomic_fetch_add(&sh->covered[c], covered[c]);
}

static int play(uint64_t seed, bool effects_only)
{
        static struct world w;
        bool ok = world_run(&w, seed, true, effects_only);
        if (ok)
                printf("all promises kept\n");
        else
                printf("broken: %s\nplay it again: sim --trace %" PRIu64 "\n", w.failure, seed);
        return ok ? 0 : 1;
}

static int report(struct shared *sh, const struct options *opt, double seconds)
{
        uint64_t done = atomic_load(&sh->done);
        int missing = 0;
        printf("  schedules  in which\n");
        for (int c = 0; c < COVER_COUNT; c++) {
                uint64_t n = atomic_load(&sh->covered[c]);
                printf("%11" PRIu64 "  %s\n", n, cover_texts[c]);
                missing += n == 0;
        }
        printf("%" PRIu64 " schedules in %.1f s: %.0f a second\n", done, seconds,
               (double)done / seconds);
        if (missing && opt->schedules >= COVER_NEEDS) {
                printf("%d of the lines above were never reached: the simulator is too weak\n",
                       missing);
                return 1;
        }
        return 0;
}

static int run(const struct options *opt)
{
        struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (sh == MAP_FAILED) {
                perror("sim: no shared memory");
                return 2;
        }
        printf("sim: seed %" PRIu64 ", %" PRIu64 " schedules, %d jobs\n", opt->seed, opt->schedules,
               opt->jobs);
        (void)fflush(stdout);
        int64_t start_us = clock_boot_us();
        pid_t pids[JOBS_MAX];
        int started = 0, rc = 0;
        for (; started < opt->jobs; started++) {
                pids[started] = fork();
                if (pids[started] == 0) {
                        job(sh, opt);
                        exit(0); /* not _exit: leak checkers run here */
                }
                if (pids[started] < 0) {
                        perror("sim: fork");
                        atomic_store(&sh->failed, 1);
                        rc = 2;
                        break;
                }
        }
        for (int i = 0; i < started; i++) {
                int status = 0;
                if (waitpid(pids[i], &status, 0) < 0 || status != 0) {
                        printf("sim: job %d ended with %d\n", i, status);
                        rc = 1;
                }
        }
        if (rc == 0 && atomic_load(&sh->failed))
                rc = play(atomic_load(&sh->failed_seed), opt->effects_only);
        else if (rc == 0)
                rc = report(sh, opt, (double)(clock_boot_us() - start_us) / 1e6);
        (void)munmap(sh, sizeof *sh);
        return rc;
}

static bool number(const char *text, uint64_t *ret)
{
        char *end;
        errno = 0;
        unsigned long long n = strtoull(text, &end, 0);
        if (errno || end == text || *end)
                return false;
        *ret = n;
        return true;
}

int main(int argc, char **argv)
{
        static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
                                              {"schedules", required_argument, NULL, 'n'},
                                              {"jobs", required_argument, NULL, 'j'},
                                              {"trace", required_argument, NULL, 't'},
                                              {"effects-only", no_argument, NULL, 'e'},
                                              {NULL, 0, NULL, 0}};
        struct options opt = {.seed = (uint64_t)clock_wall_us(), .schedules = 100000, .jobs = 2};
        const char *env = getenv("SEMEL_SIM_SCHEDULES");
        uint64_t n = 0;
        if (env && *env && !number(env, &opt.schedules)) {
                (void)fprintf(stderr, "sim: SEMEL_SIM_SCHEDULES is not a number\n");
                return 2;
        }
        for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
                if (c == 'e') {
                        opt.effects_only = true;
                        continue;
                }
                if (c == '?' || !number(optarg, &n)) {
                        (void)fprintf(stderr, "usage: sim [--seed N] [--schedules N] [--jobs N] "
                                              "[--effects-only] | --trace SEED\n");
                        return 2;
                }
                if (c == 's')
                        opt.seed = n;
                else if (c == 'n')
                        opt.schedules = n;
                else if (c == 'j')
                        opt.jobs = n < 1 ? 1 : n > JOBS_MAX ? JOBS_MAX : (int)n;
                else
                        opt.trace = n, opt.tracing = true;
        }
        return opt.tracing ? play(opt.trace, opt.effects_only) : run(&opt);
}
