/* SPDX-License-Identifier: Apache-2.0
 *
 * span: a borrowed run of bytes.  Never owns, never NUL-terminated.
 */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
        const uint8_t *p; /* may be NULL only when n is 0 */
        size_t n;
};

static inline struct span span_of(const void *p, size_t n)
{
        return (struct span){(const uint8_t *)p, n};
}

/* A C string without its NUL; NULL is the empty span. */
static inline struct span span_str(const char *s)
{
        return span_of(s, s ? strlen(s) : 0);
}

static inline bool span_eq(struct span a, struct span b)
{
        return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

#endif
