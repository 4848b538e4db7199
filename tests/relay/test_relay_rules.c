/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_rules: the real relay in a world of its own (relay_world.h), where what takes luck elsewhere
 * happens at a chosen moment.  The world itself watches C1, C2 and C7a in every test.
 *
 * why this file is long: each rule in turn, over one world and one set of small steps.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/limits.h"
#include "relay_world.h"
#include "sys/clock.h"

static void lock(void)
{
        pthread_mutex_lock(&world.lock);
}

static void unlock(void)
{
        pthread_mutex_unlock(&world.lock);
}

static size_t handed_at_least;
static bool has_handed(void)
{
        lock();
        bool yes = world.handed >= handed_at_least;
        unlock();
        return yes;
}

static void wait_handed(size_t n)
{
        handed_at_least = n;
        world_wait(has_handed, "rows handed over");
}

static int64_t lease_end_us;
static bool lease_is_long_over(void)
{
        return clock_boot_us() > lease_end_us + 200 * MS;
}

/* -- C1 ------------------------------------------------------------------------------------------ */

static void c1_o15_nothing_is_handed_over_after_the_lease(void **state)
{
        (void)state;
        (void)world_add(1200, 100);
        world_config(OUTBOX_OWNED)->batch_rows = 1200;
        world.produce_us = 4 * MS; /* one batch of each lane, 1.2 s: twice the lease */
        world_start();
        wait_handed(50);
        lock();
        world.beats_down = true;
        lease_end_us = world.lease_end_us;
        unlock();
        world_wait(lease_is_long_over, "the lease to be over");
        lock();
        assert_true(world.handed < 1200); /* it struck unfinished work */
        world.beats_down = false;
        world.produce_us = 0;
        unlock();
        world_wait(world_all_done, "the rest");
        assert_int_equal(world_duplicates(), 0);
}

static void c1_the_lease_counts_from_before_the_beat_was_sent(void **state)
{
        (void)state;
        (void)world_add(2000, 100);
        (void)world_config(OUTBOX_OWNED);
        world.produce_us = 4 * MS;
        world.beat_answer_us = 300 * MS; /* of a lease of 600 ms */
        world_start();
        wait_handed(50);
        lock();
        world.beats_down = true;
        lease_end_us = world.lease_end_us;
        unlock();
        world_wait(lease_is_long_over, "the lease to be over");
        lock();
        assert_true(world.handed < 2000);
        world.beats_down = false;
        world.beat_answer_us = 0;
        world.produce_us = 0;
        unlock();
        world_wait(world_all_done, "the rest");
}

static bool lost_is_said(void)
{
        return world_said("lost slot 15");
}

static size_t handed_before;
static void slots_are_taken(void)
{
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i]++;
        world.mine = 0;
        world.other = 0xffff;
        handed_before = world.handed;
}

/* Stopped beyond its lease, its slots taken, and awake again: as after SIGSTOP and SIGCONT. */
static void c1_who_lost_its_slots_hands_nothing_more_over_and_marks_nothing(void **state)
{
        (void)state;
        (void)world_add(400, 40);
        (void)world_config(OUTBOX_OWNED);
        world.stalled = true;
        world_start();
        wait_handed(60);
        lock();
        world.beats_down = true;
        lease_end_us = world.lease_end_us;
        unlock();
        world_wait(lease_is_long_over, "the lease to be over");
        lock();
        slots_are_taken();
        size_t handed = world.handed;
        world.beats_down = world.stalled = false;
        unlock();
        world_wait(lost_is_said, "the log to say so");
        world_stop();
        assert_int_equal(world.handed, handed);
        assert_int_equal(world.logged, 0); /* what it had in its queue was thrown away */
        for (size_t i = 0; i < world.rows; i++)
                assert_false(world.row[i].gone);
}

static bool mark_was_lost(void)
{
        return world_said("a mark found another owner");
}

