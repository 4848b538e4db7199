/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_wave: one batch on its way to the broker: topics are looked at first, each row is produced
 * only while its slot is ours (rule C1), and nothing is decided before every row has its report or
 * the producer was thrown away (rules C7, C7a).
 */
#include "app/relay_lane.h"

#include <stdio.h>

#include "base/err.h"
#include "core/outbox_marker.h"

#define LOOK_TIMEOUT_US (3 * SECOND)
#define TOPIC_FRESH_US (60 * SECOND)
#define MISSING_FRESH_US (500 * MS) /* one that is not there, or not all of it, is looked at again soon */
#define POLL_US (20 * MS)
#define SILENCE_US (5 * SECOND)     /* no report for so long: not ready, though we wait on */
enum { SERVE_EACH = 256 };

/* -- the producer -------------------------------------------------------------------------------------- */

static enum wave_fate fate_of(enum bus_report_kind kind)
{
        switch (kind) {
        case BUS_DELIVERED:
                return WAVE_DONE;
        case BUS_REJECTED:
                return WAVE_REFUSED;
        case BUS_TRANSIENT:
                return WAVE_FAILED;
        case BUS_PURGED:
        case BUS_BROKEN:
                break;
        }
        return WAVE_UNTRIED;
}

static void keep_reason(struct lane *l, int32_t i, const char *name, const char *text)
{
        size_t at = l->reasons.n;
        if (buf_printf(&l->reasons, "%.60s: %.240s", name, text ? text : "") == BUF_OK &&
            buf_append_byte(&l->reasons, 0) == BUF_OK)
                l->reason_of[i] = (uint32_t)at + 1;
        else
                l->reasons.n = at;
}

static bool is_unknown_topic(const char *name)
{
        return strstr(name, "UNKNOWN_TOPIC") != NULL || strstr(name, "UNKNOWN_PARTITION") != NULL;
}

static bool was_alone(const struct lane *l, int32_t i)
{
        return l->one_by_one || l->rows.n == 1 ||
               l->used_size <= (int64_t)bus_record_bytes_max(&l->rows.row[i].event);
}

static void suspect(struct lane *l, const struct outbox_row *row)
{
        if (!(l->suspects >> row->slot & 1) || row->id > l->suspect_last[row->slot])
                l->suspect_last[row->slot] = row->id;
        l->suspects |= UINT32_C(1) << row->slot;
}

/* The broker refuses whole batches: because of one record in it, which it does not name, or of their bytes
 * together.  So nothing is known of a row before it is refused alone (rule C7). */
static bool was_refused_together(struct lane *l, int32_t i, const struct bus_report *report)
{
        if ((report->kind != BUS_REJECTED && report->kind != BUS_TRANSIENT) ||
            report->cause == BUS_CAUSE_MESSAGE || was_alone(l, i))
                return false;
        if (report->cause == BUS_CAUSE_SIZE)
                l->batch_size = (l->used_size < LANE_BATCH_SIZE ? l->used_size : LANE_BATCH_SIZE) / 4;
        else
                suspect(l, &l->rows.row[i]);
        l->broken = l->refused_together = true;
        return true;
}

static void on_report(void *arg, const struct bus_report *report)
{
        struct lane *l = arg;
        int32_t i = (int32_t)((intptr_t)report->opaque - 1);
        enum wave_fate fate = fate_of(report->kind);
        if (report->kind == BUS_BROKEN)
                l->broken = true;
        if (i == LANE_NO_OPAQUE) {
                if (report->kind != BUS_DELIVERED)
                        l->broken = true; /* the marker: its transaction cannot be committed */
                return;
        }
        if (was_refused_together(l, i, report))
                fate = WAVE_AGAIN;
        if (fate == WAVE_FAILED && is_unknown_topic(report->name) && l->topic_of[i] >= 0) {
                struct lane_topic *t = &l->topic[l->topic_of[i]];
                t->looked_us = 0;
                if (t->missing_us == 0)
                        t->missing_us = clock_boot_us();
        }
        if (fate == WAVE_FAILED || fate == WAVE_REFUSED) {
                keep_reason(l, i, report->name, report->text);
                l->rejected = true;
        }
        if (wave_report(&l->wave, i, fate) == WAVE_PURGE)
                l->purge = true;
}

