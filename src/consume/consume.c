/* SPDX-License-Identifier: Apache-2.0
 *
 * consume: the engine's life, and the thread that owns the consumer.
 */
#include "consume/consume.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "consume/consume_internal.h"
#include "json/pointer.h"
#include "sys/clock.h"

void consume_say(struct consume *c, const char *fmt, ...)
{
        char line[1024];
        va_list ap;
        if (!c->config.say)
                return;
        va_start(ap, fmt);
        (void)vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        c->config.say(c->config.say_arg, line);
}

void consume_wait(struct consume *c, pthread_cond_t *cond, int64_t until_us)
{
        struct timespec ts;
        int64_t left_us = until_us - clock_boot_us();
        if (left_us <= 0)
                return;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        int64_t ns = ts.tv_nsec + left_us % SECOND * 1000;
        ts.tv_sec += (time_t)(left_us / SECOND + ns / 1000000000);
        ts.tv_nsec = (long)(ns % 1000000000);
        (void)pthread_cond_timedwait(cond, &c->mu, &ts);
}

/* -- start ----------------------------------------------------------------------------------------- */

static bool told_to_end(struct consume *c)
{
        (void)pthread_mutex_lock(&c->mu);
        bool end = c->draining || c->stopping;
        (void)pthread_mutex_unlock(&c->mu);
        return end;
}

static void pause_for(struct consume *c, int64_t us)
{
        int64_t until_us = clock_boot_us() + us;
        (void)pthread_mutex_lock(&c->mu);
        while (!c->draining && !c->stopping && clock_boot_us() < until_us) {
                atomic_fetch_add(&c->turns, 1);
                consume_wait(c, &c->idle, until_us);
        }
        (void)pthread_mutex_unlock(&c->mu);
}

static void fail(struct consume *c, const semel_error *err)
{
        (void)pthread_mutex_lock(&c->mu);
        if (c->failed.code == SEMEL_OK)
                c->failed = *err;
        (void)pthread_mutex_unlock(&c->mu);
}

/* The statement prepares, or the program ends; a database that is away is waited for.  The keeper's
 * session serves for it: the keeper begins when it is `checked`. */
static bool check_database(struct consume *c)
{
        bool said = false;
        while (!told_to_end(c)) {
                semel_error err = {0};
                semel_code code = c->keeper->vt->check(c->keeper, &c->config.handler,
                                                       clock_boot_us() + CONSUME_ASK_US, &err);
                if (code == SEMEL_OK)
                        return true;
                if (code != SEMEL_ERR_STORE_DOWN && code != SEMEL_ERR_BUSY) {
                        fail(c, &err);
                        return false;
                }
                atomic_store(&c->database_down, true);
                if (!said)
                        consume_say(c, "waiting for the database: %s", err.text);
                said = true;
                pause_for(c, CONSUME_DOWN_US);
        }
        return false;
}

static void on_assigned(void *arg, const struct bus_partition *p, size_t n)
{
        struct consume *c = arg;
        c->trouble_us = 0;
        part_assign(c, p, n);
}

static void on_revoked(void *arg, const struct bus_partition *p, size_t n, bool lost)
{
        part_revoke(arg, p, n, lost);
}

static void on_kafka_log(void *arg, int level, const char *line)
{
        struct consume *c = arg;
        if (level <= 4 && clock_is_time(&c->log_us, CONSUME_LOG_US))
                consume_say(c, "kafka: %s", line);
}

static bool open_bus(struct consume *c)
{
        const struct bus_consumer_hooks hooks = {
                .assigned = on_assigned, .revoked = on_revoked, .arg = c};
        semel_error err = {0};
        struct bus_config bus = c->config.bus;
        bus.log = on_kafka_log;
        bus.log_arg = c;
        if (bus_consumer_open(&bus, c->config.group, c->config.topics,
                              c->config.topic_count, &hooks, &c->bus, &err) == SEMEL_OK)
                return true;
        fail(c, &err);
        return false;
}

