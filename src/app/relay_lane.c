/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_lane: see relay_lane.h.  The rounds of a lane; waves and marks have files of their own.
 */
#include "app/relay_lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "sys/random.h"

#define FETCH_DEADLINE_US (30 * SECOND)
#define UNSTICK_DEADLINE_US (10 * SECOND)
#define IDLE_US (10 * SECOND)      /* a look for all that: nobody should need it */
#define TROUBLE_US (200 * MS)      /* after a failure of the database or the broker */
enum { BLOCKED_BYTES_MAX = 1024 * 1024 };

/* -- memory ------------------------------------------------------------------------------------------- */

semel_code lane_init(struct lane *l, struct relay *r, int index, semel_error *err)
{
        size_t max = (size_t)r->config->batch_rows + EVENT_SLOTS, table = wave_table_size(max);
        l->r = r;
        l->index = index;
        l->batch_size = LANE_BATCH_SIZE;
        outbox_quotas_init(&l->quotas);
        buf_init(&l->reasons, LANE_REASONS_BYTES_MAX);
        buf_init(&l->marker, SIZE_MAX);
        (void)random_bytes(&l->chance, sizeof l->chance);
        struct wave_row *rows = calloc(max, sizeof *rows);
        int32_t *slots = calloc(table, sizeof *slots), *ready = calloc(max, sizeof *ready);
        struct blocked_key *keys = calloc(LIMIT_OUTBOX_BLOCKED_KEYS, sizeof *keys);
        uint8_t *bytes = malloc(BLOCKED_BYTES_MAX);
        l->key = calloc(max, sizeof l->key[0]);
        l->topic_of = calloc(max, sizeof l->topic_of[0]);
        l->reason_of = calloc(max, sizeof l->reason_of[0]);
        l->mark = calloc(max, sizeof l->mark[0]);
        l->blocked_span = calloc(LIMIT_OUTBOX_BLOCKED_KEYS, sizeof l->blocked_span[0]);
        wave_init(&l->wave, max, rows, slots, ready, table);
        blocked_keys_init(&l->blocked, keys, LIMIT_OUTBOX_BLOCKED_KEYS, bytes, BLOCKED_BYTES_MAX);
        if (!rows || !slots || !ready || !keys || !bytes || !l->key || !l->topic_of ||
            !l->reason_of || !l->mark || !l->blocked_span || wakeup_init(&l->wakeup) != 0 ||
            pthread_mutex_init(&l->busy, NULL) != 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the relay");
        char name[32];
        (void)snprintf(name, sizeof name, "semel relay lane %d", index);
        return relay_session_open(r, name, &l->s, err);
}

void lane_release(struct lane *l)
{
        bus_producer_close(l->p);
        if (l->s)
                l->s->vt->close(l->s);
        buf_release(&l->reasons);
        buf_release(&l->marker);
        free(l->wave.row);
        free(l->wave.table);
        free(l->wave.ready);
        free(l->blocked.key);
        free(l->blocked.bytes);
        free(l->key);
        free(l->topic_of);
        free(l->reason_of);
        free(l->mark);
        free(l->blocked_span);
}

void lane_wake(struct lane *l)
{
        wakeup_send(&l->wakeup);
}

/* -- before a batch -------------------------------------------------------------------------------------- */

/* A slot that is new here: what its last owner found blocked is found again (rule C5). */
static void forget_old_slots(struct lane *l)
{
        uint32_t gone = 0;
        for (size_t i = 0; i < l->slot_count; i++) {
                const struct outbox_slot *s = &l->slot[i];
                if (l->known_epoch[s->slot] == s->epoch)
                        continue;
                gone |= UINT32_C(1) << s->slot;
                l->known_epoch[s->slot] = 0;
                l->recovered = false;
        }
        uint32_t mine = 0;
        for (size_t i = 0; i < l->slot_count; i++)
                mine |= UINT32_C(1) << l->slot[i].slot;
        for (int16_t i = 0; i < EVENT_SLOTS; i++)
                if (!(mine >> i & 1) && l->known_epoch[i] != 0) {
                        l->known_epoch[i] = 0; /* somebody else's by now */
                        l->recovered = false;
                        gone |= UINT32_C(1) << i;
                }
        blocked_keys_forget_slots(&l->blocked, gone);
        l->suspects &= ~gone;
}

/* Two-phase: what dead relays left.  Between two batches, so that none of it is ours. */
static bool unstick(struct lane *l)
{
        struct relay *r = l->r;
        struct semel_error err = {0};
        size_t rows = 0;
        int64_t now = clock_boot_us();
        if (r->mode != OUTBOX_TWO_PHASE || now < l->unstick_us)
                return true;
        if (l->s->vt->unstick(l->s, l->slot, l->slot_count, r->config->stuck_after_us,
                              relay_deadline_us(r, now + UNSTICK_DEADLINE_US), &rows,
                              &err) != SEMEL_OK) {
                relay_db_away(r, &err);
                return false;
        }
        int64_t each_us = r->config->stuck_after_us / 4;
        l->unstick_us = now + (each_us < 5 * SECOND ? each_us : 5 * SECOND);
        if (rows > 0) {
                atomic_fetch_add(&r->metrics.unstuck_rows, rows);
                relay_say(r, "put back %zu row%s that a dead relay had left PUBLISHING", rows,
                          rows == 1 ? "" : "s");
        }
        return true;
}

/* -- reading ----------------------------------------------------------------------------------------------- */

static int32_t rows_max(const struct lane *l)
{
        int32_t most = (int32_t)l->r->config->batch_rows;
        return l->suspects != 0 && most > LANE_APART_ROWS ? LANE_APART_ROWS : most;
}

static void learn(struct lane *l, const int16_t *order, const int32_t *rows, size_t n)
{
        const struct relay_config *c = l->r->config;
        int32_t of_slot[EVENT_SLOTS] = {0}, got[EVENT_SLOTS];
        int64_t oldest_us = l->rows.now_us;
        for (size_t i = 0; i < l->rows.n; i++) {
                of_slot[l->rows.row[i].slot]++;
                if (l->rows.row[i].created_us > 0 && l->rows.row[i].created_us < oldest_us)
                        oldest_us = l->rows.row[i].created_us;
        }
        for (size_t i = 0; i < n; i++)
                got[i] = of_slot[order[i]];
        l->cut = l->rows.n >= (size_t)rows_max(l) || l->rows.bytes >= (size_t)c->batch_bytes;
        outbox_quotas_learn(&l->quotas, order, rows, got, n, l->cut);
        atomic_store(&l->r->metrics.lag_us[l->index],
                     l->rows.n > 0 && l->rows.now_us > oldest_us ? l->rows.now_us - oldest_us : 0);
}

/* Rows of the slots that we hold.  false: the database did not answer. */
static bool fetch(struct lane *l)
{
        struct relay *r = l->r;
        struct outbox_quota quota[EVENT_SLOTS];
        int16_t slot[EVENT_SLOTS], order[EVENT_SLOTS];
        int32_t rows[EVENT_SLOTS];
        struct semel_error err = {0};
        size_t n = 0;
        for (size_t i = 0; i < l->slot_count; i++)
                if (!(l->blocked.full >> l->slot[i].slot & 1))
                        slot[n++] = l->slot[i].slot;
        if (n == 0)
                return true;
        outbox_quotas_plan(&l->quotas, slot, n, rows_max(l), order, rows);
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < l->slot_count; j++)
                        if (l->slot[j].slot == order[i])
                                quota[i] = (struct outbox_quota){l->slot[j], rows[i]};
        for (size_t i = 0; i < l->blocked.n; i++)
                l->blocked_span[i] = blocked_keys_key(&l->blocked, i);
        const struct outbox_fetch in = {.mode = r->mode, .quotas = quota, .quota_count = n,
                                        .rows_max = (size_t)rows_max(l),
                                        .blocked = l->blocked_span, .blocked_count = l->blocked.n,
                                        .bytes_max = (size_t)r->config->batch_bytes};
        semel_code code = l->s->vt->fetch(
                l->s, &in, relay_deadline_us(r, clock_boot_us() + FETCH_DEADLINE_US), &l->rows, &err);
        if (code == SEMEL_ERR_LOST) { /* two-phase: the epochs have moved on: the keeper hears of it */
                wakeup_send(&r->keeper_wakeup);
                return false;
        }
        if (code != SEMEL_OK) {
                relay_db_away(r, &err);
                return false;
        }
        relay_db_back(r);
        learn(l, order, rows, n);
        return true;
}

