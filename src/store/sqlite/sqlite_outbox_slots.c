/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_slots: who may publish (rule C1), on a file whose relay is one process.
 *
 * The relay's lock says who lives, the rows of semel_relay_slot say which epoch a mark must have.
 * Both are needed: the lock dies with its process at once, and the epochs outlast a side file that
 * somebody deleted.
 */
#include "store/sqlite/sqlite_outbox.h"

#include <stdio.h>

semel_code outbox_load_slots(struct sqlite_outbox *o, struct slot_row ret[EVENT_SLOTS],
                             semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_SLOTS);
        int rc, found = 0;
        if (!stmt)
                return outbox_error(o, err);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                int slot = sqlite3_column_int(stmt, 0);
                if (slot < 0 || slot >= EVENT_SLOTS)
                        continue;
                struct slot_row *row = &ret[slot];
                struct span owner = column_span(stmt, 2);
                *row = (struct slot_row){.epoch = sqlite3_column_int64(stmt, 1),
                                         .owned = owner.n == sizeof row->owner};
                if (row->owned)
                        memcpy(row->owner, owner.p, owner.n);
                struct span info = column_span(stmt, 3);
                (void)snprintf(row->info, sizeof row->info, "%.*s", (int)info.n,
                               info.n ? (const char *)info.p : "");
                found++;
        }
        int final = sqlite3_reset(stmt);
        if (rc != SQLITE_DONE)
                return sqlite_error(o->ses.db, final, o->path, err);
        if (found < EVENT_SLOTS)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "%s has lost rows of semel_relay_slot: restore a backup", o->path);
        return SEMEL_OK;
}

static bool is_mine(const struct sqlite_outbox *o, const struct slot_row *row,
                    const struct outbox_member *me)
{
        return me && o->holds_relay && row->owned &&
               memcmp(row->owner, me->id, sizeof row->owner) == 0;
}

static void fill_view(const struct sqlite_outbox *o, const struct slot_row rows[EVENT_SLOTS],
                      const struct outbox_member *me, int64_t lease_us, struct outbox_view *view)
{
        bool elsewhere = gate_relay_elsewhere(&o->gate);
        /* Never more than one: a second relay only waits, and must not take a share away. */
        view->members = o->holds_relay || elsewhere || me ? 1 : 0;
        view->mode = OUTBOX_OWNED;
        for (int i = 0; i < EVENT_SLOTS; i++) {
                struct outbox_slot_view *slot = &view->slots[i];
                *slot = (struct outbox_slot_view){.epoch = rows[i].epoch,
                                                  .mine = is_mine(o, &rows[i], me)};
                slot->free = !slot->mine && !elsewhere;
                if (!rows[i].owned || slot->free)
                        continue;
                /* The lock is as good as a lease that is always just renewed. */
                slot->lease_left_us = lease_us;
                memcpy(slot->owner, rows[i].info, sizeof slot->owner);
                memcpy(slot->owner_id, rows[i].owner, sizeof slot->owner_id);
        }
}

/* uuid and mode. */
static semel_code load_meta(struct sqlite_outbox *o, struct outbox_view *view, semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_META);
        semel_code code = SEMEL_OK;
        if (!stmt || sqlite3_step(stmt) != SQLITE_ROW) {
                code = sqlite3_errcode(o->ses.db) == SQLITE_DONE
                               ? err_set(err, SEMEL_ERR_SCHEMA,
                                         "%s has lost its row in semel_outbox_meta: restore a backup",
                                         o->path)
                               : outbox_error(o, err);
                goto out;
        }
        struct span uuid = column_span(stmt, 0);
        if (uuid.n != sizeof view->uuid) {
                code = err_set(err, SEMEL_ERR_CORRUPT, "%s has a damaged row in semel_outbox_meta",
                               o->path);
                goto out;
        }
        memcpy(view->uuid, uuid.p, sizeof view->uuid);
out:
        if (stmt)
                (void)sqlite3_reset(stmt);
        return code;
}

static semel_code need_owned(enum outbox_mode mode, semel_error *err)
{
        if (mode == OUTBOX_OWNED)
                return SEMEL_OK;
        return err_set(err, SEMEL_ERR_ARGUMENT,
                       "on SQLite the relay is one process in mode owned; --mode %s needs PostgreSQL",
                       outbox_mode_name(mode));
}

static semel_code read_view(struct sqlite_outbox *o, const struct outbox_member *me,
                            int64_t lease_us, struct outbox_view *ret_view, semel_error *err)
{
        struct slot_row rows[EVENT_SLOTS];
        struct outbox_view view = {0};
        semel_code code = outbox_begin_read(o, err);
        if (code != SEMEL_OK)
                return code;
        code = load_meta(o, &view, err);
        if (code == SEMEL_OK)
                code = outbox_load_slots(o, rows, err);
        outbox_end_read(o);
        if (code != SEMEL_OK)
                return code;
        fill_view(o, rows, me, lease_us, &view);
        *ret_view = view;
        return SEMEL_OK;
}

