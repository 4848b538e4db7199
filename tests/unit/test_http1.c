/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of HTTP/1.1: tests/data/http1_requests.txt and http1_replies.txt, each line whole, in
 * two pieces cut at every byte, and byte by byte; and what can be asked about a head.
 */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/http1_parse.h"
#include "http1_dump.h"

enum { OUT_MAX = 1 << 20 };

static void same_however_cut(struct span in, const char *methods, struct span want)
{
        struct buf out;
        buf_init(&out, OUT_MAX);
        http1_dump(in, methods, in.n, 1, &out);
        if (!span_eq(buf_span(&out), want))
                fail_msg("%s", buf_cstr(&out));
        for (size_t cut = 1; cut < in.n && cut < 2000; cut++) {
                buf_clear(&out);
                http1_dump(in, methods, cut, in.n, &out);
                if (!span_eq(buf_span(&out), want))
                        fail_msg("cut at %zu: %s", cut, buf_cstr(&out));
        }
        for (size_t step = 1; step < 4; step++) {
                buf_clear(&out);
                http1_dump(in, methods, step, step, &out);
                if (!span_eq(buf_span(&out), want))
                        fail_msg("by %zu: %s", step, buf_cstr(&out));
        }
        buf_release(&out);
}

static void request_line(void **state)
{
        const struct row *row = *state;
        same_however_cut(row->field[0], NULL, row->field[1]);
}

static void reply_line(void **state)
{
        const struct row *row = *state;
        same_however_cut(row->field[1], row_str(row, 0), row->field[2]);
}

/* -- what can be asked ------------------------------------------------------------------ */

static void keep_alive_timeout(void **state)
{
        (void)state;
        static const struct {
                const char *value;
                int want;
        } cases[] = {{"timeout=5", 5},      {"max=100, Timeout=5", 5}, {"timeout=0", 0},
                     {"timeout=", -1},      {"timeout=5s", -1},        {"max=100", -1},
                     {"timeout=-5", -1},    {"", -1},                  {"timeout=3601", 3600},
                     {"timeout=99999999999999999999", 3600}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct http_header lines[2] = {{span_str("Date"), span_str("timeout=9")},
                                               {span_str("keep-alive"), span_str(cases[i].value)}};
                struct http1_head head = {.headers = lines, .header_count = 2};
                assert_int_equal(http1_keep_alive_timeout_s(&head), cases[i].want);
        }
        struct http1_head none = {.header_count = 0};
        assert_int_equal(http1_keep_alive_timeout_s(&none), -1);
}

static void every_error_has_a_name_and_a_sentence(void **state)
{
        (void)state;
        const struct row *tables[2] = {table_load("http1_requests.txt"),
                                       table_load("http1_replies.txt")};
        for (int e = 0; e < HTTP1_ERRORS; e++) {
                const struct http1_error_entry *entry = http1_error_entry((enum http1_error)e);
                assert_true(entry->name[0] && entry->text[0]);
                char mark[64];
                (void)snprintf(mark, sizeof mark, "!%s", entry->name);
                bool seen = e == HTTP1_OK;
                for (int t = 0; t < 2; t++)
                        for (const struct row *row = tables[t]; row->name; row++)
                                seen |= strstr(row_str(row, row->n - 1), mark) != NULL;
                if (!seen)
                        fail_msg("no line ends in %s", mark);
        }
}

static void h69_nothing_behind_an_error_has_a_meaning(void **state)
{
        (void)state;
        static const char bad[] = "GET / HTTP/1.1\n", good[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        struct http1_parser p;
        uint8_t head[256];
        struct http_header headers[4];
        struct span body, in = span_str(bad);
        http1_parser_init(&p, HTTP1_REQUESTS, head, sizeof head, headers, 4);
        assert_int_equal(http1_next(&p, &in, &body), HTTP1_FAILED);
        in = span_str(good);
        assert_int_equal(http1_next(&p, &in, &body), HTTP1_FAILED);
        assert_int_equal(http1_eof(&p), HTTP1_FAILED);
        assert_int_equal(p.error, HTTP1_BAD_LINE_END);
}

/* The caller sees where a message ends: bytes behind it stay its own. */
static void what_follows_a_message_is_not_touched(void **state)
{
        (void)state;
        struct http1_parser p;
        uint8_t head[256];
        struct http_header headers[4];
        struct span body, in = span_str("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 408");
        http1_parser_init(&p, HTTP1_REPLIES, head, sizeof head, headers, 4);
        http1_expect(&p, span_str("POST"));
        assert_int_equal(http1_next(&p, &in, &body), HTTP1_HEAD);
        assert_int_equal(http1_next(&p, &in, &body), HTTP1_BODY);
        assert_int_equal(http1_next(&p, &in, &body), HTTP1_END);
        assert_true(span_eq(in, span_str("HTTP/1.1 408")));
        assert_int_equal(p.body_bytes, 2);
        assert_int_equal(http1_eof(&p), HTTP1_CLOSED);
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(keep_alive_timeout),
                cmocka_unit_test(every_error_has_a_name_and_a_sentence),
                cmocka_unit_test(h69_nothing_behind_an_error_has_a_meaning),
                cmocka_unit_test(what_follows_a_message_is_not_touched),
        };
        int requests = table_run("http1_requests.txt", request_line, more,
                                 sizeof more / sizeof more[0]);
        return table_run("http1_replies.txt", reply_line, NULL, 0) + requests;
}
