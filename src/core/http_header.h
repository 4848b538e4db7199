/* SPDX-License-Identifier: Apache-2.0
 *
 * http_header: header fields as spans, and the rules of which travel where.
 *
 * Pure.  Names are compared without regard to ASCII case (RFC 9110 section 5.1); values are
 * bytes.
 */
#ifndef CORE_HTTP_HEADER_H
#define CORE_HTTP_HEADER_H

#include "base/span.h"

struct http_header {
        struct span name, value;
};

/* ASCII, without locale. */
bool header_name_eq(struct span a, struct span b);

/* The first letter tells most names apart before anything is measured. */
static inline bool header_name_is(struct span name, const char *want)
{
        return name.n > 0 && ((name.p[0] ^ (uint8_t)want[0]) & ~0x20) == 0 &&
               header_name_eq(name, span_str(want));
}

static inline bool header_is(const struct http_header *h, const char *name)
{
        return header_name_is(h->name, name);
}

/* The first field of that name, or NULL. */
const struct http_header *header_find(const struct http_header *hs, size_t n, const char *name);

/* How many fields have that name. */
size_t header_count(const struct http_header *hs, size_t n, const char *name);

/* Walk the elements of a comma-separated list (`#token`), trimmed, empty ones left out:
 *
 *     struct span rest = h->value, token;
 *     while (header_token_next(&rest, &token)) ...
 *
 * Commas inside quoted strings are not understood: for lists of tokens only. */
bool header_token_next(struct span *rest, struct span *ret_token);

/* Is `name` hop-by-hop: one of the fields that never pass a proxy (RFC 9110 section 7.6.1, and
 * Keep-Alive, Proxy-Connection), or named by a Connection field of this message? */
bool header_is_hop_by_hop(const struct http_header *hs, size_t n, struct span name);

/* May a stored reply keep it?  Not hop-by-hop, not framing, and none of Set-Cookie,
 * WWW-Authenticate, Proxy-Authenticate and the like, which speak to one caller only (H23). */
bool header_may_be_stored(const struct http_header *hs, size_t n, struct span name);

#endif
