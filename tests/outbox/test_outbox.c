/* SPDX-License-Identifier: Apache-2.0
 *
 * test_outbox: see outbox_suite.h.
 *
 * why this file is long: one suite over one set of small steps, read from top to bottom.
 */
#include "outbox_suite.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "sys/clock.h"
#include "sys/sha256.h"

static const struct outbox_target *target;
static struct outbox_session *a, *b; /* two relays */
static const struct outbox_member me_a = {.id = {1}, .info = "host=a pid=1"};
static const struct outbox_member me_b = {.id = {2}, .info = "host=b pid=2"};
static struct outbox_view view;

#define LEASE_US (30 * SECOND)
#define ALL 0xffffu
#define OK(call) \
        do { \
                semel_error err_ = {0}; \
                semel_error *err = &err_; \
                if ((call) != SEMEL_OK) \
                        fail_msg("%s: %s", #call, err_.text); \
        } while (0)

/* A store's calendar may differ from the clock that the test reads: SQLite takes a second for a step. */
#define CLOCKS_APART SECOND

static int64_t soon(void)
{
        return clock_boot_us() + 10 * SECOND;
}

static int setup(void **state)
{
        (void)state;
        target->fresh(target->arg);
        a = target->open(target->arg, "semel test a");
        b = target->many_relays ? target->open(target->arg, "semel test b") : NULL;
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        a->vt->close(a);
        if (b)
                b->vt->close(b);
        a = b = NULL;
        return 0;
}

/* -- small steps ------------------------------------------------------------------------------ */

static int64_t add(const char *key, const char *payload)
{
        const struct event ev = {.topic = span_str("t"),
                                 .key = span_str(key),
                                 .key_is_null = !key,
                                 .payload = span_str(payload),
                                 .payload_is_null = !payload,
                                 .partition = EVENT_NO_PARTITION};
        return target->append(target->arg, &ev);
}

static int slot_of_key(const char *key)
{
        uint8_t digest[32];
        assert_int_equal(sha256_once(key, strlen(key), digest), 0);
        return event_slot_of_digest(digest);
}

static void take(struct outbox_session *s, const struct outbox_member *me, enum outbox_mode mode,
                 uint32_t mask)
{
        OK(s->vt->beat(s, me, LEASE_US, soon(), &view, err));
        OK(s->vt->take(s, me, mode, mask, LEASE_US, soon(), &view, err));
}

static uint32_t mine(const struct outbox_view *v)
{
        uint32_t mask = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                mask |= v->slots[i].mine ? 1u << i : 0;
        return mask;
}

static size_t slots_of(const struct outbox_view *v, struct outbox_slot ret[EVENT_SLOTS])
{
        size_t n = 0;
        for (int16_t i = 0; i < EVENT_SLOTS; i++) {
                if (v->slots[i].mine)
                        ret[n++] = (struct outbox_slot){.slot = i, .epoch = v->slots[i].epoch};
        }
        return n;
}

struct ask {
        enum outbox_mode mode;
        int32_t rows_max;       /* of each slot */
        size_t all_rows_max;    /* of all of them; 0: no such limit */
        const struct span *blocked;
        size_t blocked_count;
        size_t bytes_max;
        const struct outbox_view *as; /* NULL: the last view */
};

static semel_code try_fetch(struct outbox_session *s, struct ask ask, struct outbox_rows *ret,
                            semel_error *err)
{
        struct outbox_slot slots[EVENT_SLOTS];
        struct outbox_quota quotas[EVENT_SLOTS];
        size_t n = slots_of(ask.as ? ask.as : &view, slots);
        for (size_t i = 0; i < n; i++)
                quotas[i] = (struct outbox_quota){
                        .slot = slots[i], .rows_max = ask.rows_max ? ask.rows_max : 1000};
        const struct outbox_fetch in = {
                .mode = ask.mode,
                .quotas = quotas,
                .quota_count = n,
                .rows_max = ask.all_rows_max,
                .blocked = ask.blocked,
                .blocked_count = ask.blocked_count,
                .bytes_max = ask.bytes_max ? ask.bytes_max : LIMIT_OUTBOX_BATCH_BYTES,
        };
        return s->vt->fetch(s, &in, soon(), ret, err);
}

static struct outbox_rows fetch(struct outbox_session *s, struct ask ask)
{
        struct outbox_rows rows = {0};
        OK(try_fetch(s, ask, &rows, err));
        return rows;
}

static size_t count_now(struct outbox_session *s, struct ask ask)
{
        struct outbox_rows rows = fetch(s, ask);
        size_t n = rows.n;
        outbox_rows_release(&rows);
        if (ask.mode == OUTBOX_SINGLE)
                s->vt->abandon(s);
        return n;
}

static struct outbox_mark mark_of(const struct outbox_row *row, enum outbox_verdict verdict)
{
        return (struct outbox_mark){.id = row->id, .place = row->place,
                                    .slot = row->slot,
                                    .attempts = row->attempts,
                                    .verdict = verdict,
                                    .retry_after_us = 60 * SECOND,
                                    .reason = "the broker said no"};
}

static struct outbox_marked mark(struct outbox_session *s, enum outbox_mode mode, bool keep,
                                 const struct outbox_view *as, const struct outbox_mark *marks,
                                 size_t n)
{
        struct outbox_slot slots[EVENT_SLOTS];
        struct outbox_marked ret = {0};
        size_t slot_count = slots_of(as, slots);
        OK(s->vt->mark(s, mode, keep, slots, slot_count, marks, n, soon(), &ret, err));
        return ret;
}

static const struct outbox_row *find(const struct outbox_rows *rows, int64_t id)
{
        for (size_t i = 0; i < rows->n; i++) {
                if (rows->row[i].id == id)
                        return &rows->row[i];
        }
        return NULL;
}

static void is_state(int64_t id, int state, int32_t attempts)
{
        int32_t got = -1;
        assert_int_equal(target->state(target->arg, id, &got), state);
        if (state >= 0)
                assert_int_equal(got, attempts);
}

/* -- check, beat, take, give ------------------------------------------------------------------ */

static void check_reads_the_outbox(void **state)
{
        (void)state;
        struct outbox_view v, again;
        static const uint8_t none[EVENT_ID_BYTES];
        OK(a->vt->check(a, OUTBOX_OWNED, soon(), &v, err));
        OK(a->vt->check(a, OUTBOX_OWNED, soon(), &again, err));
        assert_int_equal(v.mode, OUTBOX_OWNED);
        assert_int_equal(mine(&v), 0);
        assert_memory_not_equal(v.uuid, none, sizeof none);
        assert_memory_equal(v.uuid, again.uuid, sizeof none);
}

static void c1_a_relay_joins_takes_gives_and_leaves(void **state)
{
        (void)state;
        OK(a->vt->beat(a, &me_a, LEASE_US, soon(), &view, err));
        assert_int_equal(view.members, 1);
        assert_int_equal(mine(&view), 0);
        assert_true(view.slots[0].free);
        OK(a->vt->take(a, &me_a, OUTBOX_OWNED, 0x00ff, LEASE_US, soon(), &view, err));
        assert_int_equal(mine(&view), 0x00ff);
        assert_false(view.slots[0].free);
        assert_string_equal(view.slots[0].owner, me_a.info);
        assert_true(view.slots[0].lease_left_us > LEASE_US - 5 * SECOND);
        assert_true(view.slots[0].lease_left_us <= LEASE_US);
        int64_t epoch = view.slots[0].epoch;
        OK(a->vt->take(a, &me_a, OUTBOX_OWNED, 0x00ff, LEASE_US, soon(), &view, err));
        assert_int_equal(view.slots[0].epoch, epoch); /* ours already: nothing changes */
        OK(a->vt->give(a, &me_a, 0x0001, 0, soon(), err));
        OK(a->vt->beat(a, &me_a, LEASE_US, soon(), &view, err));
        assert_int_equal(mine(&view), 0x00fe);
        assert_true(view.slots[0].free);
        OK(a->vt->leave(a, &me_a, 0, soon(), err));
        OK(a->vt->check(a, OUTBOX_OWNED, soon(), &view, err));
        assert_int_equal(view.members, 0);
        for (int i = 0; i < EVENT_SLOTS; i++)
                assert_true(view.slots[i].free);
}

static void c1_o11_a_slot_has_one_owner_until_its_lease_is_over(void **state)
{
        (void)state;
        take(a, &me_a, OUTBOX_OWNED, ALL);
        int64_t epoch = view.slots[3].epoch;
        take(b, &me_b, OUTBOX_OWNED, ALL);
        assert_int_equal(mine(&view), 0);
        assert_int_equal(view.members, 2);
        assert_string_equal(view.slots[3].owner, me_a.info);
        target->expire_leases(target->arg);
        take(b, &me_b, OUTBOX_OWNED, ALL);
        assert_int_equal(mine(&view), ALL);
        assert_true(view.slots[3].epoch > epoch);
        OK(a->vt->beat(a, &me_a, LEASE_US, soon(), &view, err));
        assert_int_equal(mine(&view), 0);
}

static void c1_a_renewal_keeps_the_slots(void **state)
{
        (void)state;
        take(a, &me_a, OUTBOX_OWNED, ALL);
        target->expire_leases(target->arg);
        OK(a->vt->beat(a, &me_a, LEASE_US, soon(), &view, err));
        assert_int_equal(mine(&view), ALL);
        if (!b)
                return;
        take(b, &me_b, OUTBOX_OWNED, ALL);
        assert_int_equal(mine(&view), 0);
}

/* -- fetch ------------------------------------------------------------------------------------ */

static void rows_come_as_they_were_appended(void **state)
{
        (void)state;
        const struct event_header headers[] = {
                {.name = span_str("type"), .value = span_str("A")},
                {.name = span_str("type"), .value = span_str("B")},
                {.name = span_str("bin"), .value = span_of("\x00\xff", 2)},
                {.name = span_str("nil"), .value_is_null = true},
                {.name = span_str("empty"), .value = span_str("")},
        };
        struct event ev = {.topic = span_str("orders.v1"),
                           .key = span_str("\xc3\xa4 key"),
                           .payload = span_of("p\0\xff", 3),
                           .traceparent = span_str("00-ab"),
                           .has_id = true,
                           .id = {9, 8, 7},
                           .partition = 3,
                           .headers = headers,
                           .header_count = 5};
        int64_t id = target->append(target->arg, &ev);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        assert_int_equal(rows.n, 1);
        const struct outbox_row *row = &rows.row[0];
        const struct event *got = &row->event;
        assert_int_equal(row->id, id);
        assert_int_equal(row->attempts, 0);
        assert_true(rows.now_us - row->created_us < HOUR);
        assert_true(rows.now_us - row->created_us >= -CLOCKS_APART);
        assert_true(rows.now_us > INT64_C(1500000000) * SECOND);
        assert_memory_equal(got->id, ev.id, sizeof ev.id);
        assert_true(span_eq(got->topic, ev.topic) && span_eq(got->key, ev.key));
        assert_true(span_eq(got->payload, ev.payload) && !got->payload_is_null);
        assert_true(span_eq(got->traceparent, ev.traceparent));
        assert_int_equal(got->partition, 3);
        assert_int_equal(got->header_count, 5); /* O42: order, repeats, bytes, null */
        for (size_t i = 0; i < 5; i++) {
                assert_true(span_eq(got->headers[i].name, headers[i].name));
                assert_true(span_eq(got->headers[i].value, headers[i].value));
                assert_int_equal(got->headers[i].value_is_null, headers[i].value_is_null);
        }
        assert_true(rows.bytes >= ev.key.n + ev.payload.n);
        outbox_rows_release(&rows);
        outbox_rows_release(&rows);
}

static void o39_a_tombstone_is_not_an_empty_payload(void **state)
{
        (void)state;
        int64_t null_id = add("k", NULL), empty_id = add("k", ""), no_key = add(NULL, "x");
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        assert_int_equal(rows.n, 3);
        assert_true(find(&rows, null_id)->event.payload_is_null);
        assert_false(find(&rows, empty_id)->event.payload_is_null);
        assert_int_equal(find(&rows, empty_id)->event.payload.n, 0);
        assert_true(find(&rows, no_key)->event.key_is_null);
        assert_int_equal(find(&rows, no_key)->event.partition, EVENT_NO_PARTITION);
        outbox_rows_release(&rows);
}

static void c1_only_rows_of_the_slots_that_were_asked_for_come_in_order(void **state)
{
        (void)state;
        target->append_many(target->arg, 400, "key-", false);
        take(a, &me_a, OUTBOX_OWNED, 0x0f0f);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        assert_true(rows.n > 100);
        for (size_t i = 0; i < rows.n; i++) {
                const struct outbox_row *row = &rows.row[i];
                char key[32];
                (void)snprintf(key, sizeof key, "%.*s", (int)row->event.key.n,
                               (const char *)row->event.key.p);
                assert_int_equal(row->slot, slot_of_key(key));
                assert_true(0x0f0f & 1u << row->slot);
                if (i > 0 && rows.row[i - 1].slot == row->slot)
                        assert_true(rows.row[i - 1].id < row->id);
                else if (i > 0)
                        assert_true(rows.row[i - 1].slot < row->slot); /* as the quotas */
        }
        outbox_rows_release(&rows);
        rows = fetch(a, (struct ask){.rows_max = 2});
        assert_int_equal(rows.n, 16);
        outbox_rows_release(&rows);
}

static void a_batch_stops_at_its_bytes_and_never_before_one_row(void **state)
{
        (void)state;
        static char big[100001];
        memset(big, 'x', 100000);
        for (int i = 0; i < 5; i++)
                (void)add("k", big);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        assert_int_equal(count_now(a, (struct ask){.bytes_max = 1}), 1);
        assert_int_equal(count_now(a, (struct ask){.bytes_max = 250000}), 3);
        assert_int_equal(count_now(a, (struct ask){.bytes_max = 1000000}), 5);
}

/* The quotas of the slots are more than a batch together. */
static void a_batch_stops_at_its_rows(void **state)
{
        (void)state;
        target->append_many(target->arg, 400, "key-", false);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        assert_int_equal(count_now(a, (struct ask){.rows_max = 20, .all_rows_max = 70}), 70);
        assert_int_equal(count_now(a, (struct ask){.rows_max = 1, .all_rows_max = 70}), 16);
        assert_int_equal(count_now(a, (struct ask){.all_rows_max = 1}), 1);
        assert_int_equal(count_now(a, (struct ask){.rows_max = 20, .all_rows_max = 70,
                                                   .bytes_max = 1}), 1);
}

static void a_batch_stops_at_its_rows_in_every_mode(void **state)
{
        (void)state;
        static const enum outbox_mode modes[] = {OUTBOX_SINGLE, OUTBOX_TWO_PHASE};
        target->append_many(target->arg, 100, "key-", false);
        take(a, &me_a, OUTBOX_TWO_PHASE, ALL);
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_SINGLE, .all_rows_max = 60}), 60);
        /* What is not in the batch is not claimed either. */
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_TWO_PHASE, .all_rows_max = 60}), 60);
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
                assert_int_equal(count_now(a, (struct ask){.mode = modes[i]}), 40);
}