bool lane_producer_open(struct lane *l)
{
        struct relay *r = l->r;
        struct semel_error err = {0};
        struct bus_property property[PROPERTIES_MAX + 3];
        struct bus_config config = r->bus;
        char size[32], id[OUTBOX_MARKER_KEY_BYTES];
        if (l->p)
                return true;
        config.property_count = 0;
        if (r->config->order == RELAY_ORDER_STRICT) /* each row waits for the one before it */
                property[config.property_count++] = (struct bus_property){"linger.ms", "0"};
        for (size_t i = 0; i < r->bus.property_count; i++)
                property[config.property_count++] = r->property[i];
        if (l->batch_size < LANE_BATCH_SIZE) {
                (void)snprintf(size, sizeof size, "%lld", (long long)l->batch_size);
                property[config.property_count++] = (struct bus_property){"batch.size", size};
        }
        l->used_size = l->batch_size < LANE_BATCH_SIZE ? l->batch_size : INT64_MAX;
        l->one_by_one = l->suspects != 0;
        if (l->one_by_one)
                property[config.property_count++] = (struct bus_property){"batch.num.messages", "1"};
        config.property = property;
        bool transactional = r->mode == OUTBOX_EXACTLY_ONCE;
        if (transactional)
                outbox_marker_key(r->uuid, l->index, id);
        semel_code code = bus_producer_open(&config, transactional ? id : NULL,
                                            r->config->batch_timeout_us + 10 * SECOND, on_report, l,
                                            &l->p, &err);
        if (code == SEMEL_ERR_ARGUMENT)
                relay_fail(r, &err);
        else if (code != SEMEL_OK)
                lane_broker_is_away(l, &err);
        for (size_t i = 0; i < l->topic_count; i++)
                l->topic[i].looked_us = 0; /* this producer has not heard of them */
        return code == SEMEL_OK;
}

void lane_producer_drop(struct lane *l, const char *why)
{
        if (!l->p)
                return;
        bus_producer_abandon(l->p);
        bus_producer_close(l->p);
        l->p = NULL;
        lane_recovered(l, false);
        atomic_fetch_add(&l->r->metrics.producer_resets, 1);
        relay_say(l->r, "lane %d: a new producer: %s", l->index, why);
}

/* -- is the broker there? -------------------------------------------------------------------------------- */

void lane_broker_is_away(struct lane *l, const semel_error *why)
{
        if (l->broker_away)
                return;
        l->broker_away = true;
        atomic_fetch_add(&l->r->metrics.broker_away, 1);
        relay_say(l->r, "lane %d: %s, nothing more is read until it answers: %s", l->index,
                  why->code == SEMEL_ERR_ACCESS ? "no way to the broker" : "the broker is away",
                  why->text);
}

bool lane_broker_forget(struct lane *l)
{
        if (!l->broker_away)
                return false;
        l->broker_away = false;
        atomic_fetch_sub(&l->r->metrics.broker_away, 1);
        return true;
}

void lane_broker_is_back(struct lane *l)
{
        if (!lane_broker_forget(l))
                return;
        l->broker_back_us = clock_boot_us();
        relay_say(l->r, "lane %d: the broker answers again", l->index);
}

static void look_at_partitions(struct lane *l, struct lane_topic *t)
{
        size_t stuck = bus_topic_stuck(l->p, t->name);
        if (stuck > 0 && t->stuck == 0)
                relay_say(l->r, "lane %d: %zu partition%s of topic \"%s\" cannot be written (no leader, or "
                                "fewer replicas in sync than min.insync.replicas): the keys that go there wait",
                          l->index, stuck, stuck == 1 ? "" : "s", t->name);
        else if (stuck == 0 && t->stuck > 0)
                relay_say(l->r, "lane %d: all partitions of topic \"%s\" can be written again", l->index,
                          t->name);
        t->stuck = stuck;
}

