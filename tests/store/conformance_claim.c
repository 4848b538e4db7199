/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_claim: what a claim answers, rule by rule and in plain words.  The expectations are
 * written down here, not asked from core/command.c: this file also catches that one.
 */
#include "conformance_kit.h"

static void h2_the_loser_of_a_claim_is_told(struct cf *c)
{
        struct command_claim first = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_claim second = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer won = cf_claim(c, c->a, &first);
        struct command_answer lost = cf_claim(c, c->b, &second);
        assert_int_equal(won.outcome, COMMAND_RUN);
        assert_int_equal(lost.outcome, COMMAND_BUSY);
        assert_int_equal(lost.token, won.token);
        struct command_row row = cf_row(c, cf_id(1));
        assert_true(command_attempt_eq(&row.attempt, &first.attempt));
}

/* Naive: a read-back that compares the payload; two equal requests both win. */
static void h3_two_equal_requests_have_one_winner(struct cf *c)
{
        struct store_op *ops = cf_ops_new(2);
        for (int i = 0; i < 2; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, i ? c->b : c->a, &ops[i]);
        }
        cf_finish(c);
        int run = 0;
        for (int i = 0; i < 2; i++) {
                cf_ok(&ops[i]);
                run += ops[i].out.claim.answer.outcome == COMMAND_RUN;
        }
        assert_int_equal(run, 1);
        cf_ops_free(ops, 2);
}

static void h6_a_lease_of_nothing_is_over_at_once(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        claim.lease_us = 0;
        assert_int_equal(cf_claim(c, c->a, &claim).outcome, COMMAND_RUN);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_IS_UNKNOWN);
}

static void h7_h8_a_key_waits_for_the_lease_not_for_the_retention(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_retry);
        int64_t token = cf_claim(c, c->a, &claim).token;
        cf_advance(c, CF_LEASE_US + SECOND); /* the holder died; the retention is far longer */
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        struct command_answer answer = cf_claim(c, c->b, &next);
        assert_int_equal(answer.outcome, COMMAND_RUN);
        assert_true(answer.took_over);
        assert_int_equal(answer.token, token + 1);
        assert_true(cf_row(c, cf_id(1)).maybe_executed); /* A5a */
}

static void a4_h12_the_lease_is_over_at_its_last_microsecond(struct cf *c)
{
        if (c->target->slack_us != 0)
                return; /* needs a clock that stands still */
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_retry);
        (void)cf_claim(c, c->a, &claim);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        cf_advance(c, CF_LEASE_US - 1);
        struct command_answer busy = cf_claim(c, c->b, &next);
        assert_int_equal(busy.outcome, COMMAND_BUSY);
        assert_int_equal(busy.lease_left_us, 1);
        cf_advance(c, 1);
        assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_RUN);
}

static void h18_busy_says_how_much_of_the_lease_is_left(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        (void)cf_claim(c, c->a, &claim);
        cf_advance(c, CF_LEASE_US / 2);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer busy = cf_claim(c, c->b, &next);
        assert_int_equal(busy.outcome, COMMAND_BUSY);
        assert_true(busy.lease_left_us > 0 && busy.lease_left_us <= CF_LEASE_US / 2);
        assert_true(cf_near(c, busy.lease_left_us, CF_LEASE_US / 2));
}

/* A6: leases live on a clock that does not step with the calendar. */
static void a6_a_calendar_that_jumps_ends_no_lease(struct cf *c)
{
        if (!c->target->step_wall)
                return;
        static const int64_t steps_us[] = {24 * HOUR, -48 * HOUR};
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_retry);
        (void)cf_claim(c, c->a, &claim);
        for (int i = 0; i < 2; i++) {
                c->target->step_wall(c->target->arg, steps_us[i]);
                struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
                struct command_answer answer = cf_claim(c, c->b, &next);
                assert_int_equal(answer.outcome, COMMAND_BUSY);
                assert_true(answer.lease_left_us > 0 && answer.lease_left_us <= CF_LEASE_US);
        }
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_RUN);
}

