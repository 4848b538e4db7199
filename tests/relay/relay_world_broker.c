/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_world: the broker, in place of src/bus: see relay_world.h.  What is handed over is sent in
 * requests of request_rows rows when the producer is polled; a request is written and reported as a
 * whole.  A transaction's rows are in the log once it is committed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bus/bus.h"
#include "core/outbox_marker.h"
#include "relay_world_internal.h"

#define HELD_UP_US (150 * MS) /* a thread that looked at the lease in time may be held up behind it */

struct sent {
        void *opaque;
        int64_t id; /* 0: the marker */
};

struct bus_producer {
        int number, group;
        bool one_by_one;
        void (*on_report)(void *arg, const struct bus_report *report);
        void *arg;
        struct sent queue[WORLD_ROWS_MAX];
        size_t head, tail;
        int64_t tx[WORLD_ROWS_MAX];
        size_t tx_n;
        bool in_tx;
        uint8_t marker[1 << 16];
        size_t marker_bytes;
        bool has_marker;
};

semel_code bus_config_check(const struct bus_config *config, semel_error *err)
{
        (void)config;
        (void)err;
        return SEMEL_OK;
}

semel_code bus_is_mock(const struct bus_config *config, int64_t timeout_us, bool *ret_mock,
                       semel_error *err)
{
        (void)config;
        (void)timeout_us;
        (void)err;
        *ret_mock = false;
        return SEMEL_OK;
}

semel_code bus_producer_open(const struct bus_config *config, const char *transactional_id,
                             int64_t transaction_timeout_us,
                             void (*on_report)(void *arg, const struct bus_report *report),
                             void *arg, struct bus_producer **ret, semel_error *err)
{
        (void)transaction_timeout_us;
        struct bus_producer *p = calloc(1, sizeof *p);
        if (!p)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory");
        p->on_report = on_report;
        p->arg = arg;
        for (size_t i = 0; i < config->property_count; i++)
                if (strcmp(config->property[i].name, "batch.num.messages") == 0)
                        p->one_by_one = strcmp(config->property[i].value, "1") == 0;
        if (transactional_id) /* it ends with the group */
                p->group = transactional_id[strlen(transactional_id) - 1] - '0';
        pthread_mutex_lock(&world.lock);
        p->number = ++world.producers;
        pthread_mutex_unlock(&world.lock);
        *ret = p;
        return SEMEL_OK;
}

/* -- rows ---------------------------------------------------------------------------------------- */

static int64_t id_of(const struct event *event)
{
        for (size_t i = 0; i < world.rows; i++)
                if (memcmp(world.row[i].event_id, event->id, EVENT_ID_BYTES) == 0)
                        return world.row[i].id;
        return 0;
}

static void hand_over(struct world_row *row, int64_t now)
{
        if (!(world.mine >> row->slot & 1))
                world_broken("C1: row %lld is handed over by who is not its owner", (long long)row->id);
        else if (now >= world.lease_end_us + HELD_UP_US)
                world_broken("C1: row %lld is handed over %lld us after the lease",
                             (long long)row->id, (long long)(now - world.lease_end_us));
        world.handed++;
        if (row->handed)
                return;
        row->handed = true;
        if (++world.unmarked > world.unmarked_max)
                world.unmarked_max = world.unmarked;
}

enum bus_produced bus_produce(struct bus_producer *p, const struct event *event, void *opaque,
                              semel_error *err)
{
        (void)err;
        int64_t now = clock_boot_us();
        pthread_mutex_lock(&world.lock);
        int64_t us = event->has_id ? world.produce_us : 0;
        struct sent *s = &p->queue[p->tail++ % WORLD_ROWS_MAX];
        *s = (struct sent){.opaque = opaque};
        if (event->has_id) {
                s->id = id_of(event);
                hand_over(world_find(s->id), now);
        } else {
                p->has_marker = true;
                p->marker_bytes = event->payload.n;
                memcpy(p->marker, event->payload.p, event->payload.n);
        }
        pthread_mutex_unlock(&world.lock);
        world_pass(us);
        return BUS_QUEUED;
}

static void write_row(struct bus_producer *p, int64_t id)
{
        struct world_row *row = world_find(id);
        for (size_t i = 0; i < world.rows && row->key[0]; i++) {
                const struct world_row *elder = &world.row[i];
                if (elder->id < id && elder->rejected && strcmp(elder->key, row->key) == 0)
                        world_broken("C7a: row %lld is written behind row %lld, rejected and not yet "
                                     "DEAD", (long long)id, (long long)elder->id);
        }
        row->written++;
        world.log[world.logged++ % WORLD_LOG_MAX] = (struct world_log){id, p->number};
        if (world.then && world.logged >= world.at_logged) {
                world.then();
                world.then = NULL;
        }
}

