/* SPDX-License-Identifier: Apache-2.0
 *
 * request_headers: which header fields travel, in both directions.
 */
#include "app/request.h"
#include "core/http1_write.h"
#include "core/reply_codec.h"

/* Made by us, so what a client sent under these names does not reach the upstream.  (For
 * requests that are not claimed, fields of the standard name are forwarded as they are.) */
static bool is_ours(const struct request *r, struct span name)
{
        static const char letters[] = "isxfvceh"; /* that these begin with */
        static const char *const always[] = {"Idempotency-Fence", "Semel-Key", "X-Forwarded-For",
                                             "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
                                             "Via", "Content-Length", "Expect", "Host", NULL};
        if (!memchr(letters, name.p[0] | 0x20, sizeof letters - 1))
                return false;
        for (const char *const *n = always; *n; n++)
                if (header_name_eq(name, span_str(*n)))
                        return true;
        return r->key.n > 0 && header_name_eq(name, span_str("Idempotency-Key"));
}

struct list {
        struct http_header *out;
        size_t n;
        char *scratch;
        size_t scratch_left;
        bool full;
};

static void add(struct list *l, const char *name, struct span value)
{
        if (l->n >= REQUEST_HEADERS_MAX) {
                l->full = true;
                return;
        }
        l->out[l->n++] = (struct http_header){span_str(name), value};
}

static struct span join(struct list *l, const struct span *pieces, size_t count)
{
        char *begin = l->scratch;
        for (size_t i = 0; i < count; i++) {
                if (pieces[i].n > l->scratch_left) {
                        l->full = true;
                        return span_of(NULL, 0);
                }
                if (pieces[i].n > 0)
                        memcpy(l->scratch, pieces[i].p, pieces[i].n);
                l->scratch += pieces[i].n;
                l->scratch_left -= pieces[i].n;
        }
        return span_of(begin, (size_t)(l->scratch - begin));
}

/* "earlier, ours".  A field that came in several lines is one list (RFC 9110, 5.3): the last line
 * is that of the nearest proxy. */
static void add_joined(struct list *l, const struct request *r, const char *name, struct span ours)
{
        const char *begin = l->scratch;
        for (size_t i = 0; i < r->header_count; i++) {
                const struct span pieces[] = {r->headers[i].value, span_str(", ")};
                if (header_is(&r->headers[i], name) && pieces[0].n > 0)
                        (void)join(l, pieces, 2);
        }
        (void)join(l, &ours, 1);
        add(l, name, span_of(begin, (size_t)(l->scratch - begin)));
}

/* The host that was asked for, as the fingerprint has it: that of an absolute target wins over the field
 * (RFC 9112, 3.2.2).  HTTP/1.0 may say none, HTTP/1.1 must. */
static struct span host_of(const struct request *r)
{
        static const char scheme[] = "http://";
        const char *url = r->w->gw->config->upstream;
        if (r->host.n > 0)
                return r->host;
        if (strncmp(url, scheme, sizeof scheme - 1) != 0)
                return span_str("localhost"); /* a unix socket has no name */
        return span_str(url + sizeof scheme - 1);
}

static const char *peer_of(const struct request *r)
{
        return r->ex ? r->ex->peer : "unknown";
}

/* Who asked, in both spellings (RFC 7239 and the older one). */
static void add_forwarded(struct list *l, const struct request *r)
{
        const struct http_header *hs = r->headers;
        size_t n = r->header_count;
        const struct span peer = span_str(peer_of(r));
        bool v6 = memchr(peer.p, ':', peer.n) != NULL;
        const struct span forwarded[] = {span_str(v6 ? "for=\"[" : "for="), peer,
                                         span_str(v6 ? "]\";proto=http" : ";proto=http")};
        add_joined(l, r, "X-Forwarded-For", peer);
        const struct http_header *proto = header_find(hs, n, "X-Forwarded-Proto");
        add(l, "X-Forwarded-Proto", proto ? proto->value : span_str("http"));
        const struct http_header *host = header_find(hs, n, "X-Forwarded-Host");
        if (host || r->host.n > 0)
                add(l, "X-Forwarded-Host", host ? host->value : r->host);
        add_joined(l, r, "Forwarded", join(l, forwarded, 3));
        add_joined(l, r, "Via", span_str("1.1 semel"));
}

