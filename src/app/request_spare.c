/* SPDX-License-Identifier: Apache-2.0
 *
 * request_spare: what requests leave to the next ones of their worker: their memory with its small
 * buffers, and digests, which are dear to make.  As many as lately were in use at once (base/spares.h); a
 * worker's own, so nothing is locked.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "app/request.h"

#if defined(__SANITIZE_ADDRESS__)
enum { KEEP_NONE = true }; /* so that a use after its end is seen */
#else
enum { KEEP_NONE = false };
#endif
enum { SPARE_BYTES_MAX = 4096, SPARE_HEADERS_MAX = 32 }; /* of each buffer */

/* -- requests ----------------------------------------------------------------------------------- */

static struct buf kept(struct buf b)
{
        if (b.cap > SPARE_BYTES_MAX)
                buf_release(&b);
        buf_clear(&b);
        return b;
}

struct request *request_get(struct worker *w)
{
        struct request *r = (struct request *)spares_take(&w->spare_requests);
        if (!r) {
                r = calloc(1, sizeof *r);
                if (!r)
                        spares_forget(&w->spare_requests);
                return r;
        }
        const struct buf head = r->head, body = r->body, reply = r->reply_body,
                         reply_headers = r->reply_headers, extra = r->extra_headers;
        struct http_header *headers = r->headers;
        size_t headers_cap = r->headers_cap;
        /* Not the operation: it is a third of it all, owns nothing, and is made anew by who submits it. */
        enum { OP = offsetof(struct request, op), REST = OP + sizeof r->op };
        memset(r, 0, OP);
        memset((char *)r + REST, 0, sizeof *r - REST);
        r->head = head;
        r->body = body;
        r->reply_body = reply;
        r->reply_headers = reply_headers;
        r->extra_headers = extra;
        r->headers = headers;
        r->headers_cap = headers_cap;
        return r;
}

static void release(struct spare *x)
{
        struct request *r = (struct request *)x;
        buf_release(&r->head);
        buf_release(&r->reply_headers);
        buf_release(&r->extra_headers);
        buf_release(&r->body);
        buf_release(&r->reply_body);
        free(r->headers);
        free(r);
}

void request_put(struct worker *w, struct request *r)
{
        if (r->headers_cap > SPARE_HEADERS_MAX) {
                free(r->headers);
                r->headers = NULL;
                r->headers_cap = 0;
        }
        struct buf *const bufs[] = {&r->head, &r->body, &r->reply_body, &r->reply_headers,
                                    &r->extra_headers};
        for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
                *bufs[i] = kept(*bufs[i]);
        spares_give(&w->spare_requests, &r->spare, release);
}

/* -- fingerprints in the making ----------------------------------------------------------------- */

static void reading_free(struct spare *x)
{
        struct reading *rd = (struct reading *)x;
        sha256_free(rd->hash);
        sha256_free(rd->second);
        free(rd);
}

/* Two digests, though few forms need the second: one kind of spare serves all routes. */
static struct reading *reading_new(const struct gateway *gw)
{
        struct reading *rd = calloc(1, sizeof *rd);
        if (!rd)
                return NULL;
        rd->hash = sha256_new(gw->fingerprint_secret, gw->fingerprint_secret_n);
        rd->second = sha256_new(gw->fingerprint_secret, gw->fingerprint_secret_n);
        if (rd->hash && rd->second)
                return rd;
        reading_free(&rd->spare);
        return NULL;
}

struct reading *reading_get(struct worker *w)
{
        struct reading *rd = (struct reading *)spares_take(&w->spare_readings);
        if (!rd)
                rd = reading_new(w->gw);
        if (!rd)
                spares_forget(&w->spare_readings);
        return rd;
}

void reading_put(struct worker *w, struct reading *rd)
{
        if (!rd)
                return;
        http_fingerprint_release(&rd->fp);
        spares_give(&w->spare_readings, &rd->spare, reading_free);
}

void request_spares_init(struct worker *w)
{
        w->spare_requests.off = w->spare_readings.off = KEEP_NONE;
}

void request_spares_free(struct worker *w)
{
        spares_release(&w->spare_requests, release);
        spares_release(&w->spare_readings, reading_free);
}
