/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: rows that wait to be published, as the relay and `semel outbox` see them.
 *
 * Synchronous.  A session is one connection; it belongs to one thread at a time, and threads have
 * sessions of their own.  Every call ends by its deadline (host CLOCK_BOOTTIME), also when the
 * network swallows packets.  After SEMEL_ERR_STORE_DOWN or SEMEL_ERR_UNKNOWN the session connects
 * anew by itself at the next call (rule B10); what an interrupted write did, the next read shows.
 *
 * Ownership (rule C1).  Keys hash to EVENT_SLOTS slots.  `relay_slot` has the epoch and the owner of
 * each; `relay_member` has one row per relay with its lease.  They are two tables so that marks,
 * which lock slot rows, never wait for a renewal or starve it.  A takeover locks the silent owner's
 * member row first and looks at its lease again, so that a renewal and a takeover cannot both
 * succeed.  A renewal reads the slots in a statement of its own, after its update: what it is told
 * to own, it owns until (the moment before it asked) + lease.
 */
#ifndef STORE_OUTBOX_H
#define STORE_OUTBOX_H

#include "base/buf.h"
#include "base/err.h"
#include "core/event.h"

enum outbox_mode {
        OUTBOX_OWNED,
        OUTBOX_SINGLE,
        OUTBOX_TWO_PHASE,
        OUTBOX_EXACTLY_ONCE,
        OUTBOX_MODES
};
const char *outbox_mode_name(enum outbox_mode mode); /* as --mode takes it */

enum outbox_state {
        OUTBOX_PENDING,
        OUTBOX_PUBLISHING,
        OUTBOX_PUBLISHED,
        OUTBOX_DEAD,
        OUTBOX_STATES
};
const char *outbox_state_name(enum outbox_state state); /* "PENDING" ... as in the column */

/* What to do with the younger rows of a key whose row died. */
enum outbox_on_dead { OUTBOX_SKIP, OUTBOX_BLOCK };

/* -- what a table looks like ---------------------------------------------------------------------
 *
 * A table that exists already is mapped by column names.  NULL: the table has no such column. */
struct outbox_mapping {
        const char *preset;  /* "semel", "tutorial", "debezium" */
        const char *table;   /* schema-qualified; NULL: the preset's */
        const char *topic;   /* a fixed topic, where the table has no column for it; debezium: a
                                prefix before the aggregate type ("outbox.event.") */
        const char *renamed_from; /* for what is printed: the table's name of before; NULL: none */
        bool unordered;      /* go on without an order column, said loudly */
        int64_t lease_us;    /* of the relay's slots: a transaction of a session that stops, or waits, is
                                over before it (rule C6); 0: no relay */
};

/* -- sessions ---------------------------------------------------------------------------------- */

struct outbox_session;
struct outbox_vt;

/* One owned slot, as read. */
struct outbox_slot {
        int16_t slot;
        int64_t epoch;
};

struct outbox_slot_view {
        int64_t epoch;
        bool mine;
        bool free; /* nobody owns it, or its owner's lease is over */
        uint8_t owner_id[16];
        char owner[64]; /* for people: host and pid; "" when nobody has it */
        int64_t lease_left_us; /* of the owner; negative: over */
};

struct outbox_view {
        struct outbox_slot_view slots[EVENT_SLOTS];
        int members; /* with a living lease, this one included when it has joined */
        uint8_t uuid[EVENT_ID_BYTES]; /* of the outbox, made by migrate (rule C8) */
        enum outbox_mode mode;        /* that the slots are in (rule C8a) */
        bool unordered; /* check: the table has no order column, and events no order */
};

/* A relay as others see it. */
struct outbox_member {
        uint8_t id[16];   /* random, new at each start */
        const char *info; /* "host=... pid=..." at most 63 bytes */
};

