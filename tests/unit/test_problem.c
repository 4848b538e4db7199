/* SPDX-License-Identifier: Apache-2.0
 *
 * Problem replies: tests/data/problems.txt, byte for byte; jansson says whether they are JSON.
 */
#include "table.h"

#include <jansson.h>
#include <stdlib.h>

#include "core/problem.h"

enum { KIND = 0, DETAIL = 1, ORIGINAL = 2, BODY = 3 };

static enum problem_kind kind_of(const char *name)
{
        for (int k = 0; k < PROBLEM_KINDS; k++)
                if (strcmp(problem_entry((enum problem_kind)k)->name, name) == 0)
                        return (enum problem_kind)k;
        fail_msg("no problem is called %s", name);
        return PROBLEM_KINDS;
}

static void check_json(const struct buf *b, enum problem_kind kind)
{
        json_error_t why;
        json_t *json = json_loadb((const char *)b->p, b->n, JSON_REJECT_DUPLICATES |
                                  JSON_ALLOW_NUL, &why);
        if (!json)
                fail_msg("%s at %d: %.*s", why.text, why.position, (int)b->n, (const char *)b->p);
        assert_int_equal(json_integer_value(json_object_get(json, "status")),
                         problem_entry(kind)->status);
        json_decref(json);
}

static void problem_line(void **state)
{
        const struct row *row = *state;
        enum problem_kind kind = kind_of(row_str(row, KIND));
        struct buf b;
        buf_init(&b, 4096);
        assert_int_equal(buf_append_str(&b, "kept"), BUF_OK);
        int original = (int)strtol(row_str(row, ORIGINAL), NULL, 10);
        assert_int_equal(problem_format(kind, row->field[DETAIL], original, &b), BUF_OK);
        assert_memory_equal(b.p, "kept", 4);
        const char *got = buf_cstr(&b);
        assert_non_null(got);
        assert_string_equal(got + 4, row_str(row, BODY));
        memmove(b.p, b.p + 4, b.n -= 4);
        check_json(&b, kind);
        buf_release(&b);
}

static void h75_every_problem_has_a_type_of_its_own_and_a_line(void **state)
{
        (void)state;
        const struct row *rows = table_load("problems.txt");
        for (int k = 0; k < PROBLEM_KINDS; k++) {
                const struct problem_entry *e = problem_entry((enum problem_kind)k);
                assert_int_equal(kind_of(e->name), k);
                bool seen = false;
                for (const struct row *row = rows; row->name; row++)
                        seen |= row_is(row, KIND, e->name);
                if (!seen)
                        fail_msg("%s has no line", e->name);
                /* what a client may repeat by itself is what did not run because of us */
                assert_int_equal(e->retryable, k == PROBLEM_IN_FLIGHT || k == PROBLEM_STORE_DOWN ||
                                                       k == PROBLEM_UPSTREAM_UNREACHABLE ||
                                                       k == PROBLEM_OVERLOADED);
        }
}

static void h45_any_detail_gives_json(void **state)
{
        (void)state;
        uint32_t x = 12345;
        struct buf b;
        buf_init(&b, 4096);
        for (int round = 0; round < 5000; round++) {
                uint8_t detail[12];
                for (size_t i = 0; i < sizeof detail; i++) {
                        x = x * 1664525 + 1013904223;
                        detail[i] = (uint8_t)(x >> 24);
                }
                buf_clear(&b);
                assert_int_equal(problem_format(PROBLEM_KEY_REUSED,
                                                span_of(detail, x % (sizeof detail + 1)), 0, &b),
                                 BUF_OK);
                check_json(&b, PROBLEM_KEY_REUSED);
        }
        buf_release(&b);
}

static void what_does_not_fit_leaves_the_buf_as_it_was(void **state)
{
        (void)state;
        struct buf b;
        int rc = BUF_FULL;
        for (size_t max = 1; rc == BUF_FULL; max++) {
                buf_init(&b, max);
                assert_int_equal(buf_append_byte(&b, 'x'), BUF_OK);
                rc = problem_format(PROBLEM_IN_FLIGHT, span_str("\"\n\xff"), 200, &b);
                assert_true(rc == BUF_OK ? b.n == max : rc == BUF_FULL && b.n == 1);
                buf_release(&b);
        }
        assert_int_equal(rc, BUF_OK);
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(h75_every_problem_has_a_type_of_its_own_and_a_line),
                cmocka_unit_test(h45_any_detail_gives_json),
                cmocka_unit_test(what_does_not_fit_leaves_the_buf_as_it_was),
        };
        return table_run("problems.txt", problem_line, more, sizeof more / sizeof more[0]);
}
