/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_mark: what became of the rows, fenced by epoch, status and attempts as read, and in
 * a user's table by the event's id, since SQLite gives its numbers again.
 *
 * A mark may be issued again after an unknown COMMIT, or when the chunks before the one that failed
 * are committed: a row that is already as the mark wanted it counts neither as marked nor as changed
 * by others.
 */
#include "store/sqlite/sqlite_outbox.h"

#include "core/limits.h"

enum {
        /* Rows of one transaction: some 10 ms, so that whoever appends meanwhile hardly waits. */
        MARK_ROWS = 1000,
};

struct marking {
        struct sqlite_outbox *o;
        bool keep;
        const struct outbox_slot *slots;
        size_t slot_count;
        uint32_t lost_mask;
        bool mapped;  /* a user's table */
        bool renamed; /* VACUUM gave its rows other numbers */
};

/* In the transaction: whose slots are ours no more? */
static semel_code look_at_slots(struct marking *m, semel_error *err)
{
        struct slot_row rows[EVENT_SLOTS];
        semel_code code = outbox_load_slots(m->o, rows, err);
        if (code != SEMEL_OK)
                return code;
        uint32_t ours = 0;
        for (size_t i = 0; i < m->slot_count; i++) {
                int slot = m->slots[i].slot;
                if (slot >= 0 && slot < EVENT_SLOTS && rows[slot].owned &&
                    rows[slot].epoch == m->slots[i].epoch)
                        ours |= UINT32_C(1) << slot;
        }
        m->lost_mask = ~ours;
        return SEMEL_OK;
}

static sqlite3_stmt *mark_stmt(const struct marking *m, const struct outbox_mark *mark)
{
        struct sqlite_outbox *o = m->o;
        int64_t now_us = o->ses.now.wall_us;
        sqlite3_stmt *stmt = NULL;
        switch (mark->verdict) {
        case OUTBOX_DONE:
                stmt = outbox_stmt(o, m->keep ? OUTBOX_SQL_DONE_KEEP : OUTBOX_SQL_DONE_DELETE);
                if (stmt && m->keep)
                        (void)sqlite3_bind_int64(stmt, 3, now_us);
                break;
        case OUTBOX_RETRY:
                stmt = outbox_stmt(o, OUTBOX_SQL_LATER);
                if (stmt) {
                        (void)sqlite3_bind_int64(stmt, 3, now_us + mark->retry_after_us);
                        bind_str(stmt, 4, mark->reason);
                }
                break;
        case OUTBOX_BURY:
                stmt = outbox_stmt(o, OUTBOX_SQL_BURY);
                if (stmt)
                        bind_str(stmt, 3, mark->reason);
                break;
        case OUTBOX_UNTRIED: /* nothing to write; not asked for */
                break;
        }
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, mark->id);
                (void)sqlite3_bind_int(stmt, 2, mark->attempts);
        }
        return stmt;
}

struct found {
        bool there;
        enum outbox_state state;
        int attempts;
};

static enum outbox_state state_of(const char *status)
{
        for (int i = 0; status && i < OUTBOX_STATES; i++)
                if (strcmp(status, outbox_state_name((enum outbox_state)i)) == 0)
                        return (enum outbox_state)i;
        return OUTBOX_STATES;
}

/* The row as it is now.  SQLite gives a number of a user's table again once its row is gone: a row with
 * another event id is not the one that was read, which then is not there. */
static semel_code look(const struct marking *m, const struct outbox_mark *mark, struct found *ret,
                       semel_error *err)
{
        uint8_t event_id[EVENT_ID_BYTES];
        struct found found = {.state = OUTBOX_STATES};
        sqlite3_stmt *stmt = outbox_stmt(m->o, OUTBOX_SQL_ROW_STATE);
        if (!stmt)
                return outbox_error(m->o, err);
        (void)sqlite3_bind_int64(stmt, 1, mark->id);
        int rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
                outbox_event_id(column_span(stmt, 2), event_id);
                found.there = !mark->event_id || memcmp(event_id, mark->event_id, EVENT_ID_BYTES) == 0;
        }
        if (found.there) {
                found.state = state_of((const char *)sqlite3_column_text(stmt, 0));
                found.attempts = sqlite3_column_int(stmt, 1);
        }
        int final = sqlite3_reset(stmt);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return sqlite_error(m->o->ses.db, final, m->o->path, err);
        *ret = found;
        return SEMEL_OK;
}