/* The mark itself finds out: the slots are gone while it is under way. */
static void c1_a_mark_that_finds_its_slot_lost_ends_the_ownership(void **state)
{
        (void)state;
        (void)world_add(800, 40);
        world_config(OUTBOX_OWNED)->slot_lease_us = 5 * SECOND; /* no beat tells meanwhile */
        world.at_logged = 20;
        world.then = slots_are_taken;
        world_start();
        world_wait(mark_was_lost, "a mark to find its slot lost");
        world_stop();
        assert_true(world.lost_marks > 0);
        assert_true(world.handed <= handed_before + 4 * 50); /* nobody can know before the mark; nothing after it */
        /* That one, and no other, is what a lane cannot know before the mark tells it. */
        if (world.broken[0] && !strstr(world.broken, "is handed over by who is not its owner"))
                fail_msg("%s", world.broken);
        memset(world.broken, 0, sizeof world.broken);
}

/* -- C2, C3, C12 ----------------------------------------------------------------------------------- */

static bool has_given(void)
{
        lock();
        bool yes = world.gives > 0;
        unlock();
        return yes;
}

static void another_joins(void)
{
        world.members = 2;
}

static void c2_o12_slots_move_when_nothing_of_them_is_unmarked(void **state)
{
        (void)state;
        (void)world_add(1000, 100);
        world_config(OUTBOX_OWNED)->slot_lease_us = 300 * MS;
        world.mark_us = 30 * MS;
        world.at_logged = 100;
        world.then = another_joins;
        world_start();
        world_wait(has_given, "a hand-over");
        assert_int_equal(world_duplicates(), 0);
}

static void c3_without_a_fault_no_row_is_written_twice(void **state)
{
        (void)state;
        (void)world_add(1500, 30);
        (void)world_config(OUTBOX_OWNED);
        world.mark_us = 5 * MS; /* a read that is issued meanwhile still sees the rows */
        world_start();
        world_wait(world_all_done, "all rows");
        assert_int_equal(world.logged, 1500);
        assert_int_equal(world_duplicates(), 0);
}

static int64_t marks_down_us;

static void marks_go_down(void)
{
        world.marks_down = true;
        marks_down_us = clock_boot_us();
}

static bool marks_are_down_for_long(void)
{
        lock();
        bool yes = world.marks_down && clock_boot_us() > marks_down_us + 700 * MS;
        unlock();
        return yes;
}

static void c12_at_most_a_batch_of_each_lane_is_unmarked(void **state)
{
        (void)state;
        (void)world_add(1000, 100);
        (void)world_config(OUTBOX_OWNED);
        world.at_logged = 200;
        world.then = marks_go_down;
        world_start();
        world_wait(marks_are_down_for_long, "time to go by");
        lock();
        assert_true(world.unmarked > 0); /* it struck unfinished work */
        world.marks_down = false;
        unlock();
        world_wait(world_all_done, "all rows");
        assert_in_range(world.unmarked_max, 1, 4 * 50); /* as many lanes as there are by default */
        assert_int_equal(world_duplicates(), 0);
}

/* -- O55: the marks were committed, and their answer was lost ---------------------------------------- */

/* 12: of some marks the answer to the second try is lost too. */
static void marks_without_an_answer(enum outbox_mode mode)
{
        (void)world_add(600, 40);
        world.marks_unknown = 12;
        world_config(mode)->order = RELAY_ORDER_STRICT;
        world_start();
        world_wait(world_all_done, "all rows");
        world_stop();
        assert_int_equal(world.marks_unknown, 0);
        assert_int_equal(world.logged, 600);
        assert_int_equal(world_duplicates(), 0);
        assert_false(world_said("changed by somebody else"));
}

static void o55_owned_makes_the_same_marks_again_and_sends_nothing_again(void **state)
{
        (void)state;
        world.request_rows = 1; /* nothing is under way behind the row that fails */
        world.fail_id = 1;
        marks_without_an_answer(OUTBOX_OWNED);
        assert_int_equal(world.row[0].attempts, 1); /* its try is counted once */
}

static void o55_exactly_once_sends_nothing_again_after_a_mark_without_an_answer(void **state)
{
        (void)state;
        marks_without_an_answer(OUTBOX_EXACTLY_ONCE);
}

/* -- C4, C5, C7, C7a ------------------------------------------------------------------------------ */

static void c4_a_row_that_failed_is_sent_before_the_younger_ones_of_its_key(void **state)
{
        (void)state;
        (void)world_add(400, 20);
        world.request_rows = 1; /* nothing is under way behind it */
        world.fail_id = 61;
        struct relay_config *c = world_config(OUTBOX_OWNED);
        c->order = RELAY_ORDER_STRICT;
        c->retry_min_us = 100 * MS;
        c->retry_max_us = 200 * MS;
        world_start();
        world_wait(world_all_done, "all rows");
        assert_int_equal(world.row[60].attempts, 1);
        assert_int_equal(world_duplicates(), 0);
}