/* -- rounds --------------------------------------------------------------------------------------------------- */

enum round { ROUND_ROWS, ROUND_NOTHING, ROUND_TROUBLE };

static void publish(struct lane *l)
{
        struct relay *r = l->r;
        bool ready = lane_wave_begin(l);
        atomic_fetch_add(&r->metrics.batches, 1);
        relay_observe_rows(&r->metrics, (int64_t)l->rows.n);
        if (r->mode == OUTBOX_EXACTLY_ONCE) {
                if (ready && l->recovered)
                        lane_transaction(l);
                return;
        }
        if (ready)
                lane_wave_run(l, NULL);
        (void)lane_settle(l, false);
}

static enum round round_of(struct lane *l)
{
        struct relay *r = l->r;
        l->may_peek = false;
        l->slot_count = relay_share_hold(r, l->index, l->slot);
        if (l->slot_count == 0) { /* what it knew of the broker, or waited for, is others' business now */
                (void)lane_broker_forget(l);
                atomic_store(&r->metrics.lag_us[l->index], 0);
                return ROUND_NOTHING;
        }
        forget_old_slots(l);
        (void)blocked_keys_release_due(&l->blocked, clock_boot_us());
        if (!lane_broker_ready(l) || (r->mode == OUTBOX_EXACTLY_ONCE && !lane_recover(l)) ||
            !lane_blocked_refresh(l) || !unstick(l) || !fetch(l))
                return ROUND_TROUBLE;
        size_t rows = l->rows.n;
        atomic_fetch_add(&r->metrics.rows_under_way, (int64_t)rows);
        if (rows > 0)
                publish(l);
        else
                l->s->vt->abandon(l->s); /* single: the transaction that found nothing */
        outbox_rows_release(&l->rows);
        atomic_fetch_sub(&r->metrics.rows_under_way, (int64_t)rows);
        l->may_peek = rows == 0;
        if (rows > 0 && (l->broker_away || atomic_load(&r->db_away)))
                return ROUND_TROUBLE;
        return rows > 0 ? ROUND_ROWS : ROUND_NOTHING;
}

