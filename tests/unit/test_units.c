/* SPDX-License-Identifier: Apache-2.0
 *
 * units: durations and sizes as people write them, and the mistakes they make.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/units.h"

static const struct duration_case {
        const char *text;
        enum units_result result;
        int64_t ms;
} duration_cases[] = {
        {"250ms", UNITS_OK, 250},
        {"3s", UNITS_OK, 3000},
        {"5m", UNITS_OK, 300000},
        {"24h", UNITS_OK, 86400000},
        {"7d", UNITS_OK, 604800000},
        {"0", UNITS_OK, 0},
        {"0s", UNITS_OK, 0},
        {"5", UNITS_NO_UNIT, 0},
        {"", UNITS_NOT_A_NUMBER, 0},
        {"s", UNITS_NOT_A_NUMBER, 0},
        {"-3s", UNITS_NOT_A_NUMBER, 0},
        {"+3s", UNITS_NOT_A_NUMBER, 0},
        {" 3s", UNITS_NOT_A_NUMBER, 0},
        {"3 s", UNITS_BAD_UNIT, 0},
        {"3S", UNITS_BAD_UNIT, 0},
        {"3sec", UNITS_BAD_UNIT, 0},
        {"1.5s", UNITS_BAD_UNIT, 0},
        {"0x10s", UNITS_BAD_UNIT, 0},
        {"9223372036854775807ms", UNITS_OK, INT64_MAX},
        {"9223372036854775808ms", UNITS_TOO_BIG, 0},
        {"9223372036854775807s", UNITS_TOO_BIG, 0},
        {"99999999999999999999999999d", UNITS_TOO_BIG, 0},
};

static void durations(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof duration_cases / sizeof duration_cases[0]; i++) {
                const struct duration_case *c = &duration_cases[i];
                int64_t ms = -1;
                if (duration_parse_ms(c->text, &ms) != c->result)
                        fail_msg("\"%s\"", c->text);
                assert_int_equal(ms, c->result == UNITS_OK ? c->ms : -1);
        }
}

static void sizes(void **state)
{
        (void)state;
        int64_t n = -1;
        assert_int_equal(size_parse_bytes("512B", &n), UNITS_OK);
        assert_int_equal(n, 512);
        assert_int_equal(size_parse_bytes("64KiB", &n), UNITS_OK);
        assert_int_equal(n, 65536);
        assert_int_equal(size_parse_bytes("10MiB", &n), UNITS_OK);
        assert_int_equal(n, 10485760);
        assert_int_equal(size_parse_bytes("2GiB", &n), UNITS_OK);
        assert_int_equal(n, INT64_C(2147483648));
        assert_int_equal(size_parse_bytes("64", &n), UNITS_NO_UNIT);
        assert_int_equal(size_parse_bytes("64KB", &n), UNITS_BAD_UNIT);
        assert_int_equal(size_parse_bytes("9007199254740993GiB", &n), UNITS_TOO_BIG);
        assert_int_equal(n, INT64_C(2147483648));
}

static void durations_for_people(void **state)
{
        (void)state;
        static const struct {
                int64_t ms;
                const char *text;
        } cases[] = {{-5, "0 ms"},         {999, "999 ms"},      {1000, "1 s"},
                     {119999, "119 s"},    {120000, "2 min"},    {7200000, "2 h"},
                     {172800000, "2 days"}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                char text[UNITS_TEXT_BYTES_MAX];
                duration_format(cases[i].ms, text);
                assert_string_equal(text, cases[i].text);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(durations),
                cmocka_unit_test(sizes),
                cmocka_unit_test(durations_for_people),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
