/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored reply headers: tests/data/reply_blobs.txt.
 */
#include "table.h"

#include <stdlib.h>

#include "core/limits.h"
#include "core/reply_codec.h"

enum { BLOB = 0, RESULT = 1, HEADERS = 2 };

/* Decode a copy that ends where its memory ends.  "ok" needs the row's headers. */
static const char *decode_copy(struct span blob, const struct row *row)
{
        uint8_t *copy = malloc(blob.n ? blob.n : 1);
        assert_non_null(copy);
        if (blob.n > 0)
                memcpy(copy, blob.p, blob.n);
        const char *result = "version";
        struct reply_cursor cur;
        if (reply_decode_begin(&cur, span_of(copy, blob.n))) {
                struct span name, value;
                int rc;
                size_t i = HEADERS;
                for (; (rc = reply_decode_next(&cur, &name, &value)) == 1; i += 2) {
                        assert_true(name.p >= copy && value.p + value.n <= copy + blob.n);
                        if (!row || !row_is(row, RESULT, "ok"))
                                continue;
                        assert_true(i + 1 < row->n);
                        assert_true(span_eq(name, row->field[i]));
                        assert_true(span_eq(value, row->field[i + 1]));
                }
                if (rc == 0 && row && row_is(row, RESULT, "ok"))
                        assert_int_equal(i, row->n);
                result = rc < 0 ? "corrupt" : blob.n == 1 ? "same-as-none" : "ok";
                if (rc < 0) /* and stays so */
                        assert_int_equal(reply_decode_next(&cur, &name, &value), -1);
        }
        free(copy);
        return result;
}

static void blob_line(void **state)
{
        const struct row *row = *state;
        assert_string_equal(decode_copy(row->field[BLOB], row), row_str(row, RESULT));
        if (!row_is(row, RESULT, "ok"))
                return;
        struct buf b;
        buf_init(&b, LIMIT_REPLY_HEADERS_BYTES);
        for (size_t i = HEADERS; i < row->n; i += 2)
                assert_int_equal(reply_encode_header(&b, row->field[i], row->field[i + 1]),
                                 BUF_OK);
        assert_true(span_eq(buf_span(&b), row->field[BLOB]));
        buf_release(&b);
}

static void h17_every_prefix_is_a_whole_reply_or_corrupt(void **state)
{
        (void)state;
        for (const struct row *row = table_load("reply_blobs.txt"); row->name; row++)
                for (size_t n = 0; n < row->field[BLOB].n; n++)
                        (void)decode_copy(span_of(row->field[BLOB].p, n), NULL);
}

static void a_header_that_does_not_fit_changes_nothing(void **state)
{
        (void)state;
        struct buf b;
        for (size_t max = 0; max < 1 + 2 + 4 + 4 + 5; max++) {
                buf_init(&b, max);
                assert_int_equal(reply_encode_header(&b, span_str("Link"), span_str("value")),
                                 BUF_FULL);
                assert_int_equal(b.n, 0);
                buf_release(&b);
        }
        buf_init(&b, 1 + 2 + 4 + 4 + 5);
        assert_int_equal(reply_encode_header(&b, span_str("Link"), span_str("value")), BUF_OK);
        assert_int_equal(b.n, b.max);
        assert_int_equal(reply_encode_header(&b, span_of(NULL, 0), span_of(NULL, 0)), BUF_FULL);
        assert_int_equal(b.n, b.max);
        buf_release(&b);
}

static void longest_name_and_one_more(void **state)
{
        (void)state;
        char *name = calloc(1, UINT16_MAX + 1);
        assert_non_null(name);
        struct buf b;
        buf_init(&b, 1024 * 1024);
        assert_int_equal(reply_encode_header(&b, span_of(name, UINT16_MAX + 1), span_str("v")),
                         BUF_FULL);
        assert_int_equal(b.n, 0);
        assert_int_equal(reply_encode_header(&b, span_of(name, UINT16_MAX), span_str("v")),
                         BUF_OK);
        struct reply_cursor cur;
        struct span n, v;
        assert_true(reply_decode_begin(&cur, buf_span(&b)));
        assert_int_equal(reply_decode_next(&cur, &n, &v), 1);
        assert_int_equal(n.n, UINT16_MAX);
        assert_true(span_eq(v, span_str("v")));
        assert_int_equal(reply_decode_next(&cur, &n, &v), 0);
        buf_release(&b);
        free(name);
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(h17_every_prefix_is_a_whole_reply_or_corrupt),
                cmocka_unit_test(a_header_that_does_not_fit_changes_nothing),
                cmocka_unit_test(longest_name_and_one_more),
        };
        return table_run("reply_blobs.txt", blob_line, more, sizeof more / sizeof more[0]);
}