/* Under a backlog of small rows a driver may look less closely; a large row makes it look. */
static void a_large_row_behind_many_small_ones_is_counted(void **state)
{
        (void)state;
        static char big[100001];
        memset(big, 'x', 100000);
        target->append_many(target->arg, 3000, "key", false);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        for (int i = 0; i < 3; i++)
                assert_int_equal(count_now(a, (struct ask){.rows_max = 300}), 3000);
        for (int i = 0; i < 20; i++)
                (void)add("key2", big);
        struct outbox_rows rows = fetch(a, (struct ask){.rows_max = 300, .bytes_max = 1000000});
        assert_true(rows.bytes < 1200000);
        outbox_rows_release(&rows);
}

static void c5_a_blocked_key_never_fills_a_batch(void **state)
{
        (void)state;
        target->append_many(target->arg, 10000, "hot", true);
        int64_t same_slot = 0;
        char key[32];
        for (int i = 0; same_slot == 0; i++) {
                (void)snprintf(key, sizeof key, "cold%d", i);
                if (slot_of_key(key) == slot_of_key("hot"))
                        same_slot = add(key, "x");
        }
        const struct span blocked[] = {span_str("other"), span_str("hot")};
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){.rows_max = 100});
        assert_int_equal(rows.n, 100);
        assert_null(find(&rows, same_slot));
        outbox_rows_release(&rows);
        rows = fetch(a, (struct ask){.rows_max = 100, .blocked = blocked, .blocked_count = 2});
        assert_int_equal(rows.n, 1);
        assert_int_equal(rows.row[0].id, same_slot);
        outbox_rows_release(&rows);
}

