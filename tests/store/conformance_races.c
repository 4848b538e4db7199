/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_races: many callers on one key, in one batch and from two views.
 */
#include "conformance_kit.h"

enum { CALLERS = 32 };

/* All callers claim id; how many RUN?  The row must be the winner's. */
static int race(struct cf *c, struct command_id id, struct command_policy policy, bool two_views,
                enum command_outcome others)
{
        struct store_op *ops = cf_ops_new(CALLERS);
        for (int i = 0; i < CALLERS; i++) {
                struct command_claim claim = cf_claim_of(c, id, 1, policy);
                cf_op_claim(&ops[i], &claim);
        }
        for (int i = 0; i < CALLERS; i++)
                cf_submit(c, two_views && i % 2 ? c->b : c->a, &ops[i]);
        cf_finish(c);
        struct command_row row = cf_row(c, id);
        int run = 0;
        for (int i = 0; i < CALLERS; i++) {
                cf_ok(&ops[i]);
                if (ops[i].out.claim.answer.outcome == COMMAND_RUN) {
                        run++;
                        assert_true(command_attempt_eq(&row.attempt,
                                                       &ops[i].in.claim.claim.attempt));
                        assert_int_equal(ops[i].out.claim.answer.token, row.token);
                } else {
                        assert_int_equal(ops[i].out.claim.answer.outcome, others);
                }
        }
        cf_ops_free(ops, CALLERS);
        return run;
}

static void h1_of_32_first_claims_one_runs(struct cf *c)
{
        for (uint64_t round = 0; round < 10; round++)
                assert_int_equal(race(c, cf_id(round), cf_hold, round % 2, COMMAND_BUSY), 1);
}

/* Naive: delete + insert has two winners. */
static void of_32_takeovers_one_runs(struct cf *c)
{
        for (uint64_t round = 0; round < 10; round++) {
                struct command_claim dead = cf_claim_of(c, cf_id(round), 1, cf_retry);
                (void)cf_claim(c, c->a, &dead);
        }
        cf_advance(c, CF_LEASE_US + SECOND);
        for (uint64_t round = 0; round < 10; round++)
                assert_int_equal(race(c, cf_id(round), cf_retry, round % 2, COMMAND_BUSY), 1);
}

static void of_32_claims_of_a_lease_over_hold_row_none_runs(struct cf *c)
{
        struct command_claim dead = cf_claim_of(c, cf_id(1), 1, cf_hold);
        (void)cf_claim(c, c->a, &dead);
        cf_advance(c, CF_LEASE_US + SECOND);
        assert_int_equal(race(c, cf_id(1), cf_retry, true, COMMAND_IS_UNKNOWN), 0);
        cf_expect_state(c, cf_id(1), COMMAND_UNKNOWN);
}

static void of_32_claims_of_an_expired_row_one_runs(struct cf *c)
{
        for (uint64_t round = 0; round < 6; round++) {
                struct command_claim claim = cf_claim_of(c, cf_id(round), 1, cf_hold);
                struct command_answer held = cf_claim(c, c->a, &claim);
                (void)cf_write(c, c->a, round % 2 ? COMMAND_COMPLETE : COMMAND_RELEASE,
                               cf_id(round), held.token, claim.attempt);
        }
        cf_advance(c, CF_LONG_US);
        for (uint64_t round = 0; round < 6; round++)
                assert_int_equal(race(c, cf_id(round), cf_hold, round / 2 % 2, COMMAND_BUSY), 1);
}

static void of_32_claims_from_unknown_on_an_idempotent_row_one_runs(struct cf *c)
{
        struct command_claim dead = cf_claim_of(c, cf_id(1), 1, cf_idempotent);
        (void)cf_claim(c, c->a, &dead);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim hold = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->b, &hold).outcome, COMMAND_IS_UNKNOWN);
        assert_int_equal(race(c, cf_id(1), cf_idempotent, true, COMMAND_BUSY), 1);
}

/* H4, H16: claims that meet releases and purges are answered; none is an error, and at every
 * moment one holder at most believes in itself. */
