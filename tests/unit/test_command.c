/* SPDX-License-Identifier: Apache-2.0
 *
 * The state machine: both tables of docs/states.md written down a second time, by hand, and every
 * cell asked from core/command.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "core/command.h"

static const struct command_now NOW = {.lease_us = 1000000, .wall_us = 5000000};
static const struct command_policy HOLD = {false, false}, RETRY = {true, false},
                                   IDEM = {false, true};

static struct command_row row_in(enum command_state state, struct command_policy policy)
{
        struct command_row row = {.state = state,
                                  .token = 7,
                                  .policy = policy,
                                  .lease_len_us = 1000,
                                  .lease_until_us = NOW.lease_us + 500,
                                  .claimed_us = NOW.lease_us - 500,
                                  .request_until_us = NOW.lease_us + 500,
                                  .retention_us = 9000,
                                  .expire_us = NOW.wall_us + 100};
        row.attempt.b[0] = 1;
        return row;
}

static struct command_claim claim_by(struct command_policy policy)
{
        struct command_claim claim = {
                .policy = policy, .lease_us = 2000, .retention_us = 9000, .request_us = 2000};
        claim.attempt.b[0] = 2;
        return claim;
}

static void claim_without_row_inserts(void **state)
{
        (void)state;
        struct command_row row = {0};
        struct command_claim claim = claim_by(HOLD);
        struct command_answer a = command_claim(&row, false, &claim, NOW);
        assert_int_equal(a.outcome, COMMAND_RUN);
        assert_true(a.inserted && a.changed && !a.took_over);
        assert_int_equal(row.state, COMMAND_IN_FLIGHT);
        assert_int_equal(row.token, NOW.wall_us); /* A1: tokens rise over purges */
        assert_int_equal(row.lease_until_us, NOW.lease_us + 2000);
        assert_int_equal(a.lease_left_us, 2000);
}

/* One line per cell: the row, the two policies, same request or not -> outcome, state after. */
static const struct claim_cell {
        const char *name;
        enum command_state state;
        struct command_policy row_policy, claim_policy;
        bool lease_over, expired, other_request;
        enum command_outcome outcome;
        enum command_state after;
        bool took_over;
} claim_cells[] = {
#define H {false, false}
#define R {true, false}
#define I {false, true}
        {"free", COMMAND_FREE, H, H, 0, 0, 0, COMMAND_RUN, COMMAND_IN_FLIGHT, false},
        {"free, other", COMMAND_FREE, H, H, 0, 0, 1, COMMAND_RUN, COMMAND_IN_FLIGHT, false},
        {"expired", COMMAND_COMPLETED, H, H, 0, 1, 0, COMMAND_RUN, COMMAND_IN_FLIGHT, false},
        {"expired, other", COMMAND_COMPLETED, H, H, 0, 1, 1, COMMAND_RUN, COMMAND_IN_FLIGHT, false},
        {"leased", COMMAND_IN_FLIGHT, R, R, 0, 0, 0, COMMAND_BUSY, COMMAND_IN_FLIGHT, false},
        {"leased, other", COMMAND_IN_FLIGHT, H, H, 0, 0, 1, COMMAND_MISMATCH, COMMAND_IN_FLIGHT, false},
        {"A3 in flight never expires", COMMAND_IN_FLIGHT, H, H, 0, 1, 0, COMMAND_BUSY, COMMAND_IN_FLIGHT, false},
        {"over, hold", COMMAND_IN_FLIGHT, H, H, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"over, hold row, retry caller", COMMAND_IN_FLIGHT, H, R, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"over, retry row, hold caller", COMMAND_IN_FLIGHT, R, H, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"over, retry", COMMAND_IN_FLIGHT, R, R, 1, 0, 0, COMMAND_RUN, COMMAND_IN_FLIGHT, true},
        {"over, idempotent", COMMAND_IN_FLIGHT, I, I, 1, 0, 0, COMMAND_RUN, COMMAND_IN_FLIGHT, true},
        {"over, other", COMMAND_IN_FLIGHT, R, R, 1, 0, 1, COMMAND_MISMATCH, COMMAND_IN_FLIGHT, false},
        {"completed", COMMAND_COMPLETED, H, H, 0, 0, 0, COMMAND_REPLAY, COMMAND_COMPLETED, false},
        {"completed, retry", COMMAND_COMPLETED, R, R, 0, 0, 0, COMMAND_REPLAY, COMMAND_COMPLETED, false},
        {"completed, other", COMMAND_COMPLETED, H, H, 0, 0, 1, COMMAND_MISMATCH, COMMAND_COMPLETED, false},
        {"unknown", COMMAND_UNKNOWN, H, H, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"A3 unknown never expires", COMMAND_UNKNOWN, H, H, 1, 1, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"unknown, retry", COMMAND_UNKNOWN, R, R, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"unknown, idempotent", COMMAND_UNKNOWN, I, I, 1, 0, 0, COMMAND_RUN, COMMAND_IN_FLIGHT, true},
        {"unknown, idempotent row only", COMMAND_UNKNOWN, I, H, 1, 0, 0, COMMAND_IS_UNKNOWN, COMMAND_UNKNOWN, false},
        {"unknown, other", COMMAND_UNKNOWN, I, I, 1, 0, 1, COMMAND_MISMATCH, COMMAND_UNKNOWN, false},
#undef H
#undef R
#undef I
};