static void c5_rows_without_a_key_go_beside_blocked_ones(void **state)
{
        (void)state;
        const struct span blocked[] = {span_str("k")};
        (void)add("k", "x");
        int64_t id = add(NULL, "x"), other = add("other", "x");
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows =
                fetch(a, (struct ask){.blocked = blocked, .blocked_count = 1});
        assert_int_equal(rows.n, 2);
        assert_non_null(find(&rows, id));
        assert_non_null(find(&rows, other));
        outbox_rows_release(&rows);
}

/* A, tried and waiting, holds B of its key, also when nobody remembers to block the key. */
static void c4_o8_a_key_waits_behind_its_row_in_backoff(void **state)
{
        (void)state;
        int64_t first = add("k", "1"), second = add("k", "2"), other = add("l", "3");
        target->force(target->arg, first, OUTBOX_PENDING, 1, 60 * SECOND, 0);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        assert_int_equal(rows.n, 1);
        assert_int_equal(rows.row[0].id, other);
        outbox_rows_release(&rows);
        target->force(target->arg, first, OUTBOX_PENDING, 1, -SECOND, 0);
        rows = fetch(a, (struct ask){0});
        assert_int_equal(rows.n, 3);
        assert_int_equal(find(&rows, first)->attempts, 1);
        assert_true(find(&rows, first) < find(&rows, second));
        outbox_rows_release(&rows);
}

/* -- mark ------------------------------------------------------------------------------------- */

static void a_mark_does_what_its_verdict_says(void **state)
{
        (void)state;
        int64_t ids[4] = {add("a", "1"), add("b", "2"), add("c", "3"), add("d", "4")};
        for (int keep = 0; keep < 2; keep++) {
                struct outbox_mark marks[4];
                take(a, &me_a, OUTBOX_OWNED, ALL);
                struct outbox_rows rows = fetch(a, (struct ask){0});
                assert_int_equal(rows.n, 4);
                for (size_t i = 0; i < 4; i++)
                        marks[i] = mark_of(find(&rows, ids[i]), (enum outbox_verdict)i);
                outbox_rows_release(&rows);
                struct outbox_marked m = mark(a, OUTBOX_OWNED, keep, &view, marks, 4);
                assert_int_equal(m.marked, 4);
                assert_int_equal(m.lost_slots + m.changed, 0);
                is_state(ids[0], keep ? (int)OUTBOX_PUBLISHED : -1, 0);
                is_state(ids[1], OUTBOX_PENDING, 1);
                is_state(ids[2], OUTBOX_DEAD, 1);
                is_state(ids[3], OUTBOX_PENDING, 0);
                assert_int_equal(count_now(a, (struct ask){0}), 1); /* only the untried one */
                if (keep)
                        break;
                ids[0] = add("a", "1");
                for (int i = 1; i < 4; i++)
                        target->force(target->arg, ids[i], OUTBOX_PENDING, 0, 0, 0);
        }
}

