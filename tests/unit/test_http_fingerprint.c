/* SPDX-License-Identifier: Apache-2.0
 *
 * Fingerprints of HTTP requests: tests/data/http_fingerprints.txt, whole and byte by byte.
 */
#include "table.h"

#include <stdlib.h>

#include "core/http1_parse.h"
#include "core/http_fingerprint.h"
#include "sys/sha256.h"

enum { OPTIONS = 0, DIGEST = 1, REQUEST = 2, JSON_MAX = 4096 };

static struct http_fingerprint_options options_of(const char *text)
{
        struct http_fingerprint_options o = {.form = FINGERPRINT_RAW,
                                             .host = !strstr(text, "no-host"),
                                             .query = !strstr(text, "no-query"),
                                             .json_max = JSON_MAX};
        if (strstr(text, "json"))
                o.form = FINGERPRINT_JSON;
        if (strstr(text, "multipart"))
                o.form = FINGERPRINT_MULTIPART;
        return o;
}

/* The request in pieces of `step` bytes, each gone when the next one comes. */
static void fingerprint_of(struct span request, const struct http_fingerprint_options *options,
                           size_t step, struct command_fingerprint *ret)
{
        static uint8_t head[LIMIT_HTTP_HEAD_BYTES];
        static struct http_header headers[LIMIT_HTTP_HEADERS];
        struct sha256 *h = sha256_new(NULL, 0), *spare = sha256_new(NULL, 0);
        struct http1_parser p;
        struct http_fingerprint fp;
        bool over = false;
        assert_true(h && spare);
        http1_parser_init(&p, HTTP1_REQUESTS, head, sizeof head, headers, LIMIT_HTTP_HEADERS);
        for (size_t at = 0; at < request.n; at += step) {
                size_t n = step < request.n - at ? step : request.n - at;
                uint8_t *copy = malloc(n);
                assert_non_null(copy);
                memcpy(copy, request.p + at, n);
                struct span in = span_of(copy, n), body;
                enum http1_event event;
                while (!over && (event = http1_next(&p, &in, &body)) != HTTP1_NEED_MORE) {
                        assert_int_not_equal(event, HTTP1_FAILED);
                        if (event == HTTP1_HEAD)
                                http_fingerprint_begin(&fp, options, &p.head, sha256_sink(h),
                                                       sha256_sink(spare));
                        else if (event == HTTP1_BODY)
                                http_fingerprint_body(&fp, body);
                        else
                                over = true;
                }
                free(copy);
        }
        assert_true(over);
        http_fingerprint_end(&fp, ret);
        http_fingerprint_release(&fp);
        sha256_free(h);
        sha256_free(spare);
}

static void fingerprint_line(void **state)
{
        const struct row *row = *state;
        struct http_fingerprint_options options = options_of(row_str(row, OPTIONS));
        struct command_fingerprint got, want;
        row_hex(row, DIGEST, want.b, sizeof want.b);
        static const size_t steps[] = {SIZE_MAX / 2, 1, 2, 3, 5, 64};
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
                fingerprint_of(row->field[REQUEST], &options, steps[i], &got);
                assert_memory_equal(got.b, want.b, sizeof want.b);
        }
}

static void h57_boundaries(void **state)
{
        (void)state;
        struct span got;
        assert_true(multipart_boundary(span_str("multipart/form-data;boundary=a"), &got));
        assert_true(span_eq(got, span_str("a")));
        assert_true(multipart_boundary(span_str("MULTIPART/x ; q=\"b;c\" ; Boundary=\"a:b\""), &got));
        assert_true(span_eq(got, span_str("a:b")));
        static const char *const none[] = {
                "", "multipart/", "multipart/form-data", "text/plain; boundary=a",
                "multipart/x; boundary=\"a", "multipart/x; boundary=a b", "multipart/x; boundary=a;",
                "multipart/x boundary=a", "multipart/x; boundary", "multipart/x; =a",
                "multipart/x; boundary=\"a b\"", "multipart/x; boundary=\xe9",
        };
        for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
                if (multipart_boundary(span_str(none[i]), &got))
                        fail_msg("%s", none[i]);
}

/* Random uploads: equal parts under two boundaries are one request, and a flipped bit another. */
static void h57_random_uploads(void **state)
{
        (void)state;
        const struct http_fingerprint_options options = {FINGERPRINT_MULTIPART, true, true, 0};
        uint32_t x = 2463534242u;
        for (int round = 0; round < 300; round++) {
                uint8_t content[40];
                for (size_t i = 0; i < sizeof content; i++) {
                        x ^= x << 13;
                        x ^= x >> 17;
                        x ^= x << 5;
                        content[i] = (uint8_t)"\r\n-ab\0xyz-"[x % 10];
                }
                struct command_fingerprint prints[3];
                for (int i = 0; i < 3; i++) {
                        struct buf body, request;
                        buf_init(&body, 4096);
                        buf_init(&request, 4096);
                        const char *boundary = i == 0 ? "--a-b-c" : "0123456789";
                        if (i == 2)
                                content[x % sizeof content] ^= 0x40;
                        assert_int_equal(buf_printf(&body, "--%s\r\nA: b\r\n\r\n", boundary), BUF_OK);
                        assert_int_equal(buf_append(&body, content, sizeof content), BUF_OK);
                        assert_int_equal(buf_printf(&body, "\r\n--%s--\r\n", boundary), BUF_OK);
                        assert_int_equal(buf_printf(&request, "POST / HTTP/1.1\r\nHost: h\r\n"
                                                    "Content-Type: multipart/mixed; boundary=%s\r\n"
                                                    "Content-Length: %zu\r\n\r\n", boundary, body.n),
                                         BUF_OK);
                        assert_int_equal(buf_append_span(&request, buf_span(&body)), BUF_OK);
                        fingerprint_of(buf_span(&request), &options, 1 + (size_t)round % 9,
                                       &prints[i]);
                        buf_release(&body);
                        buf_release(&request);
                }
                assert_memory_equal(prints[0].b, prints[1].b, sizeof prints[0].b);
                assert_memory_not_equal(prints[1].b, prints[2].b, sizeof prints[0].b);
        }
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(h57_boundaries),
                cmocka_unit_test(h57_random_uploads),
        };
        return table_run("http_fingerprints.txt", fingerprint_line, more,
                         sizeof more / sizeof more[0]);
}
