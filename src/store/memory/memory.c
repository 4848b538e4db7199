/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: see memory.h.
 *
 * Rows are in a hash table of chains (ids are digests: their first bytes are the hash) and in a
 * list sorted by (created_us, id) for walks.  It has no descriptor: while operations wait, its
 * deadline is now.
 */
#include "store/memory/memory.h"

#include <stdlib.h>

#include "core/limits.h"

struct row {
        struct command_row row;
        struct store_record kept; /* label and reply */
        struct row *chain;
        struct row *older, *newer;
};

struct memory {
        struct store st;
        const struct sys_clock *clock;
        struct row **buckets;
        size_t bucket_count; /* a power of two */
        size_t row_count;
        struct row *oldest, *newest;
        struct store_op *first, **last; /* waiting */
};

/* -- rows ------------------------------------------------------------------------- */

static struct row **bucket_of(struct memory *m, const struct command_id *id)
{
        uint64_t h;
        memcpy(&h, id->b, sizeof h);
        return &m->buckets[h & (m->bucket_count - 1)];
}

static struct row *row_find(struct memory *m, const struct command_id *id)
{
        struct row *r = *bucket_of(m, id);
        while (r && !command_id_eq(&r->row.id, id))
                r = r->chain;
        return r;
}

static int order(int64_t a_us, const struct command_id *a, int64_t b_us,
                 const struct command_id *b)
{
        if (a_us != b_us)
                return a_us < b_us ? -1 : 1;
        return memcmp(a->b, b->b, sizeof a->b);
}

static void row_link(struct memory *m, struct row *r)
{
        struct row **bucket = bucket_of(m, &r->row.id);
        r->chain = *bucket;
        *bucket = r;

        struct row *before = m->newest;
        while (before &&
               order(before->row.created_us, &before->row.id, r->row.created_us, &r->row.id) > 0)
                before = before->older;
        r->older = before;
        r->newer = before ? before->newer : m->oldest;
        *(r->newer ? &r->newer->older : &m->newest) = r;
        *(before ? &before->newer : &m->oldest) = r;
        m->row_count++;
}

static void row_free(struct row *r)
{
        store_record_release(&r->kept);
        free(r);
}

static void row_unlink(struct memory *m, struct row *r)
{
        struct row **at = bucket_of(m, &r->row.id);
        while (*at != r)
                at = &(*at)->chain;
        *at = r->chain;
        *(r->older ? &r->older->newer : &m->oldest) = r->newer;
        *(r->newer ? &r->newer->older : &m->newest) = r->older;
        m->row_count--;
        row_free(r);
}

/* Keep chains short.  Failing to is slow, not wrong. */
static void table_grow(struct memory *m)
{
        if (m->row_count < m->bucket_count)
                return;
        struct row **buckets = calloc(m->bucket_count * 2, sizeof(struct row *));
        if (!buckets)
                return;
        free(m->buckets);
        m->buckets = buckets;
        m->bucket_count *= 2;
        for (struct row *r = m->oldest; r; r = r->newer) {
                struct row **bucket = bucket_of(m, &r->row.id);
                r->chain = *bucket;
                *bucket = r;
        }
}

static struct command_now now_of(struct memory *m)
{
        return (struct command_now){.lease_us = m->clock->boot_us(m->clock->arg),
                                    .wall_us = m->clock->wall_us(m->clock->arg)};
}

/* -- operations --------------------------------------------------------------------- */

static semel_code no_memory(struct store_op *op)
{
        return err_set(&op->err, SEMEL_ERR_NO_MEMORY, "the memory store is out of memory");
}

/* What could not be copied in: more bytes than a row may have, or no memory. */
static semel_code not_kept(struct store_op *op, int rc)
{
        if (rc == BUF_FULL)
                return err_set(&op->err, SEMEL_ERR_TOO_LARGE,
                               "the reply or a text is longer than a store keeps");
        return no_memory(op);
}

static int copy_record(struct store_record *rec, const struct row *r, struct command_now now,
                       bool with_reply)
{
        const struct store_record *kept = &r->kept;
        const struct store_label label = {kept->mode, kept->scope, kept->operation, kept->key,
                                          kept->holder};
        rec->row = r->row;
        rec->now = now;
        int rc = store_record_set_label(rec, &label);
        if (rc == BUF_OK && with_reply && kept->has_reply) {
                const struct store_reply rep = {kept->status, kept->flags, buf_span(&kept->headers),
                                                buf_span(&kept->body)};
                rc = store_record_set_reply(rec, &rep);
        }
        return rc;
}

