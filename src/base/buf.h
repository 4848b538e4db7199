/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: bytes that grow up to a maximum given at creation, and never beyond.
 *
 *     struct buf b;
 *     buf_init(&b, 64 * 1024);
 *     if (buf_append(&b, p, n) < 0) ...   // BUF_FULL or BUF_NO_MEMORY; b is unchanged
 *     buf_release(&b);
 *
 *      p        n              cap           max
 *      |--used--|---allocated---|....may grow..|
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/span.h"

enum { BUF_OK = 0, BUF_FULL = -1, BUF_NO_MEMORY = -2 };

struct buf {
        uint8_t *p;
        size_t n;   /* bytes used */
        size_t cap; /* bytes allocated */
        size_t max; /* never more than this many used */
};

void buf_init(struct buf *b, size_t max);

/* Frees the bytes; the buf can be used again, with the same maximum. */
void buf_release(struct buf *b);

/* Forget the content, keep the memory. */
void buf_clear(struct buf *b);

/* Make room for n more bytes. */
int buf_reserve(struct buf *b, size_t n);

int buf_append(struct buf *b, const void *p, size_t n);
int buf_append_span(struct buf *b, struct span s);
/* All of them, or none. */
int buf_append_spans(struct buf *b, const struct span *pieces, size_t count);
int buf_append_byte(struct buf *b, uint8_t c);
int buf_append_str(struct buf *b, const char *s);
int buf_append_uint(struct buf *b, uint64_t v); /* in decimal */

/* printf into the buf. */
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline struct span buf_span(const struct buf *b)
{
        return span_of(b->p, b->n);
}

/* The content as a C string (adds a NUL behind it, not counted); NULL when memory is out. */
const char *buf_cstr(struct buf *b);

#endif
