/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON in canonical form: tests/data/jcs.txt, cut at every byte, and tests/data/jcs_numbers.txt;
 * numbers against the C library's own conversions.
 */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/jcs.h"
#include "failmalloc.h"

enum { OUT_MAX = 1 << 20 };

static enum jcs_result canonical(struct jcs *j, struct span in, size_t first, size_t step)
{
        jcs_init(j, OUT_MAX);
        for (size_t at = 0, n = first; at < in.n; at += n, n = step) {
                n = n < in.n - at ? n : in.n - at;
                uint8_t *copy = malloc(n);
                assert_non_null(copy);
                memcpy(copy, in.p + at, n);
                (void)jcs_feed(j, span_of(copy, n));
                free(copy);
        }
        return jcs_end(j);
}

static void check(const struct row *row, size_t first, size_t step)
{
        struct jcs j;
        enum jcs_result result = canonical(&j, row->field[0], first, step);
        if (!row_is(row, 1, jcs_result_name(result)))
                fail_msg("cut at %zu: %s", first, jcs_result_name(result));
        if (result == JCS_OK && !span_eq(buf_span(&j.out), row->field[2]))
                fail_msg("cut at %zu: %s", first, buf_cstr(&j.out));
        jcs_release(&j);
}

static void jcs_line(void **state)
{
        const struct row *row = *state;
        size_t n = row->field[0].n;
        check(row, n, 1);
        for (size_t cut = 1; cut < n && cut < 500; cut++)
                check(row, cut, n);
        if (n < 10000)
                check(row, 1, 1);
        if (!row_is(row, 1, "ok"))
                return;
        struct jcs j; /* a canonical form is its own */
        assert_int_equal(canonical(&j, row->field[2], OUT_MAX, 1), JCS_OK);
        assert_true(span_eq(buf_span(&j.out), row->field[2]));
        jcs_release(&j);
}

static const char *number(struct span text, char *out, bool *ret_inexact)
{
        size_t n = 0;
        enum jcs_result result = jcs_number(text, out, &n, ret_inexact);
        if (result != JCS_OK)
                return jcs_result_name(result);
        assert_in_range(n, 1, JCS_NUMBER_BYTES);
        out[n] = 0;
        return *ret_inexact ? "inexact" : "exact";
}

static void number_line(void **state)
{
        const struct row *row = *state;
        char out[JCS_NUMBER_BYTES + 1] = "";
        bool inexact = false;
        assert_string_equal(number(row->field[0], out, &inexact), row_str(row, 1));
        assert_string_equal(out, row_str(row, 2));
}

/* A random double: what is written reads back as it, and nothing shorter does. */
static void numbers_are_the_shortest_that_read_back(void **state)
{
        (void)state;
        uint64_t x = 88172645463325252u;
        for (int round = 0; round < 20000; round++) {
                double v, again;
                char text[64], out[JCS_NUMBER_BYTES + 1], shorter[64];
                bool inexact;
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                uint64_t bits = round % 4 == 0 ? x & ~UINT64_C(0xfffffffffffff) : x; /* powers of 2 */
                memcpy(&v, &bits, sizeof v);
                if (!isfinite(v) || bits << 1 == 0)
                        continue;
                (void)snprintf(text, sizeof text, "%.*e", 16 + round % 5, v);
                assert_string_not_equal(number(span_str(text), out, &inexact), "syntax");
                again = strtod(out, NULL);
                if (memcmp(&again, &v, sizeof v) != 0)
                        fail_msg("%s became %s", text, out);
                size_t digits = 0;
                for (const char *s = out; *s && *s != 'e'; s++)
                        digits += (*s >= '1' && *s <= '9') || (*s == '0' && digits > 0);
                for (size_t n = strcspn(out, "e"); digits > 0 && !strchr(out, '.') && n > 0 &&
                                                   out[n - 1] == '0'; n--)
                        digits--; /* zeros before the point are no digits */
                if (digits < 2)
                        continue;
                (void)snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, v);
                if (strtod(shorter, NULL) == v)
                        fail_msg("%s became %s, but %s is shorter", text, out, shorter);
        }
}