static bool others_have_gone(void)
{
        lock();
        bool yes = world.row[2].gone && world.row[3].gone;
        unlock();
        return yes;
}

static void c5_a_new_owner_finds_the_keys_that_a_dead_row_blocks(void **state)
{
        (void)state;
        (void)world_add_row("a", OUTBOX_DEAD, 5);
        int64_t younger = world_add_row("a", OUTBOX_PENDING, 0);
        (void)world_add_row("b", OUTBOX_PENDING, 0);
        (void)world_add_row(NULL, OUTBOX_PENDING, 0);
        world_config(OUTBOX_OWNED)->on_dead = OUTBOX_BLOCK;
        world_start();
        world_wait(others_have_gone, "the other keys");
        world_stop();
        assert_int_equal(world.row[younger - 1].written, 0);
}

static bool all_but_the_stuck_key_have_gone(void)
{
        bool all = true;
        lock();
        for (size_t i = 0; i < world.rows && all; i++)
                all = world.row[i].gone || strcmp(world.row[i].key, world.stuck_key) == 0;
        unlock();
        return all;
}

static bool the_stuck_key_is_under_way(void)
{
        lock();
        bool yes = world.row[3].handed;
        unlock();
        return yes;
}

/* One partition cannot be written.  The first batches wait for it, as nobody knows; then its key is held, and
 * no batch waits again; nothing is counted, and all of it goes in order when the partition is back. */
static void the_others_flow(enum outbox_mode mode)
{
        world_config(mode)->batch_timeout_us = 1 * SECOND;
        world.stuck_key = "k3";
        (void)world_add(600, 12);
        world_start();
        world_wait(the_stuck_key_is_under_way, "a row that goes nowhere");
        lock();
        world.stuck_is_known = true;
        unlock();
        world_wait(all_but_the_stuck_key_have_gone, "the other keys");
        assert_true(world_said("did not answer in time"));
        lock();
        int producers = world.producers;
        unlock();
        for (int i = 0; i < 5; i++) { /* batches of the same lane, with rows of both kinds */
                (void)world_add(48, 12);
                world_wait(all_but_the_stuck_key_have_gone, "the other keys, again");
        }
        lock();
        assert_in_range(world.producers, producers, producers + 2); /* one may have been on its way */
        for (size_t i = 0; i < world.rows; i++)
                assert_int_equal(world.row[i].attempts, 0);
        world.stuck_key = NULL;
        unlock();
        world_wait(world_all_done, "the key that waited");
        assert_int_equal(world_duplicates(), 0);
        assert_int_equal(world.logged, world.rows);
}

static void c4_a_partition_that_cannot_be_written_holds_its_own_keys_only(void **state)
{
        (void)state;
        the_others_flow(OUTBOX_OWNED);
}

static void c4_and_so_in_transactions(void **state)
{
        (void)state;
        the_others_flow(OUTBOX_EXACTLY_ONCE);
}

enum { HELD_KEY_BYTES = 1000, HELD_KEYS = 1500 }; /* half as many again as a lane remembers: a megabyte */

static void add_held_keys(void)
{
        char key[HELD_KEY_BYTES + 1];
        world.topic = "held";
        for (int i = 0; i < HELD_KEYS; i++) {
                (void)snprintf(key, sizeof key, "%-*d", HELD_KEY_BYTES, i);
                (void)world_add_row(key, OUTBOX_PENDING, 0);
        }
        world.topic = "t";
}

static bool all_of_the_good_topic_have_gone(void)
{
        bool all = true;
        lock();
        for (size_t i = HELD_KEYS; i < world.rows && all; i++)
                all = world.row[i].gone;
        unlock();
        return all;
}

static bool more_wait_than_are_remembered(void)
{
        size_t n = 0;
        lock();
        for (size_t i = 0; i < HELD_KEYS; i++)
                n += world.row[i].attempts > 0;
        unlock();
        return n > HELD_KEYS / 5;
}

