/* SPDX-License-Identifier: Apache-2.0
 *
 * A6 on SQLite: leases live on one boot's clock, and no step of the wall clock, no reboot and no
 * restored file makes a key expire or a lease end before its time.
 */
#include "sqlite_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "core/limits.h"

static const struct sqlite_boot_id boot_a = {{0xa}}, boot_b = {{0xb}};

static const struct span small = {(const uint8_t *)"ok", 2};

/* -- the mark alone --------------------------------------------------------------------- */

static void a6_a_step_freezes_expiry_until_the_clock_is_stable(void **state)
{
        (void)state;
        struct sqlite_mark mark;
        struct command_now now;
        int64_t boot_us = 10 * SECOND, wall_us = 1000 * HOUR;
        sqlite_mark_init(&mark, &boot_a, boot_us, wall_us);
        assert_false(sqlite_mark_read(&mark, boot_us, wall_us, &now));
        assert_false(now.expiry_frozen);

        /* a second of difference is nothing: NTP slews, clocks are read one after the other */
        assert_false(sqlite_mark_read(&mark, boot_us, wall_us + SQLITE_STEP_US, &now));
        assert_false(now.expiry_frozen);

        wall_us += 24 * HOUR;
        assert_true(sqlite_mark_read(&mark, boot_us, wall_us, &now));
        assert_true(now.expiry_frozen);
        assert_int_equal(now.wall_us, 1000 * HOUR); /* the file's own calendar did not step */
        assert_int_equal(now.wall_us + mark.lag_us, wall_us);

        boot_us += SQLITE_SETTLE_US - 1;
        wall_us += SQLITE_SETTLE_US - 1;
        (void)sqlite_mark_read(&mark, boot_us, wall_us, &now);
        assert_true(now.expiry_frozen);
        assert_true(sqlite_mark_read(&mark, boot_us + 1, wall_us + 1, &now));
        assert_false(now.expiry_frozen);
        assert_int_equal(now.wall_us, 1000 * HOUR + SQLITE_SETTLE_US);
}

static void a6_a_clock_that_keeps_stepping_stays_frozen(void **state)
{
        (void)state;
        struct sqlite_mark mark;
        struct command_now now;
        int64_t boot_us = 10 * SECOND, wall_us = 1000 * HOUR;
        sqlite_mark_init(&mark, &boot_a, boot_us, wall_us);
        for (int i = 0; i < 20; i++) {
                boot_us += SQLITE_SETTLE_US / 2;
                wall_us += SQLITE_SETTLE_US / 2 + (i % 2 ? 5 : -5) * SECOND;
                assert_true(sqlite_mark_read(&mark, boot_us, wall_us, &now));
                assert_true(now.expiry_frozen);
        }
}

static void a6_time_off_is_credited_and_taken_back_when_the_clock_was_wrong(void **state)
{
        (void)state;
        struct sqlite_mark mark;
        struct command_now now;
        int64_t start_us = 1000 * HOUR;
        sqlite_mark_init(&mark, &boot_a, 10 * SECOND, start_us);

        /* off for two hours, but the battery is dead: ten years later, it seems */
        int64_t years_us = INT64_C(87600) * HOUR;
        sqlite_mark_reboot(&mark, &boot_b, SECOND, start_us + years_us);
        assert_int_equal(mark.boot_no, 2);
        (void)sqlite_mark_read(&mark, SECOND, start_us + years_us, &now);
        assert_true(now.expiry_frozen);
        assert_int_equal(now.wall_us, start_us + years_us);

        /* NTP comes */
        (void)sqlite_mark_read(&mark, 10 * SECOND, start_us + 2 * HOUR + 9 * SECOND, &now);
        assert_true(now.expiry_frozen);
        assert_int_equal(now.wall_us, start_us + 2 * HOUR + 9 * SECOND);
        assert_int_equal(mark.lag_us, 0);
}

static void a6_a_reboot_into_the_past_lets_no_time_pass(void **state)
{
        (void)state;
        struct sqlite_mark mark;
        struct command_now now;
        sqlite_mark_init(&mark, &boot_a, 10 * SECOND, 1000 * HOUR);
        sqlite_mark_reboot(&mark, &boot_b, SECOND, HOUR);
        (void)sqlite_mark_read(&mark, SECOND, HOUR, &now);
        assert_int_equal(now.wall_us, 1000 * HOUR);
        (void)sqlite_mark_read(&mark, 2 * SECOND, 1010 * HOUR, &now); /* forward: not credited */
        assert_int_equal(now.wall_us, 1000 * HOUR + SECOND);
        assert_true(now.expiry_frozen);
}

