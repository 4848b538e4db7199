/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_world: the database; see relay_world.h.  Snapshots are taken when a call begins, as a
 * SELECT's is; everything else happens at once, when a call returns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/registry.h"
#include "base/err.h"
#include "relay_world_internal.h"

struct fetched {
        struct outbox_row *row;
};

static bool is_behind(const struct world_row *row, int64_t now_us)
{
        for (size_t i = 0; i < world.rows && row->key[0]; i++) {
                const struct world_row *elder = &world.row[i];
                if (elder->id < row->id && !elder->gone && elder->state == OUTBOX_PENDING &&
                    elder->due_us > now_us && strcmp(elder->key, row->key) == 0)
                        return true;
        }
        return false;
}

static int by_bytes(const void *a, const void *b)
{
        const struct span *x = a, *y = b;
        if (x->n != y->n)
                return x->n < y->n ? -1 : 1;
        return memcmp(x->p, y->p, x->n);
}

/* The blocked keys, to be searched. */
static struct span *sorted(const struct outbox_fetch *in)
{
        struct span *keys = calloc(in->blocked_count + 1, sizeof *keys);
        for (size_t i = 0; i < in->blocked_count && keys; i++)
                keys[i] = in->blocked[i];
        if (keys)
                qsort(keys, in->blocked_count, sizeof *keys, by_bytes);
        return keys;
}

static bool is_blocked(const struct span *keys, size_t n, const struct world_row *row)
{
        struct span key = span_str(row->key);
        return key.n > 0 && bsearch(&key, keys, n, sizeof *keys, by_bytes) != NULL;
}

static struct outbox_row as_read(const struct world_row *row)
{
        struct outbox_row out = {.id = row->id, .slot = row->slot, .attempts = row->attempts,
                                 .created_us = 1,
                                 .event = {.topic = span_str(row->topic), .key = span_str(row->key),
                                           .key_is_null = !row->key[0], .payload = span_str(row->payload),
                                           .has_id = true, .partition = EVENT_NO_PARTITION}};
        memcpy(out.event.id, row->event_id, EVENT_ID_BYTES);
        return out;
}

static void release_rows(void *driver)
{
        free(driver);
}

static semel_code db_fetch(struct outbox_session *s, const struct outbox_fetch *in,
                           int64_t deadline_us, struct outbox_rows *ret, semel_error *err)
{
        (void)s;
        (void)deadline_us;
        struct outbox_row *out = calloc(WORLD_ROWS_MAX, sizeof *out);
        struct span *blocked = sorted(in);
        size_t n = 0, rows_max = outbox_fetch_rows_max(in);
        if (!out || !blocked) {
                free(out);
                free(blocked);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory");
        }
        pthread_mutex_lock(&world.lock);
        int64_t now = clock_boot_us();
        for (size_t q = 0; q < in->quota_count; q++) {
                int32_t left = in->quotas[q].rows_max;
                for (size_t i = 0; i < world.rows && left > 0 && n < rows_max; i++) {
                        struct world_row *row = &world.row[i];
                        if (row->gone || row->state != OUTBOX_PENDING || row->due_us > now ||
                            row->slot != in->quotas[q].slot.slot || is_blocked(blocked, in->blocked_count, row) ||
                            is_behind(row, now))
                                continue;
                        out[n++] = as_read(row);
                        left--;
                }
        }
        pthread_mutex_unlock(&world.lock);
        free(blocked);
        *ret = (struct outbox_rows){.row = out, .n = n, .bytes = n, .now_us = 2, .driver = out,
                                    .release = release_rows};
        return SEMEL_OK;
}

static void mark_one(struct world_row *row, const struct outbox_mark *m)
{
        if (!m->event_id || memcmp(m->event_id, row->event_id, EVENT_ID_BYTES) != 0)
                world_broken("row %lld was marked without the id of its event", (long long)row->id);
        if (m->verdict != OUTBOX_UNTRIED)
                world_settled(row);
        row->rejected = false;
        switch (m->verdict) {
        case OUTBOX_DONE:
                row->gone = true;
                break;
        case OUTBOX_RETRY:
                row->attempts++;
                row->due_us = clock_boot_us() + m->retry_after_us;
                break;
        case OUTBOX_BURY:
                row->attempts++;
                row->state = OUTBOX_DEAD;
                break;
        case OUTBOX_UNTRIED:
                break;
        }
}

static uint32_t lost_slots(const struct outbox_slot *slots, size_t n)
{
        uint32_t lost = 0;
        for (size_t i = 0; i < n; i++)
                if (!(world.mine >> slots[i].slot & 1) || world.epoch[slots[i].slot] != slots[i].epoch)
                        lost |= UINT32_C(1) << slots[i].slot;
        return lost;
}

