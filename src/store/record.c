/* SPDX-License-Identifier: Apache-2.0
 *
 * record: the owned copies in which a store hands out rows, and the life of an operation.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "store/store.h"

enum { RECORD_TEXT_BYTES = LIMIT_SCOPE_BYTES + LIMIT_OPERATION_BYTES + LIMIT_KEY_BYTES +
                           LIMIT_HOLDER_BYTES };

void store_record_init(struct store_record *rec)
{
        *rec = (struct store_record){0};
        buf_init(&rec->text, RECORD_TEXT_BYTES);
        buf_init(&rec->headers, LIMIT_REPLY_HEADERS_BYTES);
        buf_init(&rec->body, LIMIT_REPLY_BODY_BYTES);
}

void store_record_release(struct store_record *rec)
{
        buf_release(&rec->text);
        buf_release(&rec->headers);
        buf_release(&rec->body);
}

int store_record_set_label(struct store_record *rec, const struct store_label *label)
{
        const struct span in[4] = {label->scope, label->operation, label->key, label->holder};
        struct span *const out[4] = {&rec->scope, &rec->operation, &rec->key, &rec->holder};
        size_t total = 0;
        for (int i = 0; i < 4; i++)
                total += in[i].n;
        buf_clear(&rec->text);
        int rc = buf_reserve(&rec->text, total);
        if (rc != BUF_OK)
                return rc;
        rec->mode = label->mode;
        for (int i = 0; i < 4; i++) {
                size_t at = rec->text.n;
                (void)buf_append_span(&rec->text, in[i]);
                *out[i] = span_of(rec->text.p + at, in[i].n);
        }
        return BUF_OK;
}

int store_record_set_reply(struct store_record *rec, const struct store_reply *rep)
{
        buf_clear(&rec->headers);
        buf_clear(&rec->body);
        int rc = buf_append_span(&rec->headers, rep->headers);
        if (rc == BUF_OK)
                rc = buf_append_span(&rec->body, rep->body);
        if (rc != BUF_OK)
                return rc;
        rec->has_reply = true;
        rec->status = rep->status;
        rec->flags = rep->flags;
        return BUF_OK;
}

void store_op_init(struct store_op *op, enum store_op_kind kind)
{
        /* Not the error's text: it is long, and read only when there is one. */
        memset(op, 0, offsetof(struct store_op, err));
        memset(&op->out, 0, sizeof *op - offsetof(struct store_op, out));
        err_clear(&op->err);
        op->kind = kind;
        if (kind == STORE_CLAIM)
                store_record_init(&op->out.claim.rec);
        else if (kind == STORE_GET)
                store_record_init(&op->out.get);
}

void store_op_release(struct store_op *op)
{
        switch (op->kind) {
        case STORE_CLAIM:
                store_record_release(&op->out.claim.rec);
                break;
        case STORE_GET:
                store_record_release(&op->out.get);
                break;
        case STORE_LIST:
                for (size_t i = 0; i < op->out.list.count; i++)
                        store_record_release(&op->out.list.recs[i]);
                free(op->out.list.recs);
                op->out.list.recs = NULL;
                op->out.list.count = 0;
                break;
        case STORE_WRITE:
        case STORE_RESOLVE:
        case STORE_SWEEP:
                break;
        }
}