static void c1_a_mark_after_the_slot_was_lost_changes_nothing(void **state)
{
        (void)state;
        int64_t id = add("k", "1"), tried = add("k", "2");
        target->force(target->arg, tried, OUTBOX_PENDING, 2, 0, 0);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_view old = view;
        struct outbox_rows rows = fetch(a, (struct ask){0});
        struct outbox_mark done = mark_of(find(&rows, id), OUTBOX_DONE);
        struct outbox_mark done_too = mark_of(find(&rows, tried), OUTBOX_DONE);
        outbox_rows_release(&rows);
        target->expire_leases(target->arg);
        take(b, &me_b, OUTBOX_OWNED, 1u << slot_of_key("k"));
        struct outbox_marked m = mark(a, OUTBOX_OWNED, false, &old, &done, 1);
        assert_int_equal(m.marked, 0);
        assert_int_equal(m.lost_slots, 1);
        assert_int_equal(m.lost_mask, 1u << slot_of_key("k"));
        assert_int_equal(m.changed, 0);
        is_state(id, OUTBOX_PENDING, 0);
        m = mark(a, OUTBOX_OWNED, false, &old, &done_too, 1);
        assert_int_equal(m.marked, 0);
        is_state(tried, OUTBOX_PENDING, 2);
        done.verdict = OUTBOX_BURY;
        (void)mark(a, OUTBOX_OWNED, true, &old, &done, 1);
        is_state(id, OUTBOX_PENDING, 0);
        m = mark(b, OUTBOX_OWNED, false, &view, &done, 1);
        assert_int_equal(m.marked, 1);
        is_state(id, OUTBOX_DEAD, 1);
}

/* The other fact: the slot is ours, but somebody changed the row. */
static void c1_a_mark_of_a_row_that_changed_says_so(void **state)
{
        (void)state;
        int64_t one = add("k", "1"), two = add("k", "2");
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        struct outbox_mark marks[2] = {mark_of(find(&rows, one), OUTBOX_DONE),
                                       mark_of(find(&rows, two), OUTBOX_DONE)};
        outbox_rows_release(&rows);
        target->force(target->arg, one, OUTBOX_PENDING, 7, 0, 0);
        struct outbox_marked m = mark(a, OUTBOX_OWNED, false, &view, marks, 2);
        assert_int_equal(m.marked, 1);
        assert_int_equal(m.changed, 1);
        assert_int_equal(m.lost_slots, 0);
        is_state(one, OUTBOX_PENDING, 7);
        is_state(two, -1, 0);
        target->force(target->arg, one, OUTBOX_DEAD, 0, 0, 0); /* and by its status */
        m = mark(a, OUTBOX_OWNED, false, &view, marks, 1);
        assert_int_equal(m.marked, 0);
        assert_int_equal(m.changed, 1);
        m = mark(a, OUTBOX_OWNED, false, &view, marks + 1, 1); /* asked again: idempotent */
        assert_int_equal(m.marked, 0);
}

static void c1_a_mark_of_a_row_that_was_tried_goes_by_its_attempts(void **state)
{
        (void)state;
        int64_t one = add("k", "1"), two = add("l", "2");
        target->force(target->arg, one, OUTBOX_PENDING, 3, 0, 0);
        target->force(target->arg, two, OUTBOX_PENDING, 2, 0, 0);
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        struct outbox_mark marks[2] = {mark_of(find(&rows, one), OUTBOX_DONE),
                                       mark_of(find(&rows, two), OUTBOX_DONE)};
        outbox_rows_release(&rows);
        target->force(target->arg, two, OUTBOX_PENDING, 5, 0, 0);
        struct outbox_marked m = mark(a, OUTBOX_OWNED, false, &view, marks, 2);
        assert_int_equal(m.marked, 1);
        assert_int_equal(m.changed, 1);
        is_state(one, -1, 0);
        is_state(two, OUTBOX_PENDING, 5);
}

static void a_reason_that_is_no_text_is_no_reason_to_fail(void **state)
{
        (void)state;
        int64_t id = add("k", "1");
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){0});
        struct outbox_mark bury = mark_of(&rows.row[0], OUTBOX_BURY);
        bury.reason = "\xff\xfe";
        outbox_rows_release(&rows);
        (void)mark(a, OUTBOX_OWNED, false, &view, &bury, 1);
        is_state(id, OUTBOX_DEAD, 1);
}

/* -- the other modes -------------------------------------------------------------------------- */

static void single_publishes_inside_one_transaction(void **state)
{
        (void)state;
        int64_t one = add("k", "1"), two = add("l", "2");
        take(a, &me_a, OUTBOX_SINGLE, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){.mode = OUTBOX_SINGLE});
        assert_int_equal(rows.n, 2);
        struct outbox_mark marks[2] = {mark_of(find(&rows, one), OUTBOX_DONE),
                                       mark_of(find(&rows, two), OUTBOX_RETRY)};
        outbox_rows_release(&rows);
        struct outbox_marked m = mark(a, OUTBOX_SINGLE, false, &view, marks, 2);
        assert_int_equal(m.marked, 2);
        is_state(one, -1, 0);
        is_state(two, OUTBOX_PENDING, 1);
        (void)add("k", "3");
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_SINGLE}), 1); /* abandoned */
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_SINGLE}), 1);
}

/* Run on PostgreSQL with SKIP LOCKED: the second owner gets row 2 while the first holds row 1. */
static void c6_o7_a_new_owner_waits_for_rows_that_a_paused_one_holds(void **state)
{
        (void)state;
        semel_error why = {0};
        struct outbox_rows rows = {0};
        (void)add("k", "1");
        (void)add("k", "2");
        take(a, &me_a, OUTBOX_SINGLE, ALL);
        struct outbox_rows held = fetch(a, (struct ask){.mode = OUTBOX_SINGLE, .rows_max = 1});
        assert_int_equal(held.n, 1);
        target->expire_leases(target->arg);
        take(b, &me_b, OUTBOX_SINGLE, ALL);
        semel_code code = try_fetch(b, (struct ask){.mode = OUTBOX_SINGLE}, &rows, &why);
        print_message("   %s\n", why.text);
        assert_int_equal(code, SEMEL_ERR_BUSY); /* never row 2 alone */
        outbox_rows_release(&held);
        a->vt->abandon(a);
        rows = fetch(b, (struct ask){.mode = OUTBOX_SINGLE});
        assert_int_equal(rows.n, 2);
        outbox_rows_release(&rows);
}

