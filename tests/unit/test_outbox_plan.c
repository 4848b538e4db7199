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

/* Relays 0 to members - 1 and the slots that each has, as relay `who` sees them. */
static struct outbox_share_plan plan_of(const uint32_t *mine, int members, int who, bool groups)
{
        struct outbox_owners o = {.members = members};
        for (int slot = 0; slot < EVENT_SLOTS; slot++) {
                o.of[slot] = OUTBOX_NOBODY;
                for (int i = 0; i < members; i++)
                        if (mine[i] >> slot & 1) /* numbers of owners only, as the keeper makes them */
                                o.of[slot] = (int8_t)(i == who ? OUTBOX_MINE : 1 + __builtin_ctz(mine[i]));
        }
        return outbox_share_plan(&o, groups, (unsigned)who);
}

static void c1_one_relay_takes_everything(void **state)
{
        (void)state;
        const uint32_t none[1] = {0};
        struct outbox_share_plan plan = plan_of(none, 1, 0, false);
        assert_int_equal(plan.take, ALL);
        assert_int_equal(plan.give, 0);
        struct outbox_owners o = {.members = 0};
        memset(o.of, OUTBOX_NOBODY, sizeof o.of);
        assert_int_equal(outbox_share_plan(&o, false, 7).take, ALL);
}

/* Each in turn, until nobody moves: whatever they have at first, all slots end up owned, by each as many
 * as by the others or one more, and nobody gives what would make him take again. */
static void settle(uint32_t *mine, int members, bool groups)
{
        uint32_t unowned = ALL;
        bool moved = true;
        for (int i = 0; i < members; i++)
                unowned &= ~mine[i];
        for (int round = 0; moved; round++) {
                assert_true(round < 10);
                moved = false;
                for (int i = 0; i < members; i++) {
                        struct outbox_share_plan plan = plan_of(mine, members, i, groups);
                        assert_int_equal(plan.give & ~mine[i], 0);
                        assert_int_equal(plan.take & ~unowned, 0);
                        mine[i] = (mine[i] & ~plan.give) | plan.take;
                        unowned = (unowned & ~plan.take) | plan.give;
                        moved |= plan.take || plan.give;
                }
        }
        int units = groups ? EVENT_GROUPS : EVENT_SLOTS;
        assert_int_equal(unowned, 0);
        for (int i = 0; i < members; i++) {
                int have = __builtin_popcount(mine[i]) * units / EVENT_SLOTS;
                assert_true(have >= units / members && have <= (units + members - 1) / members);
        }
}

static void c1_relays_settle_at_fair_shares(void **state)
{
        (void)state;
        for (int groups = 0; groups < 2; groups++)
                for (int members = 1; members <= 20; members++) {
                        uint32_t mine[21] = {ALL};
                        settle(mine, members, groups);
                        settle(mine, members + 1, groups); /* one more comes, who has none */
                        if (members > 1) {
                                mine[0] = 0; /* and one is gone, and comes again */
                                settle(mine, members, groups);
                        }
                        mine[members] = 0;
                }
}

/* Who has one more than others does not give it for one who can take a free one. */
static void c1_nobody_gives_while_there_are_free_slots_for_who_has_less(void **state)
{
        (void)state;
        const uint32_t mine[3] = {0x003f, 0x07c0, 0};
        assert_int_equal(plan_of(mine, 3, 0, false).give, 0);
        assert_int_equal(plan_of(mine, 3, 1, false).take, 0);
        assert_int_equal(__builtin_popcount(plan_of(mine, 3, 2, false).take), 5);
        const uint32_t full[3] = {0x003f, 0x0fc0, 0xf000}; /* 6, 6, 4: the third has less than 5 */
        assert_int_equal(__builtin_popcount(plan_of(full, 3, 0, false).give), 1);
        assert_int_equal(__builtin_popcount(plan_of(full, 3, 1, false).give), 1);
        assert_int_equal(plan_of(full, 3, 2, false).give, 0);
}

static void c8_a_group_is_taken_whole_or_not_at_all(void **state)
{
        (void)state;
        const uint32_t nothing[2] = {0, 0}, a_slot[2] = {0, outbox_group_mask(2) & 1U << 6};
        assert_int_equal(plan_of(nothing, 1, 0, true).take, ALL);
        struct outbox_share_plan plan = plan_of(a_slot, 2, 0, true);
        assert_int_equal(__builtin_popcount(plan.take), EVENT_SLOTS / 2);
        assert_int_equal(plan.take & outbox_group_mask(2), 0);
        assert_int_equal(outbox_group_mask(0) | outbox_group_mask(1) | outbox_group_mask(2) |
                                 outbox_group_mask(3), ALL);
}

