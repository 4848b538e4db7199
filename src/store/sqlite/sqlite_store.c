/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_store: the store's interface, on the loop's thread.  The work is sqlite_writer.c's.
 */
#include "store/sqlite/sqlite_store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/limits.h"
#include "store/sqlite/sqlite_open.h"
#include "store/sqlite/sqlite_ops.h"
#include "store/sqlite/sqlite_outbox.h"
#include "store/sqlite/sqlite_schema.h"
#include "store/sqlite/sqlite_writer.h"

/* How long after its deadline an operation in a COMMIT that hangs is given up. */
#define COMMIT_GRACE_US (500 * MS)
/* While a group runs, its operations cannot be looked at: look again after this. */
#define LOOK_AGAIN_US (100 * MS)

struct sqlite_store {
        struct store st;
        struct writer w;
        pthread_t thread;
        /* the loop's own */
        int64_t look_us;   /* when the next deadline may be over */
        size_t inside;     /* submitted and not yet done */
        bool closing;
};

static struct sqlite_store *store_of(struct store *st)
{
        return (struct sqlite_store *)st;
}

/* -- submit ---------------------------------------------------------------------------- */

static bool is_read(const struct store_op *op)
{
        return op->kind == STORE_GET || op->kind == STORE_LIST;
}

/* Answer it from the next step, without the writer. */
static void refuse(struct sqlite_store *s, struct store_op *op)
{
        struct op_list ops = {0};
        if (s->closing)
                (void)err_set(&op->err, SEMEL_ERR_STORE_DOWN, "the store is being closed");
        else
                (void)err_set(&op->err, SEMEL_ERR_BUSY,
                              "%d operations wait for %s already: come back later",
                              LIMIT_QUEUE_OPS, s->w.path);
        ops_push(&ops, op);
        writer_deliver(&s->w, &ops);
}

static void sqlite_submit(struct store *st, struct store_op *op)
{
        struct sqlite_store *s = store_of(st);
        op->stage = STAGE_NEW;
        op->tries = 0;
        s->inside++;
        if (s->closing || s->inside > LIMIT_QUEUE_OPS) {
                refuse(s, op);
                return;
        }
        if (op->deadline_us < s->look_us)
                s->look_us = op->deadline_us;
        (void)pthread_mutex_lock(&s->w.mu);
        ops_push(is_read(op) ? &s->w.reads : &s->w.writes, op);
        bool wake = s->w.idle;
        (void)pthread_mutex_unlock(&s->w.mu);
        if (wake)
                (void)pthread_cond_signal(&s->w.wake);
}

/* -- deadlines --------------------------------------------------------------------------- */

/* Take out what is due at `now_us`; the earliest deadline of the rest. */
static int64_t take_due(struct op_list *from, struct op_list *to, int64_t now_us)
{
        int64_t next_us = INT64_MAX;
        struct op_list rest = {0};
        struct store_op *op;
        while ((op = ops_shift(from))) {
                if (op->deadline_us <= now_us) {
                        ops_push(to, op);
                        continue;
                }
                if (op->deadline_us < next_us)
                        next_us = op->deadline_us;
                ops_push(&rest, op);
        }
        *from = rest;
        return next_us;
}

/* With the mutex.  Nobody can know: A7's list undoes the claim when it can. */
static void give_up(struct sqlite_store *s, struct op_list *ops)
{
        for (struct store_op *op = ops->first; op; op = op->next) {
                if (op->kind == STORE_CLAIM)
                        orphans_add(&s->w.orphans, op);
                sqlite_op_reset(op);
                (void)err_set(&op->err, SEMEL_ERR_UNKNOWN,
                              "%s did not say in time whether it kept the write: look at its disk",
                              s->w.path);
        }
}

static void late(struct sqlite_store *s, struct op_list *ops)
{
        for (struct store_op *op = ops->first; op; op = op->next) {
                sqlite_op_reset(op);
                if (s->w.locked_out)
                        (void)err_set(&op->err, SEMEL_ERR_BUSY,
                                      "%s stayed locked by another connection's transaction: end "
                                      "that one, or wait longer",
                                      s->w.path);
                else
                        (void)err_set(&op->err, SEMEL_ERR_STORE_DOWN,
                                      "%s did not get to this operation in time: the disk is slow, "
                                      "or too much is asked of it",
                                      s->w.path);
        }
}