static bool look(struct lane *l, struct lane_topic *t)
{
        struct semel_error err = {0};
        int64_t now = clock_boot_us(), until_us = relay_deadline_us(l->r, now + LOOK_TIMEOUT_US);
        if (until_us <= now ||
            bus_topic_look(l->p, t->name, until_us - now, &t->exists, &t->bytes_max, &err) !=
                    SEMEL_OK) {
                lane_broker_is_away(l, &err);
                return false;
        }
        lane_broker_is_back(l);
        t->looked_us = now;
        look_at_partitions(l, t);
        if (t->exists)
                t->missing_us = 0;
        else if (t->missing_us == 0)
                t->missing_us = now;
        return true;
}

bool lane_broker_ready(struct lane *l)
{
        if (!l->broker_away)
                return true;
        if (!lane_producer_open(l))
                return false;
        struct lane_topic *last = NULL; /* the one that rows wait for, not one of long ago */
        for (size_t i = 0; i < l->topic_count; i++)
                if (!last || l->topic[i].batch > last->batch)
                        last = &l->topic[i];
        /* Without a topic to ask for, the next batch finds out. */
        return !last || look(l, last);
}

/* -- topics -------------------------------------------------------------------------------------------------- */

/* Room for one more: that of the one which no batch has had for the longest time; NULL: this batch has all. */
static struct lane_topic *topic_room(struct lane *l)
{
        if (l->topic_count < LANE_TOPICS_MAX)
                return &l->topic[l->topic_count++];
        struct lane_topic *oldest = &l->topic[0];
        for (size_t i = 1; i < l->topic_count; i++)
                if (l->topic[i].batch < oldest->batch)
                        oldest = &l->topic[i];
        return oldest->batch < l->batch ? oldest : NULL;
}

static int16_t topic_find(struct lane *l, struct span name)
{
        for (size_t i = 0; i < l->topic_count; i++)
                if (l->topic[i].name_n == name.n && memcmp(l->topic[i].name, name.p, name.n) == 0) {
                        l->topic[i].batch = l->batch;
                        return (int16_t)i;
                }
        if (name.n == 0 || name.n > LIMIT_EVENT_TOPIC_BYTES)
                return -1;
        struct lane_topic *t = topic_room(l);
        if (!t)
                return -1;
        *t = (struct lane_topic){.name_n = name.n, .batch = l->batch};
        memcpy(t->name, name.p, name.n);
        return (int16_t)(t - l->topic);
}

/* Every topic of this batch, looked at before its first record.  Not those of earlier batches: a look costs
 * time where the topic is not there, and may make one that was deleted. */
static bool look_at_topics(struct lane *l)
{
        for (size_t i = 0; i < l->topic_count; i++) {
                struct lane_topic *t = &l->topic[i];
                if (t->batch != l->batch)
                        continue;
                atomic_store(&l->thread.moved_us, clock_boot_us());
                int64_t age_us = clock_boot_us() - t->looked_us;
                bool stale = t->looked_us == 0 || age_us > (t->exists && t->stuck == 0 ? TOPIC_FRESH_US : MISSING_FRESH_US);
                if (stale && !look(l, t))
                        return false;
        }
        return true;
}

bool lane_wave_begin(struct lane *l)
{
        struct relay *r = l->r;
        int16_t last = -1;
        int64_t now = clock_boot_us();
        bool many = false;
        l->batch++;
        for (size_t i = 0; i < l->rows.n; i++) {
                const struct event *ev = &l->rows.row[i].event;
                if (last < 0 || l->topic[last].name_n != ev->topic.n ||
                    memcmp(l->topic[last].name, ev->topic.p, ev->topic.n) != 0)
                        last = topic_find(l, ev->topic);
                many |= last < 0;
                l->topic_of[i] = last;
                l->reason_of[i] = 0;
                l->key[i] = ev->key_is_null ? span_of(NULL, 0)
                                            : span_of(ev->key.p ? ev->key.p : (const uint8_t *)"",
                                                      ev->key.n);
        }
        buf_clear(&l->reasons);
        wave_begin(&l->wave, l->key, l->rows.n,
                   r->config->order == RELAY_ORDER_STRICT && r->mode != OUTBOX_EXACTLY_ONCE);
        l->purge = l->broken = l->rejected = l->refused_together = false;
        l->batch_end_us = now + r->config->batch_timeout_us;
        l->locked_end_us = now + relay_locked_us(r);
        l->slow = l->unlocked;
        l->unlocked = false;
        if (!lane_producer_open(l) || !look_at_topics(l)) {
                wave_stop(&l->wave);
                return false;
        }
        if (many) /* those that did not fit are forgotten next time, and these come in */
                l->topic_count = 0;
        return true;
}