/* Keys for which a lane has no room wait in the database, and no slot stops for them. */
static void c4_however_many_keys_wait_the_others_flow(void **state)
{
        (void)state;
        struct relay_config *c = world_config(OUTBOX_OWNED);
        c->lanes = 1;
        c->batch_rows = 200;
        c->attempts_max = 1; /* and yet none of them is given up */
        c->retry_min_us = c->retry_max_us = 1 * SECOND;
        world.stuck_topic = "held";
        add_held_keys();
        (void)world_add(200, 100);
        for (size_t i = 0; i < world.rows; i++)
                world.row[i].slot = 3; /* more than memory has room for, before the first of the others */
        world_start();
        world_wait(all_of_the_good_topic_have_gone, "the others");
        world_wait(more_wait_than_are_remembered, "keys to wait in the database");
        lock();
        world.stuck_topic = NULL;
        unlock();
        world_wait(world_all_done, "the keys that waited");
        assert_false(world_said("are DEAD"));
        assert_int_equal(world_duplicates(), 0);
        assert_int_equal(world.logged, world.rows);
}

static bool another_producer(void)
{
        lock();
        bool yes = world.producers > 4; /* each lane had one */
        unlock();
        return yes;
}

static void the_broker_stalls(void)
{
        world.stalled = true;
}

/* The broker is silent for longer than a batch may take: what had no report is sent again by a new
 * producer, and nothing of the old one can come behind it. */
static void c7_what_had_no_report_in_time_is_sent_again_in_order(void **state)
{
        (void)state;
        (void)world_add(600, 12);
        world_config(OUTBOX_OWNED)->batch_timeout_us = 200 * MS;
        world.at_logged = 100;
        world.then = the_broker_stalls;
        world_start();
        world_wait(another_producer, "a new producer");
        lock();
        assert_true(world.logged < 600);
        world.stalled = false;
        unlock();
        world_wait(world_all_done, "all rows");
        assert_int_equal(world_duplicates(), 0);
        assert_int_equal(world.logged, 600);
}

/* One bad row: the others of its request are sent again, one by one, and so is it until it is alone; what
 * comes behind them goes in requests of many rows again. */
static void the_poison_dies_alone(enum outbox_mode mode)
{
        (void)world_add(1000, 12);
        (void)world_config(mode);
        world.poison_id = 51;
        world_start();
        world_wait(world_all_done, "all rows");
        for (size_t i = 0; i < world.rows; i++)
                assert_int_equal(world.row[i].state == OUTBOX_DEAD, world.row[i].id == 51);
        assert_int_equal(world.logged, 999);
        assert_int_equal(world_duplicates(), 0);
        assert_true(world_said("rows were refused together"));
        assert_true(world_said("goes in batches again"));
        assert_in_range(world.requests, 999 / 8, 999 / 3);
}

static void c7_one_bad_row_of_a_request_dies_alone(void **state)
{
        (void)state;
        the_poison_dies_alone(OUTBOX_OWNED);
}

static void c7_one_bad_row_of_a_transaction_dies_alone(void **state)
{
        (void)state;
        the_poison_dies_alone(OUTBOX_EXACTLY_ONCE);
}

static bool the_poison_is_dead(void)
{
        if (world.rows + 40 <= WORLD_ROWS_MAX) /* only this thread adds: the table is never empty */
                (void)world_add(40, 100);
        lock();
        bool dead = world.row[world.poison_id - 1].state == OUTBOX_DEAD;
        unlock();
        return dead;
}

/* One lane, all its slots full of rows: those that go with the poison, or before it, are no sign that it went
 * alone. */
static void c7_the_poison_dies_while_other_rows_flow(void **state)
{
        (void)state;
        (void)world_add(1500, 100);
        world_config(OUTBOX_OWNED)->lanes = 1;
        world.poison_id = 301;
        world_start();
        world_wait(the_poison_is_dead, "the poison to be DEAD");
        world_wait(world_all_done, "all rows");
        world_stop();
        assert_true(world_said("rows were refused together"));
        assert_true(world_said("goes in batches again"));
        /* One for all, one for the suspects, one for the rest; one more where younger rows of its key were
         * under way. */
        assert_in_range(world.producers, 3, 4);
        assert_int_equal(world_duplicates(), 0);
}

/* One request is in flight: the rows of the rejected one's key that were in it are all that can
 * overtake it, and they are named. */
