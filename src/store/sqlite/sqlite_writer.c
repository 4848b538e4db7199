/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_writer: see sqlite_writer.h.
 */
#include "store/sqlite/sqlite_writer.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/limits.h"
#include "store/sqlite/sqlite_ops.h"

/* Between two tries after a COMMIT without an answer. */
#define RETRY_US (20 * MS)
/* Orphans are tried this often while nothing else is written. */
#define ORPHAN_RETRY_US (1 * SECOND)
enum {
        /* SQLite mostly waits by itself (session_open); where it does not, this keeps the thread from
         * turning in circles. */
        LOCKED_NAP_US = 1000,
        /* So often a closing store asks for a lock that others hold. */
        CLOSING_LOCKED_TRIES = 10,
};

static void nap_us(long us)
{
        const struct timespec ts = {.tv_nsec = us * 1000};
        (void)nanosleep(&ts, NULL);
}

/* -- answers ------------------------------------------------------------------------------ */

void writer_deliver(struct writer *w, struct op_list *ops)
{
        static const uint64_t one = 1;
        if (!ops->first)
                return;
        (void)pthread_mutex_lock(&w->mu);
        ops_append(&w->done, ops);
        if (!w->signalled) {
                /* With the mutex: a step in between would find nothing to read, and the descriptor
                 * would stay readable.  It cannot block: the count is 0 or 1. */
                ssize_t n = write(w->efd, &one, sizeof one);
                (void)n;
        }
        w->signalled = true;
        (void)pthread_mutex_unlock(&w->mu);
}

/* With the mutex. */
static void doubt_again(struct writer *w, struct op_list *doubt)
{
        if (!doubt->first)
                return;
        ops_append(&w->doubt, doubt);
        w->doubt_at_us = clock_boot_us() + RETRY_US;
}

/* Take out those that are in doubt: none of them can be told "nothing happened", so each waits for the
 * next try, or for its deadline, among its like. */
static struct op_list take_doubt(struct op_list *ops)
{
        struct op_list doubt = {0}, rest = {0};
        struct store_op *op;
        while ((op = ops_shift(ops)))
                ops_push(op->stage == STAGE_IN_DOUBT ? &doubt : &rest, op);
        *ops = rest;
        return doubt;
}

/* The same error for all. */
static void fail_all(struct writer *w, struct op_list *ops, const semel_error *err)
{
        struct op_list doubt = take_doubt(ops);
        for (struct store_op *op = ops->first; op; op = op->next)
                (void)err_copy(&op->err, err);
        (void)pthread_mutex_lock(&w->mu);
        doubt_again(w, &doubt);
        (void)pthread_mutex_unlock(&w->mu);
        writer_deliver(w, ops);
        *ops = (struct op_list){0};
}

/* Nobody knows what became of them: again, with the same attempts (A7).  On the same connection: it
 * writes the same place of the WAL again.  A new one might read back what the failed fsync left in
 * memory only, and would build on it. */
static void doubt_all(struct writer *w, struct op_list *ops)
{
        for (struct store_op *op = ops->first; op; op = op->next)
                op->stage = STAGE_IN_DOUBT;
        (void)pthread_mutex_lock(&w->mu);
        doubt_again(w, ops);
        (void)pthread_mutex_unlock(&w->mu);
}

/* -- one group ------------------------------------------------------------------------------ */

static bool run_op(struct writer *w, struct store_op *op)
{
        /* What was in doubt is answered only behind an fsync of our own, even if it is found there. */
        if (op->stage == STAGE_IN_DOUBT)
                w->ses.mark_changed = true;
        if (op->tries++ > 0)
                sqlite_op_reset(op);
        else
                err_clear(&op->err);
        return sqlite_op_run(&w->ses, op);
}

/* Run them all; the index of the one that failed, or the count. */
static size_t run_all(struct writer *w, const struct op_list *ops)
{
        size_t i = 0;
        for (struct store_op *op = ops->first; op; op = op->next, i++)
                if (!run_op(w, op))
                        break;
        return i;
}

