/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: see relay.h.  Start, the main thread's part, the end.
 */
#include "app/relay.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/registry.h"
#include "app/relay_internal.h"
#include "app/relay_lane.h"
#include "base/err.h"
#include "sys/host.h"
#include "sys/random.h"

enum { EXIT_DRAINED = 0, EXIT_USAGE = 64, EXIT_DOWN = 69, EXIT_CUT = 75 };
#define CHECK_DEADLINE_US (10 * SECOND)
#define START_US (15 * SECOND)    /* a database or a broker that starts at the same time */
#define STILL_US (60 * SECOND)    /* a thread that has not moved for so long hangs */

/* -- what threads say ------------------------------------------------------------------------------------ */

void relay_say(struct relay *r, const char *fmt, ...)
{
        char line[900];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        r->say_line(line);
}

void relay_say_dead(struct relay *r, int64_t id, const char *reason)
{
        int64_t now = clock_boot_us(), last = atomic_load(&r->dead_us);
        if (now - last < SECOND / 5 && last != 0) {
                atomic_fetch_add(&r->dead_unsaid, 1);
                return;
        }
        atomic_store(&r->dead_us, now);
        int64_t more = atomic_exchange(&r->dead_unsaid, 0);
        if (more > 0)
                relay_say(r, "%lld more rows are DEAD (`semel outbox dead list`)", (long long)more);
        relay_say(r, "row %lld is DEAD: %s", (long long)id, reason);
}

void relay_fail(struct relay *r, const semel_error *err)
{
        pthread_mutex_lock(&r->lock);
        if (!atomic_load(&r->failed))
                r->failure = *err;
        atomic_store(&r->failed, true);
        pthread_mutex_unlock(&r->lock);
        daemon_stop(r->daemon);
}

void relay_db_away(struct relay *r, const semel_error *err)
{
        if (!atomic_exchange(&r->db_away, true))
                relay_say(r, "the database is away: %s", err->text);
}

void relay_db_back(struct relay *r)
{
        if (atomic_load(&r->db_away) && atomic_exchange(&r->db_away, false))
                relay_say(r, "the database answers again");
}

int64_t relay_deadline_us(struct relay *r, int64_t deadline_us)
{
        if (!atomic_load(&r->draining)) /* asked first: the deadline is stored before it */
                return deadline_us;
        int64_t drain_us = atomic_load(&r->drain_deadline_us);
        return drain_us < deadline_us ? drain_us : deadline_us;
}

/* At most a line each five seconds: a broker that is down is told of for each connection. */
static void on_kafka_log(void *arg, int level, const char *line)
{
        struct relay *r = arg;
        if (level <= 4 && clock_is_time(&r->log_us, 5 * SECOND))
                relay_say(r, "kafka: %s", line);
}

semel_code relay_session_open(struct relay *r, const char *name, struct outbox_session **ret,
                              semel_error *err)
{
        return r->open(r->url, &r->mapping, name, ret, err);
}

/* -- wakeups ------------------------------------------------------------------------------------------------ */

int wakeup_init(struct wakeup *w)
{
        pthread_condattr_t attr;
        if (pthread_condattr_init(&attr) != 0)
                return -1;
        int rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (rc == 0)
                rc = pthread_cond_init(&w->cond, &attr);
        (void)pthread_condattr_destroy(&attr);
        return rc == 0 && pthread_mutex_init(&w->lock, NULL) == 0 ? 0 : -1;
}

void wakeup_send(struct wakeup *w)
{
        pthread_mutex_lock(&w->lock);
        w->woken = true;
        pthread_cond_signal(&w->cond);
        pthread_mutex_unlock(&w->lock);
}

void wakeup_wait(struct wakeup *w, int64_t us)
{
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        if (us < 0)
                us = 0;
        if (us > STILL_US / 4) /* whoever sleeps shows that it lives */
                us = STILL_US / 4;
        until.tv_sec += us / SECOND;
        until.tv_nsec += us % SECOND * 1000;
        if (until.tv_nsec >= 1000000000) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000;
        }
        pthread_mutex_lock(&w->lock);
        while (!w->woken && pthread_cond_timedwait(&w->cond, &w->lock, &until) == 0)
                continue;
        w->woken = false;
        pthread_mutex_unlock(&w->lock);
}