static void every_cell_of_the_claim_table(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof claim_cells / sizeof claim_cells[0]; i++) {
                const struct claim_cell *c = &claim_cells[i];
                struct command_row row = row_in(c->state, c->row_policy);
                if (c->lease_over)
                        row.lease_until_us = NOW.lease_us;
                if (c->expired)
                        row.expire_us = NOW.wall_us;
                struct command_claim claim = claim_by(c->claim_policy);
                claim.fingerprint.b[0] = c->other_request;
                struct command_answer a = command_claim(&row, true, &claim, NOW);
                if (a.outcome != c->outcome || row.state != c->after || a.took_over != c->took_over)
                        fail_msg("%s: %s, row %s", c->name, command_outcome_name(a.outcome),
                                 command_state_name(row.state));
                assert_int_equal(row.token, a.outcome == COMMAND_RUN ? 8 : 7);
                assert_int_equal(row.maybe_executed, c->took_over);
        }
}

static void lease_boundaries(void **state)
{
        (void)state;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
        row.lease_until_us = NOW.lease_us + 1;
        assert_false(command_lease_over(&row, NOW));
        row.lease_until_us = NOW.lease_us;
        assert_true(command_lease_over(&row, NOW));
        row.lease_until_us = NOW.lease_us + row.lease_len_us; /* just given */
        assert_false(command_lease_over(&row, NOW));
        row.lease_until_us++; /* A6: given by another clock */
        assert_true(command_lease_over(&row, NOW));
}

static void a7_the_same_attempt_is_answered_run_again(void **state)
{
        (void)state;
        struct command_row row = {0};
        struct command_claim claim = claim_by(HOLD);
        (void)command_claim(&row, false, &claim, NOW);
        struct command_answer again = command_claim(&row, true, &claim, NOW);
        assert_int_equal(again.outcome, COMMAND_RUN);
        assert_false(again.changed);
        assert_int_equal(again.token, row.token);
}

