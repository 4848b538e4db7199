/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: see worker.h.
 */
#include "app/worker.h"

#include <signal.h>
#include <stdlib.h>

#include "api/registry.h"
#include "app/request.h"
#include "base/err.h"
#include "net/message_buffers.h"
#include "sys/clock.h"

#define CUT_US (1 * SECOND)  /* after the deadline, for what the store still answers */
#define LAST_US (20 * MS)    /* for replies that are on their way into the kernel */

/* -- waiters -------------------------------------------------------------------------------- */

/* Those of the list who wait for this id, or for any (NULL).  Each of them ends, or goes on, by itself:
 * nobody else leaves the list meanwhile. */
static void look_again_at(struct request *list, const struct command_id *id)
{
        for (struct request *r = list, *next; r; r = next) {
                next = r->wait_next;
                if (!request_waits_for_another(r) || (id && !command_id_eq(id, &r->claim.id)))
                        continue;
                request_enter(r);
                request_wait_over(r);
                request_leave(r);
        }
}

static void look_again(struct worker *w, const struct command_id *ids, int n)
{
        for (int i = 0; i < n; i++)
                look_again_at(*request_waiting(w, &ids[i]), &ids[i]);
        for (size_t i = 0; n < 0 && i < WAIT_BUCKETS; i++)
                look_again_at(w->waiting[i], NULL);
}

static void inbox_wake(void *arg)
{
        struct worker *w = arg;
        loop_wake(w->loop);
}

/* -- ends -------------------------------------------------------------------------------------- */

static void end(struct worker *w)
{
        w->phase = WORKER_ENDED;
        timer_free(w->phase_timer);
        w->phase_timer = NULL;
        http_server_free(w->server);
        w->server = NULL;
        upstream_free(w->up);
        w->up = NULL;
        store_probe_stop(&w->probe);
        loop_store_free(w->ls);
        w->ls = NULL;
        loop_stop(w->loop);
}

static void on_phase(void *arg)
{
        struct worker *w = arg;
        if (w->phase == WORKER_LAST && w->request_count > 0) {
                w->phase = WORKER_DRAINING; /* one came along with the last reply */
                timer_start(w->phase_timer, w->deadline_us - clock_boot_us());
                return;
        }
        if (w->phase == WORKER_LAST && clock_boot_us() < w->deadline_us &&
            http_server_has_backlog(w->server)) {
                timer_start(w->phase_timer, LAST_US); /* clients still take their replies */
                return;
        }
        if (w->phase == WORKER_CUTTING) /* the store did not answer either */
                for (struct request *r = w->requests, *next; r; r = next) {
                        next = r->next;
                        request_give_up(r);
                }
        if (w->phase == WORKER_LAST || w->phase == WORKER_CUTTING) {
                end(w);
                return;
        }
        w->phase = WORKER_CUTTING;
        atomic_store(&w->cut, true);
        timer_start(w->phase_timer, CUT_US);
        for (struct request *r = w->requests, *next; r; r = next) {
                next = r->next;
                request_cut(r);
        }
}

static void begin_drain(struct worker *w, int64_t deadline_us)
{
        w->phase = WORKER_DRAINING;
        w->deadline_us = deadline_us;
        http_server_drain(w->server);
        timer_start(w->phase_timer, deadline_us - clock_boot_us());
        for (struct request *r = w->requests, *next; r; r = next) {
                next = r->next;
                request_drain(r);
        }
        worker_request_ended(w);
}

void worker_request_ended(struct worker *w)
{
        bool ending = w->phase == WORKER_DRAINING || w->phase == WORKER_CUTTING;
        if (!ending || w->request_count > 0)
                return;
        w->phase = WORKER_LAST; /* not from inside a request: its reply still has to leave */
        timer_start(w->phase_timer, LAST_US);
}

static void on_wake(void *arg)
{
        struct worker *w = arg;
        struct command_id ids[HOT_INBOX_MAX];
        int n = hot_inbox_take(w->gw->hot, &w->inbox, ids);
        if (n != 0)
                look_again(w, ids, n);
        atomic_fetch_add(&w->beats, 1);
        store_probe_look(&w->probe);
        int64_t deadline_us = atomic_load(&w->drain_until_us);
        if (deadline_us != 0 && w->phase == WORKER_RUNNING)
                begin_drain(w, deadline_us);
}

void worker_drain(struct worker *w, int64_t deadline_us)
{
        atomic_store(&w->drain_until_us, deadline_us);
        loop_wake(w->loop);
}

uint64_t worker_beat(struct worker *w)
{
        loop_wake(w->loop);
        return atomic_load(&w->beats);
}

bool worker_store_ok(struct worker *w)
{
        bool ok = store_probe_ok(&w->probe);
        loop_wake(w->loop);
        return ok;
}

/* -- life ------------------------------------------------------------------------------------------ */

