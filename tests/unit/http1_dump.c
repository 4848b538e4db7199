/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_dump: see http1_dump.h.
 */
#include "http1_dump.h"

#include <stdlib.h>

#include "core/http1_write.h"

/* Small, so that a table can reach the limits. */
enum { HEAD_BYTES = 1024, HEADERS = 16 };

struct dump {
        struct http1_parser p;
        struct buf *out;
        const char *methods;
        bool in_body;
        bool meaning;
        size_t complete; /* bytes of `out` up to the last END */
        enum http1_limits limits;
        uint8_t head[2 * HEAD_BYTES];
        struct http_header headers[2 * HEADERS];
};

static void put(struct dump *d, struct span s)
{
        for (size_t i = 0; i < s.n; i++)
                if (s.p[i] < 0x20 || s.p[i] > 0x7e)
                        (void)buf_printf(d->out, "<%02x>", s.p[i]);
                else
                        (void)buf_append_byte(d->out, s.p[i]);
}

static void word(struct dump *d, const char *before, struct span s, const char *behind)
{
        (void)buf_append_str(d->out, before);
        put(d, s);
        (void)buf_append_str(d->out, behind);
}

static void parser_init(struct dump *d)
{
        size_t times = d->limits == HTTP1_AS_WRITTEN ? 2 : 1;
        http1_parser_init(&d->p, d->methods ? HTTP1_REPLIES : HTTP1_REQUESTS, d->head,
                          times * HEAD_BYTES, d->headers, times * HEADERS);
}

static void expect(struct dump *d)
{
        if (!d->methods)
                return;
        size_t n = strcspn(d->methods, ",");
        http1_expect(&d->p, span_of(d->methods, n));
        d->methods += d->methods[n] ? n + 1 : 0; /* the last one holds for all that follow */
}

static void put_head(struct dump *d)
{
        const struct http1_head *head = &d->p.head;
        if (d->p.side == HTTP1_REQUESTS) {
                word(d, "", head->method, " ");
                put(d, head->target);
                (void)buf_printf(d->out, " 1.%d", head->version - 10);
                if (!span_eq(head->authority, span_str("h")))
                        word(d, " host=", head->authority, "");
                if (!span_eq(head->path, head->target))
                        word(d, " path=", head->path, "");
        } else {
                (void)buf_printf(d->out, "%d 1.%d", head->status, head->version - 10);
        }
        switch (head->framing) {
        case HTTP1_NONE:
                if (head->has_length)
                        (void)buf_printf(d->out, " said=%llu",
                                         (unsigned long long)head->content_length);
                break;
        case HTTP1_LENGTH:
                (void)buf_printf(d->out, " length=%llu",
                                 (unsigned long long)head->content_length);
                break;
        case HTTP1_CHUNKED:
                (void)buf_append_str(d->out, " chunked");
                break;
        case HTTP1_UNTIL_CLOSE:
                (void)buf_append_str(d->out, " until-close");
                break;
        }
        (void)buf_append_str(d->out, head->keep_alive ? " keep" : " close");
        if (head->expect_continue)
                (void)buf_append_str(d->out, " expect");
        if (head->upgrade)
                (void)buf_append_str(d->out, " upgrade");
        if (head->interim)
                (void)buf_append_str(d->out, " interim");
        if (d->p.side == HTTP1_REPLIES)
                word(d, " [", head->reason, "]");
        for (size_t i = 0; i < head->header_count; i++) {
                const struct http_header *h = &head->headers[i];
                if (header_is(h, "Host") && span_eq(h->value, span_str("h")))
                        continue;
                if (d->meaning && http1_is_framing(h->name))
                        continue;
                word(d, " {", h->name, ": ");
                word(d, "", h->value, "}");
        }
        (void)buf_append_byte(d->out, ' ');
}

static void put_body(struct dump *d, struct span body)
{
        if (!d->in_body)
                (void)buf_append_byte(d->out, '"');
        d->in_body = true;
        put(d, body);
}

static void end_body(struct dump *d)
{
        if (d->in_body)
                (void)buf_append_str(d->out, "\" ");
        d->in_body = false;
}