static void a6_a_boot_clock_that_goes_back_stands_still(void **state)
{
        (void)state;
        struct sqlite_mark mark;
        struct command_now now;
        sqlite_mark_init(&mark, &boot_a, 1000 * SECOND, 1000 * HOUR);
        assert_true(sqlite_mark_read(&mark, 10 * SECOND, 1000 * HOUR, &now));
        assert_true(now.expiry_frozen);
        assert_int_equal(now.wall_us, 1000 * HOUR);
}

static uint64_t rng_state;

static uint64_t rng(void)
{
        rng_state ^= rng_state << 13;
        rng_state ^= rng_state >> 7;
        rng_state ^= rng_state << 17;
        return rng_state;
}

/* Whatever the wall clock does within a boot, the own calendar is real time: what was kept for an
 * hour is kept for an hour of CLOCK_BOOTTIME, and never less. */
static void a6_random_steps_never_make_time_run_faster(void **state)
{
        (void)state;
        const char *given = getenv("SEMEL_TEST_SEED");
        uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_boot_us();
        print_message("SEMEL_TEST_SEED=%llu\n", (unsigned long long)seed);
        rng_state = seed | 1;
        struct sqlite_mark mark;
        struct command_now first, now;
        int64_t boot_us = SECOND, wall_us = 1000 * HOUR;
        sqlite_mark_init(&mark, &boot_a, boot_us, wall_us);
        (void)sqlite_mark_read(&mark, boot_us, wall_us, &first);
        int64_t start_us = boot_us;
        for (int i = 0; i < 100000; i++) {
                int64_t passed_us = (int64_t)(rng() % (40 * SECOND));
                boot_us += passed_us;
                wall_us += passed_us;
                if (rng() % 4 == 0)
                        wall_us += (int64_t)(rng() % (2000 * HOUR)) - 1000 * HOUR;
                (void)sqlite_mark_read(&mark, boot_us, wall_us, &now);
                assert_int_equal(now.wall_us - first.wall_us, boot_us - start_us);
                int64_t away_us = wall_us - (now.wall_us + mark.lag_us);
                assert_true(away_us <= SQLITE_STEP_US && away_us >= -SQLITE_STEP_US);
        }
}

/* -- stores ------------------------------------------------------------------------------ */

static int setup(void **state)
{
        static struct sqlite_world w;
        world_init(&w);
        w.hooks.boot_id = &boot_a;
        *state = &w;
        return 0;
}

static int teardown(void **state)
{
        world_release(*state);
        return 0;
}

static struct store *reboot(struct sqlite_world *w, struct store *st, int64_t boot_us)
{
        world_close(st);
        w->hooks.boot_id = w->hooks.boot_id == &boot_a ? &boot_b : &boot_a;
        w->boot_us = boot_us;
        return world_open(w);
}

static void a6_a_lease_of_another_boot_is_over(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim retry = claim_of(1, true), hold = claim_of(2, false);
        assert_int_equal(try_claim(st, &retry), COMMAND_RUN);
        assert_int_equal(try_claim(st, &hold), COMMAND_RUN);
        struct command_claim other = claim_of(1, true);
        assert_int_equal(try_claim(st, &other), COMMAND_BUSY);

        /* by either clock both leases are alive; only the boot's number tells */
        st = reboot(w, st, w->boot_us + 5 * SECOND);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &other), SEMEL_OK);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        assert_true(op.out.claim.answer.took_over);
        store_op_release(&op);
        struct command_claim again = claim_of(2, false);
        assert_int_equal(try_claim(st, &again), COMMAND_IS_UNKNOWN);

        /* and the request of that boot is long gone: an operator need not wait (A5b) */
        store_op_init(&op, STORE_RESOLVE);
        op.deadline_us = op_deadline_us();
        op.in.resolve.resolve = (struct command_resolve){.kind = COMMAND_RESOLVE_NOT_EXECUTED,
                                                         .id = hold.id,
                                                         .attempt = hold.attempt,
                                                         .looked_us = clock_boot_us()};
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.resolve.outcome, COMMAND_RESOLVED);
        store_op_release(&op);
        world_close(st);
}