static void h4_h16_claims_beside_releases_and_purges(struct cf *c)
{
        enum { KEYS = 4, ROUNDS = 40, EACH = 4 };
        struct store_op *ops = cf_ops_new(KEYS * EACH);
        struct store_op releases[KEYS], sweep;
        for (int round = 0; round < ROUNDS; round++) {
                int held = 0;
                for (uint64_t k = 0; k < KEYS; k++) {
                        struct command_row row = {0};
                        if (cf_row_exists(c, cf_id(k)))
                                row = cf_row(c, cf_id(k));
                        cf_op_write(&releases[k], COMMAND_RELEASE, cf_id(k), row.token,
                                    row.attempt);
                }
                for (uint64_t i = 0; i < KEYS * EACH; i++) {
                        struct command_claim claim = cf_claim_of(c, cf_id(i % KEYS), 1, cf_hold);
                        claim.retention_us = 0; /* a released row may be purged at once */
                        cf_op_claim(&ops[i], &claim);
                        cf_submit(c, cf_random(c) % 2 ? c->a : c->b, &ops[i]);
                        if (i == KEYS)
                                for (uint64_t k = 0; k < KEYS; k++)
                                        cf_submit(c, k % 2 ? c->a : c->b, &releases[k]);
                        if (i == 2 * KEYS) {
                                store_op_init(&sweep, STORE_SWEEP);
                                sweep.in.sweep.max = LIMIT_SWEEP_ROWS;
                                cf_submit(c, round % 2 ? c->a : c->b, &sweep);
                        }
                }
                cf_finish(c);
                cf_ok(&sweep);
                for (uint64_t i = 0; i < KEYS * EACH; i++) {
                        cf_ok(&ops[i]);
                        enum command_outcome outcome = ops[i].out.claim.answer.outcome;
                        assert_true(outcome == COMMAND_RUN || outcome == COMMAND_BUSY);
                        if (outcome != COMMAND_RUN)
                                continue;
                        struct command_row row = cf_row(c, ops[i].in.claim.claim.id);
                        assert_int_equal(row.state, COMMAND_IN_FLIGHT);
                        assert_true(command_attempt_eq(&row.attempt,
                                                       &ops[i].in.claim.claim.attempt));
                        held++;
                }
                assert_true(held <= KEYS);
                for (uint64_t i = 0; i < KEYS * EACH; i++)
                        store_op_release(&ops[i]);
        }
        cf_ops_free(ops, KEYS * EACH);
}

/* The late holder's completion and the takeover at the same moment: either it was in time, and the
 * others replay it, or it is lost and the new holder runs.  Never both. */
static void a1_a_late_completion_races_a_takeover(struct cf *c)
{
        enum { KEYS = 60 };
        struct store_op *writes = cf_ops_new(KEYS), *claims = cf_ops_new(KEYS);
        for (uint64_t i = 0; i < KEYS; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_retry);
                struct command_answer held = cf_claim(c, c->a, &claim);
                cf_op_write(&writes[i], COMMAND_COMPLETE, cf_id(i), held.token, claim.attempt);
                struct command_claim next = cf_claim_of(c, cf_id(i), 1, cf_retry);
                cf_op_claim(&claims[i], &next);
        }
        cf_advance(c, CF_LEASE_US + SECOND);
        for (uint64_t i = 0; i < KEYS; i++) {
                bool write_first = cf_random(c) % 2;
                if (write_first)
                        cf_submit(c, c->a, &writes[i]);
                cf_submit(c, c->b, &claims[i]);
                if (!write_first)
                        cf_submit(c, c->a, &writes[i]);
        }
        cf_finish(c);
        for (uint64_t i = 0; i < KEYS; i++) {
                cf_ok(&writes[i]);
                cf_ok(&claims[i]);
                bool in_time = writes[i].out.write.outcome == COMMAND_DONE;
                enum command_outcome outcome = claims[i].out.claim.answer.outcome;
                assert_int_equal(outcome, in_time ? COMMAND_REPLAY : COMMAND_RUN);
                cf_expect_state(c, cf_id(i), in_time ? COMMAND_COMPLETED : COMMAND_IN_FLIGHT);
        }
        cf_ops_free(writes, KEYS);
        cf_ops_free(claims, KEYS);
}

/* One caller's claim, repeated because its answer seemed lost, twice in flight at once (A7). */
static void a7_one_claim_twice_in_flight_is_one_claim(struct cf *c)
{
        enum { KEYS = 40 };
        struct store_op *ops = cf_ops_new(2 * KEYS);
        for (uint64_t i = 0; i < KEYS; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                cf_op_claim(&ops[2 * i], &claim);
                cf_op_claim(&ops[2 * i + 1], &claim);
        }
        for (size_t i = 0; i < 2 * KEYS; i++)
                cf_submit(c, i % 2 ? c->b : c->a, &ops[i]);
        cf_finish(c);
        for (size_t i = 0; i < 2 * KEYS; i++) {
                cf_ok(&ops[i]);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
                assert_int_equal(ops[i].out.claim.answer.token,
                                 ops[i & ~(size_t)1].out.claim.answer.token);
        }
        cf_ops_free(ops, 2 * KEYS);
}

const struct cf_test cf_tests_races[] = {
        {"h1_of_32_first_claims_one_runs", h1_of_32_first_claims_one_runs},
        {"of_32_takeovers_one_runs", of_32_takeovers_one_runs},
        {"of_32_claims_of_a_lease_over_hold_row_none_runs",
         of_32_claims_of_a_lease_over_hold_row_none_runs},
        {"of_32_claims_of_an_expired_row_one_runs", of_32_claims_of_an_expired_row_one_runs},
        {"of_32_claims_from_unknown_on_an_idempotent_row_one_runs",
         of_32_claims_from_unknown_on_an_idempotent_row_one_runs},
        {"h4_h16_claims_beside_releases_and_purges", h4_h16_claims_beside_releases_and_purges},
        {"a1_a_late_completion_races_a_takeover", a1_a_late_completion_races_a_takeover},
        {"a7_one_claim_twice_in_flight_is_one_claim", a7_one_claim_twice_in_flight_is_one_claim},
        {NULL, NULL}};
