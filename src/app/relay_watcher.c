/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_watcher: wakes idle lanes when rows came: told by the database, or by one look for all of
 * them, so that an idle relay asks at most once per poll_max however many lanes it has.
 *
 * A lane that is idle lends its slots and blocked keys: it has let its `busy` lock go.
 */
#include <stdlib.h>

#include "app/relay_internal.h"
#include "app/relay_lane.h"
#include "base/err.h"

#define LISTEN_US (200 * MS)       /* how long one wait for a notification is: drains notice it */
#define LISTEN_PEEK_US (1 * SECOND) /* a look all the same: retries fall due, notifications get lost */
#define PEEK_DEADLINE_US (1 * SECOND)
enum { PEEK_BYTES = 64 * 1024, SPANS_MAX = RELAY_LANES_MAX * LIMIT_OUTBOX_BLOCKED_KEYS };

struct watcher {
        struct relay *r;
        struct outbox_session *peeks, *listens; /* one connection cannot do both */
        struct span *blocked;
        int64_t pause_us, next_peek_us;
        bool listening;
};

/* The rows that came for idle lanes; -1: the database did not answer. */
static int peek(struct watcher *w)
{
        struct relay *r = w->r;
        struct outbox_quota quota[EVENT_SLOTS];
        struct outbox_fetch in = {.mode = OUTBOX_OWNED, .quotas = quota, .blocked = w->blocked,
                                  .bytes_max = PEEK_BYTES};
        struct outbox_rows rows = {0};
        struct semel_error err = {0};
        uint32_t idle = 0, found = 0;
        int came = 0;
        int8_t lane_of[EVENT_SLOTS];
        for (int i = 0; i < r->lane_count; i++) {
                struct lane *l = &r->lane[i];
                struct outbox_slot slot[EVENT_SLOTS];
                if (pthread_mutex_trylock(&l->busy) != 0)
                        continue;
                size_t n = l->may_peek ? relay_share_of_lane(r, i, slot) : 0;
                if (n == 0 || in.blocked_count + l->blocked.n > SPANS_MAX) {
                        pthread_mutex_unlock(&l->busy);
                        continue;
                }
                idle |= UINT32_C(1) << i;
                for (size_t j = 0; j < n; j++) {
                        if (l->blocked.full >> slot[j].slot & 1)
                                continue;
                        lane_of[slot[j].slot] = (int8_t)i;
                        quota[in.quota_count++] = (struct outbox_quota){slot[j], 1};
                }
                for (size_t j = 0; j < l->blocked.n; j++)
                        w->blocked[in.blocked_count++] = blocked_keys_key(&l->blocked, j);
        }
        if (in.quota_count > 0) {
                atomic_fetch_add(&r->metrics.peeks, 1);
                came = w->peeks->vt->fetch(w->peeks, &in, clock_boot_us() + PEEK_DEADLINE_US, &rows,
                                           &err) == SEMEL_OK
                               ? (int)rows.n
                               : -1;
                for (size_t i = 0; i < rows.n; i++)
                        found |= UINT32_C(1) << lane_of[rows.row[i].slot];
                outbox_rows_release(&rows);
        }
        for (int i = 0; i < r->lane_count; i++) {
                if (idle >> i & 1)
                        pthread_mutex_unlock(&r->lane[i].busy);
                if (found >> i & 1)
                        lane_wake(&r->lane[i]);
        }
        return came;
}

/* One wait for a notification.  Ends listening, and says so, where it cannot work. */
static void listen_once(struct watcher *w)
{
        struct relay *r = w->r;
        struct semel_error err = {0};
        uint32_t slots = 0;
        semel_code code = w->listens->vt->listen(w->listens, LISTEN_US, &slots, &err);
        if (code == SEMEL_OK) {
                if (slots == 0)
                        return;
                atomic_fetch_add(&r->metrics.wakes, 1);
                relay_share_wake(r, slots);
        } else if (code == SEMEL_ERR_REFUSED || code == SEMEL_ERR_ARGUMENT) {
                w->listening = false;
                if (r->config->listen == RELAY_LISTEN_ON)
                        relay_fail(r, &err);
                else
                        relay_say(r, "polling each %lld ms at most: %s",
                                  (long long)(r->config->poll_max_us / MS), err.text);
        } else {
                wakeup_wait(&r->watcher_wakeup, LISTEN_US);
        }
}

static void look(struct watcher *w)
{
        const struct relay_config *c = w->r->config;
        int64_t begun_us = clock_boot_us();
        int came = peek(w);
        if (came > 0)
                w->pause_us = c->poll_min_us;
        else if (came < 0)
                w->pause_us = 250 * MS;
        else
                w->pause_us = outbox_look_pause_us(w->pause_us, c->poll_max_us,
                                                   clock_boot_us() - begun_us);
        w->next_peek_us = clock_boot_us() + (w->listening ? LISTEN_PEEK_US : w->pause_us);
}

void *relay_watcher_main(void *arg)
{
        struct relay *r = arg;
        struct watcher w = {.r = r, .pause_us = r->config->poll_min_us,
                            .listening = r->config->listen != RELAY_LISTEN_OFF};
        struct semel_error err = {0};
        w.blocked = malloc(SPANS_MAX * sizeof w.blocked[0]);
        semel_code code = w.blocked ? relay_session_open(r, "semel relay watcher", &w.peeks, &err)
                                    : err_set(&err, SEMEL_ERR_NO_MEMORY, "no memory for the relay");
        if (code == SEMEL_OK && w.listening)
                code = relay_session_open(r, "semel relay listener", &w.listens, &err);
        if (code != SEMEL_OK)
                relay_fail(r, &err);
        while (code == SEMEL_OK && !atomic_load(&r->draining)) {
                int64_t now = clock_boot_us();
                atomic_store(&r->watcher.moved_us, now);
                if (now >= w.next_peek_us)
                        look(&w);
                else if (w.listening)
                        listen_once(&w);
                else
                        wakeup_wait(&r->watcher_wakeup, w.next_peek_us - now);
        }
        if (w.peeks)
                w.peeks->vt->close(w.peeks);
        if (w.listens)
                w.listens->vt->close(w.listens);
        free(w.blocked);
        atomic_store(&r->watcher.ended, true);
        daemon_look(r->daemon);
        return NULL;
}
