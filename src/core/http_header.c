/* SPDX-License-Identifier: Apache-2.0
 *
 * http_header: see http_header.h.
 */
#include "core/http_header.h"

static uint8_t lower(uint8_t c)
{
        return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

bool header_name_eq(struct span a, struct span b)
{
        if (a.n != b.n)
                return false;
        for (size_t i = 0; i < a.n; i++)
                if (a.p[i] != b.p[i] && lower(a.p[i]) != lower(b.p[i]))
                        return false;
        return true;
}

const struct http_header *header_find(const struct http_header *hs, size_t n, const char *name)
{
        const struct span want = span_str(name);
        for (size_t i = 0; i < n; i++)
                if (hs[i].name.n == want.n && header_is(&hs[i], name))
                        return &hs[i];
        return NULL;
}

size_t header_count(const struct http_header *hs, size_t n, const char *name)
{
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
                count += header_is(&hs[i], name);
        return count;
}

static bool is_space(uint8_t c)
{
        return c == ' ' || c == '\t';
}

bool header_token_next(struct span *rest, struct span *ret_token)
{
        while (rest->n > 0) {
                const uint8_t *comma = memchr(rest->p, ',', rest->n);
                struct span token = span_of(rest->p, comma ? (size_t)(comma - rest->p) : rest->n);
                size_t used = token.n + (comma != NULL);
                *rest = span_of(rest->p + used, rest->n - used);
                while (token.n > 0 && is_space(token.p[0]))
                        token = span_of(token.p + 1, token.n - 1);
                while (token.n > 0 && is_space(token.p[token.n - 1]))
                        token.n--;
                if (token.n > 0) {
                        *ret_token = token;
                        return true;
                }
        }
        return false;
}

/* A set of names, and the letters that they begin with: most names are told by theirs. */
struct names {
        uint32_t letters;
        const char *const *names;
};
#define LETTER(c) (UINT32_C(1) << ((c) & 31))

static bool in_names(struct span name, const struct names *set)
{
        if (name.n == 0 || !(set->letters & LETTER(name.p[0])))
                return false;
        for (const char *const *n = set->names; *n; n++)
                if (header_name_is(name, *n))
                        return true;
        return false;
}

bool header_is_hop_by_hop(const struct http_header *hs, size_t n, struct span name)
{
        static const char *const list[] = {"Connection", "Keep-Alive", "Proxy-Connection", "TE",
                                           "Trailer", "Transfer-Encoding", "Upgrade",
                                           "Proxy-Authenticate", "Proxy-Authorization", NULL};
        static const struct names always = {
                LETTER('c') | LETTER('k') | LETTER('p') | LETTER('t') | LETTER('u'), list};
        if (in_names(name, &always))
                return true;
        for (size_t i = 0; i < n; i++) {
                struct span rest = hs[i].value, token;
                if (!header_is(&hs[i], "Connection"))
                        continue;
                while (header_token_next(&rest, &token))
                        if (header_name_eq(token, name))
                                return true;
        }
        return false;
}

bool header_may_be_stored(const struct http_header *hs, size_t n, struct span name)
{
        static const char *const list[] = {"Content-Length", "Set-Cookie", "Set-Cookie2",
                                           "WWW-Authenticate", "Proxy-Authentication-Info",
                                           "Authentication-Info", "Clear-Site-Data",
                                           "Idempotency-Outcome", "Idempotent-Replayed", NULL};
        static const struct names never = {
                LETTER('a') | LETTER('c') | LETTER('i') | LETTER('p') | LETTER('s') | LETTER('w'),
                list};
        return !in_names(name, &never) && !header_is_hop_by_hop(hs, n, name);
}