static void c7a_a_rejected_row_is_overtaken_by_its_own_request_at_most(void **state)
{
        (void)state;
        (void)world_add(200, 1);
        (void)world_config(OUTBOX_OWNED);
        world.reject_id = 51;
        world.request_rows = 4;
        world_start();
        world_wait(world_all_done, "all rows");
        assert_int_equal(world.row[50].state, OUTBOX_DEAD);
        assert_true(world_said("overtook an elder row of their key"));
        assert_int_equal(world.logged, 199);
        assert_int_equal(world_duplicates(), 0);
}

static void c7a_with_order_strict_nothing_overtakes(void **state)
{
        (void)state;
        (void)world_add(100, 1);
        world_config(OUTBOX_OWNED)->order = RELAY_ORDER_STRICT;
        world.reject_id = 51;
        world.request_rows = 4;
        world_start();
        world_wait(world_all_done, "all rows");
        assert_int_equal(world.row[50].state, OUTBOX_DEAD);
        assert_false(world_said("overtook"));
        assert_int_equal(world.logged, 99);
}

/* -- topics ---------------------------------------------------------------------------------------- */

/* Each look costs the batch time, and may bring a deleted topic back. */
static void a_topic_that_no_row_names_any_more_is_not_looked_for(void **state)
{
        (void)state;
        struct relay_config *c = world_config(OUTBOX_OWNED);
        c->attempts_max = 1;
        c->unknown_topic_us = 0;
        world.topic = "missing";
        (void)world_add_row("a", OUTBOX_PENDING, 0);
        world_start();
        world_wait(world_all_done, "the row to be DEAD");
        size_t looks = world.looks;
        assert_true(looks > 0);
        world.topic = "t";
        int64_t end_us = clock_boot_us() + 700 * MS; /* while rows name it, it is looked for each 500 ms */
        while (clock_boot_us() < end_us) {
                (void)world_add_row("a", OUTBOX_PENDING, 0);
                world_wait(world_all_done, "a row of another topic");
        }
        assert_int_equal(world.looks, looks);
}

/* -- ready ----------------------------------------------------------------------------------------- */

/* What the admin listener answers, head and body. */
static const char *admin_says(const char *path)
{
        static char answer[1 << 15];
        char ask[128];
        size_t n = 0;
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)strtol(world_said_after("admin on port "), NULL, 10)),
                                 .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
        int fd = socket(AF_INET, SOCK_STREAM, 0), len = snprintf(ask, sizeof ask,
                                                                 "GET %s HTTP/1.1\r\nHost: world\r\n"
                                                                 "Connection: close\r\n\r\n", path);
        assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(write(fd, ask, (size_t)len), len);
        for (ssize_t got; n < sizeof answer - 1 && (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
                n += (size_t)got;
        (void)close(fd);
        answer[n] = 0;
        return answer;
}

static bool is_ready(void)
{
        return world_said("admin on port ") && strstr(admin_says("/readyz"), " 200 ");
}

static bool waits_for_the_broker(void)
{
        if (!world_said("admin on port ") || !world_said("the broker is away") || is_ready())
                return false;
        const char *metrics = admin_says("/metrics");
        return strstr(metrics, "\nsemel_relay_broker_away 1\n") && !strstr(metrics, "\nsemel_relay_lag_seconds 0\n");
}

static bool waits_for_nothing(void)
{
        if (!is_ready())
                return false;
        const char *metrics = admin_says("/metrics");
        return strstr(metrics, "\nsemel_relay_broker_away 0\n") && strstr(metrics, "\nsemel_relay_lag_seconds 0\n");
}

/* The slots go to somebody else while the broker is away: nobody here asks for it any more. */
static void who_has_no_slots_waits_for_no_broker(void **state)
{
        (void)state;
        struct relay_config *c = world_config(OUTBOX_OWNED);
        (void)snprintf(c->admin, sizeof c->admin, "127.0.0.1:0");
        world.broker_down = true;
        (void)world_add(100, 100);
        world_start();
        world_wait(waits_for_the_broker, "the relay not to be ready");
        lock();
        slots_are_taken();
        unlock();
        world_wait(waits_for_nothing, "the relay to be ready, without slots");
        assert_false(world_said("answers again"));
        lock();
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i]++;
        world.other = 0;
        unlock();
        world_wait(waits_for_the_broker, "the relay to ask again, with slots");
        lock();
        world.broker_down = false;
        unlock();
        world_wait(world_all_done, "all rows");
        world_wait(is_ready, "the relay to be ready");
        assert_true(world_said("answers again"));
}

