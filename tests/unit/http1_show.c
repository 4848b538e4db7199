/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_show: what our parser reads in the requests on stdin, one a line, for comparing it with
 * another program's reading of the same bytes: the method, the target and the body, each in
 * hexadecimal; then "ok" (all was read), "truncated", or "refused" and why.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "core/http1_parse.h"

static void put_hex(struct span s)
{
        for (size_t i = 0; i < s.n; i++)
                printf("%02x", s.p[i]);
}

static void show(const struct http1_head *head, struct span body)
{
        put_hex(head->method);
        putchar(' ');
        put_hex(head->path);
        putchar(' ');
        put_hex(body);
        putchar('\n');
}

static void read_all(struct buf *in)
{
        uint8_t piece[4096];
        for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;)
                if (buf_append(in, piece, n) != BUF_OK)
                        exit(1);
}

int main(void)
{
        static uint8_t head[LIMIT_HTTP_HEAD_BYTES];
        static struct http_header headers[LIMIT_HTTP_HEADERS];
        struct http1_parser p;
        struct buf in, body;
        buf_init(&in, 1 << 24);
        buf_init(&body, 1 << 24);
        read_all(&in);
        http1_parser_init(&p, HTTP1_REQUESTS, head, sizeof head, headers, LIMIT_HTTP_HEADERS);
        struct span rest = buf_span(&in), piece = {NULL, 0};
        enum http1_event event;
        while ((event = http1_next(&p, &rest, &piece)) != HTTP1_NEED_MORE) {
                if (event == HTTP1_FAILED)
                        break;
                if (event == HTTP1_BODY && buf_append_span(&body, piece) != BUF_OK)
                        exit(1);
                if (event != HTTP1_END)
                        continue;
                show(&p.head, buf_span(&body));
                if (!p.head.keep_alive) /* what follows on this connection is nobody's */
                        break;
                buf_clear(&body);
                http1_restart(&p);
        }
        if (event == HTTP1_FAILED)
                printf("refused %s\n", http1_error_entry(p.error)->name);
        else if (event == HTTP1_END || http1_eof(&p) == HTTP1_CLOSED)
                puts("ok");
        else
                puts("truncated");
        buf_release(&in);
        buf_release(&body);
        return 0;
}
