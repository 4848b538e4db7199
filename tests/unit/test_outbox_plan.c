/* SPDX-License-Identifier: Apache-2.0
 *
 * What a relay decides without a database and a broker: shares, quotas, blocked keys, waits, markers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "core/outbox_marker.h"
#include "core/outbox_plan.h"
#include "core/relay_config.h"

enum { ALL = (1 << EVENT_SLOTS) - 1 };

/* -- shares -------------------------------------------------------------------------------- */

static void c1_one_relay_takes_everything(void **state)
{
        (void)state;
        struct outbox_share_plan plan = outbox_share_plan(0, ALL, 1, false, 7);
        assert_int_equal(plan.take, ALL);
        assert_int_equal(plan.give, 0);
        assert_int_equal(outbox_share_plan(0, ALL, 0, false, 0).take, ALL);
}

/* Whatever the order in which they ask, all slots end up owned, and nobody gives what would make
 * him take again. */
static void c1_relays_settle_at_fair_shares(void **state)
{
        (void)state;
        for (int groups = 0; groups < 2; groups++)
                for (int members = 1; members <= 20; members++) {
                        uint32_t mine[20] = {ALL}, unowned = 0;
                        bool moved = true;
                        for (int round = 0; moved; round++) {
                                assert_true(round < 10);
                                moved = false;
                                for (int i = 0; i < members; i++) {
                                        struct outbox_share_plan plan = outbox_share_plan(
                                                mine[i], unowned, members, groups, (unsigned)i);
                                        assert_int_equal(plan.give & ~mine[i], 0);
                                        assert_int_equal(plan.take & ~unowned, 0);
                                        mine[i] = (mine[i] & ~plan.give) | plan.take;
                                        unowned = (unowned & ~plan.take) | plan.give;
                                        moved |= plan.take || plan.give;
                                }
                        }
                        int units = groups ? EVENT_GROUPS : EVENT_SLOTS;
                        int fair = (units + members - 1) / members * (EVENT_SLOTS / units);
                        assert_int_equal(unowned, 0);
                        for (int i = 0; i < members; i++)
                                assert_true(__builtin_popcount(mine[i]) <= fair);
                }
}

static void c8_a_group_is_taken_whole_or_not_at_all(void **state)
{
        (void)state;
        uint32_t unowned = ALL & ~(outbox_group_mask(2) & 1U << 6);
        struct outbox_share_plan plan = outbox_share_plan(0, unowned, 1, true, 0);
        assert_int_equal(plan.take, ALL & ~outbox_group_mask(2));
        assert_int_equal(outbox_group_mask(0) | outbox_group_mask(1) | outbox_group_mask(2) |
                                 outbox_group_mask(3), ALL);
}

/* -- quotas --------------------------------------------------------------------------------- */

static void plan_quotas(struct outbox_quotas *q, size_t n, int32_t total, int32_t *by_slot)
{
        int16_t slots[EVENT_SLOTS], order[EVENT_SLOTS];
        int32_t rows[EVENT_SLOTS], sum = 0;
        uint32_t seen = 0;
        for (size_t i = 0; i < n; i++)
                slots[i] = (int16_t)i;
        outbox_quotas_plan(q, slots, n, total, order, rows);
        for (size_t i = 0; i < n; i++) {
                assert_true(rows[i] >= 1);
                by_slot[order[i]] = rows[i];
                seen |= 1U << order[i];
                sum += rows[i];
        }
        assert_int_equal(seen, (1U << n) - 1);
        assert_true(sum <= total || total < (int32_t)n);
}

static void slots_with_much_get_what_empty_ones_leave(void **state)
{
        (void)state;
        struct outbox_quotas q;
        int32_t rows[EVENT_SLOTS];
        outbox_quotas_init(&q);
        plan_quotas(&q, 8, 5000, rows);
        for (int i = 0; i < 8; i++)
                assert_int_equal(rows[i], 625);
        for (int16_t i = 0; i < 8; i++)
                outbox_quotas_learn(&q, i, 625, i == 3 ? 625 : 0, false);
        plan_quotas(&q, 8, 5000, rows);
        assert_int_equal(rows[0], 64);
        assert_int_equal(rows[3], 5000 - 7 * 64);
        outbox_quotas_learn(&q, 0, 64, 64, false); /* it filled up */
        plan_quotas(&q, 8, 5000, rows);
        assert_int_equal(rows[0], rows[3]);
        outbox_quotas_learn(&q, 0, 2000, 10, true); /* the bytes were full: says nothing */
        plan_quotas(&q, 8, 5000, rows);
        assert_int_equal(rows[0], rows[3]);
        plan_quotas(&q, 16, 1, rows); /* never nothing */
}