/* The answer to the first claim was lost; its holder asks again. */
static void a7_h15_the_same_attempt_again_is_run(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer first = cf_claim(c, c->a, &claim);
        struct command_row before = cf_row(c, cf_id(1));
        for (int i = 0; i < 3; i++) {
                struct command_answer again = cf_claim(c, i % 2 ? c->a : c->b, &claim);
                assert_int_equal(again.outcome, COMMAND_RUN);
                assert_int_equal(again.token, first.token);
                assert_false(again.took_over);
        }
        struct command_row after = cf_row(c, cf_id(1));
        cf_expect_row(c, "claimed again", &before, &after);
        assert_int_equal(before.lease_until_us, after.lease_until_us); /* not extended by it */
}

/* ... also that an earlier holder may have executed it. */
static void a7_a_takeover_again_is_still_one(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_retry);
        (void)cf_claim(c, c->a, &claim);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        for (int i = 0; i < 3; i++) {
                struct command_answer again = cf_claim(c, i % 2 ? c->a : c->b, &next);
                assert_int_equal(again.outcome, COMMAND_RUN);
                assert_true(again.took_over);
        }
}

/* ... and when its lease is over meanwhile it is still its own, for nobody took it. */
static void a7_the_same_attempt_after_its_lease_is_run_without_time(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        (void)cf_claim(c, c->a, &claim);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_answer again = cf_claim(c, c->a, &claim);
        assert_int_equal(again.outcome, COMMAND_RUN);
        assert_true(again.lease_left_us <= 0); /* the holder must not dispatch (A4) */
}

/* ... but not when somebody else took it, or it ended. */
static void a7_a_claim_repeated_too_late_does_not_get_the_key_back(struct cf *c)
{
        struct command_claim old = cf_claim_of(c, cf_id(1), 1, cf_retry);
        (void)cf_claim(c, c->a, &old);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        struct command_answer held = cf_claim(c, c->b, &next);
        assert_int_equal(cf_claim(c, c->a, &old).outcome, COMMAND_BUSY);
        assert_int_equal(
                cf_write(c, c->b, COMMAND_COMPLETE, cf_id(1), held.token, next.attempt).outcome,
                COMMAND_DONE);
        assert_int_equal(cf_claim(c, c->a, &old).outcome, COMMAND_REPLAY);
}

static void a5_takeover_needs_both_policies(struct cf *c)
{
        const struct {
                struct command_policy row, caller;
                enum command_outcome outcome;
        } cells[] = {
                {cf_hold, cf_hold, COMMAND_IS_UNKNOWN},
                {cf_hold, cf_retry, COMMAND_IS_UNKNOWN},
                {cf_retry, cf_hold, COMMAND_IS_UNKNOWN},
                {cf_retry, cf_retry, COMMAND_RUN},
                {cf_idempotent, cf_idempotent, COMMAND_RUN},
                {cf_idempotent, cf_retry, COMMAND_RUN},
                {cf_hold, cf_idempotent, COMMAND_IS_UNKNOWN},
        };
        enum { N = sizeof cells / sizeof cells[0] };
        for (uint64_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cells[i].row);
                (void)cf_claim(c, c->a, &claim);
        }
        cf_advance(c, CF_LEASE_US + SECOND);
        for (uint64_t i = 0; i < N; i++) {
                struct command_claim next = cf_claim_of(c, cf_id(i), 1, cells[i].caller);
                struct command_answer answer = cf_claim(c, c->b, &next);
                if (answer.outcome != cells[i].outcome)
                        fail_msg("cell %d: %s", (int)i, command_outcome_name(answer.outcome));
                cf_expect_state(c, cf_id(i), answer.outcome == COMMAND_RUN ? COMMAND_IN_FLIGHT
                                                                            : COMMAND_UNKNOWN);
        }
}