/* -- C8 -------------------------------------------------------------------------------------------- */

static void each_is_seen_once(size_t rows)
{
        world_wait(world_all_done, "all rows");
        assert_int_equal(world.logged, rows);
        assert_int_equal(world_duplicates(), 0);
}

static void c8_a_commit_of_which_nobody_knows_and_that_was_made(void **state)
{
        (void)state;
        (void)world_add(600, 40);
        (void)world_config(OUTBOX_EXACTLY_ONCE);
        world.commit_unknown = 1;
        world_start();
        each_is_seen_once(600);
        assert_true(world_said("were committed and not marked: marked now"));
}

static void c8_a_commit_of_which_nobody_knows_and_that_was_not_made(void **state)
{
        (void)state;
        (void)world_add(600, 40);
        (void)world_config(OUTBOX_EXACTLY_ONCE);
        world.commit_unknown = 2;
        world_start();
        each_is_seen_once(600);
}

/* The mark of a transaction changes less than it should: the marker knows what was sent, and is asked
 * before another transaction replaces it. */
static void c8_no_transaction_is_committed_before_the_mark_of_the_last(void **state)
{
        (void)state;
        (void)world_add(600, 40);
        (void)world_config(OUTBOX_EXACTLY_ONCE);
        world.change_before_mark = true;
        world_start();
        each_is_seen_once(600);
}

static void the_database_goes_down(void)
{
        world.marks_down = world.beats_down = true;
        lease_end_us = world.lease_end_us;
}

static bool lease_is_over_with_all_down(void)
{
        lock();
        bool yes = world.beats_down && lease_is_long_over();
        unlock();
        return yes;
}

static void c8_a_group_that_is_lost_and_comes_back_is_recovered_first(void **state)
{
        (void)state;
        (void)world_add(800, 40);
        (void)world_config(OUTBOX_EXACTLY_ONCE);
        world.at_logged = 100;
        world.then = the_database_goes_down;
        world_start();
        world_wait(lease_is_over_with_all_down, "the lease to be over");
        lock();
        assert_true(world.unmarked > 0); /* committed, and not marked */
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i] += 2; /* somebody had them and gave them back */
        world.mine = 0;
        world.marks_down = world.beats_down = false;
        unlock();
        each_is_seen_once(800);
}

static bool owns_all(void)
{
        return world_said("owns 16 of 16");
}

static void c8_who_gets_a_group_back_asks_the_marker_first(void **state)
{
        (void)state;
        (void)world_config(OUTBOX_EXACTLY_ONCE);
        (void)world_add(20, 20);
        world_start();
        world_wait(world_all_done, "all slots to work");
        assert_true(owns_all());
        lock();
        slots_are_taken();
        unlock();
        world_wait(lost_is_said, "the loss to be said");
        (void)world_add(40, 40);
        world_other_commits();
        lock();
        for (int i = 0; i < EVENT_SLOTS; i++)
                world.epoch[i]++;
        world.other = 0;
        unlock();
        each_is_seen_once(60);
}

/* -- all of it, at random -------------------------------------------------------------------------- */

static uint64_t chance_state;

static int chance(int n)
{
        chance_state ^= chance_state << 13;
        chance_state ^= chance_state >> 7;
        chance_state ^= chance_state << 17;
        return (int)(chance_state % (uint64_t)n);
}

/* With the lock held.  How many rows this one may make come twice. */
static size_t one_fault(void)
{
        size_t twice = 0;
        switch (chance(8)) {
        case 0:
                world.stalled = !world.stalled;
                break;
        case 1:
                world.marks_down = !world.marks_down;
                break;
        case 2:
                world.beats_down = !world.beats_down;
                break;
        case 3:
                for (int i = 0; i < EVENT_SLOTS && world.other; i++)
                        world.epoch[i]++;
                world.other = 0;
                break;
        case 4:
                world.commit_unknown = 1 + chance(2);
                break;
        case 5:
                world.mark_us = chance(20) * MS;
                break;
        case 6:
                world.marks_unknown = 1;
                break;
        default:
                world.change_before_mark = true;
                twice = 1;
                break;
        }
        return twice;
}