static void every_slot_comes_first_in_turn(void **state)
{
        (void)state;
        struct outbox_quotas q;
        int16_t slots[3] = {2, 5, 11}, order[3];
        int32_t rows[3];
        uint32_t first = 0;
        outbox_quotas_init(&q);
        for (int i = 0; i < 3; i++) {
                outbox_quotas_plan(&q, slots, 3, 100, order, rows);
                first |= 1U << order[0];
        }
        assert_int_equal(first, 1U << 2 | 1U << 5 | 1U << 11);
}

static void looks_that_take_long_come_seldom(void **state)
{
        (void)state;
        assert_int_equal(outbox_look_pause_us(5000, 60000, 100), 10000);
        assert_int_equal(outbox_look_pause_us(40000, 60000, 100), 60000);
        assert_int_equal(outbox_look_pause_us(60000, 60000, 20000), 180000);
        assert_int_equal(outbox_look_pause_us(180000, 60000, 100), 60000); /* and are forgotten */
        assert_int_equal(outbox_look_pause_us(60000, 60000, INT64_MAX), 1000000);
}

/* -- blocked keys ------------------------------------------------------------------------------ */

static void c5_blocked_keys_are_kept_until_due(void **state)
{
        (void)state;
        struct blocked_key space[4];
        uint8_t bytes[16];
        struct blocked_keys set;
        blocked_keys_init(&set, space, 4, bytes, sizeof bytes);
        assert_int_equal(blocked_keys_next_due(&set), INT64_MAX);
        assert_true(blocked_keys_add(&set, 1, span_str("alpha"), 100, false));
        assert_true(blocked_keys_add(&set, 2, span_str(""), 50, false));
        assert_true(blocked_keys_add(&set, 3, span_str("gamma"), 0, true));
        assert_int_equal(blocked_keys_next_due(&set), 50);
        assert_int_equal(blocked_keys_release_due(&set, 49), 0);
        assert_int_equal(blocked_keys_release_due(&set, 50), 1);
        assert_int_equal(set.n, 2);
        assert_true(span_eq(blocked_keys_key(&set, 0), span_str("alpha")));
        assert_true(span_eq(blocked_keys_key(&set, 1), span_str("gamma")));
        assert_int_equal(blocked_keys_release_due(&set, 1000), 1);
        assert_true(blocked_keys_any_dead(&set)); /* no time frees it */
        assert_true(span_eq(blocked_keys_key(&set, 0), span_str("gamma")));
        blocked_keys_forget_slots(&set, 1U << 3);
        assert_int_equal(set.n, 0);
        assert_int_equal(set.bytes_n, 0);
}

static void c5_without_room_the_slot_is_not_read(void **state)
{
        (void)state;
        struct blocked_key space[2];
        uint8_t bytes[8];
        struct blocked_keys set;
        blocked_keys_init(&set, space, 2, bytes, sizeof bytes);
        assert_false(blocked_keys_add(&set, 4, span_str("too long a key"), 1, false));
        assert_int_equal(set.full, 1U << 4);
        assert_true(blocked_keys_add(&set, 5, span_str("a"), 1, false));
        assert_true(blocked_keys_add(&set, 5, span_str("b"), 1, false));
        assert_false(blocked_keys_add(&set, 6, span_str("c"), 1, false));
        assert_int_equal(set.full, 1U << 4 | 1U << 6);
        blocked_keys_forget_slots(&set, 1U << 6);
        assert_int_equal(set.full, 1U << 4);
        assert_int_equal(set.n, 2);
}

/* -- waits ------------------------------------------------------------------------------------- */

static void waits_double_and_are_jittered(void **state)
{
        (void)state;
        for (int attempts = 0; attempts < 100; attempts++) {
                int64_t most = attempts >= 4 ? 3000 : 200 << attempts, seen = 0;
                for (uint64_t chance = 0; chance <= 4000; chance++) {
                        int64_t wait = outbox_retry_wait_us(200, 3000, attempts, chance);
                        assert_true(wait >= 0 && wait <= most);
                        seen = wait > seen ? wait : seen;
                }
                assert_int_equal(seen, most);
        }
        assert_true(outbox_retry_wait_us(1, INT64_MAX, INT32_MAX, UINT64_MAX >> 1) >= 0);
}

/* -- markers ------------------------------------------------------------------------------------- */