struct outbox_row {
        int64_t id;
        int16_t slot;
        int32_t attempts;   /* as read: a mark requires it unchanged */
        int64_t created_us; /* database calendar, since 1970; 0: the table does not say */
        int64_t published_us; /* as read: when it was published before an operator put it back; 0: never */
        int64_t place;      /* where the driver saw it, for its mark; 0: it does not say */
        struct event event; /* points into the batch */
};

/* Rows in order of id within each slot.  Released by outbox_rows_release(). */
struct outbox_rows {
        struct outbox_row *row;
        size_t n;
        size_t bytes; /* of keys, payloads and headers */
        int64_t now_us; /* database calendar when they were read */
        void *driver; /* what the spans point into */
        void (*release)(void *driver);
};
void outbox_rows_release(struct outbox_rows *rows); /* safe twice, and on zeroes */

struct outbox_quota {
        struct outbox_slot slot;
        int32_t rows_max;
};

struct outbox_fetch {
        enum outbox_mode mode;
        const struct outbox_quota *quotas; /* one per slot; the order is the order of the rows */
        size_t quota_count;
        size_t rows_max; /* of all slots together; 0: the sum of the quotas */
        /* Keys that must wait (rules C4, C5): excluded in SQL.  Rows without a key never are. */
        const struct span *blocked;
        size_t blocked_count;
        size_t bytes_max; /* stop at about this many payload bytes; at least one row comes */
};

/* The most rows that may come. */
size_t outbox_fetch_rows_max(const struct outbox_fetch *in);
/* Whoever asked has room for no more: a driver with more rows in hand gives none (SEMEL_ERR_CORRUPT). */
semel_code outbox_fetch_check(const struct outbox_fetch *in, size_t rows, semel_error *err);

enum outbox_verdict {
        OUTBOX_DONE,    /* the broker has it */
        OUTBOX_RETRY,   /* again after retry_after_us, attempts + 1 */
        OUTBOX_BURY,    /* DEAD, with the reason, attempts + 1 */
        OUTBOX_UNTRIED, /* two-phase: back to PENDING, nothing counted (handed over, drained) */
};

struct outbox_mark {
        int64_t id;
        int16_t slot;
        int32_t attempts; /* as read */
        int64_t place;    /* the row's; 0 is always right */
        const uint8_t *event_id; /* the row's, EVENT_ID_BYTES: a store that gives ids again tells rows
                                    apart by it; NULL: not looked at */
        enum outbox_verdict verdict;
        int64_t retry_after_us;
        const char *reason; /* RETRY and BURY: one line, UTF-8 */
};

struct outbox_marked {
        size_t marked;
        size_t lost_slots; /* how many of the slots that were named are no longer ours: 0 rows of
                              them were changed */
        uint32_t lost_mask; /* bit n: slot n */
        size_t changed;    /* rows of ours that an operator (or nobody knows who) changed meanwhile */
};

struct outbox_blocked {
        int16_t slot;
        int64_t id;       /* the row that blocks */
        bool dead;        /* DEAD under OUTBOX_BLOCK */
        int64_t wait_us;  /* until its next attempt; 0: now */
        struct span key;  /* never NULL key */
};

struct outbox_count {
        enum outbox_state state;
        struct span topic;
        int64_t rows;
};

struct outbox_stats {
        struct outbox_count *count;
        size_t n;
        int64_t oldest_pending_us; /* age; -1: none, or the table does not say */
        int64_t oldest_xmin_us;    /* age of the oldest open transaction (O43); -1: not known here */
        void *driver;
        void (*release)(void *driver);
};

/* Which rows are sent again: those PUBLISHED in [since, until).  The driver's at the first call, which
 * brings both times to the store's own calendar, and until to its now: what is published from then on, by
 * a relay that runs beside, is not taken again. */
struct outbox_again {
        int64_t since_us, until_us; /* wall clock */
        int64_t retention_us; /* of consumers' inboxes: refused (SEMEL_ERR_REFUSED) when a row was made or
                                 published longer ago (rule C10); < 0: no limit */
        bool begun;
};