static void two_phase_shows_what_is_being_published(void **state)
{
        (void)state;
        int64_t one = add("k", "1");
        take(a, &me_a, OUTBOX_TWO_PHASE, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){.mode = OUTBOX_TWO_PHASE});
        assert_int_equal(rows.n, 1);
        is_state(one, OUTBOX_PUBLISHING, 0);
        struct outbox_mark m = mark_of(&rows.row[0], OUTBOX_UNTRIED);
        outbox_rows_release(&rows);
        int64_t two = add("k", "2"), other = add("l", "3");
        rows = fetch(a, (struct ask){.mode = OUTBOX_TWO_PHASE}); /* C4: k waits behind it */
        assert_int_equal(rows.n, 1);
        assert_int_equal(rows.row[0].id, other);
        struct outbox_mark done = mark_of(&rows.row[0], OUTBOX_DONE);
        outbox_rows_release(&rows);
        assert_int_equal(mark(a, OUTBOX_TWO_PHASE, true, &view, &m, 1).marked, 1);
        is_state(one, OUTBOX_PENDING, 0);
        assert_int_equal(mark(a, OUTBOX_TWO_PHASE, true, &view, &done, 1).marked, 1);
        is_state(other, OUTBOX_PUBLISHED, 0);
        rows = fetch(a, (struct ask){.mode = OUTBOX_TWO_PHASE});
        assert_int_equal(rows.n, 2);
        assert_int_equal(rows.row[0].id, one);
        assert_int_equal(rows.row[1].id, two);
        outbox_rows_release(&rows);
}

static void two_phase_takes_nothing_of_a_slot_that_was_lost(void **state)
{
        (void)state;
        int64_t id = add("k", "1");
        take(a, &me_a, OUTBOX_TWO_PHASE, ALL);
        struct outbox_view old = view;
        target->expire_leases(target->arg);
        take(b, &me_b, OUTBOX_TWO_PHASE, ALL);
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_TWO_PHASE, .as = &old}), 0);
        is_state(id, OUTBOX_PENDING, 0);
}

static void o18_stuck_rows_go_back_under_the_owners_fence(void **state)
{
        (void)state;
        struct outbox_slot slots[EVENT_SLOTS];
        size_t rows = 99;
        int64_t id = add("k", "1");
        take(a, &me_a, OUTBOX_TWO_PHASE, ALL);
        assert_int_equal(count_now(a, (struct ask){.mode = OUTBOX_TWO_PHASE}), 1);
        struct outbox_view old = view;
        size_t n = slots_of(&old, slots);
        OK(a->vt->unstick(a, slots, n, 60 * SECOND, soon(), &rows, err));
        assert_int_equal(rows, 0); /* not for so long yet */
        target->force(target->arg, id, OUTBOX_PUBLISHING, 0, 0, 61 * SECOND);
        target->expire_leases(target->arg);
        take(b, &me_b, OUTBOX_TWO_PHASE, ALL);
        OK(a->vt->unstick(a, slots, n, 60 * SECOND, soon(), &rows, err));
        assert_int_equal(rows, 0); /* no longer its business */
        is_state(id, OUTBOX_PUBLISHING, 0);
        n = slots_of(&view, slots);
        OK(b->vt->unstick(b, slots, n, 60 * SECOND, soon(), &rows, err));
        assert_int_equal(rows, 1);
        is_state(id, OUTBOX_PENDING, 0);
}

static void c8a_the_mode_changes_only_when_nobody_owns_anything(void **state)
{
        (void)state;
        semel_error why = {0};
        take(a, &me_a, OUTBOX_EXACTLY_ONCE, ALL);
        assert_int_equal(view.mode, OUTBOX_EXACTLY_ONCE);
        assert_int_equal(mine(&view), ALL);
        assert_int_equal(b->vt->take(b, &me_b, OUTBOX_OWNED, ALL, LEASE_US, soon(), &view, &why),
                         SEMEL_ERR_REFUSED);
        print_message("   %s\n", why.text);
        /* Crashed: its last batch is not recovered, whatever its lease says. */
        target->expire_leases(target->arg);
        assert_int_equal(b->vt->take(b, &me_b, OUTBOX_OWNED, ALL, LEASE_US, soon(), &view, &why),
                         SEMEL_ERR_REFUSED);
        take(b, &me_b, OUTBOX_EXACTLY_ONCE, ALL);
        OK(b->vt->leave(b, &me_b, 0, soon(), err));
        take(b, &me_b, OUTBOX_TWO_PHASE, ALL);
        assert_int_equal(view.mode, OUTBOX_TWO_PHASE);
        (void)add("k", "1");
        assert_int_equal(count_now(b, (struct ask){.mode = OUTBOX_TWO_PHASE}), 1);
        OK(b->vt->leave(b, &me_b, 0, soon(), err));
        assert_int_equal(a->vt->take(a, &me_a, OUTBOX_OWNED, ALL, LEASE_US, soon(), &view, &why),
                         SEMEL_ERR_REFUSED); /* a row is PUBLISHING */
        print_message("   %s\n", why.text);
}

/* Who could not recover gives its slots up as a dead relay leaves them, one by one or all. */
static void c8a_slots_that_are_given_up_unsettled_keep_the_mode(void **state)
{
        (void)state;
        semel_error why = {0};
        for (int leaves = 0; leaves < 2; leaves++) {
                take(a, &me_a, OUTBOX_EXACTLY_ONCE, ALL);
                if (leaves) {
                        OK(a->vt->leave(a, &me_a, 0x1111, soon(), err));
                } else {
                        OK(a->vt->give(a, &me_a, 0x1111, 0x1111, soon(), err));
                        OK(a->vt->leave(a, &me_a, 0, soon(), err));
                }
                assert_int_equal(b->vt->take(b, &me_b, OUTBOX_OWNED, ALL, LEASE_US, soon(), &view, &why),
                                 SEMEL_ERR_REFUSED);
                assert_non_null(strstr(why.text, "recovers it"));
                take(b, &me_b, OUTBOX_EXACTLY_ONCE, ALL); /* without waiting for a lease */
                assert_int_equal(mine(&view), ALL);
                OK(b->vt->leave(b, &me_b, 0, soon(), err));
                take(b, &me_b, OUTBOX_OWNED, ALL);
                assert_int_equal(view.mode, OUTBOX_OWNED);
                OK(b->vt->leave(b, &me_b, 0, soon(), err));
        }
}

static void c8_exactly_once_takes_whole_groups(void **state)
{
        (void)state;
        take(a, &me_a, OUTBOX_EXACTLY_ONCE, 0x1111 | 0x0002); /* group 0, and one slot of group 1 */
        assert_int_equal(mine(&view), 0x1111);
        take(b, &me_b, OUTBOX_EXACTLY_ONCE, ALL);
        assert_int_equal(mine(&view), ALL & ~0x1111u);
}