static void every_cell_of_the_write_table(void **state)
{
        (void)state;
        /*                    FREE IN_FLIGHT COMPLETED UNKNOWN */
        static const enum command_write_outcome want[COMMAND_WRITE_KINDS][COMMAND_STATES] = {
                {COMMAND_LOST, COMMAND_DONE, COMMAND_DONE, COMMAND_DONE},
                {COMMAND_DONE, COMMAND_DONE, COMMAND_LOST, COMMAND_LOST},
                {COMMAND_DONE, COMMAND_DONE, COMMAND_LOST, COMMAND_DONE},
                {COMMAND_LOST, COMMAND_DONE, COMMAND_LOST, COMMAND_LOST},
                {COMMAND_NOTHING, COMMAND_DONE, COMMAND_NOTHING, COMMAND_DONE},
        };
        static const enum command_state after[COMMAND_WRITE_KINDS][COMMAND_STATES] = {
                {COMMAND_FREE, COMMAND_COMPLETED, COMMAND_COMPLETED, COMMAND_COMPLETED},
                {COMMAND_FREE, COMMAND_FREE, COMMAND_COMPLETED, COMMAND_UNKNOWN},
                {COMMAND_FREE, COMMAND_FREE, COMMAND_COMPLETED, COMMAND_FREE},
                {COMMAND_FREE, COMMAND_IN_FLIGHT, COMMAND_COMPLETED, COMMAND_UNKNOWN},
                {COMMAND_FREE, COMMAND_UNKNOWN, COMMAND_COMPLETED, COMMAND_UNKNOWN},
        };
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++)
                for (int s = 0; s < COMMAND_STATES; s++) {
                        struct command_row row = row_in((enum command_state)s, HOLD);
                        struct command_write w = {.kind = (enum command_write_kind)k,
                                                  .token = 7,
                                                  .attempt = row.attempt,
                                                  .lease_us = 4000};
                        struct command_write_answer a = command_write(&row, true, &w, NOW);
                        if (a.outcome != want[k][s] || row.state != after[k][s])
                                fail_msg("%s on %s", command_write_kind_name(w.kind),
                                         command_state_name((enum command_state)s));
                        assert_int_equal(a.self_resolved,
                                         k == COMMAND_COMPLETE && s == COMMAND_UNKNOWN);
                }
}

static void a1_every_write_is_fenced_by_token_and_attempt(void **state)
{
        (void)state;
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++)
                for (int s = 0; s < COMMAND_STATES; s++)
                        for (int wrong = 0; wrong < 3; wrong++) {
                                struct command_row row = row_in((enum command_state)s, RETRY);
                                const struct command_row before = row;
                                struct command_write w = {.kind = (enum command_write_kind)k,
                                                          .token = wrong == 0 ? 6 : 7,
                                                          .attempt = row.attempt,
                                                          .lease_us = 4000};
                                if (wrong == 1)
                                        w.attempt.b[15] ^= 1;
                                struct command_write_answer a =
                                        command_write(&row, wrong != 2, &w, NOW);
                                assert_int_equal(a.outcome, COMMAND_LOST);
                                assert_memory_equal(&row, &before, sizeof row);
                        }
}

static void a3_entering_completed_or_free_starts_the_retention(void **state)
{
        (void)state;
        static const enum command_write_kind kinds[] = {COMMAND_COMPLETE, COMMAND_RELEASE,
                                                        COMMAND_RELEASE_NOT_EXECUTED};
        for (int i = 0; i < 3; i++) {
                struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
                row.expire_us = 1;
                struct command_write w = {.kind = kinds[i], .token = 7, .attempt = row.attempt};
                (void)command_write(&row, true, &w, NOW);
                assert_int_equal(row.expire_us, NOW.wall_us + 9000);
        }
        struct command_row row = row_in(COMMAND_UNKNOWN, HOLD);
        row.expire_us = 1;
        row.lease_until_us = row.request_until_us = NOW.lease_us;
        struct command_resolve res = {.kind = COMMAND_RESOLVE_EXECUTED, .attempt = row.attempt};
        int64_t wait_us;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us), COMMAND_RESOLVED);
        assert_int_equal(row.expire_us, NOW.wall_us + 9000);
}

static void a5a_a_release_after_a_takeover_does_not_free(void **state)
{
        (void)state;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, RETRY);
        row.lease_until_us = NOW.lease_us - 1;
        struct command_claim claim = claim_by(RETRY);
        struct command_answer a = command_claim(&row, true, &claim, NOW);
        assert_true(a.took_over);
        struct command_write w = {
                .kind = COMMAND_RELEASE, .token = a.token, .attempt = claim.attempt};
        assert_int_equal(command_write(&row, true, &w, NOW).outcome, COMMAND_DONE);
        assert_int_equal(row.state, COMMAND_IN_FLIGHT);
        assert_true(command_lease_over(&row, NOW));

        struct command_claim other = claim_by(RETRY);
        other.fingerprint.b[0] = 9;
        other.attempt.b[0] = 3;
        assert_int_equal(command_claim(&row, true, &other, NOW).outcome, COMMAND_MISMATCH);
}