semel_code sqlite_outbox_check(struct outbox_session *s, enum outbox_mode mode,
                               int64_t deadline_us, struct outbox_view *ret_view,
                               semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        semel_code code = need_owned(mode, err);
        if (code == SEMEL_OK)
                code = outbox_ready(o, deadline_us, err);
        return code == SEMEL_OK ? read_view(o, NULL, INT64_MAX, ret_view, err) : code;
}

semel_code sqlite_outbox_beat(struct outbox_session *s, const struct outbox_member *me,
                              int64_t lease_us, int64_t deadline_us, struct outbox_view *ret_view,
                              semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        semel_code code = outbox_ready(o, deadline_us, err);
        return code == SEMEL_OK ? read_view(o, me, lease_us, ret_view, err) : code;
}

/* In a write transaction that holds the lock: whoever else is named in a row is gone. */
static semel_code take_rows(struct sqlite_outbox *o, const struct outbox_member *me, uint32_t mask,
                            struct slot_row rows[EVENT_SLOTS], semel_error *err)
{
        for (int i = 0; i < EVENT_SLOTS; i++) {
                if (!(mask >> i & 1) || is_mine(o, &rows[i], me))
                        continue;
                sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_SLOT_TAKE);
                if (stmt) {
                        (void)sqlite3_bind_int(stmt, 1, i);
                        (void)sqlite3_bind_blob(stmt, 2, me->id, sizeof me->id, SQLITE_STATIC);
                        bind_str(stmt, 3, me->info);
                }
                if (outbox_step(o, stmt) != SQLITE_OK)
                        return outbox_error(o, err);
        }
        return SEMEL_OK;
}

static bool owns_any(const struct sqlite_outbox *o, const struct slot_row rows[EVENT_SLOTS],
                     const struct outbox_member *me)
{
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (is_mine(o, &rows[i], me))
                        return true;
        return false;
}

static void give_lock(struct sqlite_outbox *o)
{
        if (o->holds_relay)
                gate_relay_give(&o->gate);
        o->holds_relay = false;
}

semel_code sqlite_outbox_take(struct outbox_session *s, const struct outbox_member *me,
                              enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                              int64_t deadline_us, struct outbox_view *ret_view, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        struct slot_row rows[EVENT_SLOTS];
        semel_code code = need_owned(mode, err);
        if (code == SEMEL_OK)
                code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        bool had = o->holds_relay;
        if (!had)
                o->holds_relay = gate_relay_take(&o->gate);
        if (!o->holds_relay)
                return read_view(o, me, lease_us, ret_view, err);
        code = outbox_begin_write(o, err);
        if (code == SEMEL_OK) {
                code = outbox_load_slots(o, rows, err);
                if (code == SEMEL_OK)
                        code = take_rows(o, me, slot_mask & EVENT_ALL_SLOTS, rows, err);
                code = outbox_end(o, code, err);
        }
        if (code == SEMEL_OK)
                code = read_view(o, me, lease_us, ret_view, err);
        else if (!had)
                give_lock(o);
        return code;
}

static semel_code give_rows(struct sqlite_outbox *o, const struct outbox_member *me, uint32_t mask,
                            bool *ret_any_left, semel_error *err)
{
        struct slot_row rows[EVENT_SLOTS];
        semel_code code = outbox_begin_write(o, err);
        if (code != SEMEL_OK)
                return code;
        for (int i = 0; i < EVENT_SLOTS && code == SEMEL_OK; i++) {
                if (!(mask >> i & 1))
                        continue;
                sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_SLOT_GIVE);
                if (stmt) {
                        (void)sqlite3_bind_int(stmt, 1, i);
                        (void)sqlite3_bind_blob(stmt, 2, me->id, sizeof me->id, SQLITE_STATIC);
                }
                if (outbox_step(o, stmt) != SQLITE_OK)
                        code = outbox_error(o, err);
        }
        if (code == SEMEL_OK)
                code = outbox_load_slots(o, rows, err);
        if (code != SEMEL_OK)
                return outbox_abort(o, code);
        bool left = owns_any(o, rows, me);
        code = outbox_commit(o, err);
        if (code == SEMEL_OK)
                *ret_any_left = left;
        return code;
}

semel_code sqlite_outbox_give(struct outbox_session *s, const struct outbox_member *me,
                              uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                              semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        bool left = true;
        (void)unsettled; /* there is no exactly-once here */
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK || !o->holds_relay)
                return code;
        code = give_rows(o, me, slot_mask & EVENT_ALL_SLOTS, &left, err);
        if (code == SEMEL_OK && !left)
                give_lock(o);
        return code;
}

semel_code sqlite_outbox_leave(struct outbox_session *s, const struct outbox_member *me,
                               uint32_t unsettled, int64_t deadline_us, semel_error *err)
{
        (void)unsettled;
        struct sqlite_outbox *o = outbox_of(s);
        bool left = true;
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code == SEMEL_OK && o->holds_relay)
                code = give_rows(o, me, EVENT_ALL_SLOTS, &left, err);
        give_lock(o); /* also when the rows keep our name: without the lock it means nothing */
        return code;
}
