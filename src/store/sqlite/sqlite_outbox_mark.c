/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_mark: what became of the rows, fenced by epoch, status and attempts as read.
 *
 * A mark may be issued again after an unknown COMMIT: a row that is already as the mark wanted it
 * counts neither as marked nor as changed by others.
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
        bool renamed; /* VACUUM gave the rows of a mapped table other numbers */
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

/* Is the row as this mark leaves it?  Then this mark, or an earlier try of it, did it. */
static semel_code is_done(const struct marking *m, const struct outbox_mark *mark, bool *ret,
                          semel_error *err)
{
        sqlite3_stmt *stmt = outbox_stmt(m->o, OUTBOX_SQL_ROW_STATE);
        if (!stmt)
                return outbox_error(m->o, err);
        (void)sqlite3_bind_int64(stmt, 1, mark->id);
        int rc = sqlite3_step(stmt);
        bool there = rc == SQLITE_ROW, done = false;
        const char *status = there ? (const char *)sqlite3_column_text(stmt, 0) : "";
        int attempts = there ? sqlite3_column_int(stmt, 1) : 0;
        status = status ? status : "";
        switch (mark->verdict) {
        case OUTBOX_DONE:
                done = m->keep ? strcmp(status, "PUBLISHED") == 0 : !there;
                break;
        case OUTBOX_RETRY:
                done = strcmp(status, "PENDING") == 0 && attempts == mark->attempts + 1;
                break;
        case OUTBOX_BURY:
                done = strcmp(status, "DEAD") == 0 && attempts == mark->attempts + 1;
                break;
        case OUTBOX_UNTRIED:
                done = strcmp(status, "PENDING") == 0 && attempts == mark->attempts;
                break;
        }
        int final = sqlite3_reset(stmt);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return sqlite_error(m->o->ses.db, final, m->o->path, err);
        *ret = done;
        return SEMEL_OK;
}

static semel_code mark_one(struct marking *m, const struct outbox_mark *mark,
                           struct outbox_marked *ret, semel_error *err)
{
        bool untried = mark->verdict == OUTBOX_UNTRIED, as_wanted = false;
        if (m->lost_mask >> mark->slot & 1)
                return SEMEL_OK;
        if (m->renamed) {
                ret->changed++;
                return SEMEL_OK;
        }
        if (!untried) {
                /* total_changes: what a view's trigger does is not in changes(). */
                int before = sqlite3_total_changes(m->o->ses.db);
                if (outbox_step(m->o, mark_stmt(m, mark)) != SQLITE_OK)
                        return outbox_error(m->o, err);
                if (sqlite3_total_changes(m->o->ses.db) != before) {
                        ret->marked++;
                        return SEMEL_OK;
                }
        }
        semel_code code = is_done(m, mark, &as_wanted, err);
        if (code != SEMEL_OK)
                return code;
        if (!as_wanted)
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
        m->renamed = outbox_is_mapped(&o->mapping) && outbox_schema_cookie(o) != o->schema_cookie;
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
        struct marking m = {.o = o, .keep = keep, .slots = slots, .slot_count = slot_count};
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