/* Is the row as this mark leaves it?  Then this mark, or an earlier try of it, did it. */
static bool is_done(const struct marking *m, const struct outbox_mark *mark, const struct found *row)
{
        switch (mark->verdict) {
        case OUTBOX_DONE:
                return m->keep ? row->state == OUTBOX_PUBLISHED : !row->there;
        case OUTBOX_RETRY:
                return row->state == OUTBOX_PENDING && row->attempts == mark->attempts + 1;
        case OUTBOX_BURY:
                return row->state == OUTBOX_DEAD && row->attempts == mark->attempts + 1;
        case OUTBOX_UNTRIED:
                return row->state == OUTBOX_PENDING && row->attempts == mark->attempts;
        }
        return false;
}

static semel_code mark_one(struct marking *m, const struct outbox_mark *mark,
                           struct outbox_marked *ret, semel_error *err)
{
        bool untried = mark->verdict == OUTBOX_UNTRIED;
        struct found row = {.there = true};
        semel_code code = SEMEL_OK;
        if (m->lost_mask >> mark->slot & 1)
                return SEMEL_OK;
        if (m->renamed) {
                ret->changed++;
                return SEMEL_OK;
        }
        if (m->mapped) /* semel's own table gives no number twice (AUTOINCREMENT) */
                code = look(m, mark, &row, err);
        if (code == SEMEL_OK && !untried && row.there) {
                /* total_changes: what a view's trigger does is not in changes(). */
                int before = sqlite3_total_changes(m->o->ses.db);
                if (outbox_step(m->o, mark_stmt(m, mark)) != SQLITE_OK)
                        return outbox_error(m->o, err);
                if (sqlite3_total_changes(m->o->ses.db) != before) {
                        ret->marked++;
                        return SEMEL_OK;
                }
        }
        if (code == SEMEL_OK)
                code = look(m, mark, &row, err);
        if (code != SEMEL_OK)
                return code;
        if (!is_done(m, mark, &row))
                ret->changed++;
        else if (untried)
                ret->marked++;
        return SEMEL_OK;
}

static semel_code mark_some(struct marking *m, const struct outbox_mark *marks, size_t n,
                            struct outbox_marked *ret, semel_error *err)
{
        struct sqlite_outbox *o = m->o;
        semel_code code = outbox_begin_write(o, err);
        if (code != SEMEL_OK)
                return code;
        code = look_at_slots(m, err);
        m->renamed = m->mapped && outbox_schema_cookie(o) != o->schema_cookie;
        for (size_t i = 0; i < n && code == SEMEL_OK; i++)
                code = mark_one(m, &marks[i], ret, err);
        return outbox_end(o, code, err);
}

semel_code sqlite_outbox_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                              const struct outbox_slot *slots, size_t slot_count,
                              const struct outbox_mark *marks, size_t mark_count,
                              int64_t deadline_us, struct outbox_marked *ret, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        struct marking m = {.o = o, .keep = keep, .slots = slots, .slot_count = slot_count,
                            .mapped = outbox_is_mapped(&o->mapping)};
        struct outbox_marked result = {0};
        (void)mode;
        semel_code code = outbox_ready(o, deadline_us, err);
        for (size_t at = 0; at < mark_count && code == SEMEL_OK; at += MARK_ROWS) {
                size_t n = mark_count - at < MARK_ROWS ? mark_count - at : MARK_ROWS;
                code = mark_some(&m, marks + at, n, &result, err);
        }
        if (code != SEMEL_OK)
                return code;
        for (size_t i = 0; i < slot_count; i++) {
                uint32_t bit = UINT32_C(1) << slots[i].slot;
                if (m.lost_mask & bit && !(result.lost_mask & bit))
                        result.lost_slots++;
                result.lost_mask |= m.lost_mask & bit;
        }
        *ret = result;
        return SEMEL_OK;
}