static void shows_moments_of_another_boot(struct store *st, const struct command_claim *claim,
                                         enum command_state state)
{
        struct store_op op;
        store_op_init(&op, STORE_GET);
        op.deadline_us = op_deadline_us();
        op.in.get.id = claim->id;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.get.row.state, state);
        assert_int_equal(op.out.get.row.claimed_us, 0);
        assert_int_equal(op.out.get.row.lease_until_us, 0);
        assert_int_equal(op.out.get.row.request_until_us, 0);
        store_op_release(&op);
}

static void sweep(struct store *st, int64_t unknown, int64_t deleted)
{
        struct store_op op;
        store_op_init(&op, STORE_SWEEP);
        op.deadline_us = op_deadline_us();
        op.in.sweep.max = 10;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.sweep.unknown, unknown);
        assert_int_equal(op.out.sweep.deleted, deleted);
        store_op_release(&op);
}

/* Also when the row was written since: nobody takes its zeros for times of that later boot. */
static void a6_moments_of_another_boot_stay_unknown(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false);
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        st = reboot(w, st, 20 * SECOND);
        shows_moments_of_another_boot(st, &claim, COMMAND_IN_FLIGHT);
        sweep(st, 1, 0);
        shows_moments_of_another_boot(st, &claim, COMMAND_UNKNOWN);
        st = reboot(w, st, 20 * SECOND);
        shows_moments_of_another_boot(st, &claim, COMMAND_UNKNOWN);
        world_close(st);
}

static void a6_a_second_live_boot_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        semel_error err = {0};
        w->hooks.boot_id = &boot_b;
        assert_int_equal(world_open_fails(w, &err), SEMEL_ERR_UNSAFE);
        assert_non_null(strstr(err.text, "another boot id"));
        run_once(st, 1, small); /* the first goes on */
        world_close(st);
        st = world_open(w); /* nobody lives in the other boot now */
        run_once(st, 2, small);
        world_close(st);
}

/* Where the other machine's locks cannot be seen, the mark tells. */
static void a6_a_store_stops_when_the_mark_is_another_boots(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        run_once(st, 1, small);
        sqlite3 *db = world_db(w);
        db_exec(db, "UPDATE semel_meta SET boot_id = zeroblob(16), boot_no = boot_no + 1");
        struct command_claim claim = claim_of(2, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_ERR_UNSAFE);
        store_op_release(&op);
        store_op_init(&op, STORE_GET);
        op.deadline_us = op_deadline_us();
        op.in.get.id = claim.id;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_ERR_UNSAFE);
        store_op_release(&op);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_command"), 1);
        (void)sqlite3_close(db);
        world_close(st);
}

/* Settle: operations at both ends of the time. */
static void settle(struct sqlite_world *w, struct store *st)
{
        struct command_claim look = claim_of(1, false);
        (void)try_claim(st, &look);
        world_advance(w, SQLITE_SETTLE_US);
        (void)try_claim(st, &look);
}

static void expires_after_its_retention(struct sqlite_world *w, struct store *st, int64_t left_us)
{
        struct command_claim again = claim_of(1, false);
        world_advance(w, left_us - 1);
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        world_advance(w, 1);
        assert_int_equal(try_claim(st, &again), COMMAND_RUN);
}

static void wall_step(struct sqlite_world *w, int64_t step_us)
{
        struct store *st = world_open(w);
        struct command_claim again = claim_of(1, false);
        run_once(st, 1, small);
        w->wall_us += step_us;
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        settle(w, st);
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        expires_after_its_retention(w, st, WORLD_RETENTION_US - SQLITE_SETTLE_US);
        world_close(st);
}

static void a6_a_step_forward_expires_nothing(void **state)
{
        wall_step(*state, 48 * HOUR);
}

static void a6_a_step_back_keeps_nothing_for_ever(void **state)
{
        wall_step(*state, -48 * HOUR);
}