static void idle(struct lane *l, int64_t us)
{
        int64_t due_us = blocked_keys_next_due(&l->blocked), now = clock_boot_us();
        if (l->may_peek && due_us != INT64_MAX && due_us - now < us)
                us = due_us > now ? due_us - now : 0;
        if (l->may_peek && blocked_keys_any_dead(&l->blocked) && l->refresh_us - now < us)
                us = l->refresh_us > now ? l->refresh_us - now : 0;
        if (l->r->mode == OUTBOX_TWO_PHASE && l->may_peek && l->unstick_us - now < us)
                us = l->unstick_us > now ? l->unstick_us - now : 0;
        pthread_mutex_unlock(&l->busy);
        wakeup_wait(&l->wakeup, us);
        pthread_mutex_lock(&l->busy);
}

static void *lane_main(void *arg)
{
        struct lane *l = arg;
        struct relay *r = l->r;
        pthread_mutex_lock(&l->busy);
        while (!atomic_load(&r->draining)) {
                atomic_store(&l->thread.moved_us, clock_boot_us());
                enum round round = round_of(l);
                relay_share_let_go(r, l->index);
                atomic_store(&r->metrics.blocked_keys[l->index],
                             l->slot_count ? (int64_t)l->blocked.n : 0);
                if (round == ROUND_TROUBLE)
                        idle(l, TROUBLE_US);
                else if (round == ROUND_NOTHING)
                        idle(l, IDLE_US);
        }
        bus_producer_close(l->p);
        l->p = NULL;
        l->may_peek = false;
        pthread_mutex_unlock(&l->busy);
        atomic_store(&l->thread.ended, true);
        wakeup_send(&r->keeper_wakeup);
        daemon_look(r->daemon);
        return NULL;
}

semel_code lane_start(struct lane *l, semel_error *err)
{
        return relay_thread_start(&l->thread, lane_main, l, err);
}
