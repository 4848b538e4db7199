/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_exactly_once: one group of slots, one transactional producer, one marker (rule C8).
 *
 *     init --> read the marker to its end --> epoch still ours? finish what it lists --> SELECT
 *      ^                                                                                   |
 *      |            begin, rows, marker(ids), commit <-------------------------------------+
 *      |                        |            ^
 *      +--- unknown, fenced ----+            |  committed: mark exactly these; only then the next
 *                               +------------+
 *
 * Whatever is not known to be committed ends the producer: the next one's init ends its
 * transaction one way or the other, and the marker says which.
 */
#include "app/relay_lane.h"

#include <stdlib.h>

#include "base/err.h"
#include "core/outbox_marker.h"

#define INIT_TIMEOUT_US (10 * SECOND)
#define MARKER_TIMEOUT_US (30 * SECOND)
#define RECOVER_DEADLINE_US (30 * SECOND)
#define COMMIT_TRY_US (5 * SECOND)
enum { MARKER_BYTES_MAX = 2 * 1024 * 1024 };

void lane_recovered(struct lane *l, bool yes)
{
        l->recovered = yes;
        relay_share_settle(l->r, l->slot, l->slot_count, yes);
}

/* -- recovery ---------------------------------------------------------------------------------------------- */

static bool init_transactions(struct lane *l)
{
        struct semel_error err = {0};
        int64_t end_us = relay_deadline_us(l->r, clock_boot_us() + INIT_TIMEOUT_US);
        enum bus_tx_result result = BUS_TX_AGAIN;
        while (result == BUS_TX_AGAIN && clock_boot_us() < end_us && lane_owns_all(l)) {
                atomic_store(&l->thread.moved_us, clock_boot_us());
                result = bus_tx_init(l->p, COMMIT_TRY_US, &err);
        }
        if (result == BUS_TX_OK)
                return true;
        if (err.code != SEMEL_OK)
                lane_broker_is_away(l, &err);
        return false;
}

/* What a marker lists. */
struct listed {
        int64_t *ids, *published_us;
        uint8_t (*events)[EVENT_ID_BYTES];
};

static bool listed_read(struct listed *m, struct span marker, size_t n)
{
        m->ids = calloc(n + 1, sizeof *m->ids);
        m->published_us = calloc(n + 1, sizeof *m->published_us);
        m->events = calloc(n + 1, sizeof *m->events);
        bool ok = m->ids && m->published_us && m->events;
        for (size_t i = 0; i < n && ok; i++)
                outbox_marker_get(marker, i, &m->ids[i], m->events[i], &m->published_us[i]);
        return ok;
}

static void listed_release(struct listed *m)
{
        free(m->ids);
        free(m->published_us);
        free(m->events);
}

/* Finish exactly the rows that the marker lists, by both of their ids: a row with a lower id may have
 * been committed meanwhile and is none of them. */
static bool finish_listed(struct lane *l, struct span marker)
{
        struct relay *r = l->r;
        struct semel_error err = {0};
        size_t n = 0, finished = 0;
        if (!outbox_marker_count(marker, &n)) {
                (void)err_set(&err, SEMEL_ERR_CORRUPT,
                              "the marker of group %d in topic %s is none of semel's: another program "
                              "writes to it; give marker_topic another name",
                              l->index, r->config->marker_topic);
                relay_fail(r, &err);
                return false;
        }
        struct listed m;
        bool ok = listed_read(&m, marker, n);
        if (ok && l->s->vt->recover(l->s, r->config->done == RELAY_DONE_KEEP, l->slot, l->slot_count,
                                    m.ids, (const uint8_t(*)[EVENT_ID_BYTES])m.events, m.published_us, n,
                                    relay_deadline_us(r, clock_boot_us() + RECOVER_DEADLINE_US),
                                    &finished, &err) != SEMEL_OK) {
                if (err.code != SEMEL_ERR_LOST)
                        relay_db_away(r, &err);
                wakeup_send(&r->keeper_wakeup);
                ok = false;
        }
        if (ok && finished > 0) {
                atomic_fetch_add(&r->metrics.recovered_rows, finished);
                relay_say(r, "group %d: %zu of %zu rows of the last transaction were committed and not "
                             "marked: marked now",
                          l->index, finished, n);
        }
        listed_release(&m);
        return ok;
}

