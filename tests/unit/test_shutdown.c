/* SPDX-License-Identifier: Apache-2.0
 *
 * The phases of an end, in virtual time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/limits.h"
#include "core/shutdown.h"

static const struct shutdown_times times = {.delay_us = 5 * SECOND, .allowed_us = 25 * SECOND};
#define ASKED (1000 * SECOND)

static void nobody_asked(void **state)
{
        (void)state;
        assert_int_equal(shutdown_phase(&times, 0, ASKED), SHUTDOWN_RUNNING);
        assert_true(shutdown_deadline_us(&times, 0) == INT64_MAX);
        assert_true(shutdown_next_us(&times, 0, ASKED) == INT64_MAX);
}

static void o27_each_phase_begins_on_its_microsecond(void **state)
{
        (void)state;
        static const struct {
                int64_t after_us;
                enum shutdown_phase phase;
                int64_t next_us;
        } rows[] = {
                {-1, SHUTDOWN_LEAVING, 5 * SECOND}, /* read by another thread, just before */
                {0, SHUTDOWN_LEAVING, 5 * SECOND},
                {5 * SECOND - 1, SHUTDOWN_LEAVING, 1},
                {5 * SECOND, SHUTDOWN_DRAINING, 20 * SECOND},
                {25 * SECOND - 1, SHUTDOWN_DRAINING, 1},
                {25 * SECOND, SHUTDOWN_OVERDUE, INT64_MAX},
                {99 * SECOND, SHUTDOWN_OVERDUE, INT64_MAX},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                int64_t now = ASKED + rows[i].after_us;
                if (shutdown_phase(&times, ASKED, now) != rows[i].phase ||
                    shutdown_next_us(&times, ASKED, now) != rows[i].next_us)
                        fail_msg("%lld us after the request: phase %d, next in %lld us",
                                 (long long)rows[i].after_us, shutdown_phase(&times, ASKED, now),
                                 (long long)shutdown_next_us(&times, ASKED, now));
        }
        assert_true(shutdown_deadline_us(&times, ASKED) == ASKED + 25 * SECOND);
}

static void without_a_delay_it_drains_at_once(void **state)
{
        (void)state;
        const struct shutdown_times now = {.delay_us = 0, .allowed_us = SECOND};
        assert_int_equal(shutdown_phase(&now, ASKED, ASKED - 1), SHUTDOWN_DRAINING);
        assert_int_equal(shutdown_phase(&now, ASKED, ASKED), SHUTDOWN_DRAINING);
}

static void a_delay_beyond_the_deadline_ends_with_it(void **state)
{
        (void)state;
        const struct shutdown_times long_delay = {.delay_us = 9 * SECOND, .allowed_us = SECOND};
        assert_true(shutdown_next_us(&long_delay, ASKED, ASKED) == SECOND);
        assert_int_equal(shutdown_phase(&long_delay, ASKED, ASKED + SECOND - 1), SHUTDOWN_LEAVING);
        assert_int_equal(shutdown_phase(&long_delay, ASKED, ASKED + SECOND), SHUTDOWN_OVERDUE);
}

static void phases_never_go_back(void **state)
{
        (void)state;
        for (int64_t delay = 0; delay <= 8; delay++)
                for (int64_t allowed = 1; allowed <= 8; allowed++) {
                        const struct shutdown_times t = {delay, allowed};
                        enum shutdown_phase last = SHUTDOWN_RUNNING;
                        for (int64_t now = 1; now < 20; now++) {
                                enum shutdown_phase p = shutdown_phase(&t, 1, now);
                                int64_t next = shutdown_next_us(&t, 1, now);
                                assert_true(p >= last && p != SHUTDOWN_RUNNING && next > 0);
                                if (next != INT64_MAX)
                                        assert_true(shutdown_phase(&t, 1, now + next) > p &&
                                                    shutdown_phase(&t, 1, now + next - 1) == p);
                                last = p;
                        }
                        assert_int_equal(last, SHUTDOWN_OVERDUE);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nobody_asked),
                cmocka_unit_test(o27_each_phase_begins_on_its_microsecond),
                cmocka_unit_test(without_a_delay_it_drains_at_once),
                cmocka_unit_test(a_delay_beyond_the_deadline_ends_with_it),
                cmocka_unit_test(phases_never_go_back),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
