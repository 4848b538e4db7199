/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_fence: what the writes of one who no longer holds the key do: nothing (A1, A2).
 */
#include "conformance_kit.h"

struct hold {
        struct command_id id;
        int64_t token;
        struct command_attempt attempt;
};

static struct hold take(struct cf *c, struct store *st, struct command_id id,
                        struct command_policy policy)
{
        struct command_claim claim = cf_claim_of(c, id, 1, policy);
        struct command_answer answer = cf_claim(c, st, &claim);
        assert_int_equal(answer.outcome, COMMAND_RUN);
        return (struct hold){id, answer.token, claim.attempt};
}

static enum command_write_outcome put(struct cf *c, struct store *st,
                                      enum command_write_kind kind, const struct hold *h)
{
        return cf_write(c, st, kind, h->id, h->token, h->attempt).outcome;
}

/* Everything the old holder may still send, all in flight together: no row changes. */
static void expect_nothing_from(struct cf *c, const struct hold *old, const char *when)
{
        struct command_row before = {0};
        bool existed = cf_row_exists(c, old->id);
        if (existed)
                before = cf_row(c, old->id);
        struct store_op ops[COMMAND_WRITE_KINDS];
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++) {
                cf_op_write(&ops[k], (enum command_write_kind)k, old->id, old->token,
                            old->attempt);
                cf_submit(c, k % 2 ? c->a : c->b, &ops[k]);
        }
        cf_finish(c);
        for (int k = 0; k < COMMAND_WRITE_KINDS; k++) {
                cf_ok(&ops[k]);
                if (ops[k].out.write.outcome != COMMAND_LOST)
                        fail_msg("%s: a late %s is answered %d", when,
                                 command_write_kind_name((enum command_write_kind)k),
                                 ops[k].out.write.outcome);
                store_op_release(&ops[k]);
        }
        assert_int_equal(cf_row_exists(c, old->id), existed);
        if (existed) {
                struct command_row after = cf_row(c, old->id);
                cf_expect_row(c, when, &before, &after);
                assert_int_equal(before.lease_until_us, after.lease_until_us);
        }
}

/* H9, H10, H11: in every later life of the row. */
static void a1_h9_h10_h11_the_late_holder_changes_nothing(struct cf *c)
{
        struct command_id id = cf_id(1);
        struct hold old = take(c, c->a, id, cf_retry);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct hold next = take(c, c->b, id, cf_retry); /* takeover */
        expect_nothing_from(c, &old, "after the takeover");

        /* the new holder's own writes all work */
        assert_int_equal(put(c, c->b, COMMAND_EXTEND, &next), COMMAND_DONE);
        assert_int_equal(put(c, c->b, COMMAND_COMPLETE, &next), COMMAND_DONE);
        expect_nothing_from(c, &old, "after the new holder completed");

        cf_advance(c, CF_LONG_US);
        struct hold third = take(c, c->a, id, cf_hold); /* expired */
        expect_nothing_from(c, &old, "in a new life, the first holder");
        expect_nothing_from(c, &next, "in a new life, the second holder");
        assert_int_equal(put(c, c->a, COMMAND_RELEASE, &third), COMMAND_DONE);
        expect_nothing_from(c, &next, "after a release");

        cf_advance(c, CF_LONG_US);
        cf_sweep(c, c->a, 100, NULL, NULL);
        assert_false(cf_row_exists(c, id));
        expect_nothing_from(c, &third, "after the purge");
        struct hold fourth = take(c, c->b, id, cf_hold);
        expect_nothing_from(c, &old, "in a new row");
        expect_nothing_from(c, &third, "in a new row, the last holder");
        assert_int_equal(put(c, c->b, COMMAND_COMPLETE, &fourth), COMMAND_DONE);
}

/* Both must match: the attempt alone is not enough (another store wrote this row, or a bug did). */
static void a1_the_right_attempt_with_another_token_changes_nothing(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        for (int64_t by = -1; by <= 1; by += 2) {
                struct hold other = {h.id, h.token + by, h.attempt};
                expect_nothing_from(c, &other, "with another token");
        }
        struct hold other = {h.id, h.token, cf_attempt(c)};
        expect_nothing_from(c, &other, "with another attempt");
        assert_int_equal(put(c, c->a, COMMAND_COMPLETE, &h), COMMAND_DONE);
}

