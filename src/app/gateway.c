/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: see gateway.h.  The main thread: start, signals, shutdown.
 *
 *     running --SIGTERM--> not ready, still accepting (drain_delay) --> draining --> ended
 *                                                   one deadline over all of it
 */
#include "app/gateway.h"

#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/admin.h"
#include "app/secret_file.h"
#include "app/worker.h"
#include "base/err.h"
#include "sys/clock.h"
#include "sys/notify.h"

enum { WORKERS_MAX = 64, EXIT_DRAINED = 0, EXIT_USAGE = 64, EXIT_STORE = 69, EXIT_CUT = 75,
       LARGE_BYTES = 256 * 1024, SPARE_HEAP_BYTES = 4 * 1024 * 1024,
       /* the standard ones, the main loop's, the admin listener with its clients; a worker's loop,
        * listener and store */
       OWN_DESCRIPTORS = 24, WORKER_DESCRIPTORS = 16 };
#define WATCH_US (20 * MS) /* how often the main thread looks whether the workers have ended */

struct main_thread {
        struct gateway gw;
        const struct gateway_config *config;
        void (*say)(const char *line);
        struct loop *loop;
        struct deadline_list *deadlines;
        struct timer *timer, *watchdog;
        int64_t watchdog_us; /* 0: nobody watches */
        uint64_t beats[WORKERS_MAX];
        struct admin *admin;
        struct worker *workers[WORKERS_MAX];
        int worker_count;
        int64_t deadline_us; /* 0: not told to stop */
        bool draining;
};

static void say(struct main_thread *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct main_thread *m, const char *fmt, ...)
{
        char line[512];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        m->say(line);
}

/* -- what the admin listener tells ----------------------------------------------------------------- */

static bool is_ready(void *arg)
{
        struct main_thread *m = arg;
        return m->deadline_us == 0;
}

static int tell_metrics(void *arg, struct buf *out)
{
        struct main_thread *m = arg;
        int64_t connections = 0;
        for (int i = 0; i < m->worker_count; i++)
                connections += atomic_load(&m->workers[i]->connections);
        return metrics_format(&m->gw.metrics, connections, atomic_load(&m->gw.buffered_bytes),
                              atomic_load(&m->gw.waiters), out);
}

/* -- shutdown ---------------------------------------------------------------------------------------- */

static void drain(struct main_thread *m)
{
        m->draining = true;
        for (int i = 0; i < m->worker_count; i++)
                worker_drain(m->workers[i], m->deadline_us);
}

static void on_timer(void *arg)
{
        struct main_thread *m = arg;
        if (m->deadline_us == 0)
                return;
        if (!m->draining)
                drain(m);
        int ended = 0;
        for (int i = 0; i < m->worker_count; i++)
                ended += atomic_load(&m->workers[i]->ended);
        if (ended == m->worker_count)
                loop_stop(m->loop);
        else
                timer_start(m->timer, WATCH_US);
}

/* A service manager's watchdog is fed while every worker's loop turns. */
static void on_watchdog(void *arg)
{
        struct main_thread *m = arg;
        bool alive = true;
        for (int i = 0; i < m->worker_count; i++) {
                uint64_t beat = atomic_load(&m->workers[i]->ended) ? m->beats[i] + 1
                                                                   : worker_beat(m->workers[i]);
                alive &= beat != m->beats[i] || beat == 0;
                m->beats[i] = beat;
        }
        if (alive)
                notify_manager("WATCHDOG=1");
        timer_start(m->watchdog, m->watchdog_us);
}

static void on_signal(void *arg, int signo)
{
        struct main_thread *m = arg;
        if (m->deadline_us != 0) {
                say(m, "a second signal: leaving at once; what was under way becomes UNKNOWN");
                _exit(128 + signo);
        }
        m->deadline_us = clock_boot_us() + m->config->shutdown_deadline_us;
        if (m->deadline_us == 0)
                m->deadline_us = 1;
        atomic_store(&m->gw.draining, true);
        notify_manager("STOPPING=1");
        say(m, "draining: what runs is finished within %lld s",
            (long long)(m->config->shutdown_deadline_us / SECOND));
        int64_t delay_us = m->config->drain_delay_us < m->config->shutdown_deadline_us
                                   ? m->config->drain_delay_us
                                   : m->config->shutdown_deadline_us;
        timer_start(m->timer, delay_us);
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

static semel_code open_loop(struct main_thread *m, semel_error *err)
{
        static const int signals[] = {SIGTERM, SIGINT};
        m->loop = loop_new(err);
        if (!m->loop)
                return SEMEL_ERR_INTERNAL;
        m->deadlines = deadline_list_new(m->loop);
        m->timer = timer_new(m->loop, on_timer, m);
        m->watchdog = timer_new(m->loop, on_watchdog, m);
        if (!m->deadlines || !m->timer || !m->watchdog)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the gateway");
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
                semel_code code = loop_on_signal(m->loop, signals[i], on_signal, m, err);
                if (code != SEMEL_OK)
                        return code;
        }
        const struct admin_source source = {is_ready, tell_metrics, m};
        if (m->config->admin[0])
                return admin_new(m->loop, m->deadlines, m->config->admin,
                                 m->config->admin_token_file, &source, &m->admin, err);
        return SEMEL_OK;
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
        admin_free(m->admin);
        for (int i = 0; i < m->worker_count; i++)
                worker_free(m->workers[i]);
        timer_free(m->timer);
        timer_free(m->watchdog);
        if (m->loop)
                loop_settle(m->loop);
        deadline_list_free(m->deadlines);
        loop_free(m->loop);
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
        say(m, "listening on %s for %s, %lld worker%s", listen, m->config->upstream,
            (long long)m->config->workers, m->config->workers == 1 ? "" : "s");
        if (m->admin)
                say(m, "admin on port %u", admin_port(m->admin));
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
                say(m, "%lld descriptors allow %lld client connections, not %lld (ulimit -n)",
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
        m->say = say_line;
        m->gw.config = config;
        m->gw.store_url = store_url;
        fit_descriptors(m);
        /* Large bodies come from the system and go back to it: otherwise the limit rises with the first
         * one that is freed, and what an attack left in the heap stays there. */
        (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
        /* But not page by page: batches come and go all the time. */
        (void)mallopt(M_TRIM_THRESHOLD, SPARE_HEAP_BYTES);
        (void)signal(SIGPIPE, SIG_IGN); /* a client that left is an error code, not an end */

        semel_code code = open_gateway(m, err);
        if (code == SEMEL_OK)
                code = open_loop(m, err);
        if (code == SEMEL_OK)
                code = open_workers(m, err);
        if (code == SEMEL_OK) {
                say_where(m);
                m->watchdog_us = notify_watchdog_us() / 2;
                if (m->watchdog_us > 0)
                        timer_start(m->watchdog, 0);
                notify_manager("READY=1");
                loop_run(m->loop);
        }
        int rc = close_all(m);
        if (code != SEMEL_OK)
                rc = code == SEMEL_ERR_ARGUMENT || code == SEMEL_ERR_URL ? EXIT_USAGE : EXIT_STORE;
        free(m);
        return rc;
}
