/* SPDX-License-Identifier: Apache-2.0
 *
 * request_spare: what requests leave to the next ones of their worker: their memory with its small
 * buffers, and digests, which are dear to make.  Bounded; a worker's own, so nothing is locked.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "app/request.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SPARE_MAX = 0 }; /* so that a use after its end is seen */
#else
enum { SPARE_MAX = 256 };
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
        struct request *r = w->spare_requests;
        if (!r)
                return calloc(1, sizeof *r);
        w->spare_requests = r->next;
        w->spare_request_count--;
        const struct buf head = kept(r->head), body = kept(r->body), reply = kept(r->reply_body),
                         reply_headers = kept(r->reply_headers), extra = kept(r->extra_headers);
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

static void release(struct request *r)
{
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
        r->body = kept(r->body);
        r->reply_body = kept(r->reply_body);
        if (w->spare_request_count + 1 > SPARE_MAX) {
                release(r);
                return;
        }
        r->next = w->spare_requests;
        w->spare_requests = r;
        w->spare_request_count++;
}

/* -- fingerprints in the making ----------------------------------------------------------------- */

static void reading_free(struct reading *rd)
{
        sha256_free(rd->hash);
        sha256_free(rd->spare);
        free(rd);
}

/* Two digests, though few forms need the second: one kind of spare serves all routes. */
static struct reading *reading_new(const struct gateway *gw)
{
        struct reading *rd = calloc(1, sizeof *rd);
        if (!rd)
                return NULL;
        rd->hash = sha256_new(gw->fingerprint_secret, gw->fingerprint_secret_n);
        rd->spare = sha256_new(gw->fingerprint_secret, gw->fingerprint_secret_n);
        if (rd->hash && rd->spare)
                return rd;
        reading_free(rd);
        return NULL;
}

struct reading *reading_get(struct worker *w)
{
        struct reading *rd = w->spare_readings;
        if (!rd)
                return reading_new(w->gw);
        w->spare_readings = rd->next;
        w->spare_reading_count--;
        return rd;
}

void reading_put(struct worker *w, struct reading *rd)
{
        if (!rd)
                return;
        http_fingerprint_release(&rd->fp);
        if (w->spare_reading_count + 1 > SPARE_MAX) {
                reading_free(rd);
                return;
        }
        rd->next = w->spare_readings;
        w->spare_readings = rd;
        w->spare_reading_count++;
}

void request_spares_free(struct worker *w)
{
        while (w->spare_requests) {
                struct request *r = w->spare_requests;
                w->spare_requests = r->next;
                release(r);
        }
        while (w->spare_readings) {
                struct reading *rd = w->spare_readings;
                w->spare_readings = rd->next;
                reading_free(rd);
        }
}