/* COMMIT, during which the loop's thread may take operations out of `ops` whose deadline is over:
 * the disk hangs, and it answers them as unknown. */
static int commit(struct writer *w, struct op_list *ops)
{
        int rc = session_save_mark(&w->ses);
        if (rc != SQLITE_OK)
                return rc;
        (void)pthread_mutex_lock(&w->mu);
        w->committing = *ops;
        w->in_commit = true;
        (void)pthread_mutex_unlock(&w->mu);
        rc = session_run(&w->ses, SQL_COMMIT);
        (void)pthread_mutex_lock(&w->mu);
        *ops = w->committing;
        w->committing = (struct op_list){0};
        w->in_commit = false;
        (void)pthread_mutex_unlock(&w->mu);
        return rc;
}

/* The errors after which a COMMIT certainly left nothing. */
static bool commit_left_nothing(int rc)
{
        switch (rc & 0xff) {
        case SQLITE_FULL: /* a WAL without its commit frame is no transaction */
        case SQLITE_BUSY:
        case SQLITE_READONLY:
                return true;
        default:
                return false;
        }
}

static semel_code begin(struct writer *w, semel_error *err)
{
        return session_begin(&w->ses, SQL_BEGIN_IMMEDIATE, w->clock, &w->boot_id, err);
}

/* Somebody else was faster: back to the front of their queue, until their deadlines. */
static void requeue(struct writer *w, struct op_list *queue, struct op_list *ops)
{
        struct op_list doubt = take_doubt(ops);
        (void)pthread_mutex_lock(&w->mu);
        doubt_again(w, &doubt);
        ops_append(ops, queue);
        *queue = *ops;
        w->locked_out = true;
        (void)pthread_mutex_unlock(&w->mu);
        *ops = (struct op_list){0};
}

static void run_group(struct writer *w, struct op_list *ops);

/* The first n of `ops`, in a transaction of their own. */
static void run_first(struct writer *w, struct op_list *ops, size_t n)
{
        struct op_list head = ops_split(ops, n);
        semel_error err = {0};
        if (!head.first)
                return;
        if (begin(w, &err) == SEMEL_OK)
                run_group(w, &head);
        else if (err.code == SEMEL_ERR_BUSY)
                requeue(w, &w->writes, &head);
        else
                fail_all(w, &head, &err);
}

/* `ops` cannot go as one: the first n, then the next one alone.  The rest is left. */
static void run_parts(struct writer *w, struct op_list *ops, size_t n)
{
        run_first(w, ops, n);
        run_first(w, ops, 1);
}

static void after_failed_op(struct writer *w, struct op_list *ops, size_t failed_at)
{
        /* SQLite may have rolled back already (B9): what ran before is gone either way. */
        session_rollback(&w->ses);
        if (ops->count > 1) {
                run_parts(w, ops, failed_at);
                return;
        }
        semel_error err;
        (void)err_copy(&err, &ops->first->err);
        fail_all(w, ops, &err);
}

static void after_failed_commit(struct writer *w, struct op_list *ops, int rc)
{
        semel_error err = {0};
        (void)sqlite_error(w->ses.db, rc, w->path, &err);
        session_rollback(&w->ses);
        if (!commit_left_nothing(rc))
                doubt_all(w, ops);
        else if (ops->count > 1)
                run_parts(w, ops, ops->count / 2);
        else
                fail_all(w, ops, &err);
}

/* In an open transaction, which is over afterwards.  What is left in `ops` is to be tried again. */
static void try_group(struct writer *w, struct op_list *ops)
{
        size_t failed_at = run_all(w, ops);
        if (failed_at < ops->count) {
                after_failed_op(w, ops, failed_at);
                return;
        }
        /* An error that did not show would be answered OK by a COMMIT of nothing. */
        int rc = sqlite3_get_autocommit(w->ses.db) ? SQLITE_IOERR : commit(w, ops);
        if (rc == SQLITE_OK)
                writer_deliver(w, ops);
        else
                after_failed_commit(w, ops, rc);
}