static void a6_nothing_expires_while_the_clocks_disagree(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim again = claim_of(1, false);
        run_once(st, 1, small);
        world_advance(w, WORLD_RETENTION_US - SECOND);
        w->wall_us += 10 * SECOND;
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        world_advance(w, 2 * SECOND); /* past its time, but who knows */
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        sweep(st, 0, 0);
        world_advance(w, SQLITE_SETTLE_US);
        assert_int_equal(try_claim(st, &again), COMMAND_RUN);
        world_close(st);
}

static void a6_a_dead_battery_expires_nothing(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim again = claim_of(1, false);
        run_once(st, 1, small);
        int64_t ten_years_us = INT64_C(87600) * HOUR;
        w->wall_us += ten_years_us;
        st = reboot(w, st, 20 * SECOND);
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        world_advance(w, 20 * SECOND);
        w->wall_us -= ten_years_us - 5 * 60 * SECOND; /* NTP: it was off for five minutes */
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        settle(w, st);
        int64_t passed_us = 5 * 60 * SECOND + 20 * SECOND + SQLITE_SETTLE_US;
        expires_after_its_retention(w, st, WORLD_RETENTION_US - passed_us);
        world_close(st);
}

static void a6_time_off_counts_once_the_clock_is_stable(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim again = claim_of(1, false);
        run_once(st, 1, small);
        w->wall_us += 2 * WORLD_RETENTION_US;
        st = reboot(w, st, 20 * SECOND);
        assert_int_equal(try_claim(st, &again), COMMAND_REPLAY);
        settle(w, st);
        again = claim_of(1, false);
        assert_int_equal(try_claim(st, &again), COMMAND_BUSY); /* settle()'s second claim RUNs */
        world_close(st);
}

/* A machine snapshot: the same boot id, an older clock, a file that knows the future. */
static void a6_a_lease_that_ends_beyond_its_own_length_is_over(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, true), next = claim_of(1, true);
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        w->boot_us -= 300 * SECOND;
        assert_int_equal(try_claim(st, &next), COMMAND_RUN);
        world_close(st);
}

/* People read times of the wall clock, also of rows that were written before it stepped. */
static void a6_times_are_shown_on_the_wall_clock_of_now(void **state)
{
        struct sqlite_world *w = *state;
        int64_t really_us = w->wall_us;
        w->wall_us = 0; /* no battery: 1970 */
        struct store *st = world_open(w);
        run_once(st, 1, small);
        w->wall_us = really_us;
        struct store_op op;
        store_op_init(&op, STORE_GET);
        op.deadline_us = op_deadline_us();
        op.in.get.id = claim_of(1, false).id;
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.get.row.created_us, really_us);
        assert_int_equal(op.out.get.row.expire_us, really_us + WORLD_RETENTION_US);
        assert_int_equal(op.out.get.now.wall_us, really_us);
        store_op_release(&op);
        world_close(st);
}

int main(void)
{
        const struct CMUnitTest mark[] = {
                cmocka_unit_test(a6_a_step_freezes_expiry_until_the_clock_is_stable),
                cmocka_unit_test(a6_a_clock_that_keeps_stepping_stays_frozen),
                cmocka_unit_test(a6_time_off_is_credited_and_taken_back_when_the_clock_was_wrong),
                cmocka_unit_test(a6_a_reboot_into_the_past_lets_no_time_pass),
                cmocka_unit_test(a6_a_boot_clock_that_goes_back_stands_still),
                cmocka_unit_test(a6_random_steps_never_make_time_run_faster),
        };
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest stores[] = {
                TEST(a6_a_lease_of_another_boot_is_over),
                TEST(a6_moments_of_another_boot_stay_unknown),
                TEST(a6_a_second_live_boot_is_refused),
                TEST(a6_a_store_stops_when_the_mark_is_another_boots),
                TEST(a6_a_step_forward_expires_nothing),
                TEST(a6_a_step_back_keeps_nothing_for_ever),
                TEST(a6_nothing_expires_while_the_clocks_disagree),
                TEST(a6_a_dead_battery_expires_nothing),
                TEST(a6_time_off_counts_once_the_clock_is_stable),
                TEST(a6_a_lease_that_ends_beyond_its_own_length_is_over),
                TEST(a6_times_are_shown_on_the_wall_clock_of_now),
        };
        int failed = cmocka_run_group_tests_name("a6_mark", mark, NULL, NULL);
        return failed + cmocka_run_group_tests_name("a6_stores", stores, NULL, NULL);
}