/* -- producing ------------------------------------------------------------------------------------------------ */

static const struct outbox_slot *slot_of(struct lane *l, int16_t slot)
{
        for (size_t i = 0; i < l->slot_count; i++)
                if (l->slot[i].slot == slot)
                        return &l->slot[i];
        return NULL;
}

bool lane_owns_all(struct lane *l)
{
        for (size_t i = 0; i < l->slot_count; i++)
                if (!relay_share_owns(l->r, &l->slot[i]))
                        return false;
        return true;
}

/* Its partition cannot be written: it would wait inside Kafka's client, and the whole batch for it.  Its key
 * is held instead (rule C4); without a key it is tried again later. */
static void hold(struct lane *l, int32_t i)
{
        if (l->key[i].p) {
                wave_hold(&l->wave, i);
                return;
        }
        keep_reason(l, i, LANE_STUCK, LANE_STUCK_WHY);
        wave_postpone(&l->wave, i);
}

/* Refuse or postpone what must not be sent.  true: it may be. */
static bool may_send(struct lane *l, int32_t i)
{
        const struct event *ev = &l->rows.row[i].event;
        if (l->r->config->on_dead == OUTBOX_BLOCK && !wave_may_send(&l->wave, i))
                return false; /* it waits behind the DEAD row, whatever it is itself */
        if (l->topic_of[i] >= 0) {
                const struct lane_topic *t = &l->topic[l->topic_of[i]];
                if (!t->exists) {
                        const char *name, *text;
                        bus_topic_why_not(l->p, t->name, &name, &text);
                        keep_reason(l, i, name, text);
                        wave_postpone(&l->wave, i);
                        return false;
                }
                size_t bytes = bus_record_bytes_max(ev);
                if (t->bytes_max > 0 && bytes > (size_t)t->bytes_max) {
                        char why[160];
                        (void)snprintf(why, sizeof why,
                                       "%zu bytes as a record, and the topic takes at most %lld "
                                       "(max.message.bytes)",
                                       bytes, (long long)t->bytes_max);
                        keep_reason(l, i, "MSG_SIZE_TOO_LARGE", why);
                        wave_refuse(&l->wave, i);
                        return false;
                }
                if (t->stuck > 0 && bus_is_stuck(l->p, ev)) {
                        hold(l, i);
                        return false;
                }
        } else if (ev->topic.n == 0 || ev->topic.n > LIMIT_EVENT_TOPIC_BYTES) {
                keep_reason(l, i, "INVALID_TOPIC", "the row's topic is empty or too long");
                wave_refuse(&l->wave, i);
                return false;
        }
        return wave_may_send(&l->wave, i);
}

/* One row.  false: stop here. */
static bool produce(struct lane *l, int32_t i)
{
        struct semel_error err = {0};
        const struct outbox_row *row = &l->rows.row[i];
        const struct outbox_slot *slot = slot_of(l, row->slot);
        if (!may_send(l, i))
                return true;
        for (;;) {
                if (!slot || !relay_share_owns(l->r, slot)) /* rule C1: before each produce */
                        return false;
                switch (bus_produce(l->p, &row->event, (void *)(intptr_t)(i + 1), &err)) {
                case BUS_QUEUED:
                        wave_sent(&l->wave, i);
                        return true;
                case BUS_FULL:
                        (void)bus_producer_flush(l->p, POLL_US);
                        if (clock_boot_us() >= l->batch_end_us || l->purge || l->broken)
                                return false;
                        break;
                case BUS_REFUSED:
                        keep_reason(l, i, "REFUSED", err.text);
                        wave_refuse(&l->wave, i);
                        return true;
                case BUS_FATAL:
                        l->broken = true;
                        return false;
                }
        }
}