static void h55_no_locale_changes_a_number(void **state)
{
        (void)state;
        char out[JCS_NUMBER_BYTES + 1];
        bool inexact;
        assert_string_equal(number(span_str("1,5"), out, &inexact), "syntax");
        assert_string_equal(number(span_str("0.30000000000000004"), out, &inexact), "exact");
        assert_string_equal(out, "0.30000000000000004");
}

static void inexact_is_said(void **state)
{
        (void)state;
        struct jcs j;
        assert_int_equal(canonical(&j, span_str("[1,9007199254740993,0.5]"), 100, 1), JCS_OK);
        assert_true(j.inexact);
        jcs_release(&j);
        assert_int_equal(canonical(&j, span_str("[1,9007199254740992,0.5]"), 100, 1), JCS_OK);
        assert_false(j.inexact);
        jcs_release(&j);
}

static void the_first_failure_stays(void **state)
{
        (void)state;
        struct jcs j;
        jcs_init(&j, OUT_MAX);
        assert_int_equal(jcs_feed(&j, span_str("[1,]")), JCS_SYNTAX);
        assert_int_equal(jcs_feed(&j, span_str("\"\xff\"")), JCS_SYNTAX);
        assert_int_equal(jcs_end(&j), JCS_SYNTAX);
        jcs_release(&j);
}

static void the_maximum_is_one(void **state)
{
        (void)state;
        static const char in[] = "{\"b\":[true,1e20],\"a\":\"\\u0001\"}",
                          want[] = "{\"a\":\"\\u0001\",\"b\":[true,100000000000000000000]}";
        for (size_t max = 0; max <= sizeof want; max++) {
                struct jcs j;
                jcs_init(&j, max);
                (void)jcs_feed(&j, span_str(in));
                assert_int_equal(jcs_end(&j), max < sizeof want - 1 ? JCS_FULL : JCS_OK);
                assert_in_range(j.out.n, 0, max);
                jcs_release(&j);
        }
}

static void every_allocation_fails_once(void **state)
{
        (void)state;
        static const char in[] = "{\"c\":{\"b\":1,\"a\":2},\"b\":[1,2],\"a\":\"0123456789"
                                 "0123456789012345678901234567890123456789\"}";
        for (int n = 1;; n++) {
                struct jcs j;
                jcs_init(&j, OUT_MAX);
                failmalloc_arm(n);
                (void)jcs_feed(&j, span_str(in));
                enum jcs_result result = jcs_end(&j);
                bool failed = failmalloc_count() >= n;
                failmalloc_arm(0);
                assert_int_equal(result, failed ? JCS_NO_MEMORY : JCS_OK);
                jcs_release(&j);
                if (!failed) {
                        assert_in_range(n, 4, 20);
                        break;
                }
        }
}

/* Many members, in the order that is worst for a naive sort, with one long beginning. */
static void a_large_object_is_sorted_in_bounded_time(void **state)
{
        (void)state;
        struct buf in;
        struct jcs j;
        buf_init(&in, OUT_MAX);
        assert_int_equal(buf_append_byte(&in, '{'), BUF_OK);
        for (int i = 9999; i >= 0; i--)
                assert_int_equal(buf_printf(&in, "\"a long name that begins alike %04d\":%d%s", i,
                                            i, i ? "," : "}"), BUF_OK);
        assert_int_equal(canonical(&j, buf_span(&in), 4096, 4096), JCS_OK);
        assert_int_equal(j.out.n, in.n);
        const char *out = buf_cstr(&j.out), *at = out;
        for (int i = 0; i < 10000; i += 777) {
                char want[64];
                (void)snprintf(want, sizeof want, "alike %04d\":%d", i, i);
                at = strstr(at, want);
                assert_non_null(at);
        }
        jcs_release(&j);
        buf_release(&in);
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(numbers_are_the_shortest_that_read_back),
                cmocka_unit_test(h55_no_locale_changes_a_number),
                cmocka_unit_test(inexact_is_said),
                cmocka_unit_test(the_first_failure_stays),
                cmocka_unit_test(the_maximum_is_one),
                cmocka_unit_test(every_allocation_fails_once),
                cmocka_unit_test(a_large_object_is_sorted_in_bounded_time),
        };
        int numbers = table_run("jcs_numbers.txt", number_line, more,
                                sizeof more / sizeof more[0]);
        return table_run("jcs.txt", jcs_line, NULL, 0) + numbers;
}
