/* SPDX-License-Identifier: Apache-2.0
 *
 * store: the one interface of all stores.
 *
 * Asynchronous and loop-neutral, as libpq is: a store has a file descriptor, the events it waits
 * for, the next deadline, and a step function.  Whoever owns a loop (libuv in the daemons,
 * poll(2) in the library, store_wait() in tests) calls step when one of them has come.
 *
 *     submit(st, op)                      // queues; never completes inside
 *     for (;;) { poll(fd, events, deadline - now); step(st); }
 *     op->done(op)                        // exactly once, from step
 *
 * Contract, the same for every driver (tests/store/ is its test):
 *   - An operation belongs to its submitter until it is submitted, to the store until `done`
 *     is called, then to its submitter again.  `done` may submit, and may free the op.
 *   - `done` is called exactly once, never from submit.  Before it, nothing of `out` is valid.
 *   - Operations that are submitted together may travel in one batch; each fails alone (B4).
 *   - err.code is SEMEL_OK when `out` is an answer.  Else: STORE_DOWN, STORE_FULL,
 *     STORE_READ_ONLY, BUSY, ...: nothing happened.  SEMEL_ERR_UNKNOWN: nobody can know; a
 *     store returns it only after it tried its resolve rule (A7) until the op's deadline.
 *   - Headers, a body or texts beyond the limits of core/limits.h: TOO_LARGE, nothing happened and
 *     the others of the batch do not notice.
 *   - An op is answered, one way or the other, at most a second after its deadline.
 *   - An answer that a row was written is given only after the commit was acknowledged.
 *   - A claim that ended with SEMEL_ERR_UNKNOWN is put on the store's bounded list: when the
 *     database is back, the claim is issued again and released (A7), so that it is not left as an orphan.
 *   - Rows are decided by core/command.h; a store decides nothing of its own.
 *   - Not thread-safe: one loop, one store.  (semel_store puts a thread around it.)
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/buf.h"
#include "base/err.h"
#include "core/command.h"
#include "core/identity.h"
#include "store/inbox.h"
#include "store/outbox.h"
#include "sys/clock.h"

/* What a row carries besides what decisions look at. */
struct store_label {
        enum command_mode mode;
        struct span scope;
        struct span operation; /* named in a mismatch (H60) */
        struct span key;       /* the key's text, or empty (A11) */
        struct span holder;    /* who claims: host, pid, boot id, lock file; UTF-8, free form */
};

enum { STORE_REPLY_TOMBSTONE = 1 };

/* A reply as it is stored; headers as reply_codec writes them. */
struct store_reply {
        int32_t status;
        uint32_t flags; /* STORE_REPLY_* */
        struct span headers;
        struct span body;
};

/* A row as it was read: owned copies. */
struct store_record {
        struct command_row row;
        struct command_now now; /* the store's clock when it was read */
        enum command_mode mode;
        struct buf text;        /* what the spans below point into */
        struct span scope, operation, key, holder;
        bool has_reply;
        int32_t status;
        uint32_t flags;
        struct buf headers, body;
};

void store_record_init(struct store_record *rec);
void store_record_release(struct store_record *rec);
/* Copy the label's strings in.  BUF_OK or BUF_NO_MEMORY. */
int store_record_set_label(struct store_record *rec, const struct store_label *label);
int store_record_set_reply(struct store_record *rec, const struct store_reply *rep);

enum store_op_kind {
        STORE_CLAIM,
        STORE_WRITE,
        STORE_GET,
        STORE_LIST,
        STORE_RESOLVE,
        STORE_SWEEP,
};

/* Where a walk in order of creation stands; all zero is the beginning. */
struct store_cursor {
        int64_t created_us;
        struct command_id id;
        bool started;
};

struct store_op {
        enum store_op_kind kind;
        int64_t deadline_us; /* host CLOCK_BOOTTIME */
        void (*done)(struct store_op *op);
        void *arg; /* the submitter's */

        union {
                struct {
                        struct command_claim claim;
                        struct store_label label; /* spans stay valid until done */
                } claim;
                struct {
                        struct command_write write;
                        struct store_reply reply; /* COMPLETE */
                } write;
                struct {
                        struct command_id id;
                } get;
                struct {
                        struct store_cursor after;
                        bool stuck;      /* only stuck rows */
                        struct span key; /* only rows with this key's text; empty: all */
                        size_t max;      /* rows looked at in this step, <= LIMIT_SWEEP_ROWS */
                } list;
                struct {
                        struct command_resolve resolve;
                        struct store_reply reply;
                        struct span reason, who; /* audit row, in the same transaction */
                } resolve;
                struct {
                        struct store_cursor after;
                        size_t max;
                } sweep;
        } in;