/* An event that the topic still has must not be forgotten here (rule D5). */
static void compare_retention(struct consume *c)
{
        for (size_t i = 0; i < c->config.topic_count && !told_to_end(c); i++) {
                int64_t ms = 0;
                if (c->config.retention_us <= 0 ||
                    bus_topic_retention(c->bus, c->config.topics[i], 2 * SECOND, &ms, NULL) !=
                            SEMEL_OK || ms == 0)
                        continue;
                if (ms < 0)
                        consume_say(c, "warning: topic %s keeps its events for ever, and "
                                    "--inbox-retention forgets them: events that are delivered "
                                    "again after that are applied again", c->config.topics[i]);
                else if (ms >= c->config.retention_us / MS)
                        consume_say(c, "warning: topic %s keeps its events for up to %lld h "
                                    "(retention.ms and segment.ms), and --inbox-retention is %lld "
                                    "h: make it longer than the topic's, or events that are "
                                    "delivered again are applied again",
                                    c->config.topics[i], (long long)(ms / 3600000),
                                    (long long)(c->config.retention_us / HOUR));
        }
}

/* -- the poll thread ---------------------------------------------------------------------------------- */

static void look_now(struct consume *c, int64_t *commit_us, int64_t *look_us)
{
        int64_t now_us = clock_boot_us();
        if (now_us >= *commit_us) {
                part_commit(c);
                *commit_us = now_us + CONSUME_COMMIT_US;
        }
        if (now_us >= *look_us) {
                part_look(c, now_us);
                *look_us = now_us + CONSUME_LAG_US;
        }
}

/* A broker that is away, or does not let us in, is told of again and again: that lasts, and is said once
 * a minute. */
static void say_trouble(struct consume *c, const semel_error *err)
{
        int64_t now_us = clock_boot_us();
        bool worse = err->code == SEMEL_ERR_ACCESS && c->trouble != SEMEL_ERR_ACCESS;
        if (c->trouble_us != 0 && now_us - c->trouble_us < CONSUME_SAY_US && !worse)
                return;
        c->trouble_us = now_us;
        c->trouble = err->code;
        consume_say(c, "%s%s", err->text,
                    err->code == SEMEL_ERR_ACCESS ? "; it is tried again each second" : "");
}

/* Until it is time to end, or the consumer is finished; false: open another. */
static bool poll_until_end(struct consume *c)
{
        int64_t commit_us = 0, look_us = 0, regulate_us = 0;
        while (!told_to_end(c)) {
                struct bus_message *m = NULL;
                semel_error err = {0};
                atomic_fetch_add(&c->turns, 1);
                semel_code code = bus_consume(c->bus, part_any_paused(c) ? CONSUME_PAUSED_US
                                                                         : CONSUME_POLL_US,
                                              &m, &err);
                if (code == SEMEL_ERR_ACCESS || code == SEMEL_ERR_STORE_DOWN)
                        say_trouble(c, &err);
                else if (code != SEMEL_OK)
                        consume_say(c, "%s%s", code == SEMEL_ERR_INTERNAL ? "the consumer ended: " : "",
                                    err.text);
                if (code == SEMEL_ERR_ACCESS || code == SEMEL_ERR_INTERNAL)
                        return false;
                if (m)
                        c->trouble_us = 0;
                if (m && !part_push(c, m)) {
                        consume_say(c, "no memory for a message: the consumer is opened anew");
                        return false;
                }
                int64_t now_us = clock_boot_us();
                if (!m || now_us >= regulate_us) {
                        part_regulate(c);
                        regulate_us = now_us + 5 * MS;
                }
                look_now(c, &commit_us, &look_us);
        }
        return true;
}

/* Does a worker have a partition, and messages of it?  Behind mu. */
static bool at_work(const struct consume *c)
{
        for (int k = 0; k < c->config.workers; k++)
                if (c->workers[k].part)
                        return true;
        return false;
}

bool consume_posting_begin(struct consume_posting *p, void (*cancel)(void *call), void *call)
{
        (void)pthread_mutex_lock(p->mu);
        bool may = !p->cancelled;
        p->cancel = cancel;
        p->call = may ? call : NULL;
        (void)pthread_mutex_unlock(p->mu);
        return may;
}

