/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox: the inside of the outbox on PostgreSQL.
 *
 *     pg_outbox_owner.c   who owns which slot          pg_outbox.c        rows to publish
 *     pg_outbox_admin.c   operators                    pg_outbox_mark.c   what became of them
 *     pg_outbox_session.c one connection, one pipeline at a time
 *     pg_mapping.c        statements for tables of other shapes
 *     pg_mapping_name.c   which outbox a table is
 *
 * A call is a pipeline: its statements and one Sync, hence one transaction and one round trip.
 * Nothing blocks beyond the deadline (only libpq's name resolution may): when it is over the
 * connection is given up, since nobody knows what it is doing.
 */
#ifndef STORE_POSTGRES_PG_OUTBOX_H
#define STORE_POSTGRES_PG_OUTBOX_H

#include <libpq-fe.h>

#include "core/limits.h"
#include "store/outbox.h"
#include "store/postgres/pg_params.h"
#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

/* Statements; those from OQ_FETCH on are prepared where there is no pooler. */
enum outbox_query {
        OQ_BEGIN,
        OQ_COMMIT,
        OQ_ROLLBACK,
        OQ_LISTEN,
        OQ_CHECK,
        OQ_ISOLATION,
        OQ_SESSION,
        OQ_VERSION,
        OQ_FETCH,
        OQ_FETCH_BYTES,
        OQ_FETCH_LOCKED,
        OQ_FETCH_CLAIM,
        OQ_FENCE,
        OQ_MARK_DELETE,
        OQ_MARK_DELETE_TRIED,
        OQ_MARK_UPDATE,
        OQ_RECOVER,
        OQ_UNSTICK,
        OQ_BLOCKED,
        OQ_BEAT,
        OQ_VIEW,
        OQ_TAKE_META,
        OQ_TAKE_ORPHANS,
        OQ_TAKE_SILENT,
        OQ_TAKE_OWNERS,
        OQ_TAKE_PUBLISHING,
        OQ_TAKE_MODE,
        OQ_TAKE_SLOTS,
        OQ_GIVE,
        OQ_LEAVE,
        OQ_FORGET,
        OQ_PRUNE,
        OQ_PRUNE_DRY,
        OQ_COLUMNS,
        OQ_NAMES,
        OQ_TRIGGER,
        OQ_REAP,
        OQ_STATS,
        OQ_STATS_KEPT,
        OQ_STATS_AGES,
        OQ_LIST,
        OQ_RETRY,
        OQ_DISCARD,
        OQ_REPUBLISH,
        OQ_OLDEST,
        OQ_CLOCK,
        OUTBOX_QUERIES
};

#define PG_OUTBOX_LEASE_US (5 * SECOND) /* of a session that is no relay's */
#define PG_OUTBOX_LOCK_US (1 * SECOND)  /* a lock is somebody's mark: they take milliseconds */

enum { PG_STEPS_MAX = 8 };

struct pg_step {
        enum outbox_query query;
        struct params *params; /* NULL: none; completed by pg_outbox_run() */
        bool sync;             /* a transaction of its own ends here; the last one always does */
};

struct pg_outbox {
        struct outbox_session session;
        struct pg_config config;
        struct outbox_mapping wanted; /* owned copies of its strings */
        bool mapped;                  /* the table was looked at, and sql is made */
        bool unordered;               /* no order column: rows go by created_at */
        char *sql[OUTBOX_QUERIES];    /* for another table; NULL: the embedded text */
        char *shown;                  /* schema.table, once mapped */
        PGconn *pg;
        bool direct;    /* no pooler in between: settings and plans of the session are ours */
        bool in_tx;     /* mode single: between fetch and mark */
        bool listening;
        int exact_left; /* fetches to come that count bytes: a row was too large for the quick one */
        int64_t clock_us, clock_ahead_us; /* the database's calendar was so far ahead of the host's
                                             boot clock, when that was clock_us; 0: not asked */
        uint64_t prepared; /* bit per query */
        char lock_timeout[24], idle_timeout[24]; /* as the server reads them */
        unsigned failures;
        int64_t retry_us;  /* no new attempt to connect before */
        struct params params[5]; /* the last: of the session itself */
        PGresult *blocked_res;
        struct outbox_blocked *blocked;
};

static inline struct pg_outbox *pg_outbox_of(struct outbox_session *s)
{
        return (struct pg_outbox *)(void *)s;
}

/* -- pg_outbox_session.c ---------------------------------------------------------------------- */

/* Connect when there is no connection. */
semel_code pg_outbox_connect(struct pg_outbox *ob, int64_t deadline_us, semel_error *err);
/* Give the connection up. */
void pg_outbox_drop(struct pg_outbox *ob);

/* Run the steps in one round trip.  ret[i] is the result of step i, for the caller to clear; all
 * NULL when it fails.  writes: a commit whose answer is lost is SEMEL_ERR_UNKNOWN. */
semel_code pg_outbox_run(struct pg_outbox *ob, const struct pg_step *steps, size_t n, bool writes,
                         int64_t deadline_us, PGresult **ret, semel_error *err);
/* One statement. */
semel_code pg_outbox_one(struct pg_outbox *ob, enum outbox_query query, struct params *params,
                         bool writes, int64_t deadline_us, PGresult **ret, semel_error *err);
/* Wait until the socket is readable or the time is over; false: over. */
bool pg_outbox_wait(struct pg_outbox *ob, short events, int64_t deadline_us);

const char *pg_outbox_sql(const struct pg_outbox *ob, enum outbox_query query);
const char *pg_outbox_template(enum outbox_query query);

/* -- pg_mapping.c ----------------------------------------------------------------------------- */

/* Look at the table and make the statements, once a session. */
semel_code pg_mapping_load(struct pg_outbox *ob, int64_t deadline_us, semel_error *err);
void pg_mapping_release(struct pg_outbox *ob);
/* Why this table can be no outbox: what it is, or "" where it is its name. */
semel_code pg_mapping_refuse(const char *table, const char *kind, semel_error *err);
/* outbox_names.sql's answer.  has_slots: the outbox has slots under its own name.  Errors: it has others
 * under another name, or may have been renamed: says what to run. */
semel_code pg_mapping_names_check(const struct pg_outbox *ob, const PGresult *names, bool has_slots,
                                  semel_error *err);
/* The statement that gives a table its name, slots and uuid.  Both quoted; before: its old name, or empty. */
int pg_mapping_print_name(const char *table, const char *before, struct buf *out);
/* The ALTERs that a table needs (`semel migrate --for-table`). */
semel_code pg_mapping_print(const struct outbox_mapping *mapping, struct buf *out,
                            semel_error *err);
/* A preset's name is known, a table's name can be quoted. */
semel_code pg_mapping_check(const struct outbox_mapping *mapping, semel_error *err);

/* -- the calls -------------------------------------------------------------------------------- */

semel_code pg_outbox_open(const char *url, const struct outbox_mapping *mapping, const char *name,
                          struct outbox_session **ret, semel_error *err);

semel_code pg_outbox_check(struct outbox_session *s, enum outbox_mode mode, int64_t deadline_us,
                           struct outbox_view *ret_view, semel_error *err);
semel_code pg_outbox_beat(struct outbox_session *s, const struct outbox_member *me,
                          int64_t lease_us, int64_t deadline_us, struct outbox_view *ret_view,
                          semel_error *err);
semel_code pg_outbox_take(struct outbox_session *s, const struct outbox_member *me,
                          enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                          int64_t deadline_us, struct outbox_view *ret_view, semel_error *err);
semel_code pg_outbox_give(struct outbox_session *s, const struct outbox_member *me,
                          uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                          semel_error *err);
semel_code pg_outbox_leave(struct outbox_session *s, const struct outbox_member *me,
                           uint32_t unsettled, int64_t deadline_us, semel_error *err);

semel_code pg_outbox_mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                          const struct outbox_slot *slots, size_t slot_count,
                          const struct outbox_mark *marks, size_t mark_count, int64_t deadline_us,
                          struct outbox_marked *ret, semel_error *err);
