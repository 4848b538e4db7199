/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_inbox: the inside of SQLite's inbox sessions: a connection of their own, its statements,
 * and what the letters need of it.
 */
#ifndef STORE_SQLITE_INBOX_H
#define STORE_SQLITE_INBOX_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/inbox.h"
#include "store/sqlite/sqlite_gate.h"
#include "store/sqlite/sqlite_session.h"

enum inbox_sql {
        INBOX_SQL_FIRST,
        INBOX_SQL_ALARM,
        INBOX_SQL_SEEN,
        INBOX_SQL_COUNTED,
        INBOX_SQL_COUNT,
        INBOX_SQL_COUNT_BACK,
        INBOX_SQL_UNCOUNT,
        INBOX_SQL_BURY,
        INBOX_SQL_LOCK,
        INBOX_SQL_TAKE,
        INBOX_SQL_UNTAKE,
        INBOX_SQL_DONE,
        INBOX_SQL_BACK,
        INBOX_SQL_LIST,
        INBOX_SQL_DECIDE,
        INBOX_SQL_PRUNE,
        INBOX_SQL_PRUNE_ATTEMPTS,
        INBOX_SQL_STATUS,
        INBOX_SQLS
};

/* How long a transaction waits for the file before it is INBOX_AGAIN. */
#define SQLITE_INBOX_LOCK_US (2 * SECOND)

struct sqlite_inbox {
        struct inbox_session s;
        char *path;
        bool open;
        struct sqlite_session ses;
        struct sqlite_gate gate;
        struct sqlite_boot_id boot_id;
        sqlite3_stmt *stmt[INBOX_SQLS];
        sqlite3_stmt *handler; /* prepared from handler_sql, borrowed */
        const char *handler_sql;
        pthread_mutex_t mu; /* around ses.db, against cancel */
        atomic_bool cancelled;
};

static inline struct sqlite_inbox *sqlite_inbox_of(struct inbox_session *s)
{
        return (struct sqlite_inbox *)s;
}

/* The statement, reset; NULL: the connection's error says why. */
sqlite3_stmt *sqlite_inbox_stmt(struct sqlite_inbox *in, enum inbox_sql which);
/* Run it to its end; SQLITE_OK or an extended code. */
int sqlite_inbox_run(struct sqlite_inbox *in, sqlite3_stmt *stmt);

/* A write transaction; false: ret says why. */
bool sqlite_inbox_begin(struct sqlite_inbox *in, int64_t deadline_us, struct inbox_result *ret);
/* Commit what is DONE, roll back what is not. */
void sqlite_inbox_end(struct sqlite_inbox *in, struct inbox_result *ret);
/* A statement of ours failed. */
void sqlite_inbox_failed(struct sqlite_inbox *in, struct inbox_result *ret);
/* What a code means for the events; `otherwise` where it is not the file's trouble. */
enum inbox_end sqlite_inbox_end_of(semel_code code, enum inbox_end otherwise);
/* The same as one code. */
semel_code sqlite_inbox_code(const struct inbox_result *ret, semel_error *err);
/* Handle one event in the open transaction. */
void sqlite_inbox_handle(struct sqlite_inbox *in, const struct inbox_handler *handler,
                         const struct inbox_event *event, struct inbox_result *ret);
/* The row of an event; when it is there already with another payload, the alarm (counted in
 * *alarms unless NULL). */
int sqlite_inbox_record(struct sqlite_inbox *in, const struct inbox_event *event, bool *ret_first,
                        size_t *alarms);

/* sqlite_inbox_letter.c */
void sqlite_inbox_bury(struct inbox_session *s, const struct inbox_event *event, int attempts,
                       const char *reason, const char *dead_topic, int64_t deadline_us,
                       bool *ret_buried, struct inbox_result *ret);
semel_code sqlite_inbox_take(struct inbox_session *s, struct span consumer, int64_t id, bool dead_too,
                             int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
void sqlite_inbox_retry_one(struct inbox_session *s, int64_t id, const struct inbox_handler *handler,
                            int64_t deadline_us, bool *ret_found, struct inbox_result *ret);
semel_code sqlite_inbox_untake(struct inbox_session *s, const struct inbox_letter *was,
                               int64_t deadline_us, semel_error *err);
semel_code sqlite_inbox_prune(struct inbox_session *s, struct span consumer, int64_t keep_us,
                              int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code sqlite_inbox_status(struct inbox_session *s, int64_t deadline_us,
                               struct inbox_count **ret, size_t *ret_n, semel_error *err);
semel_code sqlite_inbox_list(struct inbox_session *s, struct span consumer,
                             enum inbox_letter_state state, int64_t after_id, size_t max,
                             int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
semel_code sqlite_inbox_decide(struct inbox_session *s, struct span consumer, int64_t id,
                               enum inbox_letter_state to, const char *who, const char *reason,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err);

#endif