/* -- quotas --------------------------------------------------------------------------------- */

struct batch {
        int32_t has[EVENT_SLOTS];  /* what the slots have */
        int32_t got[EVENT_SLOTS];  /* of each slot */
        int16_t order[EVENT_SLOTS];
        int32_t rows[EVENT_SLOTS]; /* as planned, in that order */
        int32_t n;                 /* of all slots */
};

/* Read a batch of n slots as a driver does: in the plan's order, until it is full. */
static void read_batch(struct outbox_quotas *q, size_t n, int32_t total, struct batch *b)
{
        int16_t slots[EVENT_SLOTS];
        int32_t got[EVENT_SLOTS], left = total;
        uint32_t seen = 0;
        for (size_t i = 0; i < n; i++)
                slots[i] = (int16_t)i;
        outbox_quotas_plan(q, slots, n, total, b->order, b->rows);
        for (size_t i = 0; i < n; i++) {
                int16_t slot = b->order[i];
                assert_in_range(b->rows[i], 1, total);
                got[i] = b->has[slot] < b->rows[i] ? b->has[slot] : b->rows[i];
                got[i] = got[i] < left ? got[i] : left;
                left -= got[i];
                b->has[slot] -= got[i];
                b->got[slot] = got[i];
                seen |= 1U << slot;
        }
        b->n = total - left;
        assert_int_equal(seen, (1U << n) - 1);
        outbox_quotas_learn(q, b->order, b->rows, got, n, left == 0);
}

static void one_slot_with_much_gets_what_empty_ones_leave(void **state)
{
        (void)state;
        struct outbox_quotas q;
        struct batch b = {.has = {[3] = 20000}};
        outbox_quotas_init(&q);
        read_batch(&q, 8, 5000, &b);
        assert_int_equal(b.n, 2500);
        read_batch(&q, 8, 5000, &b);
        assert_int_equal(b.n, 5000);
        b.has[0] = 50; /* little comes first, and comes whole */
        read_batch(&q, 8, 5000, &b);
        assert_int_equal(b.got[0], 50);
        assert_int_equal(b.n, 5000);
        read_batch(&q, 8, 1, &b); /* never nothing */
        assert_int_equal(b.n, 1);
}

static void slots_with_much_take_turns(void **state)
{
        (void)state;
        struct outbox_quotas q;
        struct batch b = {.has = {0}};
        int32_t got[EVENT_SLOTS] = {0};
        for (int i = 0; i < 8; i++)
                b.has[i] = 100000;
        outbox_quotas_init(&q);
        for (int round = 0; round < 8; round++) {
                read_batch(&q, 8, 5000, &b);
                assert_int_equal(b.n, 5000);
                for (int i = 0; i < 8; i++)
                        got[i] += b.got[i];
        }
        for (int i = 0; i < 8; i++)
                assert_int_equal(got[i], 8 * 5000 / 8);
}

static void batches_are_full_until_the_last(void **state)
{
        (void)state;
        struct outbox_quotas q;
        for (int round = 0; round < 2; round++) { /* at once, and after the slots were empty */
                struct batch b = {.has = {0}};
                int32_t left = 0;
                outbox_quotas_init(&q);
                for (int i = 0; i < round; i++)
                        read_batch(&q, 8, 5000, &b);
                for (int i = 0; i < 8; i++)
                        left += b.has[i] = 5800 + 250 * i;
                while (left > 0) {
                        read_batch(&q, 8, 5000, &b);
                        assert_int_equal(b.n, left < 5000 ? left : 5000);
                        left -= b.n;
                }
        }
}

