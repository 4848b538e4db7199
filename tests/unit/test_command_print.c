/* SPDX-License-Identifier: Apache-2.0
 *
 * What is printed from the state machine: docs/states.md is compared whole by another test; here is
 * what a reader must never find in it, written down by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/buf.h"
#include "core/command.h"

static void to_buf(void *arg, const char *text)
{
        assert_int_equal(buf_append_str(arg, text), BUF_OK);
}

static void diagram(struct buf *b)
{
        buf_init(b, 65536);
        command_print_diagram(to_buf, b);
}

static void a3_unknown_is_left_only_by_somebody_who_knows(void **state)
{
        (void)state;
        struct buf b;
        diagram(&b);
        const char *text = buf_cstr(&b);
        assert_non_null(strstr(text, "UNKNOWN --> FREE: not executed, resolve not executed\n"));
        assert_non_null(strstr(text, "UNKNOWN --> COMPLETED: complete, resolve executed\n"));
        assert_non_null(strstr(text, "UNKNOWN --> IN_FLIGHT: takeover\n"));
        assert_null(strstr(text, "UNKNOWN --> [*]"));   /* A9: never purged */
        assert_null(strstr(text, "UNKNOWN --> UNKNOWN"));
        buf_release(&b);
}

static void a2_completed_absorbs(void **state)
{
        (void)state;
        struct buf b;
        diagram(&b);
        const char *text = buf_cstr(&b);
        assert_non_null(strstr(text, "COMPLETED --> FREE: forget\n"));
        assert_non_null(strstr(text, "COMPLETED --> IN_FLIGHT: claim\n"));
        assert_non_null(strstr(text, "COMPLETED --> [*]: purge\n"));
        assert_null(strstr(text, "COMPLETED --> UNKNOWN"));
        assert_null(strstr(text, "COMPLETED --> COMPLETED"));
        buf_release(&b);
}

static void a_row_in_flight_is_never_purged(void **state)
{
        (void)state;
        struct buf b;
        diagram(&b);
        const char *text = buf_cstr(&b);
        assert_null(strstr(text, "IN_FLIGHT --> [*]")); /* H80 */
        assert_null(strstr(text, "[*] --> COMPLETED"));
        assert_null(strstr(text, "FREE --> UNKNOWN"));
        buf_release(&b);
}

static void tables_are_whole(void **state)
{
        (void)state;
        struct buf b;
        buf_init(&b, 65536);
        command_print_tables(to_buf, &b);
        const char *text = buf_cstr(&b);
        assert_null(strchr(text, '?')); /* no name is missing */
        size_t lines = 0, cells = 0, want = 0;
        for (const char *s = text; *s; s++) {
                if (*s == '|')
                        cells++;
                if (*s != '\n')
                        continue;
                if (cells > 0) {
                        assert_true(want == 0 || cells == want); /* each row as wide as its table */
                        lines++;
                }
                want = cells;
                cells = 0;
        }
        assert_int_equal(lines, (2 + 8) + (2 + COMMAND_WRITE_KINDS + 3) + (2 + 7));
        buf_release(&b);
}

static void what_does_not_exist_has_no_name(void **state)
{
        (void)state;
        assert_string_equal(command_state_name((enum command_state)9), "?");
        assert_string_equal(command_outcome_name((enum command_outcome)9), "?");
        assert_string_equal(command_write_kind_name((enum command_write_kind)9), "?");
        assert_string_equal(command_effect_name((enum command_effect)99), "?");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a3_unknown_is_left_only_by_somebody_who_knows),
                cmocka_unit_test(a2_completed_absorbs),
                cmocka_unit_test(a_row_in_flight_is_never_purged),
                cmocka_unit_test(tables_are_whole),
                cmocka_unit_test(what_does_not_exist_has_no_name),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