/* The answer to A's release is lost; B claims; A sends its release again; C must not run. */
static void a1_h9_a_repeated_release_does_not_free_the_next_holder(struct cf *c)
{
        struct hold a = take(c, c->a, cf_id(1), cf_hold);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE, &a), COMMAND_DONE);
        struct hold b = take(c, c->b, cf_id(1), cf_hold);
        assert_int_equal(b.token, a.token + 1);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE, &a), COMMAND_LOST);
        struct command_claim third = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &third).outcome, COMMAND_BUSY);
        assert_int_equal(put(c, c->b, COMMAND_COMPLETE, &b), COMMAND_DONE);
}

static void a1_tokens_rise_over_every_life_of_a_key(struct cf *c)
{
        struct command_id id = cf_id(1);
        int64_t last = 0;
        for (int life = 0; life < 12; life++) {
                struct hold h = take(c, life % 2 ? c->a : c->b, id, cf_retry);
                assert_true(h.token > last);
                last = h.token;
                switch (life % 4) {
                case 0:
                        (void)put(c, c->a, COMMAND_RELEASE, &h);
                        break;
                case 1: /* completed, expired, purged */
                        (void)put(c, c->a, COMMAND_COMPLETE, &h);
                        cf_advance(c, CF_LONG_US);
                        cf_sweep(c, c->a, 10, NULL, NULL);
                        assert_false(cf_row_exists(c, id));
                        break;
                case 2: /* taken over in the next life */
                        cf_advance(c, CF_LEASE_US + SECOND);
                        break;
                case 3: /* resolved by an operator, who takes a token too */
                        cf_advance(c, CF_LEASE_US + CF_REQUEST_US + SECOND);
                        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_NOT_EXECUTED, id,
                                                    h.attempt),
                                         COMMAND_RESOLVED);
                        assert_int_equal(cf_row(c, id).token, h.token + 1);
                        last = h.token + 1;
                        break;
                default:
                        break;
                }
        }
}

/* A new row's first token is the calendar in microseconds: an upstream may fence on it. */
static void a1_the_first_token_is_the_stores_clock(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        struct command_row row = cf_row(c, cf_id(1));
        assert_true(h.token > INT64_C(1600000000) * SECOND);
        assert_true(cf_near(c, h.token, row.created_us));
}

static void a2_completed_absorbs(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        assert_int_equal(put(c, c->a, COMMAND_COMPLETE, &h), COMMAND_DONE);
        /* its answer was lost: the same completion again, even with other bytes, is done */
        const struct store_reply other = {.status = 500, .body = span_str("other")};
        assert_int_equal(cf_complete(c, c->b, h.id, h.token, h.attempt, &other), COMMAND_DONE);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE, &h), COMMAND_LOST);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE_NOT_EXECUTED, &h), COMMAND_LOST);
        assert_int_equal(put(c, c->a, COMMAND_EXTEND, &h), COMMAND_LOST);
        assert_int_equal(put(c, c->a, COMMAND_MARK_UNKNOWN, &h), COMMAND_NOTHING);
        struct store_record rec;
        assert_true(cf_get(c, c->a, h.id, &rec));
        assert_int_equal(rec.status, 201); /* the first reply stays */
        cf_expect_span("body", span_str("made"), buf_span(&rec.body));
        store_record_release(&rec);
}

static void a2_a_completion_after_its_lease_is_still_the_holders(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        cf_advance(c, CF_LEASE_US + SECOND); /* late, but nobody took the key */
        assert_int_equal(put(c, c->a, COMMAND_COMPLETE, &h), COMMAND_DONE);

        struct hold other = take(c, c->a, cf_id(2), cf_hold);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim claim = cf_claim_of(c, cf_id(2), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->b, &claim).outcome, COMMAND_IS_UNKNOWN);
        struct command_write_answer late =
                cf_write(c, c->a, COMMAND_COMPLETE, other.id, other.token, other.attempt);
        assert_int_equal(late.outcome, COMMAND_DONE);
        assert_true(late.self_resolved);
        assert_int_equal(cf_claim(c, c->b, &claim).outcome, COMMAND_REPLAY);
}

/* H62: a failure that cannot speak for UNKNOWN does not free it. */
static void a2_from_unknown_only_an_explicit_not_executed_frees(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        assert_int_equal(put(c, c->a, COMMAND_MARK_UNKNOWN, &h), COMMAND_DONE);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE, &h), COMMAND_LOST);
        assert_int_equal(put(c, c->a, COMMAND_EXTEND, &h), COMMAND_LOST);
        cf_expect_state(c, h.id, COMMAND_UNKNOWN);
        assert_int_equal(put(c, c->a, COMMAND_RELEASE_NOT_EXECUTED, &h), COMMAND_DONE);
        cf_expect_state(c, h.id, COMMAND_FREE);
}

