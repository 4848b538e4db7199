/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of HTTP/1.1: its bytes, what it refuses, and that everything the parser accepts in the
 * tables can be written and read again with the same meaning.
 */
#include "table.h"

#include "core/http1_write.h"
#include "failmalloc.h"
#include "http1_dump.h"

enum { OUT_MAX = 1 << 20 };

static struct buf out;
static struct http1_writer w;

static void reply(int version, int status)
{
        buf_release(&out);
        buf_init(&out, OUT_MAX);
        http1_write_reply(&w, &out, version, status, span_str(http1_reason(status)));
}

static void request(const char *method, const char *target)
{
        buf_release(&out);
        buf_init(&out, OUT_MAX);
        http1_write_request(&w, &out, 11, span_str(method), span_str(target));
}

static void header(const char *name, const char *value)
{
        http1_write_header(&w, span_str(name), span_str(value));
}

static void is(const char *want)
{
        assert_int_equal(http1_write_end(&w), BUF_OK);
        assert_string_equal(buf_cstr(&out), want);
}

static void bytes_of_each_framing(void **state)
{
        (void)state;
        reply(11, 200);
        header("X", "");
        header("Link", "<a>");
        header("Link", "<b>");
        http1_write_length(&w, 5);
        http1_write_body(&w, span_str("he"));
        http1_write_body(&w, span_str(""));
        http1_write_body(&w, span_str("llo"));
        is("HTTP/1.1 200 OK\r\nX: \r\nLink: <a>\r\nLink: <b>\r\nContent-Length: 5\r\n\r\nhello");

        reply(11, 200);
        http1_write_chunked(&w);
        http1_write_body(&w, span_str("hello, hello, hello"));
        http1_write_body(&w, span_str(""));
        http1_write_body_head(&w, 1);
        assert_int_equal(buf_append_byte(&out, 'x'), BUF_OK); /* sent by somebody else */
        http1_write_body_tail(&w);
        is("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n13\r\nhello, hello, hello\r\n"
           "1\r\nx\r\n0\r\n\r\n");

        reply(10, 200);
        http1_write_until_close(&w);
        http1_write_body(&w, span_str("hello"));
        is("HTTP/1.0 200 OK\r\n\r\nhello");

        reply(11, 304);
        http1_write_length_only(&w, 7);
        is("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");

        reply(11, 299);
        http1_write_no_body(&w);
        is("HTTP/1.1 299 \r\n\r\n");

        request("POST", "/a?b");
        header("Host", "h");
        http1_write_length(&w, 0);
        is("POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
}

static void refused(void)
{
        if (w.rc == BUF_OK)
                http1_write_no_body(&w);
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);
        assert_int_equal(out.n, 0);
}

static void h45_nothing_that_is_given_can_begin_another_line(void **state)
{
        (void)state;
        static const char *const names[] = {"", "X Y", "X:", "X\r\nY", "X\n", "X\t", "X\xe9", " X"};
        static const char *const values[] = {"a\r\nSet-Cookie: b", "a\n", "\r", "a\x01", "\x7f",
                                             " a", "a ", "\ta"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                reply(11, 200);
                header(names[i], "v");
                refused();
        }
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
                reply(11, 200);
                header("X", values[i]);
                refused();
        }
        reply(11, 200);
        http1_write_header(&w, span_str("X"), span_of("a\0b", 3));
        refused();
        static const char *const targets[] = {"", "/a b", "/a\r\n", "/a#b", "/\t", "/\x7f"};
        for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
                request("GET", targets[i]);
                refused();
        }
        request("GET /", "/");
        refused();
        request("", "/");
        refused();
        buf_release(&out);
        buf_init(&out, OUT_MAX);
        http1_write_reply(&w, &out, 11, 200, span_str("OK\r\nX: y"));
        refused();
        reply(11, 99);
        refused();
        reply(11, 600);
        refused();
}

static void framing_headers_are_the_writers_own(void **state)
{
        (void)state;
        reply(11, 200);
        header("content-length", "5");
        refused();
        reply(11, 200);
        header("Transfer-Encoding", "chunked");
        refused();
        reply(10, 200);
        http1_write_chunked(&w); /* HTTP/1.0 has no chunks */
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);
        assert_int_equal(out.n, 0);
}

static void a_stated_length_is_kept(void **state)
{
        (void)state;
        reply(11, 200);
        http1_write_length(&w, 5);
        http1_write_body(&w, span_str("hell"));
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);

        reply(11, 200);
        http1_write_length(&w, 5);
        http1_write_body(&w, span_str("hello!"));
        size_t before = out.n;
        http1_write_body(&w, span_str("x"));
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);
        assert_int_equal(out.n, before);

        reply(11, 204);
        http1_write_no_body(&w);
        http1_write_body(&w, span_str("x"));
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);

        reply(11, 304);
        http1_write_length_only(&w, 5);
        http1_write_body(&w, span_str("hello"));
        assert_int_equal(http1_write_end(&w), HTTP1_REFUSED);
}