void consume_posting_end(struct consume_posting *p)
{
        (void)pthread_mutex_lock(p->mu);
        p->call = NULL;
        (void)pthread_mutex_unlock(p->mu);
}

/* Behind mu.  false: nothing runs. */
static bool cancel_posting(struct consume_posting *p)
{
        p->cancelled = true;
        if (p->call)
                p->cancel(p->call);
        return p->call;
}

/* A POST that is ended has its session left to record those before it, and to take its count back. */
void consume_cancel_worker(struct worker *w)
{
        if (!cancel_posting(&w->posting) && w->inbox)
                w->inbox->vt->cancel(w->inbox);
}

/* Behind mu. */
static void cancel_keeper(struct consume *c)
{
        (void)cancel_posting(&c->keeper_posting);
        c->keeper->vt->cancel(c->keeper);
}

/* What runs is finished or, at the deadline, cancelled. */
static void wait_for_workers(struct consume *c)
{
        (void)pthread_mutex_lock(&c->mu);
        (void)pthread_cond_broadcast(&c->work);
        /* What is cut off needs some of the time to end in: a second, of a short deadline a fifth. */
        int64_t left_us = c->deadline_us - clock_boot_us();
        int64_t cut_us = left_us / 5 < CONSUME_CANCEL_US / 2 ? left_us / 5 : CONSUME_CANCEL_US / 2;
        int64_t until_us = c->deadline_us - cut_us;
        while (c->running > 0 && clock_boot_us() < until_us) {
                atomic_fetch_add(&c->turns, 1);
                consume_wait(c, &c->idle, until_us);
        }
        if (c->running > 0) {
                c->cut = true;
                for (int k = 0; k < c->config.workers; k++)
                        if (c->workers[k].part)
                                consume_cancel_worker(&c->workers[k]);
                cancel_keeper(c);
                while (c->running > 0 && clock_boot_us() < c->deadline_us)
                        consume_wait(c, &c->idle, c->deadline_us);
        }
        (void)pthread_mutex_unlock(&c->mu);
}

/* Freeing the consumer waits for messages that a worker still has, and a handler that hangs has them for
 * ever.  So the group is left first; at the end, who still has some is consume_close()'s business. */
static void leave_bus(struct consume *c)
{
        bus_consumer_leave(c->bus);
        (void)pthread_mutex_lock(&c->mu);
        while (at_work(c) && !c->draining && !c->stopping)
                consume_wait(c, &c->idle, clock_boot_us() + SECOND);
        bool is_free = !at_work(c);
        (void)pthread_mutex_unlock(&c->mu);
        if (!is_free)
                return;
        bus_consumer_close(c->bus);
        c->bus = NULL;
}

void *consume_poll_main(void *arg)
{
        struct consume *c = arg;
        if (check_database(c)) {
                (void)pthread_mutex_lock(&c->mu);
                c->checked = true;
                (void)pthread_cond_broadcast(&c->work);
                (void)pthread_cond_broadcast(&c->idle);
                (void)pthread_mutex_unlock(&c->mu);
                atomic_store(&c->database_down, false);
                for (bool first = true; !told_to_end(c) && open_bus(c); first = false) {
                        if (first)
                                compare_retention(c);
                        bool end = poll_until_end(c);
                        if (end)
                                break;
                        atomic_store(&c->ready, false); /* until the next one is assigned partitions */
                        leave_bus(c);
                        pause_for(c, CONSUME_DOWN_US);
                }
        }
        (void)pthread_mutex_lock(&c->mu);
        if (!c->draining) { /* it ends by itself */
                c->draining = true;
                c->deadline_us = clock_boot_us() + CONSUME_REVOKE_US;
                (void)pthread_cond_broadcast(&c->idle);
        }
        (void)pthread_mutex_unlock(&c->mu);
        atomic_store(&c->ready, false);
        wait_for_workers(c);
        if (c->bus) {
                part_commit(c);
                leave_bus(c); /* the others go on at once */
        }
        atomic_store(&c->ended, true);
        if (c->config.on_ended)
                c->config.on_ended(c->config.ended_arg);
        return NULL;
}