static void only_an_idempotent_other_side_runs_again_from_unknown(struct cf *c)
{
        const struct command_policy policies[] = {cf_hold, cf_retry, cf_idempotent};
        for (uint64_t i = 0; i < 3; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, policies[i]);
                (void)cf_claim(c, c->a, &claim);
        }
        cf_advance(c, CF_LEASE_US + SECOND);
        for (uint64_t i = 0; i < 3; i++) { /* a hold caller makes each UNKNOWN */
                struct command_claim hold = cf_claim_of(c, cf_id(i), 1, cf_hold);
                assert_int_equal(cf_claim(c, c->b, &hold).outcome, COMMAND_IS_UNKNOWN);
        }
        for (uint64_t i = 0; i < 3; i++) {
                struct command_claim again = cf_claim_of(c, cf_id(i), 1, policies[i]);
                struct command_answer answer = cf_claim(c, c->b, &again);
                assert_int_equal(answer.outcome, i == 2 ? COMMAND_RUN : COMMAND_IS_UNKNOWN);
                assert_int_equal(answer.took_over, i == 2);
        }
}

/* H58: 422 wins over 409; H40, H60: and names what the key was used for. */
static void h58_h60_another_request_is_a_mismatch_in_every_living_state(struct cf *c)
{
        struct command_claim claims[4];
        struct command_answer held[4];
        for (uint64_t i = 0; i < 4; i++) {
                claims[i] = cf_claim_of(c, cf_id(i), 1, i == 3 ? cf_retry : cf_hold);
                held[i] = cf_claim(c, c->a, &claims[i]);
        }
        (void)cf_write(c, c->a, COMMAND_COMPLETE, cf_id(1), held[1].token, claims[1].attempt);
        (void)cf_write(c, c->a, COMMAND_MARK_UNKNOWN, cf_id(2), held[2].token, claims[2].attempt);
        for (int over = 0; over < 2; over++) {
                for (uint64_t i = 0; i < 4; i++) {
                        struct command_claim other = cf_claim_of(c, cf_id(i), 2, cf_retry);
                        struct store_op op;
                        cf_op_claim(&op, &other);
                        cf_do(c, c->b, &op);
                        cf_ok(&op);
                        assert_int_equal(op.out.claim.answer.outcome, COMMAND_MISMATCH);
                        cf_expect_span("first operation", cf_label.operation,
                                       op.out.claim.rec.operation);
                        store_op_release(&op);
                }
                cf_advance(c, CF_LEASE_US + SECOND);
        }
}

/* H33: the whole fingerprint counts. */
static void h33_fingerprints_that_differ_in_the_last_bit_are_two_requests(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        (void)cf_claim(c, c->a, &claim);
        struct command_claim other = cf_claim_of(c, cf_id(1), 1, cf_hold);
        other.fingerprint.b[COMMAND_FINGERPRINT_BYTES - 1] ^= 1;
        assert_int_equal(cf_claim(c, c->a, &other).outcome, COMMAND_MISMATCH);
}

/* H38, H40: another user or route is another id, though the key's text is the same. */
static void h38_h40_the_same_text_under_two_ids_is_two_commands(struct cf *c)
{
        struct command_id id = cf_id(1), other = id;
        other.b[COMMAND_ID_BYTES - 1] ^= 1;
        struct command_claim claim = cf_claim_of(c, id, 1, cf_hold);
        struct command_claim second = cf_claim_of(c, other, 1, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &claim).outcome, COMMAND_RUN);
        assert_int_equal(cf_claim(c, c->a, &second).outcome, COMMAND_RUN);
        struct command_id first_byte = id;
        first_byte.b[0] ^= 0x80;
        struct command_claim third = cf_claim_of(c, first_byte, 1, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &third).outcome, COMMAND_RUN);
}

static void h61_two_keys_with_one_payload_are_two_operations(struct cf *c)
{
        for (uint64_t i = 0; i < 5; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                assert_int_equal(cf_claim(c, c->a, &claim).outcome, COMMAND_RUN);
        }
}

static void a_released_key_runs_for_any_request(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer held = cf_claim(c, c->a, &claim);
        assert_int_equal(
                cf_write(c, c->a, COMMAND_RELEASE, cf_id(1), held.token, claim.attempt).outcome,
                COMMAND_DONE);
        struct command_claim other = cf_claim_of(c, cf_id(1), 2, cf_retry);
        struct command_answer next = cf_claim(c, c->b, &other);
        assert_int_equal(next.outcome, COMMAND_RUN);
        assert_int_equal(next.token, held.token + 1);
        assert_false(next.took_over);
        struct command_row row = cf_row(c, cf_id(1));
        assert_true(row.policy.retry && !row.maybe_executed);
}