/* One row of a request; what to report. */
static enum bus_report_kind arrive(struct bus_producer *p, const struct sent *s)
{
        if (s->id == 0)
                return BUS_DELIVERED;
        if (s->id == world.reject_id)
                return BUS_REJECTED;
        if (s->id == world.fail_id) {
                world.fail_id = 0;
                return BUS_TRANSIENT;
        }
        if (p->in_tx)
                p->tx[p->tx_n++] = s->id;
        else
                write_row(p, s->id);
        return BUS_DELIVERED;
}

/* A request that has the poison in it: nothing of it is written, and all its rows have the same answer. */
static bool is_poisoned(const struct bus_producer *p, size_t n)
{
        for (size_t i = 0; i < n && p->head + i < p->tail && world.poison_id; i++)
                if (p->queue[(p->head + i) % WORLD_ROWS_MAX].id == world.poison_id)
                        return true;
        return false;
}

static void report(struct bus_producer *p, const struct sent *s, enum bus_report_kind kind,
                   enum bus_report_cause cause)
{
        if (s->id != 0 && (kind == BUS_PURGED || kind == BUS_TRANSIENT)) { /* surely not written */
                pthread_mutex_lock(&world.lock);
                world_settled(world_find(s->id));
                pthread_mutex_unlock(&world.lock);
        }
        const struct bus_report out = {.opaque = s->opaque, .kind = kind, .cause = cause,
                                       .text = "the world said so", .name = "WORLD"};
        p->on_report(p->arg, &out);
}

/* What cannot be written stays in the queue; what is behind it goes. */
static bool has_sendable(struct bus_producer *p)
{
        for (size_t i = p->tail - p->head; i > 0; i--) {
                const struct sent s = p->queue[p->head % WORLD_ROWS_MAX];
                if (!world.stuck_key || s.id == 0 || strcmp(world_find(s.id)->key, world.stuck_key) != 0)
                        return true;
                p->head++;
                p->queue[p->tail++ % WORLD_ROWS_MAX] = s;
        }
        return false;
}

size_t bus_producer_unreported(const struct bus_producer *p)
{
        return p->tail - p->head;
}

void bus_producer_explain(const struct bus_producer *p, semel_error *err)
{
        (void)p;
        (void)err;
}

size_t bus_producer_poll(struct bus_producer *p, int64_t timeout_us)
{
        struct sent done[64];
        enum bus_report_kind kind[64];
        size_t n = 0;
        pthread_mutex_lock(&world.lock);
        bool stalled = world.stalled;
        size_t rows = p->one_by_one ? 1 : world.request_rows;
        bool poisoned = is_poisoned(p, rows);
        while (!stalled && n < rows && n < 64 && has_sendable(p)) {
                done[n] = p->queue[p->head++ % WORLD_ROWS_MAX];
                kind[n] = poisoned ? BUS_REJECTED : arrive(p, &done[n]);
                n++;
        }
        world.requests += n > 0;
        for (size_t i = 0; i < n; i++) /* only behind the request: its rows go together */
                if (kind[i] == BUS_REJECTED && (!poisoned || done[i].id == world.poison_id))
                        world_find(done[i].id)->rejected = true;
        pthread_mutex_unlock(&world.lock);
        for (size_t i = 0; i < n; i++)
                report(p, &done[i], kind[i], poisoned ? BUS_CAUSE_BATCH : BUS_CAUSE_MESSAGE);
        if (n == 0 && p->head < p->tail)
                world_pass(timeout_us < 2 * MS ? timeout_us : 2 * MS);
        return bus_producer_unreported(p);
}

size_t bus_producer_flush(struct bus_producer *p, int64_t timeout_us)
{
        return bus_producer_poll(p, timeout_us);
}

bool bus_producer_is_fatal(struct bus_producer *p, semel_error *err)
{
        (void)p;
        (void)err;
        return false;
}

void bus_producer_abandon(struct bus_producer *p)
{
        while (p->head < p->tail) {
                struct sent s = p->queue[p->head++ % WORLD_ROWS_MAX];
                report(p, &s, BUS_PURGED, BUS_CAUSE_MESSAGE);
        }
}

void bus_producer_close(struct bus_producer *p)
{
        if (p)
                bus_producer_abandon(p);
        free(p);
}

semel_code bus_topic_look(struct bus_producer *p, const char *topic, int64_t timeout_us,
                          bool *ret_exists, int64_t *ret_bytes_max, semel_error *err)
{
        (void)p;
        (void)timeout_us;
        *ret_exists = strcmp(topic, "missing") != 0;
        *ret_bytes_max = 0;
        pthread_mutex_lock(&world.lock);
        bool down = world.broker_down;
        world.looks += !*ret_exists;
        pthread_mutex_unlock(&world.lock);
        return down ? err_set(err, SEMEL_ERR_STORE_DOWN, "the world has no broker now") : SEMEL_OK;
}