static void a5a_unknown_under_retry_ends_the_lease(void **state)
{
        (void)state;
        const struct command_policy policies[2] = {RETRY, IDEM};
        for (int i = 0; i < 2; i++) {
                struct command_row row = row_in(COMMAND_IN_FLIGHT, policies[i]);
                struct command_write w = {
                        .kind = COMMAND_MARK_UNKNOWN, .token = 7, .attempt = row.attempt};
                (void)command_write(&row, true, &w, NOW);
                assert_int_equal(row.state, COMMAND_IN_FLIGHT);
                assert_true(row.maybe_executed && command_lease_over(&row, NOW));
        }
}

static void a5b_resolve_is_guarded(void **state)
{
        (void)state;
        int64_t wait_us = 0;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
        struct command_resolve res = {.kind = COMMAND_RESOLVE_EXECUTED, .attempt = row.attempt};
        res.new_attempt.b[0] = 77;
        res.looked_us = NOW.lease_us;

        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us), COMMAND_RESOLVE_LEASED);
        assert_int_equal(wait_us, 500);
        assert_int_equal(command_resolve(&row, false, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_CHANGED);

        row.state = COMMAND_UNKNOWN; /* marked so before the lease was over */
        res.kind = COMMAND_RESOLVE_NOT_EXECUTED;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_TOO_EARLY);
        row.lease_until_us = NOW.lease_us - 1;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_TOO_EARLY); /* the request may still travel */
        row.request_until_us = NOW.lease_us;
        res.attempt.b[0] ^= 1;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_CHANGED);
        res.attempt.b[0] ^= 1;
        res.token = 6; /* the same attempt, acquired twice by a claim that landed twice */
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_CHANGED);
        res.token = 7;
        res.looked_us--; /* the request might still have travelled then */
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_LOOKED_EARLY);
        res.looked_us++;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us), COMMAND_RESOLVED);
        assert_int_equal(row.state, COMMAND_FREE);
        assert_int_equal(row.token, 8);
        assert_int_equal(row.attempt.b[0], 77);

        res.new_attempt.b[0] = 78;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us),
                         COMMAND_RESOLVE_CHANGED); /* shown before it changed */
        res.attempt = row.attempt;
        res.token = row.token;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us), COMMAND_RESOLVE_STATE);
}

/* Found by the simulator: an operator waits for request_until, and the holder extends meanwhile. */
static void a5b_extend_moves_the_longest_life_of_the_request(void **state)
{
        (void)state;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
        row.lease_until_us = NOW.lease_us + 10;
        row.request_until_us = NOW.lease_us + 300;
        struct command_write w = {
                .kind = COMMAND_EXTEND, .token = 7, .attempt = row.attempt, .lease_us = 1000};
        assert_int_equal(command_write(&row, true, &w, NOW).outcome, COMMAND_DONE);
        assert_int_equal(row.lease_until_us, NOW.lease_us + 1000);
        assert_int_equal(row.request_until_us, NOW.lease_us + 300 + 990);

        w.lease_us = 400; /* a shorter lease takes nothing back */
        assert_int_equal(command_write(&row, true, &w, NOW).outcome, COMMAND_DONE);
        assert_int_equal(row.lease_until_us, NOW.lease_us + 400);
        assert_int_equal(row.request_until_us, NOW.lease_us + 300 + 990);
}

/* Found by the simulator: an operator looks, the holder wakes, extends and runs, and the
 * operator's "not executed" is still guarded by the same attempt. */