static void produce_ready(struct lane *l)
{
        int32_t i;
        int served = 0;
        while (!l->purge && !l->broken && (i = wave_next(&l->wave)) >= 0) {
                if (!produce(l, i))
                        wave_stop(&l->wave);
                if (++served % SERVE_EACH == 0)
                        (void)bus_producer_poll(l->p, 0);
        }
}

/* Why the batch cannot go on; NULL: it can. */
static const char *obstacle(struct lane *l, int64_t now_us)
{
        struct semel_error err = {0};
        if (l->refused_together)
                return "rows were refused together, and are sent again apart";
        if (l->broken || bus_producer_is_fatal(l->p, &err))
                return "the old one broke, what it had under way is sent again";
        if (l->purge)
                return "a row was rejected with younger rows of its key under way";
        if (!lane_owns_all(l))
                return "slots were lost, or their lease is over, with rows under way";
        if (now_us >= l->batch_end_us)
                return "the broker did not answer in time, what had no report is sent again";
        return NULL;
}

/* single: the broker is slow.  The transaction ends before the database ends it, and the session with it;
 * the marks will be as good under the slots' epochs.  Sending again instead would put the batch into the
 * log once for each try, as long as the broker is slow (rule C12). */
static void unlock(struct lane *l, int64_t now_us)
{
        if (l->unlocked || now_us < l->locked_end_us)
                return;
        l->unlocked = true;
        l->s->vt->abandon(l->s);
        if (!l->slow)
                relay_say(l->r, "lane %d: the broker takes longer than half of slot_lease: such batches "
                                "go on without their transaction",
                          l->index);
}

void lane_wave_run(struct lane *l, bool (*last)(struct lane *l))
{
        struct wave *w = &l->wave;
        struct relay *r = l->r;
        int64_t begun_us = clock_boot_us(), heard_us = begun_us;
        const char *why = NULL;
        struct semel_error silent = {0};
        produce_ready(l);
        if (last && !l->purge && !l->broken && !w->stopped && !last(l))
                l->broken = true;
        for (;;) {
                size_t before = bus_producer_unreported(l->p);
                if (before == 0 && !l->broken)
                        break;
                int64_t now = clock_boot_us();
                atomic_store(&l->thread.moved_us, now);
                if (relay_is_overdue(r, now)) {
                        atomic_store(&r->cut, true);
                        why = "the shutdown's deadline came with rows under way";
                        break;
                }
                unlock(l, now);
                why = obstacle(l, now);
                if (why)
                        break;
                /* strict: the key of the first report goes on at once.  At the end nothing lingers. */
                size_t left = w->strict && !atomic_load(&r->draining)
                                      ? bus_producer_poll(l->p, POLL_US)
                                      : bus_producer_flush(l->p, POLL_US);
                if (left < before) {
                        heard_us = now;
                        lane_broker_is_back(l);
                } else if (now - heard_us > SILENCE_US) {
                        (void)err_set(&silent, SEMEL_ERR_STORE_DOWN, "no report for 5 s");
                        bus_producer_explain(l->p, &silent);
                        lane_broker_is_away(l, &silent);
                }
                produce_ready(l); /* strict: the next of each key */
        }
        if (why)
                lane_producer_drop(l, why);
        relay_observe_publish(&r->metrics, clock_boot_us() - begun_us);
        if (w->overtaken > 0 && r->mode != OUTBOX_EXACTLY_ONCE) {
                atomic_fetch_add(&r->metrics.overtaken_rows, w->overtaken);
                relay_say(r, "lane %d: %zu row%s overtook an elder row of their key that failed: row "
                             "%lld was taken after row %lld failed (--order strict prevents this)",
                          l->index, w->overtaken, w->overtaken == 1 ? "" : "s",
                          (long long)l->rows.row[w->overtaken_by].id,
                          (long long)l->rows.row[w->overtaken_first].id);
        }
}