bool lane_recover(struct lane *l)
{
        struct relay *r = l->r;
        struct semel_error err = {0};
        struct buf value;
        char key[OUTBOX_MARKER_KEY_BYTES];
        bool found = false;
        if (l->recovered)
                return true;
        if (l->slot_count != EVENT_SLOTS / EVENT_GROUPS) /* the group or nothing of it */
                return false;
        bus_producer_close(l->p);
        l->p = NULL;
        if (!lane_producer_open(l) || !init_transactions(l))
                return false;
        outbox_marker_key(r->uuid, l->index, key);
        buf_init(&value, MARKER_BYTES_MAX);
        int64_t now = clock_boot_us();
        semel_code code = bus_marker_read(&r->bus, r->config->marker_topic, span_str(key),
                                          relay_deadline_us(r, now + MARKER_TIMEOUT_US) - now, &found,
                                          &value, &err);
        bool ok = code == SEMEL_OK;
        if (ok)
                lane_broker_is_back(l);
        else if (code == SEMEL_ERR_STORE_DOWN || code == SEMEL_ERR_UNKNOWN)
                lane_broker_is_away(l, &err);
        else
                relay_fail(r, &err); /* no such topic may be made, or it is another one */
        bool exists; /* so that the first marker does not wait for the metadata */
        int64_t bytes_max;
        if (ok)
                (void)bus_topic_look(l->p, r->config->marker_topic, COMMIT_TRY_US, &exists, &bytes_max,
                                     NULL);
        /* The epoch is looked at after the marker was read: in the database, by the recovery. */
        ok = ok && lane_owns_all(l) && (!found || finish_listed(l, buf_span(&value)));
        buf_release(&value);
        /* What was read before init may be published by now; what waits is asked for again. */
        for (size_t i = 0; i < l->slot_count && ok; i++)
                l->known_epoch[l->slot[i].slot] = 0;
        lane_recovered(l, ok);
        return ok;
}

/* -- transactions -------------------------------------------------------------------------------------------- */

/* The last message of a transaction: which rows it holds. */
static bool send_marker(struct lane *l)
{
        struct semel_error err = {0};
        struct event ev = {.topic = span_str(l->r->config->marker_topic),
                           .partition = EVENT_NO_PARTITION};
        char key[OUTBOX_MARKER_KEY_BYTES];
        size_t n = 0, at = 0;
        for (size_t i = 0; i < l->rows.n; i++)
                n += wave_fate(&l->wave, (int32_t)i) == WAVE_SENT ||
                     wave_fate(&l->wave, (int32_t)i) == WAVE_DONE;
        if (n == 0)
                return true;
        /* The key lives behind the value: both are borrowed until the report. */
        outbox_marker_key(l->r->uuid, l->index, key);
        buf_clear(&l->marker);
        size_t bytes = outbox_marker_bytes(n);
        if (buf_reserve(&l->marker, bytes + sizeof key) != BUF_OK)
                return false;
        outbox_marker_begin(l->marker.p, n);
        for (size_t i = 0; i < l->rows.n; i++) {
                const struct outbox_row *row = &l->rows.row[i];
                enum wave_fate fate = wave_fate(&l->wave, (int32_t)i);
                if (fate == WAVE_SENT || fate == WAVE_DONE)
                        outbox_marker_put(l->marker.p, at++, row->id, row->event.id,
                                          row->published_us);
        }
        memcpy(l->marker.p + bytes, key, sizeof key);
        ev.payload = span_of(l->marker.p, bytes);
        ev.key = span_of(l->marker.p + bytes, strlen(key));
        memcpy(ev.id, l->r->uuid, sizeof ev.id);
        for (;;) {
                switch (bus_produce(l->p, &ev, (void *)(intptr_t)(LANE_NO_OPAQUE + 1), &err)) {
                case BUS_QUEUED:
                        l->marker_sent = true;
                        return true;
                case BUS_FULL:
                        (void)bus_producer_flush(l->p, 20 * MS);
                        if (clock_boot_us() >= l->batch_end_us)
                                return false;
                        break;
                case BUS_REFUSED:
                case BUS_FATAL:
                        relay_say(l->r, "group %d: the marker cannot be sent: %s", l->index, err.text);
                        return false;
                }
        }
}