static semel_code open_store(struct worker *w, semel_error *err)
{
        const struct store_env env = {.clock = &sys_clock_host};
        const struct store_driver *driver;
        semel_code code = registry_find(w->gw->store_url, &driver, err);
        if (code == SEMEL_OK)
                code = driver->open(w->gw->store_url, &env, &w->st, err);
        if (code != SEMEL_OK)
                return code;
        w->ls = loop_store_new(w->loop, w->st, err);
        if (!w->ls)
                return SEMEL_ERR_NO_MEMORY;
        return store_probe_init(&w->probe, w->loop, w->ls)
                       ? SEMEL_OK
                       : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a timer");
}

static semel_code open_upstream(struct worker *w, semel_error *err)
{
        const struct gateway_config *c = w->gw->config;
        struct upstream_config up = {
                .connections_max = (size_t)w->gw->upstream_connections_max,
                .waiting_max = (size_t)c->upstream_waiting_max,
                .connect_timeout_us = c->connect_timeout_us,
                .waiting = &w->gw->metrics.upstream_waiting,
                .held_bytes = &w->gw->buffered_bytes,
        };
        semel_code code = address_parse_url(c->upstream, &up.address, err);
        if (code != SEMEL_OK)
                return code;
        w->up = upstream_new(w->loop, w->deadlines, &up);
        return w->up ? SEMEL_OK : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a pool");
}

static semel_code open_server(struct worker *w, uint16_t port, semel_error *err)
{
        const struct gateway_config *c = w->gw->config;
        struct http_server_config sc = {
                .reuse_port = c->workers > 1,
                .connections_max = (size_t)((w->gw->connections_max + c->workers - 1) /
                                            c->workers),
                .idle_timeout_us = c->idle_timeout_us,
                .head_timeout_us = c->head_timeout_us,
                .body_timeout_us = c->body_timeout_us,
                .connections = &w->connections,
                .held_bytes = &w->gw->buffered_bytes,
        };
        struct http_handler handler = request_handler;
        handler.arg = w;
        semel_code code = address_parse(c->listen, &sc.listen, err);
        if (code != SEMEL_OK)
                return code;
        if (sc.listen.is_unix && c->workers > 1)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a unix socket has one listener: use --workers 1, or a TCP port");
        if (port != 0)
                sc.listen.port = port;
        return http_server_new(w->loop, w->deadlines, &sc, &handler, &w->server, err);
}

semel_code worker_new(struct gateway *gw, int number, uint16_t port, struct worker **ret_worker,
                      semel_error *err)
{
        struct worker *w = calloc(1, sizeof *w);
        if (!w)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a worker");
        w->gw = gw;
        w->number = number;
        request_spares_init(w);
        w->hash = sha256_new(NULL, 0);
        w->loop = w->hash ? loop_new(err) : NULL;
        w->deadlines = w->loop ? deadline_list_new(w->loop) : NULL;
        w->phase_timer = w->loop ? timer_new(w->loop, on_phase, w) : NULL;
        semel_code code = SEMEL_OK;
        if (!w->deadlines || !w->phase_timer)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a worker");
        if (code == SEMEL_OK)
                code = loop_on_wake(w->loop, on_wake, w, err);
        if (code == SEMEL_OK)
                code = open_store(w, err);
        if (code == SEMEL_OK)
                code = open_upstream(w, err);
        if (code == SEMEL_OK)
                code = open_server(w, port, err);
        if (code != SEMEL_OK) {
                worker_free(w);
                return code;
        }
        w->inbox.wake = inbox_wake;
        w->inbox.arg = w;
        hot_listen(gw->hot, &w->inbox);
        *ret_worker = w;
        return SEMEL_OK;
}

void worker_free(struct worker *w)
{
        if (!w)
                return;
        timer_free(w->phase_timer);
        http_server_free(w->server);
        upstream_free(w->up);
        store_probe_stop(&w->probe);
        loop_store_free(w->ls);
        w->ls = NULL;
        if (w->loop)
                loop_settle(w->loop); /* what was closed is freed before what it used */
        if (w->st)
                w->st->vt->close(w->st); /* answers what it still has: requests end here */
        hot_unlisten(w->gw->hot, &w->inbox); /* those of the next workers are told of */
        deadline_list_free(w->deadlines);
        loop_free(w->loop);
        message_buffers_free_kept();
        request_spares_free(w);
        sha256_free(w->hash);
        free(w);
}

static void *run(void *arg)
{
        struct worker *w = arg;
        (void)pthread_setname_np(pthread_self(), "semel-worker");
        loop_run(w->loop);
        message_buffers_free_kept();
        atomic_store(&w->ended, true);
        return NULL;
}

semel_code worker_start(struct worker *w, semel_error *err)
{
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(&w->thread, NULL, run, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        w->started = rc == 0;
        return rc == 0 ? SEMEL_OK
                       : err_set_errno(err, SEMEL_ERR_INTERNAL, rc, "no thread for a worker");
}

uint16_t worker_port(const struct worker *w)
{
        return http_server_port(w->server);
}

void worker_join(struct worker *w)
{
        if (w && w->started)
                (void)pthread_join(w->thread, NULL);
}