static void c8_a_marker_reads_back(void **state)
{
        (void)state;
        uint8_t bytes[200], event[EVENT_ID_BYTES], back[EVENT_ID_BYTES];
        int64_t id;
        size_t n;
        outbox_marker_begin(bytes, 2);
        memset(event, 0xab, sizeof event);
        outbox_marker_put(bytes, 0, 1, event);
        event[15] = 7;
        outbox_marker_put(bytes, 1, INT64_MAX - 5, event);
        struct span marker = span_of(bytes, outbox_marker_bytes(2));
        assert_true(outbox_marker_count(marker, &n));
        assert_int_equal(n, 2);
        outbox_marker_get(marker, 1, &id, back);
        assert_true(id == INT64_MAX - 5);
        assert_memory_equal(back, event, sizeof back);
        outbox_marker_get(marker, 0, &id, back);
        assert_int_equal(id, 1);
        /* exactly these bytes: another version of semel reads them */
        static const uint8_t head[] = {'S', 'M', 'K', 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0xab};
        assert_memory_equal(bytes, head, sizeof head);
        assert_false(outbox_marker_count(span_of(bytes, marker.n - 1), &n));
        assert_false(outbox_marker_count(span_of(bytes, 3), &n));
        bytes[3] = 2;
        assert_false(outbox_marker_count(marker, &n));
        char key[OUTBOX_MARKER_KEY_BYTES];
        const uint8_t outbox[EVENT_ID_BYTES] = {0x12, 0x34};
        outbox_marker_key(outbox, 3, key);
        assert_string_equal(key, "semel-12340000-0000-0000-0000-000000000000-3");
}

/* -- settings ------------------------------------------------------------------------------------ */

static void settings_have_defaults_and_belong_together(void **state)
{
        (void)state;
        static struct relay_config c;
        char why[SETTING_ERROR_BYTES];
        relay_config_defaults(&c);
        assert_int_equal(c.batch_rows, 5000);
        assert_int_equal(c.batch_bytes, 8 << 20);
        assert_int_equal(c.slot_lease_us, 5000000);
        assert_int_equal(c.keep_us, INT64_C(7) * 86400 * 1000000);
        assert_int_equal(c.attempts_max, 10);
        assert_false(relay_config_check(&c, why)); /* no brokers */
        (void)snprintf(c.brokers, sizeof c.brokers, "x:1");
        assert_true(relay_config_check(&c, why));
        c.retry_min_us = c.retry_max_us + 1;
        assert_false(relay_config_check(&c, why));
        /* the longest marker fits into a record of the default size */
        assert_true(outbox_marker_bytes(RELAY_BATCH_ROWS_MAX + EVENT_SLOTS) < 1000000);
}

static void properties_are_named_and_replaced(void **state)
{
        (void)state;
        static struct property_list list;
        char why[SETTING_ERROR_BYTES];
        assert_true(property_parse(&list, "sasl.password=a=b;c", why));
        assert_string_equal(list.property[0].name, "sasl.password");
        assert_string_equal(list.property[0].value, "a=b;c");
        assert_true(property_parse_all(&list, "linger.ms=5; sasl.password=\nacks=all;", why));
        assert_int_equal(list.n, 3);
        assert_string_equal(list.property[0].value, "");
        assert_string_equal(list.property[2].name, "acks");
        assert_false(property_parse(&list, "no value", why));
        assert_false(property_parse(&list, "=x", why));
        for (int i = 3; i < PROPERTIES_MAX; i++) {
                char text[32];
                (void)snprintf(text, sizeof text, "p%d=1", i);
                assert_true(property_parse(&list, text, why));
        }
        assert_false(property_parse(&list, "one=more", why));
        assert_true(property_parse(&list, "p7=again", why));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(c1_one_relay_takes_everything),
                cmocka_unit_test(c1_relays_settle_at_fair_shares),
                cmocka_unit_test(c8_a_group_is_taken_whole_or_not_at_all),
                cmocka_unit_test(slots_with_much_get_what_empty_ones_leave),
                cmocka_unit_test(every_slot_comes_first_in_turn),
                cmocka_unit_test(looks_that_take_long_come_seldom),
                cmocka_unit_test(c5_blocked_keys_are_kept_until_due),
                cmocka_unit_test(c5_without_room_the_slot_is_not_read),
                cmocka_unit_test(waits_double_and_are_jittered),
                cmocka_unit_test(c8_a_marker_reads_back),
                cmocka_unit_test(settings_have_defaults_and_belong_together),
                cmocka_unit_test(properties_are_named_and_replaced),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