/* Somebody takes over, well behind the lease. */
static size_t takeover(void)
{
        size_t twice = 0;
        lock();
        world.beats_down = true;
        lease_end_us = world.lease_end_us;
        unlock();
        world_wait(lease_is_long_over, "the lease to be over");
        lock();
        slots_are_taken();
        for (size_t i = 0; i < world.rows; i++)
                twice += world.row[i].written > 0 && !world.row[i].gone;
        unlock();
        return twice;
}

static size_t random_faults(enum outbox_mode mode)
{
        const char *text = getenv("SEMEL_TEST_SEED");
        chance_state = text ? strtoull(text, NULL, 10) : (uint64_t)clock_wall_us();
        print_message("SEMEL_TEST_SEED=%llu\n", (unsigned long long)chance_state);
        size_t twice = 0;
        struct relay_config *c = world_config(mode);
        c->batch_timeout_us = 200 * MS;
        c->slot_lease_us = 300 * MS;
        world_start();
        for (int step = 0; step < 120; step++) {
                (void)world_add((size_t)chance(20), 60);
                if (chance(15) == 0)
                        twice += takeover();
                lock();
                twice += one_fault();
                unlock();
                int64_t until_us = clock_boot_us() + chance(40) * MS;
                while (clock_boot_us() < until_us)
                        world_pass(1 * MS);
        }
        lock();
        world.stalled = world.marks_down = world.beats_down = world.change_before_mark = false;
        world.mark_us = 0;
        world.other = 0;
        unlock();
        world_wait(world_all_done, "all rows");
        return twice;
}

static void c1_c2_c3_c4_hold_under_random_faults(void **state)
{
        (void)state;
        size_t twice = random_faults(OUTBOX_OWNED), duplicates = world_duplicates();
        print_message("   %zu rows, %zu duplicates, %zu allowed\n", world.rows, duplicates, twice);
        assert_true(duplicates <= twice);
}

static void c8_holds_under_random_faults(void **state)
{
        (void)state;
        (void)random_faults(OUTBOX_EXACTLY_ONCE);
        assert_int_equal(world_duplicates(), 0);
        assert_int_equal(world.logged, world.rows);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        const struct CMUnitTest tests[] = {
                T(c1_o15_nothing_is_handed_over_after_the_lease),
                T(c1_the_lease_counts_from_before_the_beat_was_sent),
                T(c1_who_lost_its_slots_hands_nothing_more_over_and_marks_nothing),
                T(c1_a_mark_that_finds_its_slot_lost_ends_the_ownership),
                T(c2_o12_slots_move_when_nothing_of_them_is_unmarked),
                T(c3_without_a_fault_no_row_is_written_twice),
                T(c12_at_most_a_batch_of_each_lane_is_unmarked),
                T(o55_owned_makes_the_same_marks_again_and_sends_nothing_again),
                T(o55_exactly_once_sends_nothing_again_after_a_mark_without_an_answer),
                T(c4_a_row_that_failed_is_sent_before_the_younger_ones_of_its_key),
                T(c5_a_new_owner_finds_the_keys_that_a_dead_row_blocks),
                T(c4_a_partition_that_cannot_be_written_holds_its_own_keys_only),
                T(c4_and_so_in_transactions),
                T(c4_however_many_keys_wait_the_others_flow),
                T(c7_what_had_no_report_in_time_is_sent_again_in_order),
                T(c7_one_bad_row_of_a_request_dies_alone),
                T(c7_one_bad_row_of_a_transaction_dies_alone),
                T(c7_the_poison_dies_while_other_rows_flow),
                T(c7a_a_rejected_row_is_overtaken_by_its_own_request_at_most),
                T(c7a_with_order_strict_nothing_overtakes),
                T(a_topic_that_no_row_names_any_more_is_not_looked_for),
                T(who_has_no_slots_waits_for_no_broker),
                T(c8_a_commit_of_which_nobody_knows_and_that_was_made),
                T(c8_a_commit_of_which_nobody_knows_and_that_was_not_made),
                T(c8_no_transaction_is_committed_before_the_mark_of_the_last),
                T(c8_a_group_that_is_lost_and_comes_back_is_recovered_first),
                T(c8_who_gets_a_group_back_asks_the_marker_first),
                T(c1_c2_c3_c4_hold_under_random_faults),
                T(c8_holds_under_random_faults),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests_name("relay rules", tests, NULL, NULL);
}