static void a5b_nobody_extends_when_an_operator_may_have_looked(void **state)
{
        (void)state;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
        row.lease_until_us = NOW.lease_us;
        row.request_until_us = NOW.lease_us + 1;
        struct command_write w = {
                .kind = COMMAND_EXTEND, .token = 7, .attempt = row.attempt, .lease_us = 1000};
        struct command_row late = row;
        assert_int_equal(command_write(&late, true, &w, NOW).outcome, COMMAND_DONE);

        row.request_until_us = NOW.lease_us;
        const struct command_row before = row;
        assert_int_equal(command_write(&row, true, &w, NOW).outcome, COMMAND_LOST);
        assert_memory_equal(&row, &before, sizeof row);
        w.kind = COMMAND_COMPLETE; /* what it did meanwhile is still its to tell */
        assert_int_equal(command_write(&row, true, &w, NOW).outcome, COMMAND_DONE);
}

static void a7_a_resolve_issued_again_knows_its_own_work(void **state)
{
        (void)state;
        int64_t wait_us = 0;
        struct command_row row = row_in(COMMAND_UNKNOWN, HOLD);
        struct command_resolve res = {.kind = COMMAND_RESOLVE_EXECUTED, .attempt = row.attempt};
        res.new_attempt.b[0] = 77;
        assert_int_equal(command_resolve(&row, true, &res, NOW, &wait_us), COMMAND_RESOLVED);
        const struct command_row done = row;
        const struct command_now later = {NOW.lease_us + 5, NOW.wall_us + 5, false};
        assert_int_equal(command_resolve(&row, true, &res, later, &wait_us), COMMAND_RESOLVED);
        assert_memory_equal(&row, &done, sizeof row);
}

static void a5_sweep(void **state)
{
        (void)state;
        struct command_row row = row_in(COMMAND_IN_FLIGHT, HOLD);
        row.expire_us = 0;
        assert_int_equal(command_sweep(&row, NOW), COMMAND_KEEP); /* leased */
        row.lease_until_us = NOW.lease_us;
        assert_int_equal(command_sweep(&row, NOW), COMMAND_TO_UNKNOWN);
        assert_int_equal(command_sweep(&row, NOW), COMMAND_KEEP); /* UNKNOWN: never purged */

        row = row_in(COMMAND_IN_FLIGHT, RETRY);
        row.lease_until_us = NOW.lease_us - 8999;
        assert_int_equal(command_sweep(&row, NOW), COMMAND_KEEP);
        row.lease_until_us = NOW.lease_us - 9000;
        assert_int_equal(command_sweep(&row, NOW), COMMAND_TO_UNKNOWN);

        for (int s = 0; s < COMMAND_STATES; s++) {
                row = row_in((enum command_state)s, HOLD);
                row.expire_us = NOW.wall_us;
                bool terminal = s == COMMAND_FREE || s == COMMAND_COMPLETED;
                assert_int_equal(command_sweep(&row, NOW) == COMMAND_DELETE, terminal);
                struct command_now frozen = NOW;
                frozen.expiry_frozen = true;
                row = row_in((enum command_state)s, HOLD);
                row.expire_us = NOW.wall_us;
                assert_int_not_equal(command_sweep(&row, frozen), COMMAND_DELETE);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(claim_without_row_inserts),
                cmocka_unit_test(every_cell_of_the_claim_table),
                cmocka_unit_test(lease_boundaries),
                cmocka_unit_test(a7_the_same_attempt_is_answered_run_again),
                cmocka_unit_test(every_cell_of_the_write_table),
                cmocka_unit_test(a1_every_write_is_fenced_by_token_and_attempt),
                cmocka_unit_test(a3_entering_completed_or_free_starts_the_retention),
                cmocka_unit_test(a5a_a_release_after_a_takeover_does_not_free),
                cmocka_unit_test(a5a_unknown_under_retry_ends_the_lease),
                cmocka_unit_test(a5b_resolve_is_guarded),
                cmocka_unit_test(a5b_extend_moves_the_longest_life_of_the_request),
                cmocka_unit_test(a5b_nobody_extends_when_an_operator_may_have_looked),
                cmocka_unit_test(a7_a_resolve_issued_again_knows_its_own_work),
                cmocka_unit_test(a5_sweep),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
