/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: see buf.h.
 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_init(struct buf *b, size_t max)
{
        *b = (struct buf){.max = max};
}

void buf_release(struct buf *b)
{
        if (!b)
                return;
        free(b->p);
        b->p = NULL;
        b->n = b->cap = 0;
}

void buf_clear(struct buf *b)
{
        b->n = 0;
}

/* One byte beyond what is used is always allocated, for buf_cstr(). */
static int grow(struct buf *b, size_t need)
{
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need + 1) {
                if (cap > SIZE_MAX / 2)
                        return BUF_NO_MEMORY;
                cap *= 2;
        }
        uint8_t *p = realloc(b->p, cap);
        if (!p)
                return BUF_NO_MEMORY;
        b->p = p;
        b->cap = cap;
        return BUF_OK;
}

int buf_reserve(struct buf *b, size_t n)
{
        if (n > b->max - b->n)
                return BUF_FULL;
        if (b->n + n + 1 <= b->cap)
                return BUF_OK;
        return grow(b, b->n + n);
}

int buf_append_spans(struct buf *b, const struct span *pieces, size_t count)
{
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
                n += pieces[i].n;
        int rc = buf_reserve(b, n);
        if (rc < 0)
                return rc;
        uint8_t *at = b->p + b->n;
        for (size_t i = 0; i < count; i++) {
                if (pieces[i].n > 0)
                        memcpy(at, pieces[i].p, pieces[i].n);
                at += pieces[i].n;
        }
        b->n += n;
        return BUF_OK;
}

int buf_append_uint(struct buf *b, uint64_t v)
{
        char digits[20];
        size_t at = sizeof digits;
        do
                digits[--at] = (char)('0' + v % 10);
        while ((v /= 10) > 0);
        return buf_append(b, digits + at, sizeof digits - at);
}

int buf_append(struct buf *b, const void *p, size_t n)
{
        int rc = buf_reserve(b, n);
        if (rc < 0)
                return rc;
        if (n > 0)
                memcpy(b->p + b->n, p, n);
        b->n += n;
        return BUF_OK;
}

int buf_append_span(struct buf *b, struct span s)
{
        return buf_append(b, s.p, s.n);
}

int buf_append_byte(struct buf *b, uint8_t c)
{
        return buf_append(b, &c, 1);
}

int buf_append_str(struct buf *b, const char *s)
{
        return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(NULL, 0, fmt, ap);
        va_end(ap);
        if (n < 0)
                return BUF_FULL;
        int rc = buf_reserve(b, (size_t)n);
        if (rc < 0)
                return rc;
        va_start(ap, fmt);
        (void)vsnprintf((char *)b->p + b->n, (size_t)n + 1, fmt, ap);
        va_end(ap);
        b->n += (size_t)n;
        return BUF_OK;
}

const char *buf_cstr(struct buf *b)
{
        if (!b->p && grow(b, 0) < 0)
                return NULL;
        b->p[b->n] = 0;
        return (const char *)b->p;
}