/* -- what the daemon asks (main thread) -------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
        struct relay *r = arg;
        return atomic_load(&r->joined) && !atomic_load(&r->db_away) &&
               atomic_load(&r->metrics.broker_away) == 0 && !atomic_load(&r->failed);
}

static int tell_metrics(void *arg, struct buf *out)
{
        struct relay *r = arg;
        return relay_metrics_format(&r->metrics, out);
}

static void drain(void *arg, int64_t deadline_us)
{
        struct relay *r = arg;
        atomic_store(&r->drain_deadline_us, deadline_us);
        atomic_store(&r->draining, true);
        for (int i = 0; i < r->lane_count && r->lane; i++)
                lane_wake(&r->lane[i]);
        wakeup_send(&r->keeper_wakeup);
        wakeup_send(&r->watcher_wakeup);
        wakeup_send(&r->chores_wakeup);
}

bool relay_lanes_ended(const struct relay *r)
{
        for (int i = 0; i < r->lane_count && r->lane; i++)
                if (r->lane[i].thread.started && !atomic_load(&r->lane[i].thread.ended))
                        return false;
        return true;
}

static bool all_ended(void *arg)
{
        struct relay *r = arg;
        const struct relay_thread *threads[] = {&r->keeper, &r->watcher, &r->chores};
        for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++)
                if (threads[i]->started && !atomic_load(&threads[i]->ended))
                        return false;
        return relay_lanes_ended(r);
}

static bool moves(const struct relay_thread *t, int64_t now_us)
{
        return !t->started || atomic_load(&t->ended) || now_us - atomic_load(&t->moved_us) < STILL_US;
}

static bool is_alive(void *arg)
{
        struct relay *r = arg;
        int64_t now = clock_boot_us();
        bool alive = moves(&r->keeper, now) && moves(&r->watcher, now) && moves(&r->chores, now);
        for (int i = 0; i < r->lane_count; i++)
                alive &= moves(&r->lane[i].thread, now);
        return alive;
}

/* -- start ------------------------------------------------------------------------------------------------------ */

