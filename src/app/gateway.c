/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: see gateway.h.  The main thread: a daemon (app/daemon.h) whose work are the workers.
 */
#include "app/gateway.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/daemon.h"
#include "app/secret_file.h"
#include "app/worker.h"
#include "base/err.h"
#include "sys/clock.h"

enum { WORKERS_MAX = 64, EXIT_DRAINED = 0, EXIT_USAGE = 64, EXIT_STORE = 69, EXIT_CUT = 75,
       LARGE_BYTES = 256 * 1024, SPARE_HEAP_BYTES = 4 * 1024 * 1024,
       /* the standard ones, the main loop's, the admin listener with its clients; a worker's loop,
        * listener and store */
       OWN_DESCRIPTORS = 24, WORKER_DESCRIPTORS = 16 };


struct main_thread {
        struct gateway gw;
        const struct gateway_config *config;
        struct daemon *daemon;
        uint64_t beats[WORKERS_MAX];
        struct worker *workers[WORKERS_MAX];
        int worker_count;
        bool draining;
};

/* -- what a daemon does -------------------------------------------------------------------------- */

static int tell_metrics(void *arg, struct buf *out)
{
        struct main_thread *m = arg;
        int64_t connections = 0;
        for (int i = 0; i < m->worker_count; i++)
                connections += atomic_load(&m->workers[i]->connections);
        return metrics_format(&m->gw.metrics, connections, atomic_load(&m->gw.buffered_bytes),
                              atomic_load(&m->gw.waiters), out);
}

/* Each worker has the same store: one of them knows.  Whoever passes requests through while it is
 * down is ready all the same. */
static bool ready(void *arg)
{
        struct main_thread *m = arg;
        return m->config->policy.store_down == STORE_DOWN_OPEN || worker_store_ok(m->workers[0]);
}

/* Nobody begins to wait for anything any more. */
static void leaving(void *arg)
{
        struct main_thread *m = arg;
        atomic_store(&m->gw.draining, true);
}

static void drain(void *arg, int64_t deadline_us)
{
        struct main_thread *m = arg;
        m->draining = true;
        for (int i = 0; i < m->worker_count; i++)
                worker_drain(m->workers[i], deadline_us);
}

static bool ended(void *arg)
{
        struct main_thread *m = arg;
        int n = 0;
        for (int i = 0; i < m->worker_count; i++)
                n += atomic_load(&m->workers[i]->ended);
        return n == m->worker_count;
}

/* Has every worker's loop turned? */
static bool alive(void *arg)
{
        struct main_thread *m = arg;
        bool all = true;
        for (int i = 0; i < m->worker_count; i++) {
                uint64_t beat = atomic_load(&m->workers[i]->ended) ? m->beats[i] + 1
                                                                   : worker_beat(m->workers[i]);
                all &= beat != m->beats[i] || beat == 0;
                m->beats[i] = beat;
        }
        return all;
}

/* -- start -------------------------------------------------------------------------------------------- */

static semel_code open_gateway(struct main_thread *m, semel_error *err)
{
        const struct gateway_config *c = m->config;
        char host[128] = "?";
        (void)gethostname(host, sizeof host - 1);
        (void)snprintf(m->gw.holder, sizeof m->gw.holder, "host=%.127s pid=%ld gateway", host,
                       (long)getpid());
        m->gw.hot = hot_new();
        if (!m->gw.hot)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the gateway");
        if (c->fingerprint_secret_file[0]) {
                char secret[SECRET_BYTES_MAX + 1];
                size_t n;
                semel_code code = secret_file_read(c->fingerprint_secret_file, secret, &n, err);
                if (code != SEMEL_OK)
                        return code;
                memcpy(m->gw.fingerprint_secret, secret, n);
                m->gw.fingerprint_secret_n = n;
        }
        if (c->log_format != LOG_NONE) {
                m->gw.log = access_log_new(STDOUT_FILENO, c->log_format == LOG_JSON,
                                           &m->gw.metrics, err);
                if (!m->gw.log)
                        return SEMEL_ERR_INTERNAL;
        }
        return SEMEL_OK;
}

static semel_code open_daemon(struct main_thread *m, void (*say_line)(const char *line),
                              semel_error *err)
{
        const struct daemon_config config = {.drain_delay_us = m->config->drain_delay_us,
                                             .shutdown_deadline_us =
                                                     m->config->shutdown_deadline_us,
                                             .admin = m->config->admin,
                                             .admin_token_file = m->config->admin_token_file,
                                             .say = say_line};
        const struct daemon_work work = {.ready = ready,
                                         .metrics = tell_metrics,
                                         .leaving = leaving,
                                         .drain = drain,
                                         .ended = ended,
                                         .alive = alive,
                                         .arg = m};
        return daemon_new(&config, &work, &m->daemon, err);
}