/* B4: two callers of one process share an id and a batch; each gets its own answer. */
static void b4_callers_with_one_id_in_one_batch(struct cf *c)
{
        enum { N = 40 };
        struct store_op *ops = cf_ops_new(N);
        for (uint64_t i = 0; i < N; i++) {
                struct command_claim claim =
                        cf_claim_of(c, cf_id(i / 4), i % 4 == 3 ? 2 : 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (size_t id = 0; id < N / 4; id++) {
                struct command_row row = cf_row(c, cf_id(id));
                int run = 0;
                for (size_t i = id * 4; i < id * 4 + 4; i++) {
                        cf_ok(&ops[i]);
                        const struct command_claim *claim = &ops[i].in.claim.claim;
                        enum command_outcome outcome = ops[i].out.claim.answer.outcome;
                        bool same = memcmp(&claim->fingerprint, &row.fingerprint,
                                           sizeof row.fingerprint) == 0;
                        bool mine = command_attempt_eq(&claim->attempt, &row.attempt);
                        assert_int_equal(outcome, mine    ? COMMAND_RUN
                                                  : same ? COMMAND_BUSY
                                                         : COMMAND_MISMATCH);
                        assert_int_equal(ops[i].out.claim.answer.token, row.token);
                        run += mine;
                }
                assert_int_equal(run, 1);
        }
        cf_ops_free(ops, N);
}

const struct cf_test cf_tests_claim[] = {
        {"h2_the_loser_of_a_claim_is_told", h2_the_loser_of_a_claim_is_told},
        {"h3_two_equal_requests_have_one_winner", h3_two_equal_requests_have_one_winner},
        {"h6_a_lease_of_nothing_is_over_at_once", h6_a_lease_of_nothing_is_over_at_once},
        {"h7_h8_a_key_waits_for_the_lease_not_for_the_retention",
         h7_h8_a_key_waits_for_the_lease_not_for_the_retention},
        {"a4_h12_the_lease_is_over_at_its_last_microsecond",
         a4_h12_the_lease_is_over_at_its_last_microsecond},
        {"h18_busy_says_how_much_of_the_lease_is_left",
         h18_busy_says_how_much_of_the_lease_is_left},
        {"a6_a_calendar_that_jumps_ends_no_lease", a6_a_calendar_that_jumps_ends_no_lease},
        {"a7_h15_the_same_attempt_again_is_run", a7_h15_the_same_attempt_again_is_run},
        {"a7_a_takeover_again_is_still_one", a7_a_takeover_again_is_still_one},
        {"a7_the_same_attempt_after_its_lease_is_run_without_time",
         a7_the_same_attempt_after_its_lease_is_run_without_time},
        {"a7_a_claim_repeated_too_late_does_not_get_the_key_back",
         a7_a_claim_repeated_too_late_does_not_get_the_key_back},
        {"a5_takeover_needs_both_policies", a5_takeover_needs_both_policies},
        {"only_an_idempotent_other_side_runs_again_from_unknown",
         only_an_idempotent_other_side_runs_again_from_unknown},
        {"h58_h60_another_request_is_a_mismatch_in_every_living_state",
         h58_h60_another_request_is_a_mismatch_in_every_living_state},
        {"h33_fingerprints_that_differ_in_the_last_bit_are_two_requests",
         h33_fingerprints_that_differ_in_the_last_bit_are_two_requests},
        {"h38_h40_the_same_text_under_two_ids_is_two_commands",
         h38_h40_the_same_text_under_two_ids_is_two_commands},
        {"h61_two_keys_with_one_payload_are_two_operations",
         h61_two_keys_with_one_payload_are_two_operations},
        {"a_released_key_runs_for_any_request", a_released_key_runs_for_any_request},
        {"b4_callers_with_one_id_in_one_batch", b4_callers_with_one_id_in_one_batch},
        {NULL, NULL}};