/* -- new ------------------------------------------------------------------------------------------------ */

static semel_code check_config(const struct consume_config *config, semel_error *err)
{
        const char *consumer = config->consumer ? config->consumer : config->group;
        if (config->topic_count == 0 || config->topic_count > CONSUME_TOPICS_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT, "name 1 to %d topics", CONSUME_TOPICS_MAX);
        if (inbox_id_fault((const uint8_t *)consumer, strlen(consumer)))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the consumer's name (default: the group) is 1 to 255 bytes of UTF-8");
        if (config->source &&
            inbox_id_fault((const uint8_t *)config->source, strlen(config->source)))
                return err_set(err, SEMEL_ERR_ARGUMENT, "the source is 1 to 255 bytes of UTF-8");
        if (config->dead_topic && !event_topic_is_valid(span_str(config->dead_topic)))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the dead-letter topic's name is 1 to 249 letters, digits, '.', '_' and '-'");
        if (config->event_id_pointer && (!*config->event_id_pointer ||
                                         !json_pointer_is_valid(config->event_id_pointer)))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the event id's place is a JSON pointer such as /meta/id");
        if (!config->inbox_open)
                return err_set(err, SEMEL_ERR_URL,
                               "this store has no inbox: use sqlite:PATH or postgres://...");
        return bus_config_check(&config->bus, err);
}

static void release_worker(struct worker *w)
{
        if (w->inbox)
                w->inbox->vt->close(w->inbox);
        free(w->events);
        free(w->built);
        free(w->messages);
        free(w->seen);
        buf_release(&w->text);
}

static semel_code init_worker(struct consume *c, struct worker *w, semel_error *err)
{
        size_t n = c->config.batch_rows;
        w->c = c;
        w->posting.mu = &c->mu;
        /* Also where a batch is one event: of Kafka, that has more headers than one of an outbox. */
        buf_init(&w->text, (size_t)LIMIT_EVENT_HEADERS_BYTES * 8 * LIMIT_INBOX_BATCH_ROWS);
        w->events = calloc(n, sizeof *w->events);
        w->built = calloc(n, sizeof *w->built);
        w->messages = calloc(n, sizeof(struct bus_message *));
        w->seen = calloc(n, sizeof *w->seen);
        if (!w->events || !w->built || !w->messages || !w->seen)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a worker");
        return c->config.inbox_open(c->config.db, &w->inbox, err);
}

/* Signals are the program's: its handlers run on its own threads. */
static int start(pthread_t *thread, void *(*fn)(void *), void *arg, const char *name)
{
        sigset_t all, before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(thread, NULL, fn, arg);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (rc == 0)
                (void)pthread_setname_np(*thread, name);
        return rc;
}

static void init_sync(struct consume *c)
{
        pthread_condattr_t attr;
        (void)pthread_mutex_init(&c->mu, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&c->work, &attr);
        (void)pthread_cond_init(&c->idle, &attr);
        (void)pthread_condattr_destroy(&attr);
}

static int start_all(struct consume *c)
{
        int rc = 0;
        for (int i = 0; i < c->config.workers && rc == 0; i++) {
                rc = start(&c->workers[i].thread, consume_worker_main, &c->workers[i], "semel-apply");
                c->workers[i].started = rc == 0;
        }
        if (rc == 0) {
                rc = start(&c->poll_thread, consume_poll_main, c, "semel-poll");
                c->poll_started = rc == 0;
        }
        if (rc == 0) {
                rc = start(&c->keeper_thread, consume_keeper_main, c, "semel-keeper");
                c->keeper_started = rc == 0;
        }
        return rc;
}

