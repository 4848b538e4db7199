/* SPDX-License-Identifier: Apache-2.0
 *
 * request_headers: which header fields travel, in both directions.
 */
#include <stdio.h>

#include "app/request.h"
#include "core/http1_write.h"
#include "core/reply_codec.h"

/* Made by us, so what a client sent under these names does not reach the upstream.  (For
 * requests that are not claimed, fields of the standard name are forwarded as they are.) */
static bool is_ours(const struct request *r, struct span name)
{
        static const char *const always[] = {"Idempotency-Fence", "Semel-Key", "X-Forwarded-For",
                                             "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
                                             "Via", "Content-Length", "Expect", NULL};
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

/* A value that is made: "earlier, ours". */
static void add_joined(struct list *l, const char *name, const struct http_header *earlier,
                       const char *ours)
{
        int n = earlier ? snprintf(l->scratch, l->scratch_left, "%.*s, %s", (int)earlier->value.n,
                                   (const char *)earlier->value.p, ours)
                        : snprintf(l->scratch, l->scratch_left, "%s", ours);
        if (n < 0 || (size_t)n >= l->scratch_left) {
                l->full = true;
                return;
        }
        add(l, name, span_of(l->scratch, (size_t)n));
        l->scratch += n + 1;
        l->scratch_left -= (size_t)n + 1;
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
        const char *peer = peer_of(r);
        char forwarded[128];
        bool v6 = strchr(peer, ':') != NULL;
        (void)snprintf(forwarded, sizeof forwarded, v6 ? "for=\"[%s]\";proto=http" : "for=%s;proto=http",
                       peer);
        add_joined(l, "X-Forwarded-For", header_find(hs, n, "X-Forwarded-For"), peer);
        const struct http_header *proto = header_find(hs, n, "X-Forwarded-Proto");
        add(l, "X-Forwarded-Proto", proto ? proto->value : span_str("http"));
        const struct http_header *host = header_find(hs, n, "X-Forwarded-Host");
        if (host || r->host.n > 0)
                add(l, "X-Forwarded-Host", host ? host->value : r->host);
        add_joined(l, "Forwarded", header_find(hs, n, "Forwarded"), forwarded);
        add_joined(l, "Via", header_find(hs, n, "Via"), "1.1 semel");
}

/* The key and the fence.  The standard name only where the upstream dedupes: an HTTP client or proxy
 * on the way may take it as leave to send again (seen with Go's net/http). */
static void add_key(struct list *l, const struct request *r)
{
        char token[32];
        if (r->key.n == 0)
                return;
        bool dedupes = r->policy->dedupes == UPSTREAM_IDEMPOTENT;
        add(l, dedupes ? "Idempotency-Key" : "Semel-Key", span_of(r->key.text, r->key.n));
        (void)snprintf(token, sizeof token, "%lld", (long long)r->token);
        add_joined(l, "Idempotency-Fence", NULL, token);
}

size_t headers_to_upstream(const struct request *r, struct http_header *out, char *scratch,
                           size_t scratch_size)
{
        struct list l = {.out = out, .scratch = scratch, .scratch_left = scratch_size};
        for (size_t i = 0; i < r->header_count && !l.full; i++) {
                const struct http_header *h = &r->headers[i];
                if (is_ours(r, h->name) || header_is_hop_by_hop(r->headers, r->header_count, h->name))
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

int headers_from_upstream(struct request *r, const struct http1_head *head)
{
        const struct http_header *hs = head->headers;
        int rc = BUF_OK;
        buf_clear(&r->reply_headers);
        buf_clear(&r->extra_headers);
        for (size_t i = 0; i < head->header_count && rc == BUF_OK; i++) {
                const struct http_header *h = &hs[i];
                if (header_is_hop_by_hop(hs, head->header_count, h->name) ||
                    header_is(h, "Content-Length") || header_is(h, "Idempotency-Outcome"))
                        continue;
                bool kept = header_may_be_stored(hs, head->header_count, h->name);
                rc = reply_encode_header(kept ? &r->reply_headers : &r->extra_headers, h->name,
                                         h->value);
        }
        r->status = head->status;
        size_t n = head->reason.n < sizeof r->reason - 1 ? head->reason.n : sizeof r->reason - 1;
        if (n > 0)
                memcpy(r->reason, head->reason.p, n);
        r->reason[n] = 0;
        /* A phrase of the upstream's own is kept: a replay has the same status line. */
        if (rc == BUF_OK && strcmp(r->reason, http1_reason(r->status)) != 0)
                rc = reply_encode_header(&r->reply_headers, span_str(":reason"),
                                         span_str(r->reason));
        return rc;
}