/* In an open transaction, which is over afterwards.  Empties `ops`. */
static void run_group(struct writer *w, struct op_list *ops)
{
        semel_error err = {0};
        try_group(w, ops);
        while (ops->first) {
                if (begin(w, &err) == SEMEL_OK)
                        try_group(w, ops);
                else if (err.code == SEMEL_ERR_BUSY)
                        requeue(w, &w->writes, ops);
                else
                        fail_all(w, ops, &err);
        }
}

/* -- taking work ------------------------------------------------------------------------------ */

static size_t op_bytes(const struct store_op *op)
{
        if (op->kind == STORE_WRITE)
                return op->in.write.reply.headers.n + op->in.write.reply.body.n;
        if (op->kind == STORE_RESOLVE)
                return op->in.resolve.reply.headers.n + op->in.resolve.reply.body.n;
        return 0;
}

/* Up to one batch from the front of `from`. */
static void take_from(struct op_list *from, struct op_list *to, size_t *bytes)
{
        while (from->first && to->count < LIMIT_BATCH_OPS &&
               (to->count == 0 || *bytes + op_bytes(from->first) <= LIMIT_BATCH_BYTES)) {
                *bytes += op_bytes(from->first);
                ops_push(to, ops_shift(from));
        }
}

static struct op_list take_group(struct writer *w)
{
        struct op_list ops = {0};
        size_t bytes = 0;
        (void)pthread_mutex_lock(&w->mu);
        if (w->doubt.first && clock_boot_us() >= w->doubt_at_us)
                take_from(&w->doubt, &ops, &bytes);
        take_from(&w->writes, &ops, &bytes);
        w->locked_out = false;
        (void)pthread_mutex_unlock(&w->mu);
        return ops;
}

static void fail_group(struct writer *w, const semel_error *err)
{
        struct op_list ops = take_group(w);
        fail_all(w, &ops, err);
}

/* BEGIN IMMEDIATE behind the gate.  false: no transaction. */
static bool begin_group(struct writer *w)
{
        semel_error err = {0};
        if (begin(w, &err) == SEMEL_OK)
                return true;
        if (err.code == SEMEL_ERR_BUSY) {
                (void)pthread_mutex_lock(&w->mu);
                w->locked_out = true; /* they stay in the queue, until their deadlines */
                (void)pthread_mutex_unlock(&w->mu);
                nap_us(LOCKED_NAP_US);
                return false;
        }
        fail_group(w, &err);
        return false;
}

static void serve_writes(struct writer *w)
{
        gate_enter(&w->gate);
        if (begin_group(w)) {
                struct op_list ops = take_group(w);
                if (ops.first)
                        run_group(w, &ops);
                else
                        session_rollback(&w->ses);
        }
        gate_leave(&w->gate);
}

/* Reads see what is committed, in a snapshot of their own, and wait for no writer. */
static void serve_reads(struct writer *w)
{
        struct op_list ops = {0};
        size_t bytes = 0;
        (void)pthread_mutex_lock(&w->mu);
        take_from(&w->reads, &ops, &bytes);
        (void)pthread_mutex_unlock(&w->mu);
        if (!ops.first)
                return;
        semel_error err = {0};
        semel_code code = session_begin(&w->ses, SQL_BEGIN_READ, w->clock, &w->boot_id, &err);
        if (code == SEMEL_ERR_BUSY) {
                requeue(w, &w->reads, &ops);
                nap_us(LOCKED_NAP_US);
                return;
        }
        if (code != SEMEL_OK) {
                fail_all(w, &ops, &err);
                return;
        }
        for (struct store_op *op = ops.first; op; op = op->next)
                (void)run_op(w, op);
        session_rollback(&w->ses);
        writer_deliver(w, &ops);
}

/* -- orphans ------------------------------------------------------------------------------------ */