/* The key and the fence.  The standard name only where the upstream dedupes: an HTTP client or proxy
 * on the way may take it as leave to send again (seen with Go's net/http). */
static void add_key(struct list *l, const struct request *r)
{
        uint8_t digits[24];
        struct buf token = {.p = digits, .cap = sizeof digits, .max = sizeof digits - 1};
        if (r->key.n == 0)
                return;
        bool dedupes = r->policy->dedupes == UPSTREAM_IDEMPOTENT;
        add(l, dedupes ? "Idempotency-Key" : "Semel-Key", span_of(r->key.text, r->key.n));
        (void)buf_append_uint(&token, (uint64_t)r->token); /* microseconds since 1970: never below 0 */
        const struct span fence = buf_span(&token);
        add(l, "Idempotency-Fence", join(l, &fence, 1));
}

size_t headers_to_upstream(const struct request *r, struct http_header *out, char *scratch,
                           size_t scratch_size)
{
        struct list l = {.out = out, .scratch = scratch, .scratch_left = scratch_size};
        /* What is said of single hops begins with the first Connection field, if there is one. */
        const struct http_header *end = r->headers + r->header_count;
        const struct http_header *hop = header_find(r->headers, r->header_count, "Connection");
        size_t hops = hop ? (size_t)(end - hop) : 0;
        add(&l, "Host", host_of(r));
        for (size_t i = 0; i < r->header_count && !l.full; i++) {
                const struct http_header *h = &r->headers[i];
                if (is_ours(r, h->name) || header_is_hop_by_hop(hop, hops, h->name))
                        continue;
                if (l.n >= REQUEST_HEADERS_MAX)
                        l.full = true;
                else
                        l.out[l.n++] = *h;
        }
        add_key(&l, r);
        add_forwarded(&l, r);
        return l.full ? 0 : l.n;
}

/* As much as there is room for.  Cut at a blank it would end in one, and could not be written. */
static void keep_reason(struct request *r, struct span reason)
{
        if (reason.n > sizeof r->reason - 1)
                reason = http1_trim(span_of(reason.p, sizeof r->reason - 1));
        if (reason.n > 0)
                memcpy(r->reason, reason.p, reason.n);
        r->reason[reason.n] = 0;
}

int headers_from_upstream(struct request *r, const struct http1_head *head)
{
        const struct http_header *hs = head->headers;
        int rc = BUF_OK;
        buf_clear(&r->reply_headers);
        buf_clear(&r->extra_headers);
        const struct http_header *hop = header_find(hs, head->header_count, "Connection");
        size_t hops = hop ? (size_t)(hs + head->header_count - hop) : 0;
        for (size_t i = 0; i < head->header_count && rc == BUF_OK; i++) {
                const struct http_header *h = &hs[i];
                bool kept = header_may_be_stored(hop, hops, h->name);
                if (!kept && (header_is_hop_by_hop(hop, hops, h->name) ||
                              header_is(h, "Content-Length") || header_is(h, "Idempotency-Outcome")))
                        continue;
                rc = reply_encode_header(kept ? &r->reply_headers : &r->extra_headers, h->name,
                                         h->value);
        }
        r->status = head->status;
        keep_reason(r, head->reason);
        /* A phrase of the upstream's own is kept: a replay has the same status line. */
        if (rc == BUF_OK && strcmp(r->reason, http1_reason(r->status)) != 0)
                rc = reply_encode_header(&r->reply_headers, span_str(":reason"),
                                         span_str(r->reason));
        return rc;
}