semel_code consume_new(const struct consume_config *config, struct consume **ret, semel_error *err)
{
        semel_code code = check_config(config, err);
        if (code != SEMEL_OK)
                return code;
        assert(config->workers > 0 && config->workers <= CONSUME_WORKERS_MAX);
        assert(config->batch_rows > 0 && config->batch_rows <= LIMIT_INBOX_BATCH_ROWS);
        struct consume *c = calloc(1, sizeof *c);
        if (!c)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a consumer");
        c->config = *config;
        c->consumer = config->consumer ? config->consumer : config->group;
        /* A statement that may name $5, ?5 or plain ? wants them. */
        const char *sql = config->handler.sql;
        c->needs_headers = !sql || strchr(sql, '5') || strchr(sql, '?');
        init_sync(c);
        c->keeper_posting.mu = &c->mu;
        code = config->inbox_open(config->db, &c->keeper, err);
        for (int i = 0; i < config->workers && code == SEMEL_OK; i++)
                code = init_worker(c, &c->workers[i], err);
        int rc = code == SEMEL_OK ? start_all(c) : 0;
        if (rc != 0)
                code = err_set_errno(err, SEMEL_ERR_INTERNAL, rc, "a thread cannot be started");
        if (code != SEMEL_OK) {
                consume_drain(c, 0);
                (void)consume_close(c, NULL);
                return code;
        }
        *ret = c;
        return SEMEL_OK;
}

/* -- the end ---------------------------------------------------------------------------------------------- */

void consume_drain(struct consume *c, int64_t deadline_us)
{
        (void)pthread_mutex_lock(&c->mu);
        if (!c->draining) {
                c->draining = true;
                c->deadline_us = deadline_us;
        }
        (void)pthread_cond_broadcast(&c->idle);
        (void)pthread_cond_broadcast(&c->work);
        (void)pthread_mutex_unlock(&c->mu);
        atomic_store(&c->ready, false);
}

bool consume_ended(struct consume *c)
{
        return atomic_load(&c->ended);
}

bool consume_ready(struct consume *c)
{
        return atomic_load(&c->ready) && !atomic_load(&c->database_down);
}

bool consume_alive(struct consume *c)
{
        uint64_t now = atomic_load(&c->turns), before = c->turns_seen;
        c->turns_seen = now;
        return now != before || atomic_load(&c->ended);
}

semel_code consume_close(struct consume *c, semel_error *err)
{
        if (!c)
                return SEMEL_OK;
        (void)pthread_mutex_lock(&c->mu);
        c->stopping = true;
        (void)pthread_cond_broadcast(&c->work);
        (void)pthread_cond_broadcast(&c->idle);
        (void)pthread_mutex_unlock(&c->mu);
        if (c->poll_started)
                (void)pthread_join(c->poll_thread, NULL);
        c->poll_started = false;
        /* A handler that does not return keeps its thread: the process ends around it. */
        (void)pthread_mutex_lock(&c->mu);
        int64_t until_us = clock_boot_us() + CONSUME_CANCEL_US;
        while (c->running > 0 && clock_boot_us() < until_us)
                consume_wait(c, &c->idle, until_us);
        bool is_stuck = c->running > 0;
        (void)pthread_mutex_unlock(&c->mu);
        if (is_stuck)
                return err_set(err, SEMEL_ERR_BUSY,
                               "a handler did not return in time: what it was at is rolled back when "
                               "this process ends, and its events come again");
        if (c->keeper && c->keeper_started) {
                (void)pthread_mutex_lock(&c->mu);
                cancel_keeper(c);
                (void)pthread_mutex_unlock(&c->mu);
                (void)pthread_join(c->keeper_thread, NULL);
        }
        for (int i = 0; i < c->config.workers; i++)
                if (c->workers[i].started)
                        (void)pthread_join(c->workers[i].thread, NULL);
        semel_code code = SEMEL_OK;
        if (c->failed.code != SEMEL_OK)
                code = err_copy(err, &c->failed);
        else if (c->cut)
                code = err_set(err, SEMEL_ERR_BUSY,
                               "the shutdown deadline cut a transaction off: it was rolled back, and "
                               "its events come again");
        for (int i = 0; i < c->config.workers; i++)
                release_worker(&c->workers[i]);
        if (c->keeper)
                c->keeper->vt->close(c->keeper);
        part_free_all(c);
        bus_consumer_close(c->bus);
        (void)pthread_cond_destroy(&c->work);
        (void)pthread_cond_destroy(&c->idle);
        (void)pthread_mutex_destroy(&c->mu);
        free(c);
        return code;
}