static semel_code db_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                          const struct outbox_slot *slots, size_t slot_count,
                          const struct outbox_mark *marks, size_t n, int64_t deadline_us,
                          struct outbox_marked *ret, semel_error *err)
{
        (void)s;
        (void)mode;
        (void)keep;
        (void)deadline_us;
        pthread_mutex_lock(&world.lock);
        int64_t mark_us = world.mark_us;
        pthread_mutex_unlock(&world.lock);
        world_pass(mark_us);
        pthread_mutex_lock(&world.lock);
        if (world.marks_down) {
                pthread_mutex_unlock(&world.lock);
                return err_set(err, SEMEL_ERR_STORE_DOWN, "the world has no marks now");
        }
        struct outbox_marked out = {.lost_mask = lost_slots(slots, slot_count)};
        out.lost_slots = (size_t)__builtin_popcount(out.lost_mask);
        if (n > 0 && world.change_before_mark) {
                world.change_before_mark = false;
                world_find(marks[0].id)->attempts += 7;
        }
        for (size_t i = 0; i < n; i++) {
                struct world_row *row = world_find(marks[i].id);
                if (out.lost_mask >> marks[i].slot & 1)
                        world.lost_marks++;
                else if (row->gone || row->state != OUTBOX_PENDING ||
                         row->attempts != marks[i].attempts)
                        out.changed++;
                else
                        mark_one(row, &marks[i]);
        }
        out.marked = n - out.changed;
        bool unknown = world.marks_unknown > 0;
        world.marks_unknown -= unknown;
        pthread_mutex_unlock(&world.lock);
        if (unknown)
                return err_set(err, SEMEL_ERR_UNKNOWN, "the world lost the answer to a mark");
        *ret = out;
        return SEMEL_OK;
}

static semel_code db_recover(struct outbox_session *s, bool keep, const struct outbox_slot *slots,
                             size_t slot_count, const int64_t *ids,
                             const uint8_t (*event_ids)[EVENT_ID_BYTES], const int64_t *published_us,
                             size_t n, int64_t deadline_us, size_t *ret_finished, semel_error *err)
{
        (void)s;
        (void)keep;
        (void)published_us; /* nobody has anything sent again here */
        (void)deadline_us;
        size_t finished = 0;
        semel_code code = SEMEL_OK;
        pthread_mutex_lock(&world.lock);
        if (lost_slots(slots, slot_count) != 0)
                code = err_set(err, SEMEL_ERR_LOST, "not ours");
        for (size_t i = 0; i < n && code == SEMEL_OK; i++) {
                struct world_row *row = world_find(ids[i]);
                if (!row || row->gone || memcmp(row->event_id, event_ids[i], EVENT_ID_BYTES) != 0)
                        continue;
                row->gone = true;
                world_settled(row);
                finished++;
        }
        pthread_mutex_unlock(&world.lock);
        if (code == SEMEL_OK)
                *ret_finished = finished;
        return code;
}

static semel_code db_blocked(struct outbox_session *s, uint32_t slot_mask,
                             enum outbox_on_dead on_dead, size_t max, int64_t deadline_us,
                             const struct outbox_blocked **ret, size_t *ret_n, semel_error *err)
{
        static _Thread_local struct outbox_blocked out[64];
        size_t n = 0;
        (void)s;
        (void)deadline_us;
        (void)err;
        pthread_mutex_lock(&world.lock);
        for (size_t i = 0; i < world.rows && n < max && n < 64; i++) {
                const struct world_row *row = &world.row[i];
                bool dead = row->state == OUTBOX_DEAD && on_dead == OUTBOX_BLOCK;
                bool waits = row->state == OUTBOX_PENDING && row->attempts > 0;
                if (row->gone || !row->key[0] || !(slot_mask >> row->slot & 1) || !(dead || waits))
                        continue;
                out[n++] = (struct outbox_blocked){.slot = row->slot, .id = row->id, .dead = dead,
                                                   .key = span_str(row->key)};
        }
        pthread_mutex_unlock(&world.lock);
        *ret = out;
        *ret_n = n;
        return SEMEL_OK;
}

/* -- ownership --------------------------------------------------------------------------------- */

static void see(struct outbox_view *ret)
{
        *ret = (struct outbox_view){.members = world.members, .uuid = {4, 2}};
        for (int i = 0; i < EVENT_SLOTS; i++) {
                bool mine = world.mine >> i & 1, other = world.other >> i & 1;
                ret->slots[i] = (struct outbox_slot_view){.epoch = world.epoch[i], .mine = mine,
                                                          .free = !mine && !other};
                (void)snprintf(ret->slots[i].owner, sizeof ret->slots[i].owner, "%s",
                               other ? "other" : "");
        }
}