static bool put_event(struct dump *d, enum http1_event event, struct span body)
{
        if (event == HTTP1_BODY) {
                put_body(d, body);
                return true;
        }
        if (event == HTTP1_NEED_MORE)
                return true;
        end_body(d);
        if (event == HTTP1_FAILED) {
                (void)buf_printf(d->out, "!%s", http1_error_entry(d->p.error)->name);
                return false;
        }
        if (event == HTTP1_HEAD)
                put_head(d);
        if (event == HTTP1_END) {
                (void)buf_append_str(d->out, "end ");
                d->complete = d->out->n;
                http1_restart(&d->p);
                expect(d);
        }
        return true;
}

/* A copy that ends where its memory ends, gone before the next piece comes. */
static bool feed(struct dump *d, struct span piece)
{
        uint8_t *copy = malloc(piece.n ? piece.n : 1);
        if (!copy)
                abort();
        memcpy(copy, piece.p, piece.n);
        struct span in = span_of(copy, piece.n), body = {NULL, 0};
        bool going = true;
        enum http1_event event;
        do {
                event = http1_next(&d->p, &in, &body);
                going = put_event(d, event, body);
        } while (going && event != HTTP1_NEED_MORE);
        if (going && in.n != 0)
                (void)buf_append_str(d->out, "(bytes left)");
        free(copy);
        return going;
}

static void run(struct dump *d, struct span in, size_t first, size_t step)
{
        parser_init(d);
        expect(d);
        for (size_t at = 0, n = first; at < in.n; at += n, n = step) {
                n = n < in.n - at ? n : in.n - at;
                if (!feed(d, span_of(in.p + at, n)))
                        return;
        }
        (void)put_event(d, http1_eof(&d->p), span_of(NULL, 0));
}

void http1_dump(struct span in, const char *methods, size_t first, size_t step, struct buf *out)
{
        struct dump d = {.out = out, .methods = methods};
        run(&d, in, first, step);
        while (out->n > 0 && out->p[out->n - 1] == ' ')
                out->n--;
}

void http1_dump_meaning(struct span in, const char *methods, enum http1_limits limits,
                        struct buf *out)
{
        struct dump d = {.out = out, .methods = methods, .meaning = true, .limits = limits};
        run(&d, in, in.n, 1);
        out->n = d.complete;
}

/* -- copying ------------------------------------------------------------------------------ */

static void copy_head(struct http1_writer *w, const struct http1_head *head,
                      enum http1_side side, struct buf *out)
{
        if (side == HTTP1_REQUESTS)
                http1_write_request(w, out, head->version, head->method, head->target);
        else
                http1_write_reply(w, out, head->version, head->status, head->reason);
        for (size_t i = 0; i < head->header_count; i++) {
                const struct http_header *h = &head->headers[i];
                if (!http1_is_framing(h->name))
                        http1_write_header(w, h->name, h->value);
        }
        switch (head->framing) {
        case HTTP1_NONE:
                if (head->has_length)
                        http1_write_length_only(w, head->content_length);
                else
                        http1_write_no_body(w);
                break;
        case HTTP1_LENGTH:
                http1_write_length(w, head->content_length);
                break;
        case HTTP1_CHUNKED:
                http1_write_chunked(w);
                break;
        case HTTP1_UNTIL_CLOSE:
                http1_write_until_close(w);
                break;
        }
}

void http1_copy(struct span in, const char *methods, enum http1_limits limits, struct buf *out)
{
        struct dump d = {.methods = methods, .limits = limits};
        struct http1_writer w;
        struct span body = {NULL, 0};
        size_t complete = out->n;
        parser_init(&d);
        expect(&d);
        for (bool eof = false;;) {
                enum http1_event event = eof ? http1_eof(&d.p) : http1_next(&d.p, &in, &body);
                if (event == HTTP1_HEAD)
                        copy_head(&w, &d.p.head, d.p.side, out);
                else if (event == HTTP1_BODY)
                        http1_write_body(&w, body);
                else if (event == HTTP1_NEED_MORE && !eof)
                        eof = true;
                else if (event != HTTP1_END)
                        break;
                if (event == HTTP1_HEAD && d.p.head.interim && http1_write_end(&w) != BUF_OK)
                        abort();
                if (event != HTTP1_END)
                        continue;
                if (http1_write_end(&w) != BUF_OK)
                        abort();
                complete = out->n;
                if (eof)
                        break;
                http1_restart(&d.p);
                expect(&d);
        }
        out->n = complete;
}