semel_code pg_outbox_recover(struct outbox_session *s, bool keep, const struct outbox_slot *slots,
                             size_t slot_count, const int64_t *ids,
                             const uint8_t (*event_ids)[EVENT_ID_BYTES], const int64_t *published_us,
                             size_t n, int64_t deadline_us, size_t *ret_finished, semel_error *err);
semel_code pg_outbox_unstick(struct outbox_session *s, const struct outbox_slot *slots,
                             size_t slot_count, int64_t stuck_after_us, int64_t deadline_us,
                             size_t *ret_rows, semel_error *err);

semel_code pg_outbox_prune(struct outbox_session *s, int64_t keep_us, bool dry,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code pg_outbox_listen(struct outbox_session *s, int64_t timeout_us, uint32_t *ret_slots,
                            semel_error *err);
semel_code pg_outbox_reap(struct outbox_session *s, int64_t after_us, int64_t deadline_us,
                          int64_t *ret_ended, semel_error *err);
semel_code pg_outbox_stats(struct outbox_session *s, int64_t deadline_us,
                           struct outbox_stats *ret, semel_error *err);
semel_code pg_outbox_list(struct outbox_session *s, enum outbox_state state, int64_t after_id,
                          size_t max, int64_t deadline_us, struct outbox_list *ret,
                          semel_error *err);
semel_code pg_outbox_retry(struct outbox_session *s, int64_t id, const char *who,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code pg_outbox_discard(struct outbox_session *s, int64_t id, const char *who,
                             const char *reason, int64_t deadline_us, semel_error *err);
semel_code pg_outbox_republish(struct outbox_session *s, struct outbox_again *again, const char *who,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err);

#endif
