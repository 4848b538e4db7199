/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox: the outbox of one SQLite file (store/outbox.h), in mode `owned` only.
 *
 * One relay owns all slots, behind a lock that the kernel gives up when the process ends
 * (sqlite_gate.h, byte 4): there is no lease to wait for, and a stopped relay is not taken over
 * until somebody continues or kills it.  The epochs in semel_relay_slot fence what is left: a mark
 * under an older epoch changes nothing.
 *
 * Writes pass the gate, are short, and are split, so that the programs that append wait for no
 * more than some 1,000 rows.
 *
 * A table that exists already is seen through a temporary view `semel_outbox` of the connection
 * (sqlite_outbox_map.c): every statement is the same for both.
 */
#ifndef STORE_SQLITE_OUTBOX_H
#define STORE_SQLITE_OUTBOX_H

#include "store/outbox.h"
#include "store/sqlite/sqlite_gate.h"
#include "store/sqlite/sqlite_session.h"

enum outbox_sql {
        OUTBOX_SQL_FETCH,
        OUTBOX_SQL_BLOCKED,
        OUTBOX_SQL_DONE_DELETE,
        OUTBOX_SQL_DONE_KEEP,
        OUTBOX_SQL_LATER,
        OUTBOX_SQL_BURY,
        OUTBOX_SQL_ROW_STATE,
        OUTBOX_SQL_SLOTS,
        OUTBOX_SQL_SLOT_TAKE,
        OUTBOX_SQL_SLOT_GIVE,
        OUTBOX_SQL_META,
        OUTBOX_SQL_DATA_VERSION,
        OUTBOX_SQL_PRUNE,
        OUTBOX_SQL_PRUNE_COUNT,
        OUTBOX_SQL_STATS,
        OUTBOX_SQL_STATS_ABOUT,
        OUTBOX_SQL_OLDEST,
        OUTBOX_SQL_AUDIT,
        OUTBOX_SQL_LIST,
        OUTBOX_SQL_LIST_DEAD,
        OUTBOX_SQL_RETRY,
        OUTBOX_SQL_DISCARD,
        OUTBOX_SQL_REPUBLISH,
        OUTBOX_SQL_REPUBLISH_OLD,
        OUTBOX_SQL_COUNT
};

struct blocked_set;

struct sqlite_outbox {
        struct outbox_session s;
        char *path;
        struct sqlite_boot_id boot_id;
        const char *vfs; /* tests; NULL: SQLite's own */
        int max_page_count; /* tests; 0: no limit */
        struct outbox_mapping mapping; /* owned copies */
        bool open;
        struct sqlite_session ses;
        struct sqlite_gate gate;
        sqlite3_stmt *stmt[OUTBOX_SQL_COUNT];
        int64_t deadline_us;         /* of the call that runs */
        struct blocked_set *blocked; /* what semel_blocked() looks at while a fetch runs */
        bool holds_relay;            /* the relay's lock is ours */
        int64_t data_version;        /* as listen() saw it last; -1: never */
        int64_t schema_cookie;       /* of a mapped table when its rows were read */
        struct outbox_blocked *blocked_rows; /* what outbox_vt.blocked gave out last */
        struct buf blocked_keys;
};

static inline struct sqlite_outbox *outbox_of(struct outbox_session *s)
{
        return (struct sqlite_outbox *)s;
}

/* -- sqlite_outbox.c: connection, statements, transactions -- */

/* Connect if it is not, and let this call end by deadline_us. */
semel_code outbox_ready(struct sqlite_outbox *o, int64_t deadline_us, semel_error *err);
/* The statement, reset, its bindings cleared; NULL: outbox_error() says why. */
sqlite3_stmt *outbox_stmt(struct sqlite_outbox *o, enum outbox_sql which);
/* Step once and reset: SQLITE_OK (done, or a row came), or an extended code. */
int outbox_step(struct sqlite_outbox *o, sqlite3_stmt *stmt);
semel_code outbox_error(struct sqlite_outbox *o, semel_error *err);
/* BEGIN IMMEDIATE behind the gate, until the call's deadline. */
semel_code outbox_begin_write(struct sqlite_outbox *o, semel_error *err);
/* COMMIT; SEMEL_ERR_UNKNOWN when nobody can know.  The transaction is over either way. */
semel_code outbox_commit(struct sqlite_outbox *o, semel_error *err);
/* Roll back; returns `code`. */
semel_code outbox_abort(struct sqlite_outbox *o, semel_code code);
/* Commit when `code` is SEMEL_OK, else abort. */
semel_code outbox_end(struct sqlite_outbox *o, semel_code code, semel_error *err);
semel_code outbox_begin_read(struct sqlite_outbox *o, semel_error *err);
void outbox_end_read(struct sqlite_outbox *o);
/* What a mapped table's rows are called changes with VACUUM: has it been run since they were read? */
int64_t outbox_schema_cookie(struct sqlite_outbox *o);