static int64_t min64(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

/* Answer everything whose deadline is over and that the writer does not work on. */
static void look_at_deadlines(struct sqlite_store *s, int64_t now_us, struct op_list *out)
{
        struct op_list due = {0}, unknown = {0};
        struct writer *w = &s->w;
        (void)pthread_mutex_lock(&w->mu);
        int64_t next_us = take_due(&w->writes, &due, now_us);
        next_us = min64(next_us, take_due(&w->reads, &due, now_us));
        next_us = min64(next_us, take_due(&w->doubt, &unknown, now_us));
        if (w->in_commit) {
                int64_t at_us = take_due(&w->committing, &unknown, now_us - COMMIT_GRACE_US);
                if (at_us != INT64_MAX)
                        next_us = min64(next_us, at_us + COMMIT_GRACE_US);
        }
        if (s->inside > w->writes.count + w->reads.count + w->doubt.count + w->committing.count)
                next_us = min64(next_us, now_us + LOOK_AGAIN_US); /* a group runs */
        late(s, &due);
        give_up(s, &unknown);
        (void)pthread_mutex_unlock(&w->mu);
        s->look_us = next_us;
        ops_append(out, &due);
        ops_append(out, &unknown);
}

/* -- step ------------------------------------------------------------------------------------ */

static void answer(struct sqlite_store *s, struct op_list *ops)
{
        struct store_op *op;
        while ((op = ops_shift(ops))) {
                s->inside--;
                op->done(op); /* may free it, and may submit */
        }
}

static struct op_list take_done(struct sqlite_store *s)
{
        struct writer *w = &s->w;
        (void)pthread_mutex_lock(&w->mu);
        struct op_list ops = w->done;
        w->done = (struct op_list){0};
        if (w->signalled) {
                uint64_t n;
                ssize_t got = read(w->efd, &n, sizeof n);
                (void)got;
                w->signalled = false;
        }
        (void)pthread_mutex_unlock(&w->mu);
        return ops;
}

static void sqlite_step(struct store *st)
{
        struct sqlite_store *s = store_of(st);
        struct op_list ops = take_done(s);
        int64_t now_us = clock_boot_us();
        if (now_us >= s->look_us)
                look_at_deadlines(s, now_us, &ops);
        answer(s, &ops);
}

static int sqlite_fd(struct store *st)
{
        return store_of(st)->w.efd;
}

static short sqlite_events(struct store *st)
{
        (void)st;
        return 1; /* POLLIN */
}

static int64_t sqlite_deadline_us(struct store *st)
{
        return store_of(st)->look_us;
}

size_t sqlite_store_orphans(struct store *st)
{
        struct writer *w = &store_of(st)->w;
        (void)pthread_mutex_lock(&w->mu);
        size_t n = w->orphans.count + w->undoing;
        (void)pthread_mutex_unlock(&w->mu);
        return n;
}

/* -- close ------------------------------------------------------------------------------------ */

static void store_free(struct sqlite_store *s)
{
        session_close(&s->w.ses);
        gate_close(&s->w.gate);
        orphans_release(&s->w.orphans);
        if (s->w.efd >= 0)
                (void)close(s->w.efd);
        (void)pthread_cond_destroy(&s->w.wake);
        (void)pthread_mutex_destroy(&s->w.mu);
        free(s->w.path);
        free(s);
}

static void sqlite_close(struct store *st)
{
        struct sqlite_store *s = store_of(st);
        struct writer *w = &s->w;
        s->closing = true;
        (void)pthread_mutex_lock(&w->mu);
        w->closing = true;
        (void)pthread_mutex_unlock(&w->mu);
        (void)pthread_cond_signal(&w->wake);
        (void)pthread_join(s->thread, NULL);

        struct op_list left = {0};
        ops_append(&left, &w->writes);
        ops_append(&left, &w->reads);
        for (struct store_op *op = left.first; op; op = op->next)
                (void)err_set(&op->err, SEMEL_ERR_STORE_DOWN, "the store was closed first");
        give_up(s, &w->doubt);
        ops_append(&left, &w->doubt);
        ops_append(&w->done, &left);
        while (w->done.first) { /* `done` may submit: refused, and answered too */
                struct op_list ops = take_done(s);
                answer(s, &ops);
        }
        store_free(s);
}

static const struct store_vt sqlite_vt = {
        .name = "sqlite",
        .submit = sqlite_submit,
        .fd = sqlite_fd,
        .events = sqlite_events,
        .deadline_us = sqlite_deadline_us,
        .step = sqlite_step,
        .close = sqlite_close,
};

/* -- open ------------------------------------------------------------------------------------- */

static struct sqlite_store *store_new(const struct store_env *env)
{
        struct sqlite_store *s = calloc(1, sizeof *s);
        pthread_condattr_t attr;
        if (!s)
                return NULL;
        s->st.vt = &sqlite_vt;
        s->look_us = INT64_MAX;
        s->w.clock = env->clock;
        s->w.gate.fd = -1;
        s->w.efd = -1;
        orphans_init(&s->w.orphans);
        (void)pthread_mutex_init(&s->w.mu, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&s->w.wake, &attr);
        (void)pthread_condattr_destroy(&attr);
        return s;
}

/* Signals are the program's: its handlers run on its own threads. */
static int start_thread(struct sqlite_store *s)
{
        sigset_t all, before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(&s->thread, NULL, writer_main, &s->w);
        if (rc == 0) /* so that its CPU time can be told from the program's */
                (void)pthread_setname_np(s->thread, "semel-sqlite");
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
}

static void limit_pages(struct sqlite_store *s, int max)
{
        char sql[64];
        if (max <= 0)
                return;
        (void)snprintf(sql, sizeof sql, "PRAGMA max_page_count=%d", max);
        (void)sqlite3_exec(s->w.ses.db, sql, NULL, NULL, NULL);
}

semel_code sqlite_store_open_with(const char *url, const struct store_env *env,
                                  const struct sqlite_hooks *hooks, struct store **ret_st,
                                  semel_error *err)
{
        struct sqlite_store *s = store_new(env);
        if (!s)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a SQLite store");
        struct writer *w = &s->w;
        semel_code code = sqlite_url_path(url, &w->path, err);
        if (code == SEMEL_OK && hooks->boot_id)
                w->boot_id = *hooks->boot_id;
        else if (code == SEMEL_OK)
                code = sqlite_boot_id_read(&w->boot_id, err);
        if (code == SEMEL_OK)
                code = sqlite_open_file(w->path, w->clock, &w->boot_id, hooks, &w->ses, &w->gate,
                                        err);
        if (code != SEMEL_OK)
                goto fail;
        limit_pages(s, hooks->max_page_count);
        w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int rc = w->efd < 0 ? errno : start_thread(s);
        if (rc != 0) {
                code = err_set_errno(err, SEMEL_ERR_STORE_DOWN, rc,
                                     "the SQLite store's thread cannot be started");
                goto fail;
        }
        *ret_st = &s->st;
        return SEMEL_OK;
fail:
        store_free(s);
        return code;
}

static semel_code sqlite_open(const char *url, const struct store_env *env, struct store **ret_st,
                              semel_error *err)
{
        return sqlite_store_open_with(url, env, &(struct sqlite_hooks){0}, ret_st, err);
}

static semel_code sqlite_migrate(const char *url, semel_error *err)
{
        struct store *st = NULL;
        semel_code code = sqlite_open(url, &(struct store_env){.clock = &sys_clock_host}, &st, err);
        if (code == SEMEL_OK)
                sqlite_close(st);
        return code;
}

static semel_code sqlite_print(const char *what, const char *role, struct buf *out,
                               semel_error *err)
{
        (void)role;
        if (strcmp(what, "schema") != 0)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "SQLite has no roles: who may use the file is its mode's and "
                               "directory's business");
        for (int v = 1; v <= SQLITE_SCHEMA_VERSION; v++)
                if (buf_append_str(out, schema_step(v)) != BUF_OK)
                        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory to print the schema");
        return SEMEL_OK;
}

semel_code sqlite_store_migrate_db(struct sqlite3 *db, semel_error *err)
{
        struct sqlite_boot_id boot_id;
        const char *name = db ? sqlite3_db_filename(db, "main") : NULL;
        if (!db)
                return err_set(err, SEMEL_ERR_ARGUMENT, "there is no connection");
        semel_code code = sqlite_boot_id_read(&boot_id, err);
        if (code != SEMEL_OK)
                return code;
        return schema_ensure(db, name && *name ? name : "the database in memory", &sys_clock_host,
                             &boot_id, NULL, NULL, err);
}

const struct store_driver store_sqlite_driver = {
        .scheme = "sqlite",
        .open = sqlite_open,
        .migrate = sqlite_migrate,
        .print = sqlite_print,
        .outbox_open = sqlite_outbox_open,
        .print_mapping = sqlite_outbox_print_mapping,
        .inbox_open = sqlite_inbox_open,
};