static void who_was_not_reached_by_a_full_batch_may_have_much(void **state)
{
        (void)state;
        struct outbox_quotas q;
        const int16_t order[3] = {2, 5, 11};
        const int32_t rows[3] = {100, 100, 100}, got[3] = {10, 40, 0};
        outbox_quotas_init(&q);
        q.demand[11] = 64;
        outbox_quotas_learn(&q, order, rows, got, 3, true);
        assert_int_equal(q.demand[2], 64);
        assert_int_equal(q.demand[5], INT32_MAX);
        assert_int_equal(q.demand[11], INT32_MAX);
        assert_int_equal(q.turn, 6);
        outbox_quotas_learn(&q, order, rows, got, 3, false);
        assert_int_equal(q.demand[5], 80);
        assert_int_equal(q.demand[11], 64);
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

static void c5_without_room_for_a_dead_one_the_slot_is_not_read(void **state)
{
        (void)state;
        struct blocked_key space[2];
        uint8_t bytes[8];
        struct blocked_keys set;
        blocked_keys_init(&set, space, 2, bytes, sizeof bytes);
        assert_false(blocked_keys_add(&set, 4, span_str("too long a key"), 1, false));
        assert_int_equal(set.full, 0); /* it waits in the database */
        assert_false(blocked_keys_add(&set, 4, span_str("too long a key"), 1, true));
        assert_int_equal(set.full, 1U << 4);
        assert_true(blocked_keys_add(&set, 5, span_str("a"), 1, false));
        assert_true(blocked_keys_add(&set, 5, span_str("b"), 1, false));
        assert_false(blocked_keys_add(&set, 6, span_str("c"), 1, true));
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
        int64_t id, published_us;
        size_t n;
        outbox_marker_begin(bytes, 2);
        memset(event, 0xab, sizeof event);
        outbox_marker_put(bytes, 0, 1, event, 0);
        event[15] = 7;
        outbox_marker_put(bytes, 1, INT64_MAX - 5, event, INT64_MAX - 6);
        struct span marker = span_of(bytes, outbox_marker_bytes(2));
        assert_true(outbox_marker_count(marker, &n));
        assert_int_equal(n, 2);
        outbox_marker_get(marker, 1, &id, back, &published_us);
        assert_true(id == INT64_MAX - 5 && published_us == INT64_MAX - 6);
        assert_memory_equal(back, event, sizeof back);
        outbox_marker_get(marker, 0, &id, back, &published_us);
        assert_int_equal(id, 1);
        assert_int_equal(published_us, 0);
        /* exactly these bytes: another version of semel reads them */
        static const uint8_t head[] = {'S', 'M', 'K', 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0xab};
        assert_memory_equal(bytes, head, sizeof head);
        assert_false(outbox_marker_count(span_of(bytes, marker.n - 1), &n));
        assert_false(outbox_marker_count(span_of(bytes, 3), &n));
        bytes[3] = 3;
        assert_false(outbox_marker_count(marker, &n));
        bytes[3] = 1; /* as earlier versions wrote it */
        assert_false(outbox_marker_count(marker, &n));
        marker.n = OUTBOX_MARKER_HEAD_BYTES + 2 * 24;
        memmove(bytes + OUTBOX_MARKER_HEAD_BYTES + 24, bytes + outbox_marker_bytes(1), 24);
        assert_true(outbox_marker_count(marker, &n));
        assert_int_equal(n, 2);
        outbox_marker_get(marker, 1, &id, back, &published_us);
        assert_true(id == INT64_MAX - 5 && published_us == 0);
        assert_memory_equal(back, event, sizeof back);
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
        assert_int_equal(c.batch_rows, 2500);
        assert_int_equal(c.batch_bytes, 4 << 20);
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
                cmocka_unit_test(c1_nobody_gives_while_there_are_free_slots_for_who_has_less),
                cmocka_unit_test(c8_a_group_is_taken_whole_or_not_at_all),
                cmocka_unit_test(one_slot_with_much_gets_what_empty_ones_leave),
                cmocka_unit_test(slots_with_much_take_turns),
                cmocka_unit_test(batches_are_full_until_the_last),
                cmocka_unit_test(who_was_not_reached_by_a_full_batch_may_have_much),
                cmocka_unit_test(looks_that_take_long_come_seldom),
                cmocka_unit_test(c5_blocked_keys_are_kept_until_due),
                cmocka_unit_test(c5_without_room_for_a_dead_one_the_slot_is_not_read),
                cmocka_unit_test(waits_double_and_are_jittered),
                cmocka_unit_test(c8_a_marker_reads_back),
                cmocka_unit_test(settings_have_defaults_and_belong_together),
                cmocka_unit_test(properties_are_named_and_replaced),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
