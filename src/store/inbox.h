/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox: events that were received, applied once each, as the consumer and `semel inbox` see it.
 *
 * Synchronous, as store/outbox.h: a session is one connection, belongs to one thread at a time
 * (except cancel), connects at the first call and anew after its connection broke.
 *
 *     apply:  BEGIN; record the ids (rule D1); the handler for those that are first; COMMIT
 *
 * There are no savepoints between the events of a batch: the pipeline says which event failed, so
 * what is before it is applied in a batch of its own, and good batches pay nothing (rule D3).
 * What is done next is core/inbox_plan.h's decision, never a driver's.
 */
#ifndef STORE_INBOX_H
#define STORE_INBOX_H

#include "base/buf.h"
#include "base/err.h"
#include "core/limits.h"

enum { INBOX_HASH_BYTES = 32 };

/* One event, as borrowed bytes. */
struct inbox_event {
        struct span consumer, source, id; /* UTF-8 without NUL, 1 .. LIMIT_INBOX_NAME_BYTES each;
                                             id empty: there is none, only bury takes it */
        struct span topic, key, payload;
        struct span headers; /* JSON text: [["name", "value"], ...] */
        bool key_is_null;
        bool payload_is_null; /* a tombstone */
        bool has_hash;
        uint8_t hash[INBOX_HASH_BYTES]; /* of the payload: one id with two payloads is an alarm */
        int32_t partition; /* where it was read, for people and for dead letters without an id */
        int64_t offset;
};

/* What is done with an event that is first.  The statement is prepared with five parameters
 * declared: key text, payload text or bytea, event id text, topic text, headers jsonb; on SQLite
 * ?1 .. ?5.  Both NULL: nothing but the record (the effect happened elsewhere, before). */
struct inbox_handler {
        const char *sql;
        bool payload_is_bytea;
        /* Instead of sql: a function that gets the open transaction: a PGconn or a sqlite3.  It
         * returns 0, or -1 and a reason. */
        int (*fn)(void *arg, void *conn, const struct inbox_event *event, semel_error *why);
        void *arg;
};

/* How a transaction ended. */
enum inbox_end {
        INBOX_DONE,   /* committed */
        INBOX_FAILED, /* the handler failed: failed_at; nothing was written */
        INBOX_AGAIN,  /* 40001, 40P01, 55P03 and relatives: nothing was written, the same may work
                         now; not the event's fault (rule D2) */
        INBOX_BROKE,  /* the connection is gone, in the middle or at the COMMIT: it may have been
                         written; doing it again is safe, since the ids are recorded with it */
        INBOX_DOWN,   /* no connection, nothing was sent */
        INBOX_STOP,   /* schema, access: only people can help; err says how */
};

#define INBOX_AT_COMMIT SIZE_MAX /* nobody knows whose fault it is */

struct inbox_result {
        enum inbox_end end;
        size_t failed_at; /* FAILED: the index, or INBOX_AT_COMMIT */
        size_t processed, duplicates, alarms; /* DONE */
        semel_error err; /* not DONE: why */
};

/* -- operators ---------------------------------------------------------------------------------- */

enum inbox_letter_state { INBOX_DEAD, INBOX_RETRY, INBOX_RETRIED, INBOX_DISCARDED, INBOX_LETTER_STATES };
const char *inbox_letter_state_name(enum inbox_letter_state state); /* "DEAD", "RETRY", ... */

struct inbox_letter {
        int64_t id;
        enum inbox_letter_state state;
        struct span consumer, source, event_id, topic, key, payload, headers, reason;
        bool key_is_null, payload_is_null;
        int32_t partition, attempts;
        int64_t offset, dead_us; /* calendar of the database */
};

/* Dead letters; spans live until inbox_letters_release(). */
struct inbox_letters {
        struct inbox_letter *letter;
        size_t n;
        void *driver;
        void (*release)(void *driver);
};
void inbox_letters_release(struct inbox_letters *letters); /* safe twice, and on zeroes */
/* The event that a letter keeps, borrowed from it. */
struct inbox_event inbox_letter_event(const struct inbox_letter *letter);

/* One line per consumer and source. */
struct inbox_count {
        char consumer[256], source[256];
        int64_t processed, dead, retry, alarms;
        int64_t oldest_us, newest_us; /* of processed events; 0: none */
};

/* For drivers: the reason of a letter that is being tried; it keeps it when nobody says how that ended. */
#define INBOX_LETTER_TRIED "its last try did not come to an end"

/* For drivers: the headers of an event's copy in the dead-letter topic, as JSON: its own, its id as
 * dead-event-id (event-id is the copy's own), and why.  Without its own, and with dead-headers, where the outbox
 * would not take them: an event must not hold its partition up because of its copy. */
enum { INBOX_DEAD_HEADERS_BYTES_MAX = 8 * LIMIT_EVENT_HEADERS_BYTES };
semel_code inbox_dead_headers(const struct inbox_event *event, const char *reason, struct buf *out,
                              semel_error *err);

/* For drivers: may the event's key be that of its copy?  The outbox takes text, and not any length; the copy
 * of an event with another key has none, and the letter keeps it. */
bool inbox_key_fits_outbox(const struct inbox_event *event);