void bus_topic_why_not(struct bus_producer *p, const char *topic, const char **ret_name, const char **ret_text)
{
        (void)p;
        (void)topic;
        *ret_name = "UNKNOWN_TOPIC";
        *ret_text = "the broker has no such topic";
}

size_t bus_topic_stuck(struct bus_producer *p, const char *topic)
{
        (void)p;
        pthread_mutex_lock(&world.lock);
        size_t n = (world.stuck_key && world.stuck_is_known) ||
                   (world.stuck_topic && strcmp(topic, world.stuck_topic) == 0);
        pthread_mutex_unlock(&world.lock);
        return n;
}

bool bus_is_stuck(struct bus_producer *p, const struct event *event)
{
        (void)p;
        pthread_mutex_lock(&world.lock);
        bool yes = (world.stuck_key && world.stuck_is_known && span_eq(event->key, span_str(world.stuck_key))) ||
                   (world.stuck_topic && span_eq(event->topic, span_str(world.stuck_topic)));
        pthread_mutex_unlock(&world.lock);
        return yes;
}

size_t bus_record_bytes_max(const struct event *event)
{
        return event->payload.n + event->key.n + 100;
}

void world_other_commits(void)
{
        struct bus_producer other = {.number = 0};
        pthread_mutex_lock(&world.lock);
        for (int group = 0; group < EVENT_GROUPS; group++) {
                int64_t id[WORLD_ROWS_MAX];
                size_t n = 0;
                for (size_t i = 0; i < world.rows; i++) {
                        const struct world_row *row = &world.row[i];
                        if (!row->gone && event_group_of_slot(row->slot) == group)
                                id[n++] = row->id;
                }
                outbox_marker_begin(world.marker[group], n);
                for (size_t i = 0; i < n; i++) {
                        write_row(&other, id[i]);
                        outbox_marker_put(world.marker[group], i, id[i], world_find(id[i])->event_id, 0);
                }
                world.marker_bytes[group] = outbox_marker_bytes(n);
        }
        pthread_mutex_unlock(&world.lock);
}

/* -- transactions ---------------------------------------------------------------------------------- */

enum bus_tx_result bus_tx_init(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        (void)p;
        (void)timeout_us;
        (void)err;
        return BUS_TX_OK;
}

enum bus_tx_result bus_tx_begin(struct bus_producer *p, semel_error *err)
{
        (void)err;
        p->in_tx = true;
        p->tx_n = 0;
        p->has_marker = false;
        return BUS_TX_OK;
}

enum bus_tx_result bus_tx_commit(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        int64_t end_us = clock_boot_us() + (timeout_us < 100 * MS ? timeout_us : 100 * MS);
        while (bus_producer_poll(p, 1 * MS) > 0)
                if (clock_boot_us() > end_us)
                        return BUS_TX_AGAIN;
        pthread_mutex_lock(&world.lock);
        int unknown = p->tx_n > 0 ? world.commit_unknown : 0;
        if (unknown)
                world.commit_unknown = 0;
        for (size_t i = 0; unknown != 2 && i < p->tx_n; i++)
                write_row(p, p->tx[i]);
        if (unknown != 2 && p->has_marker) {
                memcpy(world.marker[p->group], p->marker, p->marker_bytes);
                world.marker_bytes[p->group] = p->marker_bytes;
        }
        pthread_mutex_unlock(&world.lock);
        p->in_tx = false;
        if (!unknown)
                return BUS_TX_OK;
        (void)err_set(err, SEMEL_ERR_UNKNOWN, "who knows");
        return BUS_TX_UNKNOWN;
}

enum bus_tx_result bus_tx_abort(struct bus_producer *p, int64_t timeout_us, semel_error *err)
{
        (void)timeout_us;
        (void)err;
        bus_producer_abandon(p);
        p->in_tx = false;
        p->tx_n = 0;
        return BUS_TX_OK;
}

semel_code bus_marker_read(const struct bus_config *config, const char *topic, struct span key,
                           int64_t timeout_us, bool *ret_found, struct buf *value, semel_error *err)
{
        (void)config;
        (void)topic;
        (void)timeout_us;
        int group = key.p[key.n - 1] - '0';
        pthread_mutex_lock(&world.lock);
        *ret_found = world.marker_bytes[group] > 0;
        int rc = buf_append(value, world.marker[group], world.marker_bytes[group]);
        pthread_mutex_unlock(&world.lock);
        return rc == BUF_OK ? SEMEL_OK : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory");
}