static void forget_reply(struct row *r)
{
        r->kept.has_reply = false;
        buf_release(&r->kept.headers);
        buf_release(&r->kept.body);
}

/* A new row for the claim, not linked yet; NULL when memory is out. */
static struct row *row_new(void)
{
        struct row *r = calloc(1, sizeof *r);
        if (r)
                store_record_init(&r->kept);
        return r;
}

static void do_claim(struct memory *m, struct store_op *op)
{
        struct command_now now = now_of(m);
        struct row *r = row_find(m, &op->in.claim.claim.id);
        struct row *fresh = r ? NULL : row_new();
        if (!r && !fresh) {
                (void)no_memory(op);
                return;
        }
        struct row *at = r ? r : fresh;
        struct command_row decided = at->row;
        struct command_answer answer = command_claim(&decided, r != NULL, &op->in.claim.claim, now);

        if (answer.outcome == COMMAND_RUN && answer.changed) {
                int rc = store_record_set_label(&at->kept, &op->in.claim.label);
                if (rc != BUF_OK) {
                        if (fresh)
                                row_free(fresh);
                        (void)not_kept(op, rc);
                        return;
                }
                forget_reply(at);
        }
        at->row = decided;
        if (answer.inserted) {
                table_grow(m);
                row_link(m, at);
        }
        op->out.claim.answer = answer;
        if (copy_record(&op->out.claim.rec, at, now, answer.outcome == COMMAND_REPLAY) != BUF_OK)
                (void)no_memory(op); /* an own claim is answered RUN when it is issued again */
}

static void do_write(struct memory *m, struct store_op *op)
{
        struct row *r = row_find(m, &op->in.write.write.id);
        struct command_row decided = r ? r->row : (struct command_row){0};
        struct command_write_answer answer =
                command_write(&decided, r != NULL, &op->in.write.write, now_of(m));
        if (r && answer.changed) {
                int rc = op->in.write.write.kind == COMMAND_COMPLETE
                                 ? store_record_set_reply(&r->kept, &op->in.write.reply)
                                 : BUF_OK;
                if (rc != BUF_OK) {
                        forget_reply(r);
                        (void)not_kept(op, rc);
                        return;
                }
                r->row = decided;
        }
        op->out.write = answer;
}

static void do_get(struct memory *m, struct store_op *op)
{
        struct row *r = row_find(m, &op->in.get.id);
        if (!r)
                (void)err_set(&op->err, SEMEL_ERR_NOT_FOUND, "no such key");
        else if (copy_record(&op->out.get, r, now_of(m), true) != BUF_OK)
                (void)no_memory(op);
}

static struct row *row_after(struct memory *m, const struct store_cursor *after)
{
        struct row *r = m->oldest;
        while (r && after->started &&
               order(r->row.created_us, &r->row.id, after->created_us, &after->id) <= 0)
                r = r->newer;
        return r;
}

static void cursor_set(struct store_cursor *cur, const struct row *r)
{
        *cur = (struct store_cursor){
                .created_us = r->row.created_us, .id = r->row.id, .started = true};
}

static bool list_wants(const struct store_op *op, const struct row *r, struct command_now now)
{
        if (op->in.list.stuck && !command_stuck(&r->row, now))
                return false;
        return op->in.list.key.n == 0 || span_eq(op->in.list.key, r->kept.key);
}

static void do_list(struct memory *m, struct store_op *op)
{
        struct command_now now = now_of(m);
        size_t max = op->in.list.max < LIMIT_SWEEP_ROWS ? op->in.list.max : LIMIT_SWEEP_ROWS;
        op->out.list.recs = calloc(max ? max : 1, sizeof *op->out.list.recs);
        if (!op->out.list.recs) {
                (void)no_memory(op);
                return;
        }
        op->out.list.next = op->in.list.after;
        struct row *r = row_after(m, &op->in.list.after);
        for (size_t looked = 0; r && looked < max; looked++, r = r->newer) {
                cursor_set(&op->out.list.next, r);
                if (!list_wants(op, r, now))
                        continue;
                struct store_record *rec = &op->out.list.recs[op->out.list.count++];
                store_record_init(rec);
                if (copy_record(rec, r, now, false) != BUF_OK) {
                        (void)no_memory(op);
                        return;
                }
        }
        op->out.list.end = r == NULL;
}