static int one_reply(struct buf *b)
{
        http1_write_reply(&w, b, 11, 200, span_str("OK"));
        header("Content-Type", "text/plain");
        http1_write_chunked(&w);
        http1_write_body(&w, span_str("0123456789012345678901234567890123456789"));
        return http1_write_end(&w);
}

static void a_head_that_does_not_fit_leaves_nothing(void **state)
{
        (void)state;
        int rc = BUF_FULL;
        for (size_t max = 2; rc == BUF_FULL; max++) {
                struct buf b;
                buf_init(&b, max);
                assert_int_equal(buf_append_str(&b, "ab"), BUF_OK);
                rc = one_reply(&b);
                const char *head_end = b.n > 2 ? strstr(buf_cstr(&b), "\r\n\r\n") : NULL;
                assert_true(b.n == 2 || head_end);
                buf_release(&b);
        }
        assert_int_equal(rc, BUF_OK);
}

static void every_allocation_fails_once(void **state)
{
        (void)state;
        for (int n = 1;; n++) {
                struct buf b;
                buf_init(&b, OUT_MAX);
                failmalloc_arm(n);
                int rc = one_reply(&b);
                bool failed = failmalloc_count() >= n;
                failmalloc_arm(0);
                assert_int_equal(rc, failed ? BUF_NO_MEMORY : BUF_OK);
                buf_release(&b);
                if (!failed) {
                        assert_in_range(n, 2, 20);
                        break;
                }
        }
}

/* parse(write(parse(x))) = parse(x), and writing what was written changes no byte. */
static void same_meaning(const struct row *row, struct span in, const char *methods)
{
        struct buf meant, copy, meant_again, copy_again;
        buf_init(&meant, OUT_MAX);
        buf_init(&copy, OUT_MAX);
        buf_init(&meant_again, OUT_MAX);
        buf_init(&copy_again, OUT_MAX);
        http1_dump_meaning(in, methods, HTTP1_AS_READ, &meant);
        http1_copy(in, methods, HTTP1_AS_READ, &copy);
        http1_dump_meaning(buf_span(&copy), methods, HTTP1_AS_WRITTEN, &meant_again);
        http1_copy(buf_span(&copy), methods, HTTP1_AS_WRITTEN, &copy_again);
        if (!span_eq(buf_span(&meant), buf_span(&meant_again)))
                fail_msg("%s: %s | %s", row->name, buf_cstr(&meant), buf_cstr(&meant_again));
        assert_true(span_eq(buf_span(&copy), buf_span(&copy_again)));
        buf_release(&meant);
        buf_release(&copy);
        buf_release(&meant_again);
        buf_release(&copy_again);
}

static void what_is_read_can_be_written_and_read_again(void **state)
{
        (void)state;
        for (const struct row *row = table_load("http1_requests.txt"); row->name; row++)
                same_meaning(row, row->field[0], NULL);
        for (const struct row *row = table_load("http1_replies.txt"); row->name; row++)
                same_meaning(row, row->field[1], row_str(row, 0));
}

/* Found by the fuzzer: a head of just the most bytes that the parser takes, without a space. */
static void a_head_may_be_written_longer_than_it_was_read(void **state)
{
        (void)state;
        char name[] = "the longest head";
        const struct row row = {.name = name};
        struct buf in;
        buf_init(&in, OUT_MAX);
        assert_int_equal(buf_append_str(&in, "GET / HTTP/1.1\r\nHost: h\r\nX:"), BUF_OK);
        while (in.n < 1024 - 4)
                assert_int_equal(buf_append_byte(&in, 'a'), BUF_OK);
        assert_int_equal(buf_append_str(&in, "\r\n\r\n"), BUF_OK);
        same_meaning(&row, buf_span(&in), NULL);
        buf_release(&in);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_of_each_framing),
                cmocka_unit_test(h45_nothing_that_is_given_can_begin_another_line),
                cmocka_unit_test(framing_headers_are_the_writers_own),
                cmocka_unit_test(a_stated_length_is_kept),
                cmocka_unit_test(a_head_that_does_not_fit_leaves_nothing),
                cmocka_unit_test(every_allocation_fails_once),
                cmocka_unit_test(what_is_read_can_be_written_and_read_again),
                cmocka_unit_test(a_head_may_be_written_longer_than_it_was_read),
        };
        int rc = cmocka_run_group_tests(tests, NULL, NULL);
        buf_release(&out);
        return rc;
}
