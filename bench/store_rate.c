/* SPDX-License-Identifier: Apache-2.0
 *
 * store_rate: how many commands per second a store takes, from N callers at once.
 *
 *     store_rate WHAT URL CALLERS SECONDS
 *
 * WHAT  command       one semel_run() per new key: a claim and a completion
 *       replay        semel_run() of keys that are COMPLETED
 *       naive         the same two writes by hand: a connection per caller, prepared statements,
 *                     each its own transaction (postgres://), or one commit each (sqlite:)
 * One line of JSON: commands per second, CPU seconds of this process, latency percentiles.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

#include "naive.h"

enum { CALLERS_MAX = 1024, SAMPLES_MAX = 1 << 16, BODY_BYTES = 200, REPLAY_KEYS = 1024 };

struct caller {
        pthread_t thread;
        int number;
        long commands;
        long errors;
        long samples;
        float *latency_ms;
};

static const char *what, *url;
static int callers;
static double seconds;
static semel_store *st;
static char body[BODY_BYTES];
static char run_tag[32];
static atomic_bool stop;
static pthread_barrier_t ready;

static double now_s(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static semel_effect work(void *arg, semel_claim *claim, semel_reply *rep)
{
        (void)arg;
        (void)claim;
        semel_reply_set_status(rep, 201);
        (void)semel_reply_add_header(rep, "Content-Type", 12, "application/json", 16, NULL);
        (void)semel_reply_set_body(rep, body, sizeof body, NULL);
        return SEMEL_EFFECT_DONE;
}

static bool run_key(const char *key, semel_outcome want, semel_error *err)
{
        semel_command *cmd = semel_command_new(key, strlen(key), err);
        semel_reply *rep = NULL;
        if (!cmd)
                return false;
        (void)semel_command_set_operation(cmd, "POST /bench", err);
        (void)semel_command_set_request(cmd, body, sizeof body, err);
        bool ok = semel_run(st, cmd, work, NULL, &rep, err) == want;
        semel_reply_free(rep);
        semel_command_free(cmd);
        return ok;
}

static bool one_command(struct caller *c, struct naive *naive, semel_error *err)
{
        char key[64];
        if (strcmp(what, "replay") == 0) {
                (void)snprintf(key, sizeof key, "%s-%ld", run_tag, c->commands % REPLAY_KEYS);
                return run_key(key, SEMEL_REPLAYED, err);
        }
        (void)snprintf(key, sizeof key, "%s-%d-%ld", run_tag, c->number, c->commands);
        if (naive)
                return naive_command(naive, key, body, sizeof body);
        return run_key(key, SEMEL_RAN, err);
}

static void *call(void *arg)
{
        struct caller *c = arg;
        semel_error *err = semel_error_new();
        struct naive *naive = strcmp(what, "naive") == 0 ? naive_open(url) : NULL;
        (void)pthread_barrier_wait(&ready);
        while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
                double t = now_s();
                if (!one_command(c, naive, err) && c->errors++ == 0)
                        fprintf(stderr, "store_rate: %s\n", semel_error_text(err));
                c->latency_ms[c->samples % SAMPLES_MAX] = (float)((now_s() - t) * 1e3);
                c->samples++;
                c->commands++;
        }
        naive_close(naive);
        semel_error_free(err);
        return NULL;
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;
        return (x > y) - (x < y);
}

static void print_result(struct caller *all, double took_s, double cpu_s)
{
        long commands = 0, errors = 0, samples = 0;
        for (int i = 0; i < callers; i++) {
                commands += all[i].commands;
                errors += all[i].errors;
                samples += all[i].samples < SAMPLES_MAX ? all[i].samples : SAMPLES_MAX;
        }
        float *lat = malloc((size_t)(samples ? samples : 1) * sizeof *lat);
        if (!lat)
                exit(1);
        long n = 0;
        for (int i = 0; i < callers; i++)
                for (long j = 0; j < all[i].samples && j < SAMPLES_MAX; j++)
                        lat[n++] = all[i].latency_ms[j];
        qsort(lat, (size_t)n, sizeof *lat, by_value);
        printf("{\"what\": \"%s\", \"callers\": %d, \"per_s\": %.0f, \"errors\": %ld, \"cpu_s\": %.2f, "
               "\"p50_ms\": %.2f, \"p99_ms\": %.2f, \"commands\": %ld}\n",
               what, callers, (double)commands / took_s, errors, cpu_s,
               n ? (double)lat[n / 2] : 0.0, n ? (double)lat[n * 99 / 100] : 0.0, commands);
        free(lat);
}

static double cpu_s(void)
{
        struct rusage ru;
        (void)getrusage(RUSAGE_SELF, &ru);
        return (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec +
               (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static void open_store(semel_error *err)
{
        semel_sqlite_register();
        semel_postgres_register();
        if (strcmp(what, "naive") == 0) {
                naive_prepare(url);
                return;
        }
        if (semel_store_migrate(url, err) != SEMEL_OK ||
            semel_store_open(url, &st, err) != SEMEL_OK) {
                fprintf(stderr, "store_rate: %s\n", semel_error_text(err));
                exit(1);
        }
        for (int i = 0; strcmp(what, "replay") == 0 && i < REPLAY_KEYS; i++) {
                char key[64];
                (void)snprintf(key, sizeof key, "%s-%d", run_tag, i);
                if (!run_key(key, SEMEL_RAN, err))
                        exit(1);
        }
}

int main(int argc, char **argv)
{
        static struct caller all[CALLERS_MAX];
        if (argc != 5) {
                fprintf(stderr, "usage: store_rate command|replay|naive URL CALLERS SECONDS\n");
                return 64;
        }
        what = argv[1];
        url = argv[2];
        callers = (int)strtol(argv[3], NULL, 10); /* a bench: trusted input */
        seconds = strtod(argv[4], NULL);
        if (callers < 1 || callers > CALLERS_MAX)
                return 64;
        memset(body, 'b', sizeof body);
        (void)snprintf(run_tag, sizeof run_tag, "%ld-%lld", (long)getpid(), (long long)time(NULL));
        semel_error *err = semel_error_new();
        open_store(err);
        (void)pthread_barrier_init(&ready, NULL, (unsigned)callers + 1);
        for (int i = 0; i < callers; i++) {
                all[i].number = i;
                all[i].latency_ms = malloc(SAMPLES_MAX * sizeof(float));
                if (!all[i].latency_ms || pthread_create(&all[i].thread, NULL, call, &all[i]) != 0)
                        return 1;
        }
        (void)pthread_barrier_wait(&ready);
        double t0 = now_s(), cpu0 = cpu_s();
        struct timespec ts = {.tv_sec = (time_t)seconds,
                              .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
        nanosleep(&ts, NULL);
        atomic_store(&stop, true);
        for (int i = 0; i < callers; i++)
                (void)pthread_join(all[i].thread, NULL);
        print_result(all, now_s() - t0, cpu_s() - cpu0);
        semel_store_close(st);
        semel_error_free(err);
        return 0;
}