/* A row as operators see it; spans point into the list. */
struct outbox_listed {
        int64_t id;
        enum outbox_state state;
        int32_t attempts;
        int64_t created_us, next_attempt_us, published_us; /* 0: none */
        struct span topic, key, last_error;
        bool key_is_null;
        uint8_t event_id[EVENT_ID_BYTES];
};

struct outbox_list {
        struct outbox_listed *row;
        size_t n;
        void *driver;
        void (*release)(void *driver);
};

struct outbox_vt {
        const char *name; /* "sqlite", "postgres" */

        /* Is the table there with all the columns that this mode needs?  The text names what is
         * missing and what to run (`semel migrate`, or `semel migrate --for-table T`).
         * Reads uuid and mode into *ret_view as well (slots without `mine`): nobody becomes a member by it.
         * Errors: SEMEL_ERR_SCHEMA, SEMEL_ERR_ARGUMENT (this store has no such mode: says so). */
        semel_code (*check)(struct outbox_session *s, enum outbox_mode mode, int64_t deadline_us,
                            struct outbox_view *ret_view, semel_error *err);

        /* -- ownership: on a session of its own -- */

        /* Join or renew: one write, then the slots.  lease_us from the database's clock. */
        semel_code (*beat)(struct outbox_session *s, const struct outbox_member *me,
                           int64_t lease_us, int64_t deadline_us, struct outbox_view *ret_view,
                           semel_error *err);
        /* Take these slots if they are free now; *ret_view as after a beat.  All of a group or none
         * of it in exactly-once.  When the stored mode is another one: changed to `mode` if no
         * slot has an owner and nothing is PUBLISHING, else SEMEL_ERR_REFUSED and why (C8a). */
        semel_code (*take)(struct outbox_session *s, const struct outbox_member *me,
                           enum outbox_mode mode, uint32_t slot_mask, int64_t lease_us,
                           int64_t deadline_us, struct outbox_view *ret_view, semel_error *err);
        /* Give these slots up (rule C2: nothing of them is unreported or unmarked).  unsettled: those
         * of which a batch of exactly-once may be committed and unmarked.  They are as those of a relay
         * that died: free for others at once, and the mode does not change before one of them has
         * recovered and given them (C8a). */
        semel_code (*give)(struct outbox_session *s, const struct outbox_member *me,
                           uint32_t slot_mask, uint32_t unsettled, int64_t deadline_us,
                           semel_error *err);
        /* Give all and be gone. */
        semel_code (*leave)(struct outbox_session *s, const struct outbox_member *me,
                            uint32_t unsettled, int64_t deadline_us, semel_error *err);

        /* -- rows: on a lane's session -- */