/* How many rows of a marker are finished by a's recovery. */
static size_t recover(bool keep, const int64_t *ids, const uint8_t (*event_ids)[EVENT_ID_BYTES],
                      const int64_t *published_us, size_t n)
{
        struct outbox_slot slots[EVENT_SLOTS];
        size_t finished = 99;
        OK(a->vt->recover(a, keep, slots, slots_of(&view, slots), ids, event_ids, published_us, n, soon(),
                          &finished, err));
        return finished;
}

/* A row with a lower id commits in between: recovery leaves it alone. */
static void c8_recovery_finishes_exactly_the_listed_rows(void **state)
{
        (void)state;
        uint8_t event_ids[3][EVENT_ID_BYTES];
        int64_t ids[3], never[3] = {0};
        struct outbox_slot slots[EVENT_SLOTS];
        size_t finished = 99;
        int64_t between = add("k", "0"), one = add("k", "1"), two = add("k", "2");
        take(a, &me_a, OUTBOX_EXACTLY_ONCE, ALL);
        struct outbox_rows rows = fetch(a, (struct ask){.mode = OUTBOX_EXACTLY_ONCE});
        ids[0] = one;
        ids[1] = two;
        ids[2] = between;
        for (size_t i = 0; i < 3; i++)
                memcpy(event_ids[i], find(&rows, ids[i])->event.id, EVENT_ID_BYTES);
        outbox_rows_release(&rows);
        event_ids[2][0] ^= 1; /* after a restored backup the same id is another event */
        target->force(target->arg, two, OUTBOX_DEAD, 3, 0, 0);
        assert_int_equal(recover(true, ids, (const uint8_t(*)[EVENT_ID_BYTES])event_ids, never, 3), 2);
        is_state(one, OUTBOX_PUBLISHED, 0);
        is_state(two, OUTBOX_PUBLISHED, 3);
        is_state(between, OUTBOX_PENDING, 0);
        ids[0] = between;
        event_ids[2][0] ^= 1;
        memcpy(event_ids[0], event_ids[2], EVENT_ID_BYTES);
        assert_int_equal(recover(false, ids, (const uint8_t(*)[EVENT_ID_BYTES])event_ids, never, 1), 1);
        is_state(between, -1, 0);
        size_t n = slots_of(&view, slots);
        slots[0].epoch++;
        semel_error why = {0};
        assert_int_equal(a->vt->recover(a, false, slots, n, ids, (const uint8_t(*)[EVENT_ID_BYTES])event_ids,
                                        never, 3, soon(), &finished, &why), SEMEL_ERR_LOST);
}

/* The marker of its first transaction says nothing about the second, however that one goes. */
static void c8_recovery_leaves_what_is_republished(void **state)
{
        (void)state;
        for (int keep = 0; keep < 2; keep++) {
                uint8_t event_id[1][EVENT_ID_BYTES];
                const uint8_t(*event_ids)[EVENT_ID_BYTES] = (const uint8_t(*)[EVENT_ID_BYTES])event_id;
                int64_t never = 0, again_us, n = 0, id = add(keep ? "kept" : "gone", "1");
                take(a, &me_a, OUTBOX_EXACTLY_ONCE, ALL);
                struct outbox_rows rows = fetch(a, (struct ask){.mode = OUTBOX_EXACTLY_ONCE});
                assert_int_equal(find(&rows, id)->published_us, 0);
                memcpy(event_id[0], find(&rows, id)->event.id, EVENT_ID_BYTES);
                struct outbox_mark m = mark_of(find(&rows, id), OUTBOX_DONE);
                assert_int_equal(mark(a, OUTBOX_EXACTLY_ONCE, true, &view, &m, 1).marked, 1);
                outbox_rows_release(&rows);
                struct outbox_again again = {.until_us = INT64_MAX / 2, .retention_us = -1};
                OK(a->vt->republish(a, &again, "ada", soon(), &n, err));
                assert_int_equal(n, 1);
                assert_int_equal(recover(keep, &id, event_ids, &never, 1), 0);
                is_state(id, OUTBOX_PENDING, 0);
                /* a try that failed does not make it another row */
                rows = fetch(a, (struct ask){.mode = OUTBOX_EXACTLY_ONCE});
                again_us = find(&rows, id)->published_us;
                assert_true(again_us > 0);
                m = mark_of(find(&rows, id), OUTBOX_RETRY);
                assert_int_equal(mark(a, OUTBOX_EXACTLY_ONCE, true, &view, &m, 1).marked, 1);
                outbox_rows_release(&rows);
                assert_int_equal(recover(keep, &id, event_ids, &never, 1), 0);
                is_state(id, OUTBOX_PENDING, 1);
                assert_int_equal(recover(keep, &id, event_ids, &again_us, 1), 1);
                is_state(id, keep ? (int)OUTBOX_PUBLISHED : -1, 1);
        }
}

/* -- blocked, prune, operators ---------------------------------------------------------------- */

static void c5_a_new_owner_learns_which_keys_are_blocked(void **state)
{
        (void)state;
        const struct outbox_blocked *blocked;
        size_t n = 0;
        int64_t first = add("k", "1");
        (void)add("k", "2");
        int64_t dead = add("d", "3"), no_key = add(NULL, "4");
        (void)add("fine", "5");
        target->force(target->arg, first, OUTBOX_PENDING, 2, 60 * SECOND, 0);
        target->force(target->arg, dead, OUTBOX_DEAD, 5, 0, 0);
        target->force(target->arg, no_key, OUTBOX_PENDING, 2, 60 * SECOND, 0);
        OK(a->vt->blocked(a, ALL, OUTBOX_SKIP, 100, soon(), &blocked, &n, err));
        assert_int_equal(n, 1);
        assert_int_equal(blocked[0].id, first);
        assert_true(span_eq(blocked[0].key, span_str("k")) && !blocked[0].dead);
        assert_true(blocked[0].wait_us > 50 * SECOND);
        assert_true(blocked[0].wait_us <= 60 * SECOND + CLOCKS_APART);
        assert_int_equal(blocked[0].slot, slot_of_key("k"));
        OK(a->vt->blocked(a, ALL, OUTBOX_BLOCK, 100, soon(), &blocked, &n, err));
        assert_int_equal(n, 2);
        OK(a->vt->blocked(a, 1u << slot_of_key("d"), OUTBOX_BLOCK, 100, soon(), &blocked, &n, err));
        assert_int_equal(n, slot_of_key("d") == slot_of_key("k") ? 2 : 1);
        OK(a->vt->blocked(a, ALL, OUTBOX_BLOCK, 1, soon(), &blocked, &n, err));
        assert_int_equal(n, 1);
        assert_int_equal(blocked[0].id, dead); /* only a DEAD row has to be known: a fetch looks for the others */
        char key[EVENT_SLOTS][16];
        for (int slot = EVENT_SLOTS - 1; slot >= 0; slot--) { /* the last slot has the eldest row */
                int i = 0;
                do
                        (void)snprintf(key[slot], sizeof key[slot], "k%d", i++);
                while (slot_of_key(key[slot]) != slot);
                target->force(target->arg, add(key[slot], "6"), OUTBOX_DEAD, 5, 0, 0);
        }
        OK(a->vt->blocked(a, ALL, OUTBOX_BLOCK, EVENT_SLOTS / 2, soon(), &blocked, &n, err));
        assert_int_equal(n, EVENT_SLOTS / 2);
        for (size_t i = 1; i < n; i++)
                assert_true(blocked[i - 1].slot <= blocked[i].slot);
        assert_true(blocked[n - 1].slot < EVENT_SLOTS / 2); /* of those in front of it all keys are there */
}

