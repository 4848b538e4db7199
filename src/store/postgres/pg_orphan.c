/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_orphan: claims whose caller was told UNKNOWN (rule A7).  Such a claim may still land, and
 * nobody would ever end it.  So it is issued again until the database says what it is, which
 * also waits for the one in doubt, and then released: it was never dispatched.  A release
 * alone would find no row now, and the late claim would be there a second later.
 * Both count as in doubt (OP_IN_DOUBT): a key that is locked may be locked by the very claim, and
 * no error of the server (a full disk, a standby) says anything about it.
 */
#include <stdlib.h>

#include "store/postgres/pg_store.h"

struct orphan {
        struct store_op op; /* first */
        struct pg_store *st;
        struct orphan *older;
        struct command_claim claim;
        uint8_t text[LIMIT_SCOPE_BYTES + LIMIT_OPERATION_BYTES + LIMIT_KEY_BYTES +
                     LIMIT_HOLDER_BYTES];
};

static void orphan_free(struct orphan *o)
{
        struct orphan **at = &o->st->orphans;
        while (*at != o)
                at = &(*at)->older;
        *at = o->older;
        o->st->orphan_count--;
        store_op_release(&o->op);
        free(o);
}

static void orphan_done(struct store_op *op)
{
        struct orphan *o = (struct orphan *)op;
        bool held = op->kind == STORE_CLAIM && op->err.code == SEMEL_OK &&
                    op->out.claim.answer.outcome == COMMAND_RUN;
        bool gone_on = o->st->closing || o->op.deadline_us == 0;
        if (!held || gone_on) {
                orphan_free(o);
                return;
        }
        const struct command_write release = {.kind = COMMAND_RELEASE_NOT_EXECUTED,
                                              .id = o->claim.id,
                                              .token = op->out.claim.answer.token,
                                              .attempt = o->claim.attempt};
        store_op_release(op);
        store_op_init(op, STORE_WRITE);
        op->in.write.write = release;
        op->done = orphan_done;
        pg_submit_own(o->st, op);
}

/* The oldest makes room: it ends as UNKNOWN when its lease is over. */
static void drop_oldest(struct pg_store *st)
{
        struct orphan *oldest = NULL;
        for (struct orphan *o = st->orphans; o; o = o->older) {
                if (o->op.deadline_us != 0) /* else it is under way, and was dropped before */
                        oldest = o;
        }
        if (oldest)
                oldest->op.deadline_us = 0;
        st->expire_us = 0;
}

static struct span copy_text(struct orphan *o, size_t *at, struct span s)
{
        if (s.n > sizeof o->text - *at)
                s.n = sizeof o->text - *at;
        if (s.n > 0)
                memcpy(o->text + *at, s.p, s.n);
        struct span copy = span_of(o->text + *at, s.n);
        *at += s.n;
        return copy;
}

void pg_orphan_add(struct pg_store *st, const struct store_op *claim)
{
        struct orphan *o = calloc(1, sizeof *o);
        if (!o)
                return; /* as when the list is full */
        if (st->orphan_count >= LIMIT_ORPHAN_CLAIMS)
                drop_oldest(st);
        const struct store_label *label = &claim->in.claim.label;
        size_t at = 0;
        o->st = st;
        o->claim = claim->in.claim.claim;
        o->older = st->orphans;
        st->orphans = o;
        st->orphan_count++;
        store_op_init(&o->op, STORE_CLAIM);
        o->op.in.claim.claim = o->claim;
        o->op.in.claim.label = (struct store_label){
                .mode = label->mode,
                .scope = copy_text(o, &at, label->scope),
                .operation = copy_text(o, &at, label->operation),
                .key = copy_text(o, &at, label->key),
                .holder = copy_text(o, &at, label->holder),
        };
        o->op.done = orphan_done;
        pg_submit_own(st, &o->op);
}