static size_t count_fate(const struct lane *l, enum wave_fate fate)
{
        size_t n = 0;
        for (size_t i = 0; i < l->rows.n; i++)
                n += wave_fate(&l->wave, (int32_t)i) == fate;
        return n;
}

/* Has every row that was to go arrived, and the marker?  A row that was only too large, or whose
 * topic is not there, was never in it. */
static bool is_whole(struct lane *l)
{
        return l->p && !l->broken && !l->purge && !l->rejected && l->wave.unreported == 0 &&
               (l->marker_sent || count_fate(l, WAVE_DONE) == 0) && lane_owns_all(l);
}

/* OK: committed.  ABORT: abort it.  UNKNOWN: only the marker knows. */
static enum bus_tx_result commit(struct lane *l)
{
        struct semel_error err = {0};
        int64_t end_us = relay_deadline_us(l->r, clock_boot_us() + l->r->config->batch_timeout_us);
        for (;;) {
                enum bus_tx_result result = bus_tx_commit(l->p, COMMIT_TRY_US, &err);
                atomic_store(&l->thread.moved_us, clock_boot_us());
                if (result != BUS_TX_AGAIN)
                        return result;
                if (clock_boot_us() >= end_us)
                        return BUS_TX_UNKNOWN;
        }
}

static void abort_transaction(struct lane *l)
{
        struct semel_error err = {0};
        int64_t end_us = relay_deadline_us(l->r, clock_boot_us() + INIT_TIMEOUT_US);
        enum bus_tx_result result = BUS_TX_AGAIN;
        while (l->p && result == BUS_TX_AGAIN && clock_boot_us() < end_us)
                result = bus_tx_abort(l->p, COMMIT_TRY_US, &err);
        if (result != BUS_TX_OK)
                lane_producer_drop(l, "its transaction could not be aborted");
}

void lane_transaction(struct lane *l)
{
        struct relay *r = l->r;
        struct semel_error err = {0};
        if (bus_tx_begin(l->p, &err) != BUS_TX_OK) {
                lane_producer_drop(l, "a transaction could not be begun");
                return;
        }
        l->marker_sent = false;
        lane_wave_run(l, send_marker);
        if (!is_whole(l)) {
                /* Nothing of it will be seen; what failed is marked before anything is sent again. */
                abort_transaction(l);
                (void)lane_settle(l, true);
                return;
        }
        if (count_fate(l, WAVE_DONE) > 0) {
                enum bus_tx_result result = commit(l);
                if (result == BUS_TX_ABORT) {
                        abort_transaction(l);
                        (void)lane_settle(l, true);
                        return;
                }
                if (result != BUS_TX_OK) {
                        if (relay_is_overdue(r, clock_boot_us()))
                                atomic_store(&r->cut, true);
                        lane_producer_drop(l, "nobody knows whether its transaction was committed; the "
                                              "marker tells");
                        return;
                }
        } else {
                abort_transaction(l);
        }
        /* The next transaction is not committed before this mark is: by not beginning it. */
        if (!lane_settle(l, false))
                lane_recovered(l, false);
}
