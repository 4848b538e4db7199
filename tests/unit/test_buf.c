/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: grows up to its maximum, never beyond, and is unchanged by whatever fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/buf.h"
#include "core/problem.h"
#include "core/reply_codec.h"
#include "failmalloc.h"

static void grows_to_its_maximum_and_not_beyond(void **state)
{
        (void)state;
        static const size_t maxima[] = {0, 1, 2, 63, 64, 65, 127, 128, 1000, 4096};
        for (size_t m = 0; m < sizeof maxima / sizeof maxima[0]; m++) {
                struct buf b;
                buf_init(&b, maxima[m]);
                for (size_t i = 0; i < maxima[m]; i++) {
                        assert_int_equal(buf_append_byte(&b, (uint8_t)i), BUF_OK);
                        assert_in_range(b.cap, b.n + 1, SIZE_MAX); /* room for the NUL */
                }
                assert_int_equal(buf_append_byte(&b, 'x'), BUF_FULL);
                assert_int_equal(buf_append(&b, "", 0), BUF_OK);
                assert_int_equal(buf_reserve(&b, SIZE_MAX), BUF_FULL);
                assert_int_equal(buf_printf(&b, "%d", 1), BUF_FULL);
                assert_int_equal(b.n, maxima[m]);
                for (size_t i = 0; i < maxima[m]; i++)
                        assert_int_equal(b.p[i], (uint8_t)i);
                const char *s = buf_cstr(&b);
                assert_non_null(s);
                assert_int_equal(s[b.n], 0);
                buf_release(&b);
        }
}

static void a_run_that_does_not_fit_is_not_appended_in_part(void **state)
{
        (void)state;
        struct buf b;
        buf_init(&b, 5);
        assert_int_equal(buf_append_str(&b, "abc"), BUF_OK);
        assert_int_equal(buf_append_str(&b, "def"), BUF_FULL);
        assert_int_equal(buf_printf(&b, "%s", "def"), BUF_FULL);
        assert_int_equal(buf_append_span(&b, span_str("de")), BUF_OK);
        assert_string_equal(buf_cstr(&b), "abcde");
        buf_release(&b);
}

static void empty_things(void **state)
{
        (void)state;
        struct buf b;
        buf_init(&b, 10);
        assert_int_equal(buf_append(&b, NULL, 0), BUF_OK);
        assert_int_equal(buf_append_span(&b, span_of(NULL, 0)), BUF_OK);
        assert_int_equal(buf_append_str(&b, ""), BUF_OK);
        assert_int_equal(buf_printf(&b, "%s", ""), BUF_OK);
        assert_int_equal(buf_span(&b).n, 0);
        assert_string_equal(buf_cstr(&b), "");
        buf_release(&b);
        buf_release(&b);
        buf_release(NULL);
}

static void cleared_and_released_bufs_can_be_used_again(void **state)
{
        (void)state;
        struct buf b;
        buf_init(&b, 1000);
        assert_int_equal(buf_printf(&b, "%0500d", 7), BUF_OK);
        size_t cap = b.cap;
        buf_clear(&b);
        assert_int_equal(b.n, 0);
        assert_int_equal(b.cap, cap);
        assert_int_equal(buf_append_str(&b, "again"), BUF_OK);
        buf_release(&b);
        assert_int_equal(b.max, 1000);
        assert_int_equal(buf_append_str(&b, "again"), BUF_OK);
        assert_string_equal(buf_cstr(&b), "again");
        buf_release(&b);
}

static void spans(void **state)
{
        (void)state;
        assert_true(span_eq(span_of(NULL, 0), span_str("")));
        assert_true(span_eq(span_str(NULL), span_str("")));
        assert_true(span_eq(span_str("ab"), span_of("abc", 2)));
        assert_false(span_eq(span_str("ab"), span_str("abc")));
        assert_false(span_eq(span_str("ab"), span_str("aB")));
        assert_false(span_eq(span_of("a\0b", 3), span_of("a\0c", 3)));
}

/* What one round of everything that allocates returns; the content must be what it was
 * before a step that failed. */
static int one_round(struct buf *b)
{
        int worst = BUF_OK, rc;
        size_t before;
#define STEP(call)                                                                                \
        do {                                                                                      \
                before = b->n;                                                                    \
                rc = (call);                                                                      \
                if (rc != BUF_OK) {                                                               \
                        assert_int_equal(rc, BUF_NO_MEMORY);                                      \
                        assert_int_equal(b->n, before);                                           \
                        worst = rc;                                                               \
                }                                                                                 \
        } while (0)
        STEP(buf_append_byte(b, 'a'));
        STEP(buf_reserve(b, 100));
        STEP(buf_append(b, "0123456789", 10));
        STEP(buf_printf(b, "%0200d", 1));
        STEP(reply_encode_header(b, span_str("Link"), span_str("<a>; rel=next")));
        STEP(problem_format(PROBLEM_KEY_REUSED, span_str("a \"quote\" \xff\x01"), 200, b));
        STEP(buf_cstr(b) ? BUF_OK : BUF_NO_MEMORY);
#undef STEP
        return worst;
}

static void every_allocation_fails_once(void **state)
{
        (void)state;
        struct buf whole;
        buf_init(&whole, 100000);
        failmalloc_arm(0);
        assert_int_equal(one_round(&whole), BUF_OK);
        int allocations = failmalloc_count();
        assert_in_range(allocations, 3, 100);

        for (int n = 1; n <= allocations; n++) {
                struct buf b;
                buf_init(&b, 100000);
                failmalloc_arm(n);
                assert_int_equal(one_round(&b), BUF_NO_MEMORY);
                failmalloc_arm(0);
                buf_clear(&b); /* and it works again */
                assert_int_equal(one_round(&b), BUF_OK);
                assert_true(span_eq(buf_span(&b), buf_span(&whole)));
                buf_release(&b);
        }
        buf_release(&whole);
}

static void the_text_of_an_empty_buf_needs_memory(void **state)
{
        (void)state;
        struct buf b;
        buf_init(&b, 0);
        failmalloc_arm(1);
        assert_null(buf_cstr(&b));
        failmalloc_arm(0);
        assert_string_equal(buf_cstr(&b), "");
        buf_release(&b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(grows_to_its_maximum_and_not_beyond),
                cmocka_unit_test(a_run_that_does_not_fit_is_not_appended_in_part),
                cmocka_unit_test(empty_things),
                cmocka_unit_test(cleared_and_released_bufs_can_be_used_again),
                cmocka_unit_test(spans),
                cmocka_unit_test(every_allocation_fails_once),
                cmocka_unit_test(the_text_of_an_empty_buf_needs_memory),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