        semel_error err;
        union {
                struct {
                        struct command_answer answer;
                        /* REPLAY: row, label and reply; BUSY, MISMATCH, IS_UNKNOWN: row and label */
                        struct store_record rec;
                } claim;
                struct command_write_answer write;
                struct store_record get; /* err NOT_FOUND when there is none */
                struct {
                        struct store_record *recs; /* count of them, without reply bodies */
                        size_t count;
                        struct store_cursor next; /* go on from here */
                        bool end;
                } list;
                struct {
                        enum command_resolve_outcome outcome;
                        int64_t wait_us;
                } resolve;
                struct {
                        int64_t deleted, unknown;
                        struct store_cursor next;
                        bool end;
                } sweep;
        } out;

        /* the store's own */
        struct store_op *next;
        uint32_t tries;
        uint32_t stage;
        int64_t not_before_us;
};

/* Prepare an op of this kind (zeroes it, initialises the records of `out`). */
void store_op_init(struct store_op *op, enum store_op_kind kind);
/* Free what `out` owns.  Safe after init, after done, and twice. */
void store_op_release(struct store_op *op);

struct store;

struct store_vt {
        const char *name;
        void (*submit)(struct store *st, struct store_op *op);
        int (*fd)(struct store *st);
        short (*events)(struct store *st); /* of poll(2) */
        int64_t (*deadline_us)(struct store *st); /* host CLOCK_BOOTTIME; INT64_MAX: none */
        void (*step)(struct store *st);
        /* NULL, or: until when nothing that is submitted would be begun at once.  Who drives the
         * store may leave what comes in where it is until then, or until fd or deadline. */
        int64_t (*full_until_us)(struct store *st);
        /* Operations under way are answered (STORE_DOWN or UNKNOWN) before it returns. */
        void (*close)(struct store *st);
};

struct store {
        const struct store_vt *vt;
};

static inline void store_submit(struct store *st, struct store_op *op)
{
        st->vt->submit(st, op);
}

/* Run the store's loop until `op`, submitted here, is done.  For tests and tools. */
void store_wait(struct store *st, struct store_op *op);

/* What a driver needs from outside. */
struct store_env {
        const struct sys_clock *clock; /* never NULL */
        /* The callers are threads that sleep until `done`: what they submit next comes a moment
         * after it, one by one; and deadline_us is kept to the microsecond. */
        bool sleeping_callers;
};

struct store_driver {
        const char *scheme;  /* "sqlite" */
        semel_code (*open)(const char *url, const struct store_env *env, struct store **ret_st,
                           semel_error *err);
        /* Create or upgrade the schema; a no-op where open does it. */
        semel_code (*migrate)(const char *url, semel_error *err);
        /* The statements that migrate would run on an empty database (what = "schema"), or the
         * least-privilege script for `role` (what = "grants"; "append-grants": to leave events
         * in the outbox, and no more). */
        semel_code (*print)(const char *what, const char *role, struct buf *out, semel_error *err);
        outbox_open_fn *outbox_open; /* store/outbox.h; NULL: no outbox here */
        /* The statements that make a table of the user's into one that the relay can read. */
        semel_code (*print_mapping)(const struct outbox_mapping *mapping, struct buf *out,
                                    semel_error *err);
        /* Wake relays that listen when rows come (rule C11), or stop it; NULL: relays poll here. */
        semel_code (*notify)(const char *url, bool on, semel_error *err);
        inbox_open_fn *inbox_open;   /* store/inbox.h; NULL: no inbox here */
};

/* Wrappers: a store around a store, which they own and close. */
struct store *store_trace_new(struct store *inner, void (*line)(void *arg, const char *text),
                              void *arg);

/* Faults for tests: what happens to the n-th operation of a kind that passes through. */
enum store_fault {
        FAULT_NONE,
        FAULT_BEFORE,     /* STORE_DOWN, and the inner store never sees it */
        FAULT_LOST_REPLY, /* the inner store does it; the answer is SEMEL_ERR_UNKNOWN */
        FAULT_LATE,       /* SEMEL_ERR_UNKNOWN now; the inner store does it when released */
};
struct store *store_faulty_new(struct store *inner,
                               enum store_fault (*decide)(void *arg, const struct store_op *op),
                               void *arg);
/* Let the operations held by FAULT_LATE go to the inner store now. */
void store_faulty_flush(struct store *st);

#endif