/* For drivers: what a failed call returns; err may be NULL. */
static inline semel_code inbox_code_of(const semel_error *err)
{
        return err && err->code != SEMEL_OK ? err->code : SEMEL_ERR_STORE_DOWN;
}

struct inbox_session;

struct inbox_vt {
        const char *name; /* "sqlite", "postgres" */

        /* Schema there, and does the handler's statement prepare?  SEMEL_ERR_ARGUMENT with the
         * database's words when it does not. */
        semel_code (*check)(struct inbox_session *s, const struct inbox_handler *handler,
                            int64_t deadline_us, semel_error *err);

        /* -- the consumer -- */

        /* How many tries of this event were counted? */
        semel_code (*counted)(struct inbox_session *s, const struct inbox_event *event,
                              int64_t deadline_us, int *ret_attempts, semel_error *err);
        /* Count a try of this event, its number-th, in a committed row, before the try (rule D3).  A
         * write without an answer may stand: it is repeated with the same number, and changes nothing
         * then (rule D2).  *ret_attempts is larger when another has counted meanwhile. */
        semel_code (*count)(struct inbox_session *s, const struct inbox_event *event, int number,
                            int64_t deadline_us, int *ret_attempts, semel_error *err);
        /* Take the try with this number back, if it is the last that was counted: what ended it was
         * nobody's fault (rule D2). */
        semel_code (*count_back)(struct inbox_session *s, const struct inbox_event *event, int number,
                                 int64_t deadline_us, semel_error *err);
        /* Which of these are recorded already?  For handlers outside the database. */
        semel_code (*seen)(struct inbox_session *s, const struct inbox_event *events, size_t n,
                           int64_t deadline_us, bool *ret_seen, semel_error *err);
        /* One transaction, n <= LIMIT_INBOX_BATCH_ROWS events in their order.  counted: the first
         * one's attempts are forgotten with it. */
        void (*apply)(struct inbox_session *s, const struct inbox_event *events, size_t n,
                      const struct inbox_handler *handler, bool counted, int64_t deadline_us,
                      struct inbox_result *ret);
        /* Record the event as done and keep it as a dead letter, in one transaction; with a
         * dead_topic, append it to the outbox there too.  Does nothing when its id is recorded
         * already (*ret_buried false). */
        void (*bury)(struct inbox_session *s, const struct inbox_event *event, int attempts,
                     const char *reason, const char *dead_topic, int64_t deadline_us,
                     bool *ret_buried, struct inbox_result *ret);
        /* This letter, which is in RETRY (or, with dead_too, DEAD), is going to be tried: it is DEAD
         * from now on and the try is counted, in a committed row, so that one that kills its backend
         * or this process is not tried for ever (rule D3).  As it was, or none: nobody else tries it. */
        semel_code (*take)(struct inbox_session *s, struct span consumer, int64_t id, bool dead_too,
                           int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
        /* The letter that was taken: handler and RETRIED in one transaction.  FAILED: it stays DEAD,
         * with the new reason.  *ret_found false: somebody has decided about it meanwhile. */
        void (*retry_one)(struct inbox_session *s, int64_t id, const struct inbox_handler *handler,
                          int64_t deadline_us, bool *ret_found, struct inbox_result *ret);
        /* The try was nobody's fault, or none, since take had no answer: it is again as it was.  May be
         * repeated; nothing is done when take did not happen, or somebody has decided meanwhile. */
        semel_code (*untake)(struct inbox_session *s, const struct inbox_letter *was,
                             int64_t deadline_us, semel_error *err);
        /* Forget up to LIMIT_INBOX_PRUNE_ROWS events of this consumer that were processed longer
         * than keep_us ago, and tries that were counted that long ago.  Letters stay, whatever
         * became of them. */
        semel_code (*prune)(struct inbox_session *s, struct span consumer, int64_t keep_us,
                            int64_t deadline_us, int64_t *ret_rows, semel_error *err);

        /* -- operators -- */

        /* *ret is malloc'ed. */
        semel_code (*status)(struct inbox_session *s, int64_t deadline_us,
                             struct inbox_count **ret, size_t *ret_n, semel_error *err);
        /* Letters of this consumer (empty: all) in this state, by id. */
        semel_code (*list)(struct inbox_session *s, struct span consumer,
                           enum inbox_letter_state state, int64_t after_id, size_t max,
                           int64_t deadline_us, struct inbox_letters *ret, semel_error *err);
        /* DEAD -> RETRY or DISCARDED, RETRY -> DISCARDED; id 0: all of the consumer.  Nothing:
         * NOT_FOUND. */
        semel_code (*decide)(struct inbox_session *s, struct span consumer, int64_t id,
                             enum inbox_letter_state to, const char *who, const char *reason,
                             int64_t deadline_us, int64_t *ret_rows, semel_error *err);

        /* From any thread: end what runs now, soon. */
        void (*cancel)(struct inbox_session *s);
        void (*close)(struct inbox_session *s);
};

struct inbox_session {
        const struct inbox_vt *vt;
};

/* A driver's way to open one.  Errors: SEMEL_ERR_URL, SEMEL_ERR_ARGUMENT, SEMEL_ERR_NO_MEMORY. */
typedef semel_code inbox_open_fn(const char *url, struct inbox_session **ret, semel_error *err);

#endif