static void a5a_after_a_takeover_a_release_frees_nobody(struct cf *c)
{
        (void)take(c, c->a, cf_id(1), cf_retry);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct hold b = take(c, c->b, cf_id(1), cf_retry);
        assert_int_equal(put(c, c->b, COMMAND_RELEASE, &b), COMMAND_DONE);
        cf_expect_state(c, b.id, COMMAND_IN_FLIGHT);
        struct command_claim other = cf_claim_of(c, cf_id(1), 2, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &other).outcome, COMMAND_MISMATCH);
        struct command_claim again = cf_claim_of(c, cf_id(1), 1, cf_retry);
        assert_int_equal(cf_claim(c, c->a, &again).outcome, COMMAND_RUN);
}

static void a5a_unknown_under_retry_is_run_by_the_next(struct cf *c)
{
        const struct command_policy policies[2] = {cf_retry, cf_idempotent};
        for (uint64_t i = 0; i < 2; i++) {
                struct hold h = take(c, c->a, cf_id(i), policies[i]);
                assert_int_equal(put(c, c->a, COMMAND_MARK_UNKNOWN, &h), COMMAND_DONE);
                struct command_row row = cf_row(c, cf_id(i));
                assert_int_equal(row.state, COMMAND_IN_FLIGHT);
                assert_true(row.maybe_executed);
                struct command_claim other = cf_claim_of(c, cf_id(i), 2, policies[i]);
                assert_int_equal(cf_claim(c, c->b, &other).outcome, COMMAND_MISMATCH);
                (void)take(c, c->b, cf_id(i), policies[i]); /* runs without waiting for a lease */
        }
}

static void h11_extend_moves_the_lease_from_now(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_retry);
        for (int i = 0; i < 4; i++) {
                cf_advance(c, CF_LEASE_US / 2 + SECOND);
                struct command_write_answer answer =
                        cf_write(c, c->a, COMMAND_EXTEND, h.id, h.token, h.attempt);
                assert_int_equal(answer.outcome, COMMAND_DONE);
                assert_true(cf_near(c, answer.lease_left_us, CF_LEASE_US));
                struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
                assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_BUSY);
        }
}

/* A release that comes twice is done twice: its first answer may have been lost. */
static void a7_a_repeated_release_is_done(struct cf *c)
{
        struct hold h = take(c, c->a, cf_id(1), cf_hold);
        for (int i = 0; i < 3; i++)
                assert_int_equal(put(c, i % 2 ? c->a : c->b, COMMAND_RELEASE, &h), COMMAND_DONE);
        cf_expect_state(c, h.id, COMMAND_FREE);
}

const struct cf_test cf_tests_fence[] = {
        {"a1_h9_h10_h11_the_late_holder_changes_nothing",
         a1_h9_h10_h11_the_late_holder_changes_nothing},
        {"a1_the_right_attempt_with_another_token_changes_nothing",
         a1_the_right_attempt_with_another_token_changes_nothing},
        {"a1_h9_a_repeated_release_does_not_free_the_next_holder",
         a1_h9_a_repeated_release_does_not_free_the_next_holder},
        {"a1_tokens_rise_over_every_life_of_a_key", a1_tokens_rise_over_every_life_of_a_key},
        {"a1_the_first_token_is_the_stores_clock", a1_the_first_token_is_the_stores_clock},
        {"a2_completed_absorbs", a2_completed_absorbs},
        {"a2_a_completion_after_its_lease_is_still_the_holders",
         a2_a_completion_after_its_lease_is_still_the_holders},
        {"a2_h62_from_unknown_only_an_explicit_not_executed_frees",
         a2_from_unknown_only_an_explicit_not_executed_frees},
        {"a5a_after_a_takeover_a_release_frees_nobody",
         a5a_after_a_takeover_a_release_frees_nobody},
        {"a5a_unknown_under_retry_is_run_by_the_next",
         a5a_unknown_under_retry_is_run_by_the_next},
        {"h11_extend_moves_the_lease_from_now", h11_extend_moves_the_lease_from_now},
        {"a7_a_repeated_release_is_done", a7_a_repeated_release_is_done},
        {NULL, NULL}};