static void o24_pruning_touches_only_old_published_rows(void **state)
{
        (void)state;
        int64_t rows = -1;
        int64_t old = add("a", "1"), young = add("b", "2"), pending = add("c", "3"),
                dead = add("d", "4");
        target->force(target->arg, old, OUTBOX_PUBLISHED, 0, 0, HOUR);
        target->force(target->arg, young, OUTBOX_PUBLISHED, 0, 0, SECOND);
        target->force(target->arg, dead, OUTBOX_DEAD, 1, 0, HOUR);
        OK(a->vt->prune(a, 60 * SECOND, true, soon(), &rows, err));
        assert_int_equal(rows, 1);
        is_state(old, OUTBOX_PUBLISHED, 0);
        OK(a->vt->prune(a, 60 * SECOND, false, soon(), &rows, err));
        assert_int_equal(rows, 1);
        is_state(old, -1, 0);
        is_state(young, OUTBOX_PUBLISHED, 0);
        is_state(pending, OUTBOX_PENDING, 0);
        is_state(dead, OUTBOX_DEAD, 1);
}

static void o29_dead_rows_are_listed_counted_retried_and_discarded(void **state)
{
        (void)state;
        int64_t rows = -1;
        struct outbox_list list = {0};
        struct outbox_stats stats = {0};
        semel_error why = {0};
        int64_t ids[3] = {add("a", "1"), add(NULL, "2"), add("c", "3")}, pending = add("p", "4");
        take(a, &me_a, OUTBOX_OWNED, ALL);
        struct outbox_rows all = fetch(a, (struct ask){0});
        struct outbox_mark marks[3];
        for (int i = 0; i < 3; i++)
                marks[i] = mark_of(find(&all, ids[i]), OUTBOX_BURY);
        outbox_rows_release(&all);
        (void)mark(a, OUTBOX_OWNED, false, &view, marks, 3);
        OK(a->vt->list(a, OUTBOX_DEAD, 0, 2, soon(), &list, err));
        assert_int_equal(list.n, 2);
        assert_int_equal(list.row[0].id, ids[0]);
        assert_int_equal(list.row[0].state, OUTBOX_DEAD);
        assert_int_equal(list.row[0].attempts, 1);
        assert_true(span_eq(list.row[0].last_error, span_str("the broker said no")));
        assert_true(span_eq(list.row[0].topic, span_str("t")));
        assert_true(list.row[1].key_is_null && !list.row[0].key_is_null);
        assert_int_equal(list.row[0].published_us, 0);
        list.release(list.driver);
        OK(a->vt->list(a, OUTBOX_DEAD, ids[1], 10, soon(), &list, err));
        assert_int_equal(list.n, 1);
        list.release(list.driver);
        OK(a->vt->stats(a, soon(), &stats, err));
        int64_t dead = 0, waiting = 0;
        for (size_t i = 0; i < stats.n; i++) {
                dead += stats.count[i].state == OUTBOX_DEAD ? stats.count[i].rows : 0;
                waiting += stats.count[i].state == OUTBOX_PENDING ? stats.count[i].rows : 0;
        }
        assert_int_equal(dead, 3);
        assert_int_equal(waiting, 1);
        assert_true(stats.oldest_pending_us >= 0 && stats.oldest_pending_us < HOUR);
        stats.release(stats.driver);
        OK(a->vt->retry(a, ids[0], "ada", soon(), &rows, err));
        assert_int_equal(rows, 1);
        is_state(ids[0], OUTBOX_PENDING, 0);
        OK(a->vt->retry(a, pending, "ada", soon(), &rows, err));
        assert_int_equal(rows, 0);
        OK(a->vt->discard(a, ids[1], "ada", "was a test", soon(), err));
        is_state(ids[1], -1, 0);
        assert_int_equal(a->vt->discard(a, ids[1], "ada", "x", soon(), &why),
                         SEMEL_ERR_NOT_FOUND);
        assert_int_equal(a->vt->discard(a, pending, "ada", "x", soon(), &why),
                         SEMEL_ERR_REFUSED);
        OK(a->vt->retry(a, 0, "ada", soon(), &rows, err));
        assert_int_equal(rows, 1);
        assert_int_equal(target->count(target->arg, OUTBOX_PENDING), 3);
        assert_int_equal(target->audit_count(target->arg, "retry", "ada"), 2);
        assert_int_equal(target->audit_count(target->arg, "discard", "ada"), 1);
}

static void c10_o63_republish_refuses_what_consumers_have_forgotten(void **state)
{
        (void)state;
        semel_error why = {0};
        int64_t rows = -1;
        int64_t old = add("a", "1"), young = add("b", "2"), outside = add("c", "3");
        target->force(target->arg, old, OUTBOX_PUBLISHED, 0, 0, 2 * HOUR);
        target->force(target->arg, young, OUTBOX_PUBLISHED, 0, 0, 60 * SECOND);
        target->force(target->arg, outside, OUTBOX_PUBLISHED, 0, 0, 20 * HOUR);
        int64_t now = clock_wall_us();
        struct outbox_again hour = {.since_us = now - 3 * HOUR, .until_us = now, .retention_us = HOUR};
        struct outbox_again hours = {.since_us = now - 3 * HOUR, .until_us = now, .retention_us = 3 * HOUR};
        struct outbox_again all = {.since_us = now - 30 * HOUR, .until_us = now, .retention_us = -1};
        assert_int_equal(a->vt->republish(a, &hour, "ada", soon(), &rows, &why), SEMEL_ERR_REFUSED);
        print_message("   %s\n", why.text);
        is_state(young, OUTBOX_PUBLISHED, 0);
        OK(a->vt->republish(a, &hours, "ada", soon(), &rows, err));
        assert_int_equal(rows, 2);
        is_state(old, OUTBOX_PENDING, 0);
        is_state(young, OUTBOX_PENDING, 0);
        is_state(outside, OUTBOX_PUBLISHED, 0);
        OK(a->vt->republish(a, &all, "ada", soon(), &rows, err));
        assert_int_equal(rows, 1);
        assert_int_equal(target->audit_count(target->arg, "republish", "ada"), 2);
}