/* -- sqlite_outbox_slots.c -- */

struct slot_row {
        int64_t epoch;
        bool owned;
        uint8_t owner[16];
        char info[64];
};
/* In a transaction. */
semel_code outbox_load_slots(struct sqlite_outbox *o, struct slot_row ret[EVENT_SLOTS],
                             semel_error *err);
semel_code sqlite_outbox_check(struct outbox_session *s, enum outbox_mode mode,
                               int64_t deadline_us, struct outbox_view *ret_view,
                               semel_error *err);
semel_code sqlite_outbox_beat(struct outbox_session *s, const struct outbox_member *me,
                              int64_t lease_us, int64_t deadline_us, struct outbox_view *ret_view,
                              semel_error *err);
semel_code sqlite_outbox_take(struct outbox_session *s, const struct outbox_member *me,
                              enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                              int64_t deadline_us, struct outbox_view *ret_view, semel_error *err);
semel_code sqlite_outbox_give(struct outbox_session *s, const struct outbox_member *me,
                              uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                              semel_error *err);
semel_code sqlite_outbox_leave(struct outbox_session *s, const struct outbox_member *me,
                               uint32_t unsettled, int64_t deadline_us, semel_error *err);

/* -- sqlite_outbox_rows.c -- */

/* Make semel_blocked() and semel_slot() known to a connection; the first says false where no fetch runs. */
int outbox_functions(sqlite3 *db, struct sqlite_outbox *o);
semel_code sqlite_outbox_fetch(struct outbox_session *s, const struct outbox_fetch *in,
                               int64_t deadline_us, struct outbox_rows *ret_rows,
                               semel_error *err);
semel_code sqlite_outbox_blocked(struct outbox_session *s, uint32_t slot_mask,
                                 enum outbox_on_dead on_dead, size_t max, int64_t deadline_us,
                                 const struct outbox_blocked **ret, size_t *ret_n,
                                 semel_error *err);
/* The slot of a row (rule C1); key NULL: of its id.  -1: no memory. */
int outbox_slot_of(const struct span *key, int64_t id);
/* Any text becomes an id: one that is none, its digest. */
void outbox_event_id(struct span text, uint8_t ret[EVENT_ID_BYTES]);

/* -- sqlite_outbox_mark.c -- */
semel_code sqlite_outbox_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                              const struct outbox_slot *slots, size_t slot_count,
                              const struct outbox_mark *marks, size_t mark_count,
                              int64_t deadline_us, struct outbox_marked *ret, semel_error *err);

/* -- sqlite_outbox_admin.c -- */
semel_code sqlite_outbox_prune(struct outbox_session *s, int64_t keep_us, bool dry,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code sqlite_outbox_stats(struct outbox_session *s, int64_t deadline_us,
                               struct outbox_stats *ret, semel_error *err);
semel_code sqlite_outbox_list(struct outbox_session *s, enum outbox_state state, int64_t after_id,
                              size_t max, int64_t deadline_us, struct outbox_list *ret,
                              semel_error *err);
semel_code sqlite_outbox_retry(struct outbox_session *s, int64_t id, const char *who,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code sqlite_outbox_discard(struct outbox_session *s, int64_t id, const char *who,
                                 const char *reason, int64_t deadline_us, semel_error *err);
semel_code sqlite_outbox_republish(struct outbox_session *s, struct outbox_again *again, const char *who,
                                   int64_t deadline_us, int64_t *ret_rows, semel_error *err);

/* -- sqlite_outbox_map.c -- */

/* Make the view of a mapped table, after checking that it has what is needed; for the table of
 * semel itself nothing is to be done.  SEMEL_ERR_SCHEMA says what is missing. */
semel_code outbox_map(sqlite3 *db, const char *name, const struct outbox_mapping *m,
                      semel_error *err);
/* Copy, with the preset's table where none is given.  SEMEL_ERR_ARGUMENT, SEMEL_ERR_NO_MEMORY. */
semel_code outbox_mapping_copy(const struct outbox_mapping *m, struct outbox_mapping *ret,
                               semel_error *err);
void outbox_mapping_release(struct outbox_mapping *m);
bool outbox_is_mapped(const struct outbox_mapping *m);

/* What `semel migrate --for-table` prints. */
semel_code sqlite_outbox_print_mapping(const struct outbox_mapping *m, struct buf *out,
                                       semel_error *err);

extern const struct outbox_vt sqlite_outbox_vt;
outbox_open_fn sqlite_outbox_open;

#endif
