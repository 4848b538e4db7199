/* SPDX-License-Identifier: Apache-2.0
 *
 * A wave: order per key, whatever the broker answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "core/outbox_plan.h"
#include "rng.h"

enum { MAX = 64, TABLE = 128 };
static struct wave_row rows[MAX];
static int32_t table[TABLE], ready[MAX];
static struct span keys[MAX];
static struct wave w;

/* "aab-": rows 0 and 1 of key a, row 2 of key b, row 3 without a key. */
static void begin(const char *text, bool strict)
{
        size_t n = strlen(text);
        for (size_t i = 0; i < n; i++)
                keys[i] = text[i] == '-' ? span_of(NULL, 0) : span_of(text + i, 1);
        wave_init(&w, MAX, rows, table, ready, TABLE);
        wave_begin(&w, keys, n, strict);
}

static void sends(int32_t want)
{
        int32_t i = wave_next(&w);
        assert_int_equal(i, want);
        assert_true(wave_may_send(&w, i));
        wave_sent(&w, i);
}

static void o10_all_rows_go_in_order(void **state)
{
        (void)state;
        begin("aba-", false);
        for (int32_t i = 0; i < 4; i++)
                sends(i);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        assert_int_equal(w.unreported, 4);
        for (int32_t i = 0; i < 4; i++)
                assert_int_equal(wave_report(&w, i, WAVE_DONE), WAVE_GO_ON);
        assert_int_equal(w.unreported, 0);
        assert_int_equal(w.overtaken, 0);
}

static void c4_younger_rows_wait_and_other_keys_flow(void **state)
{
        (void)state;
        begin("aab-a", false);
        sends(0);
        assert_int_equal(wave_report(&w, 0, WAVE_FAILED), WAVE_GO_ON);
        sends(2);
        sends(3);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        assert_int_equal(wave_fate(&w, 1), WAVE_UNTRIED);
        assert_int_equal(wave_fate(&w, 4), WAVE_UNTRIED);
}

static void c7a_a_rejected_row_with_younger_ones_under_way_purges(void **state)
{
        (void)state;
        begin("aaab", false);
        for (int32_t i = 0; i < 4; i++)
                sends(i);
        assert_int_equal(wave_report(&w, 0, WAVE_REFUSED), WAVE_PURGE);
        assert_int_equal(wave_report(&w, 1, WAVE_DONE), WAVE_GO_ON); /* it overtook */
        assert_int_equal(w.overtaken, 1);
        assert_int_equal(w.overtaken_first, 0);
        assert_int_equal(w.overtaken_by, 1);
        assert_int_equal(wave_report(&w, 2, WAVE_UNTRIED), WAVE_GO_ON); /* purged */
        assert_int_equal(wave_report(&w, 3, WAVE_REFUSED), WAVE_GO_ON); /* alone in its key */
        assert_int_equal(w.overtaken, 1);
}

static void c7a_reports_in_the_other_order_are_counted_too(void **state)
{
        (void)state;
        begin("aa", false);
        sends(0);
        sends(1);
        assert_int_equal(wave_report(&w, 1, WAVE_DONE), WAVE_GO_ON);
        assert_int_equal(wave_report(&w, 0, WAVE_FAILED), WAVE_GO_ON);
        assert_int_equal(w.overtaken, 1);
}

/* Twice a batch of poison at the head costs two marks, not one a row. */
static void o31_poison_of_one_key_is_refused_in_one_wave(void **state)
{
        (void)state;
        begin("aaab", false);
        for (int32_t i = 0; i < 2; i++) {
                assert_int_equal(wave_next(&w), i);
                wave_refuse(&w, i);
        }
        assert_int_equal(wave_next(&w), 2);
        assert_false(wave_may_send(&w, 2)); /* C7: the DEAD marks commit first */
        sends(3);
        assert_int_equal(wave_fate(&w, 2), WAVE_UNTRIED);
}

static void strict_has_one_row_of_a_key_in_flight(void **state)
{
        (void)state;
        begin("aaab", true);
        sends(0);
        sends(3);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        (void)wave_report(&w, 0, WAVE_DONE);
        sends(1);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        assert_int_equal(wave_report(&w, 1, WAVE_REFUSED), WAVE_GO_ON);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        assert_int_equal(wave_fate(&w, 2), WAVE_UNTRIED);
        assert_int_equal(w.overtaken, 0);
}