/* In a transaction of its own: they are few. */
static bool undo_orphan(struct writer *w, const struct orphan *orphan)
{
        semel_error err = {0};
        if (begin(w, &err) != SEMEL_OK)
                return false;
        enum row_result result =
                sqlite_undo_claim(&w->ses, &orphan->claim, &orphan->label, &err);
        w->ses.mark_changed = true; /* see run_op */
        bool ok = result != ROW_FAILED && result != ROW_NO_MEMORY &&
                  session_save_mark(&w->ses) == SQLITE_OK &&
                  session_run(&w->ses, SQL_COMMIT) == SQLITE_OK;
        session_rollback(&w->ses);
        return ok;
}

/* Undo claims of unknown outcome, until one fails. */
static void serve_orphans(struct writer *w)
{
        bool ok = true;
        for (int i = 0; i < LIMIT_BATCH_OPS && ok; i++) {
                (void)pthread_mutex_lock(&w->mu);
                struct orphan *orphan = orphans_take(&w->orphans);
                w->undoing = orphan != NULL;
                (void)pthread_mutex_unlock(&w->mu);
                if (!orphan)
                        break;
                ok = undo_orphan(w, orphan);
                (void)pthread_mutex_lock(&w->mu);
                if (ok)
                        free(orphan);
                else
                        orphans_put_back(&w->orphans, orphan);
                w->undoing = false;
                (void)pthread_mutex_unlock(&w->mu);
        }
        w->orphans_at_us = clock_boot_us() + ORPHAN_RETRY_US;
}

/* -- the thread ----------------------------------------------------------------------------------- */

struct work {
        bool reads, writes, orphans, over;
};

/* With the mutex. */
static int64_t next_event_us(const struct writer *w)
{
        int64_t at_us = INT64_MAX;
        if (w->doubt.first)
                at_us = w->doubt_at_us;
        if (w->orphans.first && w->orphans_at_us < at_us)
                at_us = w->orphans_at_us;
        return at_us;
}

/* With the mutex; until woken, or until at_us. */
static void wait_until(struct writer *w, int64_t at_us)
{
        w->idle = true;
        if (at_us == INT64_MAX) {
                (void)pthread_cond_wait(&w->wake, &w->mu);
        } else {
                int64_t left_us = at_us - clock_boot_us();
                struct timespec ts;
                (void)clock_gettime(CLOCK_MONOTONIC, &ts);
                int64_t ns = ts.tv_nsec + (left_us > 0 ? left_us : 0) % SECOND * 1000;
                ts.tv_sec += (time_t)((left_us > 0 ? left_us : 0) / SECOND + ns / 1000000000);
                ts.tv_nsec = (long)(ns % 1000000000);
                (void)pthread_cond_timedwait(&w->wake, &w->mu, &ts);
        }
        w->idle = false;
}

static struct work wait_for_work(struct writer *w)
{
        struct work work = {0};
        (void)pthread_mutex_lock(&w->mu);
        for (;;) {
                int64_t now_us = clock_boot_us();
                work.reads = w->reads.first != NULL;
                work.writes = w->writes.first || (w->doubt.first && now_us >= w->doubt_at_us);
                work.orphans = w->orphans.first && now_us >= w->orphans_at_us;
                work.over = w->closing && !work.reads && !work.writes;
                if (work.reads || work.writes || work.orphans || work.over)
                        break;
                wait_until(w, next_event_us(w));
        }
        (void)pthread_mutex_unlock(&w->mu);
        return work;
}

/* A closing store does not wait for other people's locks for long; what it leaves in the queue is
 * answered by close. */
static bool give_up(struct writer *w, int *tries)
{
        (void)pthread_mutex_lock(&w->mu);
        bool closing_locked = w->closing && w->locked_out;
        (void)pthread_mutex_unlock(&w->mu);
        return closing_locked && ++*tries >= CLOSING_LOCKED_TRIES;
}

void *writer_main(void *arg)
{
        struct writer *w = arg;
        int tries = 0;
        for (;;) {
                struct work work = wait_for_work(w);
                if (work.over)
                        break;
                if (work.reads)
                        serve_reads(w);
                if (work.writes)
                        serve_writes(w);
                if (work.orphans)
                        serve_orphans(w);
                if (give_up(w, &tries))
                        break;
        }
        return NULL;
}
