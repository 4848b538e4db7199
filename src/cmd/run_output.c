/* SPDX-License-Identifier: Apache-2.0
 *
 * run_output: see run_output.h.
 */
#include "cmd/run_output.h"

enum { FRAME_HEAD = 5 };

void run_output_init(struct run_output *out, size_t bytes_max)
{
        *out = (struct run_output){0};
        buf_init(&out->body, bytes_max);
}

void run_output_release(struct run_output *out)
{
        buf_release(&out->body);
}

static void put_length(uint8_t *p, size_t n)
{
        for (int i = 0; i < 4; i++)
                p[i] = (uint8_t)(n >> (24 - 8 * i));
}

static size_t get_length(const uint8_t *p)
{
        return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

static int add(struct run_output *out, enum run_stream stream, struct span bytes)
{
        struct buf *b = &out->body;
        bool go_on = b->n > 0 && b->p[out->frame_at] == (uint8_t)stream;
        int rc = buf_reserve(b, bytes.n + (go_on ? 0 : FRAME_HEAD));
        if (rc != BUF_OK)
                return rc;
        if (!go_on) {
                uint8_t head[FRAME_HEAD] = {(uint8_t)stream};
                out->frame_at = b->n;
                rc = buf_append(b, head, sizeof head);
        }
        if (rc == BUF_OK)
                rc = buf_append_span(b, bytes);
        put_length(b->p + out->frame_at + 1, b->n - out->frame_at - FRAME_HEAD);
        return rc;
}

void run_output_add(struct run_output *out, enum run_stream stream, struct span bytes)
{
        if (out->too_big || bytes.n == 0 || add(out, stream, bytes) == BUF_OK)
                return;
        out->too_big = true;
        buf_release(&out->body);
}

int run_output_next(struct run_cursor *cur, enum run_stream *ret_stream, struct span *ret_bytes)
{
        struct span rest = cur->rest;
        if (rest.n == 0)
                return 0;
        if (rest.n < FRAME_HEAD || (rest.p[0] != RUN_STDOUT && rest.p[0] != RUN_STDERR))
                return -1;
        size_t n = get_length(rest.p + 1);
        if (n > rest.n - FRAME_HEAD)
                return -1;
        *ret_stream = (enum run_stream)rest.p[0];
        *ret_bytes = span_of(rest.p + FRAME_HEAD, n);
        cur->rest = span_of(rest.p + FRAME_HEAD + n, rest.n - FRAME_HEAD - n);
        return 1;
}

bool run_output_view(const semel_reply *rep, size_t *ret_bytes)
{
        const char *name, *value;
        size_t name_len, value_len, n;
        const void *body = semel_reply_body(rep, &n);
        bool framed = semel_reply_header(rep, 0, &name, &name_len, &value, &value_len) &&
                      span_eq(span_of(name, name_len), span_str("Content-Type")) &&
                      span_eq(span_of(value, value_len), span_str(RUN_OUTPUT_TYPE));
        struct run_cursor cur = {span_of(body, n)};
        enum run_stream stream;
        struct span piece;
        if (framed)
                n = 0;
        while (framed && run_output_next(&cur, &stream, &piece) == 1)
                n += piece.n;
        *ret_bytes = n;
        return framed;
}