static semel_code db_check(struct outbox_session *s, enum outbox_mode mode, int64_t deadline_us,
                           struct outbox_view *ret, semel_error *err)
{
        (void)s;
        (void)mode;
        (void)deadline_us;
        (void)err;
        pthread_mutex_lock(&world.lock);
        see(ret);
        pthread_mutex_unlock(&world.lock);
        return SEMEL_OK;
}

static semel_code db_beat(struct outbox_session *s, const struct outbox_member *me, int64_t lease_us,
                          int64_t deadline_us, struct outbox_view *ret, semel_error *err)
{
        (void)s;
        (void)me;
        (void)deadline_us;
        pthread_mutex_lock(&world.lock);
        bool down = world.beats_down;
        int64_t answer_us = world.beat_answer_us;
        if (!down) {
                world.lease_end_us = clock_boot_us() + lease_us;
                see(ret);
        }
        pthread_mutex_unlock(&world.lock);
        world_pass(answer_us);
        return down ? err_set(err, SEMEL_ERR_STORE_DOWN, "the world has no beats now") : SEMEL_OK;
}

static semel_code db_take(struct outbox_session *s, const struct outbox_member *me,
                          enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                          int64_t deadline_us, struct outbox_view *ret, semel_error *err)
{
        (void)mode;
        pthread_mutex_lock(&world.lock);
        for (int i = 0; i < EVENT_SLOTS && !world.beats_down; i++)
                if ((slot_mask & ~world.mine & ~world.other) >> i & 1) {
                        world.epoch[i]++;
                        world.mine |= UINT32_C(1) << i;
                }
        pthread_mutex_unlock(&world.lock);
        return db_beat(s, me, lease_us, deadline_us, ret, err);
}

static semel_code db_give(struct outbox_session *s, const struct outbox_member *me,
                          uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                          semel_error *err)
{
        (void)s;
        (void)me;
        (void)unsettled;
        (void)deadline_us;
        (void)err;
        pthread_mutex_lock(&world.lock);
        for (size_t i = 0; i < world.rows; i++)
                if ((slot_mask >> world.row[i].slot & 1) && world.row[i].handed)
                        world_broken("C2: slot %d is given up while row %lld is not marked",
                                     world.row[i].slot, (long long)world.row[i].id);
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i] += slot_mask >> i & 1;
        world.mine &= ~slot_mask;
        world.other |= slot_mask; /* somebody waits for them */
        world.gives++;
        pthread_mutex_unlock(&world.lock);
        return SEMEL_OK;
}

static semel_code db_leave(struct outbox_session *s, const struct outbox_member *me,
                           uint32_t unsettled, int64_t deadline_us, semel_error *err)
{
        (void)s;
        (void)me;
        (void)unsettled;
        (void)deadline_us;
        (void)err;
        return SEMEL_OK;
}

/* -- what a relay asks beside it ------------------------------------------------------------------ */

static void db_abandon(struct outbox_session *s)
{
        (void)s;
}

static semel_code db_unstick(struct outbox_session *s, const struct outbox_slot *slots,
                             size_t slot_count, int64_t stuck_after_us, int64_t deadline_us,
                             size_t *ret_rows, semel_error *err)
{
        (void)s;
        (void)slots;
        (void)slot_count;
        (void)stuck_after_us;
        (void)deadline_us;
        (void)err;
        *ret_rows = 0;
        return SEMEL_OK;
}

static semel_code db_listen(struct outbox_session *s, int64_t timeout_us, uint32_t *ret_slots,
                            semel_error *err)
{
        (void)s;
        (void)timeout_us;
        (void)ret_slots;
        return err_set(err, SEMEL_ERR_REFUSED, "nobody tells");
}

static semel_code db_stats(struct outbox_session *s, int64_t deadline_us, struct outbox_stats *ret,
                           semel_error *err)
{
        (void)s;
        (void)deadline_us;
        (void)ret;
        return err_set(err, SEMEL_ERR_STORE_DOWN, "nobody counts");
}

static void db_close(struct outbox_session *s)
{
        free(s);
}

static semel_code db_open(const char *url, const struct outbox_mapping *mapping, const char *name,
                          struct outbox_session **ret, semel_error *err)
{
        static const struct outbox_vt vt = {
                .name = "world", .check = db_check, .beat = db_beat, .take = db_take,
                .give = db_give, .leave = db_leave, .fetch = db_fetch, .mark = db_mark,
                .abandon = db_abandon, .blocked = db_blocked, .recover = db_recover,
                .unstick = db_unstick, .listen = db_listen, .stats = db_stats, .close = db_close,
        };
        (void)url;
        (void)mapping;
        (void)name;
        struct outbox_session *s = calloc(1, sizeof *s);
        if (!s)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory");
        s->vt = &vt;
        *ret = s;
        return SEMEL_OK;
}

void world_db_register(void)
{
        static const struct store_driver driver = {.scheme = "sqlite", .outbox_open = db_open};
        semel_internal_driver_register(&driver);
}
