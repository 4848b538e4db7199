/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_resolve: the operator's verbs, each guarded by the attempt that was shown (A5b).
 */
#include "conformance_kit.h"

/* A claimed row whose lease and request are over. */
static struct command_row stuck_row(struct cf *c, struct command_id id)
{
        struct command_claim claim = cf_claim_of(c, id, 1, cf_hold);
        (void)cf_claim(c, c->a, &claim);
        cf_advance(c, CF_LEASE_US + CF_REQUEST_US + SECOND);
        return cf_row(c, id);
}

static void expect_replay(struct cf *c, struct command_id id, int32_t status, struct span body)
{
        struct command_claim claim = cf_claim_of(c, id, 1, cf_hold);
        struct store_op op;
        cf_op_claim(&op, &claim);
        cf_do(c, c->b, &op);
        cf_ok(&op);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_REPLAY);
        assert_int_equal(op.out.claim.rec.status, status);
        cf_expect_span("body", body, buf_span(&op.out.claim.rec.body));
        store_op_release(&op);
}

static void h14_executed_keeps_the_reply_that_the_operator_gives(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_EXECUTED, cf_id(1), row.attempt),
                         COMMAND_RESOLVED);
        expect_replay(c, cf_id(1), 200, span_str("by hand"));
        struct command_row after = cf_row(c, cf_id(1));
        assert_int_equal(after.token, row.token + 1);
        assert_false(command_attempt_eq(&after.attempt, &row.attempt));
}

/* Found by search: resolved on Monday, expired at once, the next claim runs. */
static void a3_a_resolved_reply_is_kept_for_its_retention_from_then_on(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        cf_advance(c, 100 * CF_RETENTION_US);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_EXECUTED, cf_id(1), row.attempt),
                         COMMAND_RESOLVED);
        cf_advance(c, CF_RETENTION_US / 2);
        cf_sweep(c, c->b, 10, NULL, NULL);
        expect_replay(c, cf_id(1), 200, span_str("by hand"));
}

static void not_executed_lets_any_request_run(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), row.attempt),
                         COMMAND_RESOLVED);
        cf_expect_state(c, cf_id(1), COMMAND_FREE);
        struct command_claim other = cf_claim_of(c, cf_id(1), 2, cf_hold);
        struct command_answer answer = cf_claim(c, c->b, &other);
        assert_int_equal(answer.outcome, COMMAND_RUN);
        assert_int_equal(answer.token, row.token + 2);
}

/* The late holder wakes after the operator spoke: it changes nothing, whatever it sends. */
static void a1_a2_the_late_holder_after_a_resolve(struct cf *c)
{
        static const enum command_resolve_kind kinds[2] = {COMMAND_RESOLVE_EXECUTED,
                                                           COMMAND_RESOLVE_NOT_EXECUTED};
        for (uint64_t i = 0; i < 2; i++) {
                struct command_row row = stuck_row(c, cf_id(i));
                assert_int_equal(cf_resolve(c, c->a, kinds[i], cf_id(i), row.attempt),
                                 COMMAND_RESOLVED);
                struct command_row resolved = cf_row(c, cf_id(i));
                for (int k = 0; k < COMMAND_WRITE_KINDS; k++) {
                        /* its own token and attempt; and its attempt with the token it might
                         * guess */
                        for (int64_t t = 0; t < 2; t++)
                                assert_int_equal(cf_write(c, c->b, (enum command_write_kind)k,
                                                          cf_id(i), row.token + t, row.attempt)
                                                         .outcome,
                                                 COMMAND_LOST);
                }
                struct command_row after = cf_row(c, cf_id(i));
                cf_expect_row(c, "after the late holder", &resolved, &after);
        }
        expect_replay(c, cf_id(0), 200, span_str("by hand"));
}