        /* The rows that may go now.  owned, exactly-once: a plain SELECT.  single: BEGIN and FOR
         * UPDATE (never SKIP LOCKED, rule C6); the transaction stays open until mark or abandon.
         * two-phase: PENDING -> PUBLISHING under the epochs, committed. */
        semel_code (*fetch)(struct outbox_session *s, const struct outbox_fetch *in,
                            int64_t deadline_us, struct outbox_rows *ret_rows, semel_error *err);
        /* Mark, fenced by the slots' epochs, status and attempts as read: one statement per
         * verdict that occurs, in one transaction.  keep: PUBLISHED instead of DELETE.
         * SEMEL_ERR_UNKNOWN: the commit's answer was lost: ask again, it is idempotent (rows that the
         * first one marked are then counted as changed). */
        semel_code (*mark)(struct outbox_session *s, enum outbox_mode mode, bool keep,
                           const struct outbox_slot *slots, size_t slot_count,
                           const struct outbox_mark *marks, size_t mark_count,
                           int64_t deadline_us, struct outbox_marked *ret, semel_error *err);
        /* single: roll back what fetch began; others: nothing to do. */
        void (*abandon)(struct outbox_session *s);
        /* Blocked keys of these slots: first unfinished rows with attempts > 0, and (on_dead block)
         * DEAD ones.  At most `max`: the dead first, then by slot and id.  Spans live until the next call. */
        semel_code (*blocked)(struct outbox_session *s, uint32_t slot_mask,
                              enum outbox_on_dead on_dead, size_t max, int64_t deadline_us,
                              const struct outbox_blocked **ret, size_t *ret_n, semel_error *err);
        /* Exactly-once recovery (rule C8): finish exactly the listed rows, where id AND event id
         * match, whatever their status.  A row that has been published at another time than when it
         * was read is none of them: that transaction is marked, and somebody wants it sent again. */
        semel_code (*recover)(struct outbox_session *s, bool keep, const struct outbox_slot *slots,
                              size_t slot_count, const int64_t *ids,
                              const uint8_t (*event_ids)[EVENT_ID_BYTES],
                              const int64_t *published_us, size_t n, int64_t deadline_us,
                              size_t *ret_finished, semel_error *err);
        /* Two-phase: PUBLISHING rows of these slots that have been so for stuck_after go back to
         * PENDING, under the epochs. */
        semel_code (*unstick)(struct outbox_session *s, const struct outbox_slot *slots,
                              size_t slot_count, int64_t stuck_after_us, int64_t deadline_us,
                              size_t *ret_rows, semel_error *err);
        /* Delete up to LIMIT_OUTBOX_PRUNE_ROWS PUBLISHED rows older than keep_us; dry: count all. */
        semel_code (*prune)(struct outbox_session *s, int64_t keep_us, bool dry,
                            int64_t deadline_us, int64_t *ret_rows, semel_error *err);

        /* Wait until somebody's commit says that rows came, or timeout.  *ret_slots: bit n, rows of slot n
         * (all bits when it does not say); 0: none came.  SEMEL_ERR_REFUSED: cannot work here (a pooler, no
         * trigger): says why, poll instead. */
        semel_code (*listen)(struct outbox_session *s, int64_t timeout_us, uint32_t *ret_slots,
                             semel_error *err);

        /* End sessions of programs like this one that stopped in the middle of a request longer than
         * after_us ago: nothing else frees what they hold (rule B3).  NULL: cannot be here. */
        semel_code (*reap)(struct outbox_session *s, int64_t after_us, int64_t deadline_us,
                           int64_t *ret_ended, semel_error *err);

        /* -- operators -- */
        semel_code (*stats)(struct outbox_session *s, int64_t deadline_us,
                            struct outbox_stats *ret, semel_error *err);
        semel_code (*list)(struct outbox_session *s, enum outbox_state state, int64_t after_id,
                           size_t max, int64_t deadline_us, struct outbox_list *ret,
                           semel_error *err);
        /* DEAD -> PENDING, attempts 0; id 0: all, LIMIT_OUTBOX_PRUNE_ROWS a call. */
        semel_code (*retry)(struct outbox_session *s, int64_t id, const char *who,
                            int64_t deadline_us, int64_t *ret_rows, semel_error *err);
        /* Delete one DEAD row; an audit row stays. */
        semel_code (*discard)(struct outbox_session *s, int64_t id, const char *who,
                              const char *reason, int64_t deadline_us, semel_error *err);
        /* PUBLISHED rows go back to PENDING, LIMIT_OUTBOX_PRUNE_ROWS a call. */
        semel_code (*republish)(struct outbox_session *s, struct outbox_again *again, const char *who,
                                int64_t deadline_us, int64_t *ret_rows, semel_error *err);

        void (*close)(struct outbox_session *s);
};

struct outbox_session {
        const struct outbox_vt *vt;
};

/* A driver's way to open one; connects at the first call. `name` is the connection's application
 * name ("semel relay lane 0").  Errors: SEMEL_ERR_URL, SEMEL_ERR_ARGUMENT, SEMEL_ERR_NO_MEMORY. */
typedef semel_code outbox_open_fn(const char *url, const struct outbox_mapping *mapping,
                                  const char *name, struct outbox_session **ret,
                                  semel_error *err);

#endif