static void do_resolve(struct memory *m, struct store_op *op)
{
        const struct command_resolve *resolve = &op->in.resolve.resolve;
        struct row *r = row_find(m, &resolve->id);
        struct command_row decided = r ? r->row : (struct command_row){0};
        op->out.resolve.outcome = command_resolve(&decided, r != NULL, resolve, now_of(m),
                                                  &op->out.resolve.wait_us);
        if (!r || op->out.resolve.outcome != COMMAND_RESOLVED)
                return;
        forget_reply(r);
        int rc = resolve->kind == COMMAND_RESOLVE_EXECUTED
                         ? store_record_set_reply(&r->kept, &op->in.resolve.reply)
                         : BUF_OK;
        if (rc != BUF_OK) {
                forget_reply(r);
                (void)not_kept(op, rc);
                return;
        }
        r->row = decided;
}

static void do_sweep(struct memory *m, struct store_op *op)
{
        struct command_now now = now_of(m);
        op->out.sweep.next = op->in.sweep.after;
        struct row *r = row_after(m, &op->in.sweep.after);
        for (size_t looked = 0; r && looked < op->in.sweep.max; looked++) {
                struct row *newer = r->newer;
                cursor_set(&op->out.sweep.next, r);
                switch (command_sweep(&r->row, now)) {
                case COMMAND_KEEP:
                        break;
                case COMMAND_DELETE:
                        row_unlink(m, r);
                        op->out.sweep.deleted++;
                        break;
                case COMMAND_TO_UNKNOWN:
                        op->out.sweep.unknown++;
                        break;
                }
                r = newer;
        }
        op->out.sweep.end = r == NULL;
}

static void run_op(struct memory *m, struct store_op *op)
{
        err_clear(&op->err);
        switch (op->kind) {
        case STORE_CLAIM:
                do_claim(m, op);
                break;
        case STORE_WRITE:
                do_write(m, op);
                break;
        case STORE_GET:
                do_get(m, op);
                break;
        case STORE_LIST:
                do_list(m, op);
                break;
        case STORE_RESOLVE:
                do_resolve(m, op);
                break;
        case STORE_SWEEP:
                do_sweep(m, op);
                break;
        }
}

/* -- the interface ----------------------------------------------------------------------- */

static void memory_submit(struct store *st, struct store_op *op)
{
        struct memory *m = (struct memory *)st;
        op->next = NULL;
        *m->last = op;
        m->last = &op->next;
}

static int memory_fd(struct store *st)
{
        (void)st;
        return -1;
}

static short memory_events(struct store *st)
{
        (void)st;
        return 0;
}

static int64_t memory_deadline_us(struct store *st)
{
        return ((struct memory *)st)->first ? 0 : INT64_MAX;
}

static void memory_step(struct store *st)
{
        struct memory *m = (struct memory *)st;
        struct store_op *op = m->first;
        m->first = NULL; /* `done` may submit: that is the next step's work */
        m->last = &m->first;
        while (op) {
                struct store_op *next = op->next;
                run_op(m, op);
                op->done(op);
                op = next;
        }
}

static void memory_close(struct store *st)
{
        struct memory *m = (struct memory *)st;
        while (m->first)
                memory_step(st);
        while (m->oldest)
                row_unlink(m, m->oldest);
        free(m->buckets);
        free(m);
}

static const struct store_vt memory_vt = {
        .name = "memory",
        .submit = memory_submit,
        .fd = memory_fd,
        .events = memory_events,
        .deadline_us = memory_deadline_us,
        .step = memory_step,
        .close = memory_close,
};

static semel_code memory_open(const char *url, const struct store_env *env, struct store **ret_st,
                              semel_error *err)
{
        enum { BUCKETS_AT_START = 64 };
        if (strcmp(url, "memory:") != 0)
                return err_set(err, SEMEL_ERR_URL, "the memory store's URL is \"memory:\" alone");
        struct memory *m = calloc(1, sizeof *m);
        struct row **buckets = calloc(BUCKETS_AT_START, sizeof(struct row *));
        if (!m || !buckets) {
                free(m);
                free(buckets);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a memory store");
        }
        m->st.vt = &memory_vt;
        m->clock = env->clock;
        m->buckets = buckets;
        m->bucket_count = BUCKETS_AT_START;
        m->last = &m->first;
        *ret_st = &m->st;
        return SEMEL_OK;
}

static semel_code memory_migrate(const char *url, semel_error *err)
{
        (void)url;
        (void)err;
        return SEMEL_OK; /* there is no schema */
}

static semel_code memory_print(const char *what, const char *role, struct buf *out,
                               semel_error *err)
{
        (void)what;
        (void)role;
        (void)out;
        return err_set(err, SEMEL_ERR_ARGUMENT, "the memory store has no schema to print");
}

const struct store_driver store_memory_driver = {
        .scheme = "memory",
        .open = memory_open,
        .migrate = memory_migrate,
        .print = memory_print,
};