static void a5b_a_resolve_of_what_was_not_shown_changes_nothing(struct cf *c)
{
        struct command_row shown = stuck_row(c, cf_id(1));
        /* meanwhile an operator freed it and another request claimed it */
        assert_int_equal(
                cf_resolve(c, c->a, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), shown.attempt),
                COMMAND_RESOLVED);
        struct command_claim next = cf_claim_of(c, cf_id(1), 2, cf_hold);
        (void)cf_claim(c, c->a, &next);
        struct command_row before = cf_row(c, cf_id(1));
        for (int kind = 0; kind < 3; kind++)
                assert_int_equal(cf_resolve(c, c->b, (enum command_resolve_kind)kind, cf_id(1),
                                            shown.attempt),
                                 COMMAND_RESOLVE_CHANGED);
        struct command_row after = cf_row(c, cf_id(1));
        cf_expect_row(c, "not shown", &before, &after);
        assert_int_equal(
                cf_resolve(c, c->b, COMMAND_RESOLVE_EXECUTED, cf_id(404), shown.attempt),
                COMMAND_RESOLVE_CHANGED); /* no row at all */
}

static void a5b_not_while_the_lease_lives_and_not_while_the_request_travels(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        claim.request_us = 3 * CF_LEASE_US;
        struct command_answer held = cf_claim(c, c->a, &claim);
        static const struct {
                int64_t advance_us;
                enum command_resolve_outcome not_executed;
                int64_t wait_us;
        } steps[] = {
                {0, COMMAND_RESOLVE_LEASED, CF_LEASE_US},
                {CF_LEASE_US + SECOND, COMMAND_RESOLVE_TOO_EARLY, 2 * CF_LEASE_US - SECOND},
                {2 * CF_LEASE_US, COMMAND_RESOLVED, 0},
        };
        for (int i = 0; i < 3; i++) {
                cf_advance(c, steps[i].advance_us);
                struct store_op op;
                cf_op_resolve(&op, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), claim.attempt,
                              cf_attempt(c));
                cf_do(c, c->b, &op);
                cf_ok(&op);
                assert_int_equal(op.out.resolve.outcome, steps[i].not_executed);
                if (steps[i].wait_us)
                        assert_true(cf_near(c, op.out.resolve.wait_us, steps[i].wait_us));
                store_op_release(&op);
        }
        assert_int_equal(
                cf_write(c, c->a, COMMAND_COMPLETE, cf_id(1), held.token, claim.attempt).outcome,
                COMMAND_LOST);
}

/* The moment at which the row was shown counts, not only the one of the verdict. */
static void a5b_a_look_while_the_request_travels_decides_nothing(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        static const enum command_resolve_outcome want[] = {COMMAND_RESOLVE_LOOKED_EARLY,
                                                            COMMAND_RESOLVED};
        for (int i = 0; i < 2; i++) {
                struct store_op op;
                cf_op_resolve(&op, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), row.attempt,
                              cf_attempt(c));
                op.in.resolve.resolve.looked_us = command_settled_us(&row) - 1 + i;
                cf_do(c, c->b, &op);
                cf_ok(&op);
                assert_int_equal(op.out.resolve.outcome, want[i]);
                store_op_release(&op);
        }
}

/* The holder said "unknown" at once: the request may still be on its way. */
static void a5b_a_marked_row_waits_for_its_lease_too(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        claim.request_us = 0;
        struct command_answer held = cf_claim(c, c->a, &claim);
        (void)cf_write(c, c->a, COMMAND_MARK_UNKNOWN, cf_id(1), held.token, claim.attempt);
        assert_int_equal(
                cf_resolve(c, c->b, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), claim.attempt),
                COMMAND_RESOLVE_TOO_EARLY);
        assert_int_equal(cf_resolve(c, c->b, COMMAND_RESOLVE_EXECUTED, cf_id(1), claim.attempt),
                         COMMAND_RESOLVED); /* that is true whatever comes */
}

/* A's request may live longer than B's, who took over from A. */
static void a5b_an_earlier_holders_request_may_still_travel(struct cf *c)
{
        struct command_claim a = cf_claim_of(c, cf_id(1), 1, cf_retry);
        a.request_us = 10 * CF_LEASE_US;
        (void)cf_claim(c, c->a, &a);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim b = cf_claim_of(c, cf_id(1), 1, cf_retry);
        b.request_us = 0;
        assert_true(cf_claim(c, c->b, &b).took_over);
        cf_advance(c, CF_LEASE_US + SECOND);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), b.attempt),
                         COMMAND_RESOLVE_TOO_EARLY);
        cf_advance(c, 9 * CF_LEASE_US);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), b.attempt),
                         COMMAND_RESOLVED);
}

/* Found by search: an operator looked when all was over; the holder woke, extended and executed;
 * then the operator's "not executed" came. */
