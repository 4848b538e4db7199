/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_inbox: the inside of PostgreSQL's inbox sessions.
 *
 * One connection, non-blocking underneath, so that every wait has a deadline.  Statements travel in
 * pipelines of one transaction: two round trips a batch (record the ids; handle the new ones and
 * commit).  Statements have names only on a connection of our own (no pooler in between).
 */
#ifndef STORE_POSTGRES_PG_INBOX_H
#define STORE_POSTGRES_PG_INBOX_H

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "store/inbox.h"
#include "store/postgres/pg_store.h"

#define INBOX_LOCK_TIMEOUT "2s"
/* A transaction that waits for its consumer for so long belongs to a stopped one (rule D4); a
 * function of the caller's may talk to somebody else meanwhile. */
#define INBOX_IDLE_TIMEOUT "10s"
#define INBOX_IDLE_TIMEOUT_FN "90s"
#define INBOX_CONNECT_US (5 * SECOND)
/* Our own backends that wait for the rest of a batch for so long are ended (rule B3). */
#define INBOX_REAP_US (10 * SECOND)
enum { INBOX_LOCKED_BEFORE_REAP = 3 };

struct pg_inbox {
        struct inbox_session s;
        struct pg_config config;
        bool direct;               /* no pooler in between */
        const char *prepared;      /* the handler's statement that has a name here, or NULL */
        bool prepared_bytea;
        bool used;                 /* the handler was here before this call */
        bool stale;                /* what the connection knows of it is out of date: it is dropped */
        unsigned locked;           /* lock timeouts in a row */
        int64_t deadline_us;       /* of the call that runs */
        struct params params;
        struct buf jsonb;          /* headers in the binary form */
        size_t *order;             /* of a batch: indexes by id */
        bool *first;
        pthread_mutex_t mu;        /* around pg and cancel, against inbox_vt.cancel */
        PGconn *pg;
        PGcancel *cancel;
        atomic_bool cancelled;
};

static inline struct pg_inbox *pg_inbox_of(struct inbox_session *s)
{
        return (struct pg_inbox *)s;
}

/* -- pg_inbox_session.c --------------------------------------------------------------------- */

/* A connection that works, made if need be.  Errors: SEMEL_ERR_STORE_DOWN, SCHEMA, ACCESS, ... */
semel_code pg_inbox_connect(struct pg_inbox *in, int64_t deadline_us, semel_error *err);
void pg_inbox_drop(struct pg_inbox *in);

/* The next result of what was sent, NULL between statements; *ret_lost: no answer by the deadline,
 * or the connection broke (it is dropped then). */
PGresult *pg_inbox_result(struct pg_inbox *in, bool *ret_lost);
bool pg_inbox_sync(struct pg_inbox *in);

/* Send a statement without a name; params as filled, finished here. */
bool pg_inbox_send(struct pg_inbox *in, const char *sql, bool with_params);
/* One statement that stands alone, durable (rule B7), to its result; NULL: err says why. */
PGresult *pg_inbox_ask(struct pg_inbox *in, const char *sql, int64_t deadline_us,
                       semel_error *err);
/* ROLLBACK; drops the connection when even that fails. */
void pg_inbox_rollback(struct pg_inbox *in);

/* -- pg_inbox.c ------------------------------------------------------------------------------ */

semel_code pg_inbox_check(struct inbox_session *s, const struct inbox_handler *handler,
                          int64_t deadline_us, semel_error *err);
semel_code pg_inbox_counted(struct inbox_session *s, const struct inbox_event *event,
                            int64_t deadline_us, int *ret_attempts, semel_error *err);
semel_code pg_inbox_count(struct inbox_session *s, const struct inbox_event *event, int number,
                          int64_t deadline_us, int *ret_attempts, semel_error *err);
semel_code pg_inbox_count_back(struct inbox_session *s, const struct inbox_event *event, int number,
                               int64_t deadline_us, semel_error *err);
semel_code pg_inbox_seen(struct inbox_session *s, const struct inbox_event *events, size_t n,
                         int64_t deadline_us, bool *ret_seen, semel_error *err);
void pg_inbox_apply(struct inbox_session *s, const struct inbox_event *events, size_t n,
                    const struct inbox_handler *handler, bool counted, int64_t deadline_us,
                    struct inbox_result *ret);
/* What an error means: of a statement of ours it is the database's trouble, never an event's; of the
 * handler's statement or the COMMIT, what is not known to be nobody's fault is the event's. */
enum inbox_end pg_inbox_end_of_ours(const char *sqlstate, semel_code code);
enum inbox_end pg_inbox_end_of_handler(const struct pg_inbox *in, const char *sqlstate);
/* Ready for a transaction (handler NULL: without one), or ret says why not. */
bool pg_inbox_ready(struct pg_inbox *in, const struct inbox_handler *handler, int64_t deadline_us,
                    struct inbox_result *ret);
/* Read what a pipeline says, up to its Sync: how many statements succeeded before the first that
 * failed.  ret->end DONE or as the error wants it; `keep`: the result of this statement. */
size_t pg_inbox_collect(struct pg_inbox *in, size_t keep, PGresult **ret_kept,
                        struct inbox_result *ret);
/* Begin a transaction with the settings, in the pipeline.  2 statements. */
bool pg_inbox_send_begin(struct pg_inbox *in, const struct inbox_handler *handler);
bool pg_inbox_send_handler(struct pg_inbox *in, const struct inbox_handler *handler,
                           const struct inbox_event *event);
bool pg_inbox_send_record(struct pg_inbox *in, const struct inbox_event *events, size_t n);
/* Parameters 0 to 2 of n: the event's name. */
void pg_inbox_name_params(struct params *p, const struct inbox_event *event, int n);
bool pg_inbox_send_uncount(struct pg_inbox *in, const struct inbox_event *event);
/* Handle one event, whichever kind of handler, inside the transaction; ends the pipeline. */
void pg_inbox_handle_one(struct pg_inbox *in, const struct inbox_handler *handler,
                         const struct inbox_event *event, struct inbox_result *ret);

/* -- pg_inbox_letter.c ------------------------------------------------------------------------ */

void pg_inbox_bury(struct inbox_session *s, const struct inbox_event *event, int attempts,
                   const char *reason, const char *dead_topic, int64_t deadline_us,
                   bool *ret_buried, struct inbox_result *ret);
semel_code pg_inbox_take(struct inbox_session *s, struct span consumer, int64_t id, bool dead_too,
                         int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
void pg_inbox_retry_one(struct inbox_session *s, int64_t id, const struct inbox_handler *handler,
                        int64_t deadline_us, bool *ret_found, struct inbox_result *ret);
semel_code pg_inbox_untake(struct inbox_session *s, const struct inbox_letter *was,
                           int64_t deadline_us, semel_error *err);
semel_code pg_inbox_prune(struct inbox_session *s, struct span consumer, int64_t keep_us,
                          int64_t deadline_us, int64_t *ret_rows, semel_error *err);
semel_code pg_inbox_status(struct inbox_session *s, int64_t deadline_us, struct inbox_count **ret,
                           size_t *ret_n, semel_error *err);
semel_code pg_inbox_list(struct inbox_session *s, struct span consumer,
                         enum inbox_letter_state state, int64_t after_id, size_t max,
                         int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
semel_code pg_inbox_decide(struct inbox_session *s, struct span consumer, int64_t id,
                           enum inbox_letter_state to, const char *who, const char *reason,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err);

#endif