/* published_at is of the last time; consumers count from the first. */
static void c10_the_age_of_a_row_is_from_when_it_was_made(void **state)
{
        (void)state;
        semel_error why = {0};
        int64_t rows = -1, now = clock_wall_us(), id = add("a", "1");
        target->force(target->arg, id, OUTBOX_PUBLISHED, 0, 0, 60 * SECOND);
        target->made(target->arg, id, 3 * HOUR);
        struct outbox_again again = {.since_us = now - 2 * HOUR, .until_us = now, .retention_us = HOUR};
        assert_int_equal(a->vt->republish(a, &again, "ada", soon(), &rows, &why), SEMEL_ERR_REFUSED);
        print_message("   %s\n", why.text);
        is_state(id, OUTBOX_PUBLISHED, 0);
        again.retention_us = 4 * HOUR;
        OK(a->vt->republish(a, &again, "ada", soon(), &rows, err));
        assert_int_equal(rows, 1);
        /* A clock that was ahead when it was made makes it no younger. */
        target->force(target->arg, id, OUTBOX_PUBLISHED, 0, 0, 2 * HOUR);
        target->made(target->arg, id, -5 * HOUR);
        again = (struct outbox_again){.since_us = now - 3 * HOUR, .until_us = now, .retention_us = HOUR};
        assert_int_equal(a->vt->republish(a, &again, "ada", soon(), &rows, &why), SEMEL_ERR_REFUSED);
}

static void c10_what_is_published_meanwhile_is_not_taken_again(void **state)
{
        (void)state;
        int64_t rows = -1, now = clock_wall_us(), ids[2] = {add("a", "1"), add("b", "2")};
        for (int64_t retention_us = -1; retention_us <= HOUR; retention_us += HOUR + 1) {
                struct outbox_again again = {.since_us = now - 3 * HOUR,
                                             .until_us = now + 24 * HOUR,
                                             .retention_us = retention_us};
                for (int i = 0; i < 2; i++)
                        target->force(target->arg, ids[i], OUTBOX_PUBLISHED, 0, 0, 60 * SECOND);
                OK(a->vt->republish(a, &again, "ada", soon(), &rows, err));
                assert_int_equal(rows, 2);
                target->force(target->arg, ids[0], OUTBOX_PUBLISHED, 0, 0, 0); /* as a relay does */
                OK(a->vt->republish(a, &again, "ada", soon(), &rows, err));
                assert_int_equal(rows, 0);
                is_state(ids[0], OUTBOX_PUBLISHED, 0);
                is_state(ids[1], OUTBOX_PENDING, 0);
        }
}

int outbox_suite_run(const struct outbox_target *with, const char *filter)
{
#define N(name, needs) {cmocka_unit_test_setup_teardown(name, setup, teardown), needs}
#define T(name) N(name, 0)
        enum { MANY_RELAYS = 1, ALL_MODES = 2 };
        const struct {
                struct CMUnitTest test;
                unsigned needs;
        } all[] = {
                T(check_reads_the_outbox),
                T(c1_a_relay_joins_takes_gives_and_leaves),
                N(c1_o11_a_slot_has_one_owner_until_its_lease_is_over, MANY_RELAYS),
                T(c1_a_renewal_keeps_the_slots),
                T(rows_come_as_they_were_appended),
                T(o39_a_tombstone_is_not_an_empty_payload),
                T(c1_only_rows_of_the_slots_that_were_asked_for_come_in_order),
                T(a_batch_stops_at_its_bytes_and_never_before_one_row),
                T(a_batch_stops_at_its_rows),
                N(a_batch_stops_at_its_rows_in_every_mode, ALL_MODES),
                T(a_large_row_behind_many_small_ones_is_counted),
                T(c5_a_blocked_key_never_fills_a_batch),
                T(c5_rows_without_a_key_go_beside_blocked_ones),
                T(c4_o8_a_key_waits_behind_its_row_in_backoff),
                T(a_mark_does_what_its_verdict_says),
                N(c1_a_mark_after_the_slot_was_lost_changes_nothing, MANY_RELAYS),
                T(c1_a_mark_of_a_row_that_changed_says_so),
                T(c1_a_mark_of_a_row_that_was_tried_goes_by_its_attempts),
                T(a_reason_that_is_no_text_is_no_reason_to_fail),
                N(single_publishes_inside_one_transaction, ALL_MODES),
                N(c6_o7_a_new_owner_waits_for_rows_that_a_paused_one_holds, MANY_RELAYS | ALL_MODES),
                N(two_phase_shows_what_is_being_published, ALL_MODES),
                N(two_phase_takes_nothing_of_a_slot_that_was_lost, MANY_RELAYS | ALL_MODES),
                N(o18_stuck_rows_go_back_under_the_owners_fence, MANY_RELAYS | ALL_MODES),
                N(c8a_the_mode_changes_only_when_nobody_owns_anything, MANY_RELAYS | ALL_MODES),
                N(c8a_slots_that_are_given_up_unsettled_keep_the_mode, MANY_RELAYS | ALL_MODES),
                N(c8_exactly_once_takes_whole_groups, MANY_RELAYS | ALL_MODES),
                N(c8_recovery_finishes_exactly_the_listed_rows, ALL_MODES),
                N(c8_recovery_leaves_what_is_republished, ALL_MODES),
                T(c5_a_new_owner_learns_which_keys_are_blocked),
                T(o24_pruning_touches_only_old_published_rows),
                T(o29_dead_rows_are_listed_counted_retried_and_discarded),
                T(c10_o63_republish_refuses_what_consumers_have_forgotten),
                T(c10_the_age_of_a_row_is_from_when_it_was_made),
                T(c10_what_is_published_meanwhile_is_not_taken_again),
        };
        enum { COUNT = sizeof all / sizeof *all };
        /* What a driver does not have is not skipped: it is not there to be tested. */
        unsigned has = (with->many_relays ? MANY_RELAYS : 0u) | (with->all_modes ? ALL_MODES : 0u);
        struct CMUnitTest tests[COUNT];
        size_t n = 0;
        for (size_t i = 0; i < COUNT; i++)
                if ((all[i].needs & ~has) == 0)
                        tests[n++] = all[i].test;
        target = with;
        if (filter)
                cmocka_set_test_filter(filter);
        return _cmocka_run_group_tests(with->name, tests, n, NULL, NULL);
}