static void a5b_no_extension_comes_after_an_operators_look(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        claim.request_us = 3 * CF_LEASE_US;
        int64_t token = cf_claim(c, c->a, &claim).token;
        cf_advance(c, CF_LEASE_US + SECOND); /* the lease is over, the request may still travel */
        assert_int_equal(
                cf_write(c, c->a, COMMAND_EXTEND, cf_id(1), token, claim.attempt).outcome,
                COMMAND_DONE);
        struct command_row row = cf_row(c, cf_id(1));
        assert_true(row.request_until_us >= row.lease_until_us + 2 * CF_LEASE_US -
                                                    c->target->slack_us);
        cf_advance(c, 4 * CF_LEASE_US);
        assert_int_equal(
                cf_write(c, c->a, COMMAND_EXTEND, cf_id(1), token, claim.attempt).outcome,
                COMMAND_LOST);
        assert_int_equal(cf_resolve(c, c->b, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), claim.attempt),
                         COMMAND_RESOLVED);
}

/* Found by search: a claim whose message lands twice acquires twice with one attempt; the verdict on
 * the first acquisition must not land on the second. */
static void a5b_a_verdict_is_guarded_by_the_token_shown(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        static const enum command_resolve_outcome want[] = {
                COMMAND_RESOLVE_CHANGED, COMMAND_RESOLVE_CHANGED, COMMAND_RESOLVED};
        static const int64_t by[] = {-1, 1, 0};
        for (int i = 0; i < 3; i++) {
                struct store_op op;
                cf_op_resolve(&op, COMMAND_RESOLVE_NOT_EXECUTED, cf_id(1), row.attempt,
                              cf_attempt(c));
                op.in.resolve.resolve.token = row.token + by[i];
                cf_do(c, c->b, &op);
                cf_ok(&op);
                assert_int_equal(op.out.resolve.outcome, want[i]);
                store_op_release(&op);
        }
}

/* The answer to an operator's verdict was lost: the same verdict again, with the same nonce. */
static void a7_a_repeated_verdict_is_done_already(struct cf *c)
{
        struct command_row row = stuck_row(c, cf_id(1));
        struct command_attempt fresh = cf_attempt(c);
        struct command_row first = {0};
        for (int i = 0; i < 3; i++) {
                struct store_op op;
                cf_op_resolve(&op, COMMAND_RESOLVE_EXECUTED, cf_id(1), row.attempt, fresh);
                cf_do(c, i % 2 ? c->a : c->b, &op);
                cf_ok(&op);
                assert_int_equal(op.out.resolve.outcome, COMMAND_RESOLVED);
                store_op_release(&op);
                struct command_row now = cf_row(c, cf_id(1));
                if (i == 0)
                        first = now;
                cf_expect_row(c, "resolved again", &first, &now);
        }
        expect_replay(c, cf_id(1), 200, span_str("by hand"));
        if (c->target->audit_count)
                assert_int_equal(c->target->audit_count(c->target->arg, &row.id,
                                                        span_str("looked at the bank's site"),
                                                        span_str("ada")),
                                 1);
}

static void forget_is_for_completed_only(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer held = cf_claim(c, c->a, &claim);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_FORGET, cf_id(1), claim.attempt),
                         COMMAND_RESOLVE_STATE);
        (void)cf_write(c, c->a, COMMAND_COMPLETE, cf_id(1), held.token, claim.attempt);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_EXECUTED, cf_id(1), claim.attempt),
                         COMMAND_RESOLVE_STATE);
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_FORGET, cf_id(1), claim.attempt),
                         COMMAND_RESOLVED);
        struct command_claim other = cf_claim_of(c, cf_id(1), 2, cf_hold);
        assert_int_equal(cf_claim(c, c->b, &other).outcome, COMMAND_RUN);
        cf_expect_state(c, cf_id(1), COMMAND_IN_FLIGHT); /* and the reply is gone (H17) */
}