static semel_code open_workers(struct main_thread *m, semel_error *err)
{
        uint16_t port = 0;
        for (int i = 0; i < (int)m->config->workers; i++) {
                semel_code code = worker_new(&m->gw, i, port, &m->workers[i], err);
                if (code != SEMEL_OK)
                        return code;
                m->worker_count++;
                port = worker_port(m->workers[i]);
        }
        for (int i = 0; i < m->worker_count; i++) {
                semel_code code = worker_start(m->workers[i], err);
                if (code != SEMEL_OK)
                        return code;
        }
        return SEMEL_OK;
}

static int close_all(struct main_thread *m)
{
        bool cut = false;
        for (int i = 0; i < m->worker_count; i++)
                if (m->workers[i]->started && !m->draining)
                        worker_drain(m->workers[i], clock_boot_us());
        for (int i = 0; i < m->worker_count; i++) {
                worker_join(m->workers[i]);
                cut |= atomic_load(&m->workers[i]->cut);
        }
        for (int i = 0; i < m->worker_count; i++)
                worker_free(m->workers[i]);
        daemon_free(m->daemon);
        access_log_free(m->gw.log);
        hot_free(m->gw.hot);
        return cut ? EXIT_CUT : EXIT_DRAINED;
}

static void say_where(struct main_thread *m)
{
        struct address a;
        char listen[ADDRESS_HOST_BYTES + 16];
        (void)address_parse(m->config->listen, &a, NULL);
        if (!a.is_unix)
                a.port = worker_port(m->workers[0]);
        address_format(&a, listen, sizeof listen);
        daemon_say(m->daemon, "listening on %s for %s, %lld worker%s", listen, m->config->upstream,
                   (long long)m->config->workers, m->config->workers == 1 ? "" : "s");
        if (daemon_admin_port(m->daemon) != 0)
                daemon_say(m->daemon, "admin on port %u", daemon_admin_port(m->daemon));
}

/* A connection is a descriptor: take what the system allows, whatever the shell's habit, and take no
 * more clients than fit.  A loop that has run out of descriptors can do nothing but fail to accept. */
static void fit_descriptors(struct main_thread *m)
{
        const struct gateway_config *c = m->config;
        struct rlimit limit;
        m->gw.connections_max = c->connections_max;
        m->gw.upstream_connections_max = c->upstream_connections_max;
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
                return;
        rlim_t hard = limit.rlim_max;
        if (limit.rlim_cur < hard) {
                limit.rlim_cur = hard;
                if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
                        (void)getrlimit(RLIMIT_NOFILE, &limit);
        }
        if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX)
                return;
        int64_t own = OWN_DESCRIPTORS + c->workers * WORKER_DESCRIPTORS;
        int64_t free_fds = (int64_t)limit.rlim_cur - own;
        if (free_fds < 2 * c->workers)
                free_fds = 2 * c->workers; /* it will fail, and say of what */
        int64_t up = c->workers * c->upstream_connections_max;
        if (up > free_fds / 2)
                up = free_fds / 2;
        if (c->connections_max <= free_fds - up)
                up = free_fds - c->connections_max; /* as many as fit, up to the setting */
        else
                m->gw.connections_max = free_fds - up;
        if (up / c->workers < c->upstream_connections_max)
                m->gw.upstream_connections_max = up / c->workers;
        if (m->gw.connections_max < c->connections_max)
                daemon_say(m->daemon,
                           "%lld descriptors allow %lld client connections, not %lld (ulimit -n)",
                           (long long)limit.rlim_cur, (long long)m->gw.connections_max,
                           (long long)c->connections_max);
}

int gateway_run(const struct gateway_config *config, const char *store_url,
                void (*say_line)(const char *line), semel_error *err)
{
        struct main_thread *m = calloc(1, sizeof *m);
        if (!m) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the gateway");
                return EXIT_STORE;
        }
        m->config = config;
        m->gw.config = config;
        m->gw.store_url = store_url;
        /* Large bodies come from the system and go back to it: otherwise the limit rises with the first
         * one that is freed, and what an attack left in the heap stays there. */
        (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
        /* But not page by page: batches come and go all the time. */
        (void)mallopt(M_TRIM_THRESHOLD, SPARE_HEAP_BYTES);
        (void)signal(SIGPIPE, SIG_IGN); /* a client that left is an error code, not an end */

        semel_code code = open_gateway(m, err);
        if (code == SEMEL_OK)
                code = open_daemon(m, say_line, err);
        if (code == SEMEL_OK) {
                fit_descriptors(m);
                code = open_workers(m, err);
        }
        if (code == SEMEL_OK) {
                say_where(m);
                daemon_run(m->daemon);
        }
        int rc = close_all(m);
        if (code != SEMEL_OK)
                rc = code == SEMEL_ERR_ARGUMENT || code == SEMEL_ERR_URL ? EXIT_USAGE : EXIT_STORE;
        free(m);
        return rc;
}