static semel_code prepare(struct relay *r, semel_error *err)
{
        const struct relay_config *c = r->config;
        char host[HOST_NAME_BYTES_MAX];
        host_name(host);
        (void)snprintf(r->info, sizeof r->info, "host=%.36s pid=%ld", host, (long)getpid());
        if (random_bytes(r->me.id, sizeof r->me.id) != 0)
                return err_set(err, SEMEL_ERR_INTERNAL, "the kernel gives no random bytes");
        r->me.info = r->info;
        r->mode = (enum outbox_mode)c->mode;
        r->lane_count = r->mode == OUTBOX_EXACTLY_ONCE ? EVENT_GROUPS : (int)c->lanes;
        r->mapping = (struct outbox_mapping){.preset = c->preset, .unordered = c->unordered,
                                             .lease_us = c->slot_lease_us,
                                             .table = c->table[0] ? c->table : NULL,
                                             .topic = c->topic[0] ? c->topic : NULL};
        for (size_t i = 0; i < c->kafka.n; i++)
                r->property[i] = (struct bus_property){c->kafka.property[i].name,
                                                       c->kafka.property[i].value};
        r->bus = (struct bus_config){.brokers = c->brokers, .property = r->property,
                                     .property_count = c->kafka.n, .log = on_kafka_log, .log_arg = r};
        for (int i = 0; i < OUTBOX_STATES; i++)
                atomic_store(&r->metrics.counted[i], -1);
        atomic_store(&r->metrics.oldest_pending_us, -1);
        atomic_store(&r->metrics.oldest_xmin_us, -1);
        if (pthread_mutex_init(&r->lock, NULL) != 0 || wakeup_init(&r->keeper_wakeup) != 0 ||
            wakeup_init(&r->watcher_wakeup) != 0 || wakeup_init(&r->chores_wakeup) != 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the relay");
        return bus_config_check(&r->bus, err);
}

/* The table, before anything is begun: what is missing, and what to run. */
static semel_code check_table(struct relay *r, semel_error *err)
{
        const struct store_driver *driver;
        struct outbox_session *s = NULL;
        struct outbox_view view = {.unordered = false};
        int64_t end_us = clock_boot_us() + START_US;
        semel_code code = registry_find(r->url, &driver, err);
        if (code == SEMEL_OK && !driver->outbox_open)
                code = err_set(err, SEMEL_ERR_ARGUMENT,
                               "%s: stores have no outbox: use postgres:// or sqlite:", driver->scheme);
        if (code != SEMEL_OK)
                return code;
        r->open = driver->outbox_open;
        code = relay_session_open(r, "semel relay check", &s, err);
        while (code == SEMEL_OK) {
                code = s->vt->check(s, r->mode, clock_boot_us() + CHECK_DEADLINE_US, &view, err);
                if (code == SEMEL_OK)
                        break;
                if (code != SEMEL_ERR_STORE_DOWN || clock_boot_us() > end_us)
                        break;
                relay_db_away(r, err);
                wakeup_wait(&r->keeper_wakeup, 250 * MS);
                code = SEMEL_OK;
        }
        if (code == SEMEL_OK) {
                relay_db_back(r);
                memcpy(r->uuid, view.uuid, sizeof r->uuid);
                if (view.unordered)
                        relay_say(r, "UNORDERED: the table has no order column, so events of one key can be "
                                     "published out of order (`semel migrate --for-table` gives it one)");
        }
        if (s)
                s->vt->close(s);
        return code;
}

static semel_code check_broker(struct relay *r, semel_error *err)
{
        bool mock = false;
        if (r->mode != OUTBOX_EXACTLY_ONCE)
                return SEMEL_OK;
        semel_code code = bus_is_mock(&r->bus, START_US, &mock, err);
        if (code == SEMEL_OK && mock)
                code = err_set(err, SEMEL_ERR_ARGUMENT,
                               "exactly-once needs a real Kafka: `semel dev-broker` keeps nothing and "
                               "shows transactions before they are committed; use --mode owned with it");
        return code;
}

semel_code relay_thread_start(struct relay_thread *t, void *(*main)(void *), void *arg,
                              semel_error *err)
{
        atomic_store(&t->moved_us, clock_boot_us());
        int rc = pthread_create(&t->id, NULL, main, arg);
        if (rc != 0)
                return err_set_errno(err, SEMEL_ERR_INTERNAL, rc, "cannot start a thread");
        t->started = true;
        return SEMEL_OK;
}

static semel_code start(struct relay *r, semel_error *err)
{
        r->lane = calloc((size_t)r->lane_count, sizeof r->lane[0]);
        if (!r->lane)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the relay");
        semel_code code = SEMEL_OK;
        for (int i = 0; i < r->lane_count && code == SEMEL_OK; i++)
                code = lane_init(&r->lane[i], r, i, err);
        for (int i = 0; i < r->lane_count && code == SEMEL_OK; i++)
                code = lane_start(&r->lane[i], err);
        if (code == SEMEL_OK)
                code = relay_thread_start(&r->keeper, relay_keeper_main, r, err);
        if (code == SEMEL_OK)
                code = relay_thread_start(&r->watcher, relay_watcher_main, r, err);
        if (code == SEMEL_OK)
                code = relay_thread_start(&r->chores, relay_chores_main, r, err);
        return code;
}

static void say_promise(struct relay *r)
{
        static const char *const promises[OUTBOX_MODES] = {
                [OUTBOX_OWNED] = "at least once, in order per key",
                [OUTBOX_SINGLE] = "at least once, in order per key, inside one transaction a batch",
                [OUTBOX_TWO_PHASE] = "at least once, in order per key, with rows PUBLISHING meanwhile",
                [OUTBOX_EXACTLY_ONCE] = "read_committed consumers see each row once",
        };
        const struct relay_config *c = r->config;
        relay_say(r, "relay to %s, mode %s: %s; %d lane%s, published rows are %s, DEAD rows %s their key",
                  c->brokers, outbox_mode_name(r->mode), promises[r->mode], r->lane_count,
                  r->lane_count == 1 ? "" : "s", c->done == RELAY_DONE_KEEP ? "kept" : "deleted",
                  c->on_dead == OUTBOX_BLOCK ? "block" : "do not block");
        if (r->mode == OUTBOX_SINGLE && relay_locked_us(r) < c->batch_timeout_us)
                relay_say(r, "a batch's transaction has %lld ms, half of slot_lease: if the broker needs "
                             "longer, the batch goes on without it",
                          (long long)(relay_locked_us(r) / MS));
        if (daemon_admin_port(r->daemon) != 0)
                relay_say(r, "admin on port %u", daemon_admin_port(r->daemon));
}

/* -- the end ----------------------------------------------------------------------------------------------------- */

static void join(struct relay_thread *t)
{
        if (t->started)
                (void)pthread_join(t->id, NULL);
}

static void close_all(struct relay *r)
{
        join(&r->keeper);
        join(&r->watcher);
        join(&r->chores);
        for (int i = 0; i < r->lane_count && r->lane; i++)
                join(&r->lane[i].thread);
        daemon_free(r->daemon); /* whose loop may look at the lanes once more */
        for (int i = 0; i < r->lane_count && r->lane; i++)
                lane_release(&r->lane[i]);
        free(r->lane);
}

static int exit_code_of(semel_code code)
{
        return code == SEMEL_ERR_ARGUMENT || code == SEMEL_ERR_URL ? EXIT_USAGE : EXIT_DOWN;
}

int relay_run(const struct relay_config *config, const char *store_url,
              void (*say)(const char *line), semel_error *err)
{
        struct relay *r = calloc(1, sizeof *r);
        if (!r)
                return exit_code_of(err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the relay"));
        r->config = config;
        r->url = store_url;
        r->say_line = say;
        (void)signal(SIGPIPE, SIG_IGN);
        const struct daemon_config daemon = {.drain_delay_us = config->drain_delay_us,
                                             .shutdown_deadline_us = config->shutdown_deadline_us,
                                             .admin = config->admin,
                                             .admin_token_file = config->admin_token_file,
                                             .say = say};
        const struct daemon_work work = {.ready = is_ready, .metrics = tell_metrics, .drain = drain,
                                         .ended = all_ended, .alive = is_alive, .arg = r};
        semel_code code = prepare(r, err);
        if (code == SEMEL_OK)
                code = check_table(r, err);
        if (code == SEMEL_OK)
                code = check_broker(r, err);
        if (code == SEMEL_OK)
                code = daemon_new(&daemon, &work, &r->daemon, err);
        if (code == SEMEL_OK)
                code = start(r, err);
        if (code == SEMEL_OK) {
                say_promise(r);
                daemon_run(r->daemon);
        } else {
                drain(r, clock_boot_us() + START_US);
                while (!all_ended(r) && clock_boot_us() < atomic_load(&r->drain_deadline_us))
                        wakeup_wait(&r->watcher_wakeup, 5 * MS);
        }
        if (!all_ended(r)) { /* the deadline came: what hangs is not waited for */
                relay_say(r, "the shutdown's deadline cut a batch off; its rows are sent again");
                _exit(EXIT_CUT);
        }
        int rc = atomic_load(&r->cut) ? EXIT_CUT : EXIT_DRAINED;
        if (code == SEMEL_OK && atomic_load(&r->failed))
                code = err_copy(err, &r->failure);
        if (code != SEMEL_OK)
                rc = exit_code_of(code);
        close_all(r);
        free(r);
        return rc;
}