/* Two operators look at the same row and decide differently at the same time. */
static void a5b_of_two_operators_one_decides(struct cf *c)
{
        enum { ROWS = 40 };
        struct store_op *ops = cf_ops_new(2 * ROWS);
        for (uint64_t i = 0; i < ROWS; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                (void)cf_claim(c, c->a, &claim);
        }
        cf_advance(c, CF_LONG_US);
        for (uint64_t i = 0; i < 2 * ROWS; i++) {
                struct command_row row = cf_row(c, cf_id(i / 2));
                cf_op_resolve(&ops[i],
                              i % 2 ? COMMAND_RESOLVE_EXECUTED : COMMAND_RESOLVE_NOT_EXECUTED,
                              cf_id(i / 2), row.attempt, cf_attempt(c));
        }
        for (size_t i = 0; i < 2 * ROWS; i++)
                cf_submit(c, i % 2 ? c->a : c->b, &ops[i]);
        cf_finish(c);
        for (size_t i = 0; i < ROWS; i++) {
                const struct store_op *freed = &ops[2 * i], *kept = &ops[2 * i + 1];
                cf_ok(freed);
                cf_ok(kept);
                bool was_freed = freed->out.resolve.outcome == COMMAND_RESOLVED;
                bool was_kept = kept->out.resolve.outcome == COMMAND_RESOLVED;
                assert_true(was_freed != was_kept);
                assert_int_equal(
                        (was_freed ? kept : freed)->out.resolve.outcome, COMMAND_RESOLVE_CHANGED);
                cf_expect_state(c, cf_id(i), was_freed ? COMMAND_FREE : COMMAND_COMPLETED);
        }
        cf_ops_free(ops, 2 * ROWS);
}

static void a5b_every_decision_leaves_one_audit_row(struct cf *c)
{
        if (!c->target->audit_count)
                return;
        const struct span reason = span_str("looked at the bank's site"), who = span_str("ada");
        struct command_row row = stuck_row(c, cf_id(1));
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_EXECUTED, cf_id(1), row.attempt),
                         COMMAND_RESOLVED);
        assert_int_equal(c->target->audit_count(c->target->arg, &row.id, reason, who), 1);
        /* a refused one leaves none: nothing was decided */
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_EXECUTED, cf_id(1), row.attempt),
                         COMMAND_RESOLVE_CHANGED);
        assert_int_equal(c->target->audit_count(c->target->arg, &row.id, reason, who), 1);
        struct command_row after = cf_row(c, cf_id(1));
        assert_int_equal(cf_resolve(c, c->a, COMMAND_RESOLVE_FORGET, cf_id(1), after.attempt),
                         COMMAND_RESOLVED);
        assert_int_equal(c->target->audit_count(c->target->arg, &row.id, reason, who), 2);
}

const struct cf_test cf_tests_resolve[] = {
        {"h14_executed_keeps_the_reply_that_the_operator_gives",
         h14_executed_keeps_the_reply_that_the_operator_gives},
        {"a3_a_resolved_reply_is_kept_for_its_retention_from_then_on",
         a3_a_resolved_reply_is_kept_for_its_retention_from_then_on},
        {"not_executed_lets_any_request_run", not_executed_lets_any_request_run},
        {"a1_a2_the_late_holder_after_a_resolve", a1_a2_the_late_holder_after_a_resolve},
        {"a5b_a_resolve_of_what_was_not_shown_changes_nothing",
         a5b_a_resolve_of_what_was_not_shown_changes_nothing},
        {"a5b_not_while_the_lease_lives_and_not_while_the_request_travels",
         a5b_not_while_the_lease_lives_and_not_while_the_request_travels},
        {"a5b_a_look_while_the_request_travels_decides_nothing",
         a5b_a_look_while_the_request_travels_decides_nothing},
        {"a5b_a_marked_row_waits_for_its_lease_too", a5b_a_marked_row_waits_for_its_lease_too},
        {"a5b_an_earlier_holders_request_may_still_travel",
         a5b_an_earlier_holders_request_may_still_travel},
        {"a5b_no_extension_comes_after_an_operators_look",
         a5b_no_extension_comes_after_an_operators_look},
        {"a5b_a_verdict_is_guarded_by_the_token_shown",
         a5b_a_verdict_is_guarded_by_the_token_shown},
        {"a7_a_repeated_verdict_is_done_already", a7_a_repeated_verdict_is_done_already},
        {"forget_is_for_completed_only", forget_is_for_completed_only},
        {"a5b_of_two_operators_one_decides", a5b_of_two_operators_one_decides},
        {"a5b_every_decision_leaves_one_audit_row", a5b_every_decision_leaves_one_audit_row},
        {NULL, NULL}};
