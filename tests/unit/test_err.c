/* SPDX-License-Identifier: Apache-2.0
 *
 * err: every code has a name and a class; texts are bounded; NULL is fine everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

static void every_code_has_its_class(void **state)
{
        (void)state;
        static const semel_class want[] = {
                [SEMEL_OK] = SEMEL_CLASS_NONE,
                [SEMEL_ERR_ARGUMENT] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_NO_MEMORY] = SEMEL_CLASS_RETRYABLE,
                [SEMEL_ERR_URL] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_NOT_LINKED] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_STORE_DOWN] = SEMEL_CLASS_RETRYABLE,
                [SEMEL_ERR_STORE_FULL] = SEMEL_CLASS_RETRYABLE,
                [SEMEL_ERR_STORE_READ_ONLY] = SEMEL_CLASS_RETRYABLE,
                [SEMEL_ERR_SCHEMA] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_ACCESS] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_BUSY] = SEMEL_CLASS_RETRYABLE,
                [SEMEL_ERR_CONFLICT] = SEMEL_CLASS_CONFLICT,
                [SEMEL_ERR_TX_STATE] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_LOST] = SEMEL_CLASS_CONFLICT,
                [SEMEL_ERR_UNKNOWN] = SEMEL_CLASS_UNKNOWN,
                [SEMEL_ERR_TOO_LARGE] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_CORRUPT] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_NOT_FOUND] = SEMEL_CLASS_CONFLICT,
                [SEMEL_ERR_REFUSED] = SEMEL_CLASS_CONFLICT,
                [SEMEL_ERR_KEY] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_UNSAFE] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_INTERNAL] = SEMEL_CLASS_FATAL,
                [SEMEL_ERR_PEER_DOWN] = SEMEL_CLASS_RETRYABLE,
        };
        for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
                assert_int_equal(err_class_of((semel_code)i), want[i]);
                assert_string_not_equal(err_code_name((semel_code)i), "?");
                for (size_t j = 0; j < i; j++)
                        assert_string_not_equal(err_code_name((semel_code)i),
                                                err_code_name((semel_code)j));
        }
        assert_string_equal(err_code_name((semel_code)99), "?");
        assert_int_equal(err_class_of((semel_code)99), SEMEL_CLASS_FATAL);
}

static void set_replaces_everything(void **state)
{
        (void)state;
        semel_error err;
        memset(&err, 0xa5, sizeof err);
        assert_int_equal(err_set(&err, SEMEL_ERR_BUSY, "wait %d s", 3), SEMEL_ERR_BUSY);
        assert_string_equal(err.text, "wait 3 s");
        assert_int_equal(err.class, SEMEL_CLASS_RETRYABLE);
        assert_int_equal(err.sys_errno, 0);
        assert_int_equal(err.retry_after_s, 0);
        assert_string_equal(err.sqlstate, "");
        assert_string_equal(err.first_operation, "");
        err_clear(&err);
        assert_int_equal(err.code, SEMEL_OK);
        assert_string_equal(err.text, "");
}

static void errno_is_kept_and_explained(void **state)
{
        (void)state;
        semel_error err;
        assert_int_equal(err_set_errno(&err, SEMEL_ERR_ACCESS, EACCES, "cannot open %s", "f"),
                         SEMEL_ERR_ACCESS);
        assert_string_equal(err.text, "cannot open f: Permission denied");
        assert_int_equal(err.sys_errno, EACCES);
        (void)err_set_errno(&err, SEMEL_ERR_ACCESS, 99999, "x");
        assert_string_equal(err.text, "x: ?");
}

static void a_long_text_is_cut_and_ends(void **state)
{
        (void)state;
        semel_error err;
        (void)err_set(&err, SEMEL_ERR_URL, "%02000d", 1);
        assert_int_equal(strlen(err.text), ERR_TEXT_BYTES_MAX - 1);
        (void)err_set_errno(&err, SEMEL_ERR_URL, EIO, "%02000d", 1);
        assert_int_equal(strlen(err.text), ERR_TEXT_BYTES_MAX - 1);
        assert_int_equal(err.sys_errno, EIO);
}

/* Characters of 1 to 4 bytes, behind 0 to 3 others. */
static void a_long_text_ends_behind_a_whole_character(void **state)
{
        (void)state;
        static const char *const chars[] = {"a", "\xd0\xb6", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
        for (size_t size = 1; size <= 4; size++) {
                char text[4 * ERR_TEXT_BYTES_MAX + 1] = "";
                for (size_t i = 0; i < ERR_TEXT_BYTES_MAX; i++)
                        memcpy(text + i * size, chars[size - 1], size);
                for (int before = 0; before < 4; before++) {
                        semel_error err, as_errno;
                        (void)err_set(&err, SEMEL_ERR_URL, "%.*s%s", before, "xyz", text);
                        (void)err_set_errno(&as_errno, SEMEL_ERR_URL, EIO, "%.*s%s", before, "xyz", text);
                        assert_true(utf8_valid(span_str(err.text)));
                        assert_true(strlen(err.text) > ERR_TEXT_BYTES_MAX - 1 - size);
                        assert_true(utf8_valid(span_str(as_errno.text)));
                }
        }
}

static void any_bytes_become_text(void **state)
{
        (void)state;
        char out[8];
        assert_int_equal(utf8_copy(out, sizeof out, span_of("a\0b\xff\xd0\xb6\xd0", 7)), 7);
        assert_string_equal(out, "a?b?\xd0\xb6?");
        assert_int_equal(utf8_copy(out, sizeof out, span_str("123456\xd0\xb6")), 6);
        assert_string_equal(out, "123456");
        assert_int_equal(utf8_copy(out, 1, span_str("x")), 0);
        assert_string_equal(out, "");
}

static void copies(void **state)
{
        (void)state;
        semel_error a = {0}, b;
        err_clear(&b);
        (void)err_set(&a, SEMEL_ERR_LOST, "gone");
        assert_int_equal(err_copy(&b, &a), SEMEL_ERR_LOST);
        assert_memory_equal(&b, &a, sizeof a);
        assert_int_equal(err_copy(&b, &b), SEMEL_ERR_LOST);
        assert_int_equal(err_copy(NULL, &a), SEMEL_ERR_LOST);
        assert_int_equal(err_copy(&b, NULL), SEMEL_OK);
        assert_string_equal(b.text, "gone");
}

static void null_is_fine(void **state)
{
        (void)state;
        assert_int_equal(err_set(NULL, SEMEL_ERR_URL, "x"), SEMEL_ERR_URL);
        assert_int_equal(err_set_errno(NULL, SEMEL_ERR_URL, EIO, "x"), SEMEL_ERR_URL);
        err_clear(NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_code_has_its_class),
                cmocka_unit_test(set_replaces_everything),
                cmocka_unit_test(errno_is_kept_and_explained),
                cmocka_unit_test(a_long_text_is_cut_and_ends),
                cmocka_unit_test(a_long_text_ends_behind_a_whole_character),
                cmocka_unit_test(any_bytes_become_text),
                cmocka_unit_test(copies),
                cmocka_unit_test(null_is_fine),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
