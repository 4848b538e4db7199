/* SPDX-License-Identifier: Apache-2.0
 *
 * reply_codec: see reply_codec.h.
 */
#include "core/reply_codec.h"

enum { VERSION = 1, NAME_LENGTH_BYTES = 2, VALUE_LENGTH_BYTES = 4 };

int reply_encode_header(struct buf *b, struct span name, struct span value)
{
        if (name.n > UINT16_MAX || value.n > UINT32_MAX)
                return BUF_FULL;
        size_t need = NAME_LENGTH_BYTES + name.n + VALUE_LENGTH_BYTES + value.n;
        int rc = buf_reserve(b, need + (b->n == 0));
        if (rc < 0)
                return rc;

        /* Nothing below can fail: the room is there, so a header is written whole or not. */
        const uint8_t nl[NAME_LENGTH_BYTES] = {(uint8_t)(name.n >> 8), (uint8_t)name.n};
        const uint8_t vl[VALUE_LENGTH_BYTES] = {(uint8_t)(value.n >> 24), (uint8_t)(value.n >> 16),
                                                (uint8_t)(value.n >> 8), (uint8_t)value.n};
        if (b->n == 0)
                (void)buf_append_byte(b, VERSION);
        (void)buf_append(b, nl, sizeof nl);
        (void)buf_append_span(b, name);
        (void)buf_append(b, vl, sizeof vl);
        (void)buf_append_span(b, value);
        return BUF_OK;
}

bool reply_decode_begin(struct reply_cursor *cur, struct span blob)
{
        if (blob.n > 0 && blob.p[0] != VERSION)
                return false;
        cur->rest = blob.n > 0 ? span_of(blob.p + 1, blob.n - 1) : blob;
        return true;
}

/* A big-endian length of `width` bytes and that many bytes; false when they are not there. */
static bool take(struct span *s, size_t width, struct span *ret)
{
        if (s->n < width)
                return false;
        size_t n = 0;
        for (size_t i = 0; i < width; i++)
                n = n << 8 | s->p[i];
        if (s->n - width < n)
                return false;
        *ret = span_of(s->p + width, n);
        *s = span_of(s->p + width + n, s->n - width - n);
        return true;
}

int reply_decode_next(struct reply_cursor *cur, struct span *ret_name, struct span *ret_value)
{
        struct span rest = cur->rest, name, value;
        if (rest.n == 0)
                return 0;
        if (!take(&rest, NAME_LENGTH_BYTES, &name) || !take(&rest, VALUE_LENGTH_BYTES, &value))
                return -1;
        cur->rest = rest;
        *ret_name = name;
        *ret_value = value;
        return 1;
}