static void a_stopped_wave_hands_out_nothing(void **state)
{
        (void)state;
        begin("ab", true);
        sends(0);
        wave_stop(&w);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
        (void)wave_report(&w, 0, WAVE_DONE);
        assert_int_equal(wave_next(&w), WAVE_NO_ROW);
}

/* Random keys, fates and orders: a row is sent only behind elder rows that are under way or done
 * (strict: done), and overtaking is counted exactly. */
static void c4_order_holds_in_random_waves(void **state)
{
        (void)state;
        const char *seed_text = getenv("SEMEL_TEST_SEED");
        unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : (unsigned)time(NULL);
        print_message("SEMEL_TEST_SEED=%u\n", seed);
        struct rng rng = {seed};
        for (int round = 0; round < 20000; round++) {
                char text[MAX + 1] = "";
                int n = (int)rng_below(&rng, 12);
                bool strict = rng_chance(&rng, 50);
                for (int i = 0; i < n; i++)
                        text[i] = "abcd-"[(int)rng_below(&rng, 5)];
                begin(text, strict);
                size_t overtaken = 0;
                for (int step = 0; step < 60; step++) {
                        int32_t i;
                        if ((int)rng_below(&rng, 2) && (i = wave_next(&w)) >= 0) {
                                bool keyed = keys[i].p;
                                for (int32_t j = 0; j < i; j++) {
                                        if (!keyed || !keys[j].p || !span_eq(keys[i], keys[j]))
                                                continue;
                                        enum wave_fate fate = wave_fate(&w, j);
                                        assert_true(fate == WAVE_DONE || fate == WAVE_SENT ||
                                                    fate == WAVE_REFUSED || fate == WAVE_UNTRIED);
                                        if (strict)
                                                assert_int_not_equal(fate, WAVE_SENT);
                                        if (wave_may_send(&w, i))
                                                assert_true(fate == WAVE_DONE || fate == WAVE_SENT);
                                }
                                if ((int)rng_below(&rng, 8) == 0)
                                        wave_refuse(&w, i);
                                else if (wave_may_send(&w, i))
                                        wave_sent(&w, i);
                        } else if (n > 0 && wave_fate(&w, i = (int)rng_below(&rng, (uint32_t)n)) == WAVE_SENT) {
                                static const enum wave_fate fates[] = {WAVE_DONE, WAVE_DONE,
                                                                       WAVE_FAILED, WAVE_REFUSED, WAVE_AGAIN};
                                (void)wave_report(&w, i, fates[(int)rng_below(&rng, 5)]);
                        }
                }
                /* a DONE row with an elder one of its key that was sent and failed */
                for (int32_t i = 0; i < n; i++)
                        for (int32_t j = 0; j < i && wave_fate(&w, i) == WAVE_DONE && keys[i].p; j++)
                                if (keys[j].p && span_eq(keys[i], keys[j]) &&
                                    (wave_fate(&w, j) == WAVE_FAILED || wave_fate(&w, j) == WAVE_AGAIN ||
                                     wave_fate(&w, j) == WAVE_REFUSED)) {
                                        overtaken++;
                                        break;
                                }
                assert_true(overtaken > 0 ? w.overtaken > 0 : w.overtaken == 0);
                if (strict)
                        assert_int_equal(w.overtaken, 0);
        }
}

static void keys_that_share_a_hash_bucket_stay_apart(void **state)
{
        (void)state;
        static char text[MAX][8];
        for (int i = 0; i < MAX; i++) {
                (void)snprintf(text[i], sizeof text[i], "k%d", i / 2);
                keys[i] = span_str(text[i]);
        }
        wave_init(&w, MAX, rows, table, ready, TABLE);
        wave_begin(&w, keys, MAX, true);
        assert_int_equal(w.ready_n, MAX / 2);
        for (int32_t i = 0; i < MAX; i += 2) {
                assert_int_equal(rows[i].younger, i + 1);
                assert_int_equal(rows[i + 1].first, i);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(o10_all_rows_go_in_order),
                cmocka_unit_test(c4_younger_rows_wait_and_other_keys_flow),
                cmocka_unit_test(c7a_a_rejected_row_with_younger_ones_under_way_purges),
                cmocka_unit_test(c7a_reports_in_the_other_order_are_counted_too),
                cmocka_unit_test(o31_poison_of_one_key_is_refused_in_one_wave),
                cmocka_unit_test(strict_has_one_row_of_a_key_in_flight),
                cmocka_unit_test(a_stopped_wave_hands_out_nothing),
                cmocka_unit_test(c4_order_holds_in_random_waves),
                cmocka_unit_test(keys_that_share_a_hash_bucket_stay_apart),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
