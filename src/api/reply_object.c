/* SPDX-License-Identifier: Apache-2.0
 *
 * reply_object: see reply_object.h and semel/reply.h.
 */
#include "api/reply_object.h"

#include <stdlib.h>

#include "base/err.h"
#include "core/limits.h"
#include "core/reply_codec.h"

semel_reply *semel_reply_new(void)
{
        semel_reply *rep = calloc(1, sizeof *rep);
        if (!rep)
                return NULL;
        buf_init(&rep->headers, LIMIT_REPLY_HEADERS_BYTES);
        buf_init(&rep->body, LIMIT_REPLY_BODY_BYTES);
        return rep;
}

void semel_reply_free(semel_reply *rep)
{
        if (!rep)
                return;
        buf_release(&rep->headers);
        buf_release(&rep->body);
        free(rep);
}

void semel_reply_clear(semel_reply *rep)
{
        rep->status = 0;
        rep->tombstone = rep->replayed = false;
        rep->header_count = 0;
        buf_clear(&rep->headers);
        buf_clear(&rep->body);
}

void semel_reply_set_status(semel_reply *rep, int status)
{
        rep->status = status;
}

int semel_reply_status(const semel_reply *rep)
{
        return rep->status;
}

static semel_code buf_failed(int rc, const char *what, size_t max, semel_error *err)
{
        if (rc == BUF_NO_MEMORY)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the reply's %s", what);
        return err_set(err, SEMEL_ERR_TOO_LARGE, "the reply's %s would be over %zu bytes", what,
                       max);
}

semel_code semel_reply_add_header(semel_reply *rep, const char *name, size_t name_len,
                                  const char *value, size_t value_len, semel_error *err)
{
        if (rep->header_count >= LIMIT_REPLY_HEADERS)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "a reply has at most %d headers",
                               LIMIT_REPLY_HEADERS);
        int rc = reply_encode_header(&rep->headers, span_of(name, name_len),
                                     span_of(value, value_len));
        if (rc != BUF_OK)
                return buf_failed(rc, "headers", LIMIT_REPLY_HEADERS_BYTES, err);
        rep->header_count++;
        return SEMEL_OK;
}

size_t semel_reply_header_count(const semel_reply *rep)
{
        return rep->header_count;
}

bool semel_reply_header(const semel_reply *rep, size_t i, const char **ret_name,
                        size_t *ret_name_len, const char **ret_value, size_t *ret_value_len)
{
        struct reply_cursor cur;
        struct span name, value;
        if (i >= rep->header_count || !reply_decode_begin(&cur, buf_span(&rep->headers)))
                return false;
        do {
                if (reply_decode_next(&cur, &name, &value) != 1)
                        return false;
        } while (i-- > 0);
        *ret_name = (const char *)name.p;
        *ret_name_len = name.n;
        *ret_value = (const char *)value.p;
        *ret_value_len = value.n;
        return true;
}

semel_code semel_reply_set_body(semel_reply *rep, const void *body, size_t n, semel_error *err)
{
        if (n > LIMIT_REPLY_BODY_BYTES)
                return buf_failed(BUF_FULL, "body", LIMIT_REPLY_BODY_BYTES, err);
        struct buf fresh;
        buf_init(&fresh, LIMIT_REPLY_BODY_BYTES);
        int rc = buf_append(&fresh, body, n);
        if (rc != BUF_OK)
                return buf_failed(rc, "body", LIMIT_REPLY_BODY_BYTES, err);
        buf_release(&rep->body);
        rep->body = fresh;
        return SEMEL_OK;
}

const void *semel_reply_body(const semel_reply *rep, size_t *ret_n)
{
        *ret_n = rep->body.n;
        return rep->body.p;
}

void semel_reply_set_tombstone(semel_reply *rep, bool tombstone)
{
        rep->tombstone = tombstone;
}

bool semel_reply_is_tombstone(const semel_reply *rep)
{
        return rep->tombstone;
}

bool semel_reply_replayed(const semel_reply *rep)
{
        return rep->replayed;
}

struct store_reply reply_view(const semel_reply *rep, size_t body_bytes_max)
{
        struct store_reply view = {.status = rep->status,
                                   .headers = buf_span(&rep->headers),
                                   .body = buf_span(&rep->body)};
        if (rep->tombstone || rep->body.n > body_bytes_max) {
                view.flags = STORE_REPLY_TOMBSTONE;
                view.body = span_of(NULL, 0);
        }
        return view;
}

/* Count the headers, and see that every one decodes, before anybody relies on them. */
static bool count_headers(struct span blob, size_t *ret_count)
{
        struct reply_cursor cur;
        struct span name, value;
        size_t count = 0;
        int more;
        if (!reply_decode_begin(&cur, blob))
                return false;
        while ((more = reply_decode_next(&cur, &name, &value)) == 1)
                count++;
        if (more < 0)
                return false;
        *ret_count = count;
        return true;
}

semel_code reply_from_record(const struct store_record *rec, semel_reply **ret_rep,
                             semel_error *err)
{
        size_t count;
        if (!rec->has_reply || !count_headers(buf_span(&rec->headers), &count))
                return err_set(err, SEMEL_ERR_CORRUPT,
                               "the key is COMPLETED but its kept reply cannot be read: the row was "
                               "damaged, or written by a newer semel; see `semel keys show`");
        semel_reply *rep = semel_reply_new();
        if (!rep)
                goto no_memory;
        rep->status = rec->status;
        rep->tombstone = (rec->flags & STORE_REPLY_TOMBSTONE) != 0;
        rep->replayed = true;
        rep->header_count = count;
        if (buf_append_span(&rep->headers, buf_span(&rec->headers)) != BUF_OK ||
            buf_append_span(&rep->body, buf_span(&rec->body)) != BUF_OK)
                goto no_memory;
        *ret_rep = rep;
        return SEMEL_OK;

no_memory:
        semel_reply_free(rep);
        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the kept reply");
}
