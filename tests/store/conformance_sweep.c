/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_sweep: retention, purge and walks over more rows than one step.
 */
#include "conformance_kit.h"

#include <stdio.h>
#include <stdlib.h>

/* Claim ids first..first+n-1, many in flight, and complete those that `complete` says. */
static void make_rows(struct cf *c, uint64_t first, size_t n, bool complete)
{
        struct store_op *ops = cf_ops_new(n);
        for (size_t i = 0; i < n; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(first + i), 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (size_t i = 0; i < n && complete; i++) {
                cf_ok(&ops[i]);
                int64_t token = ops[i].out.claim.answer.token;
                struct command_attempt attempt = ops[i].in.claim.claim.attempt;
                store_op_release(&ops[i]);
                cf_op_write(&ops[i], COMMAND_COMPLETE, cf_id(first + i), token, attempt);
                cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (size_t i = 0; i < n; i++)
                cf_ok(&ops[i]);
        cf_ops_free(ops, n);
}

static void a3_a_reply_is_kept_for_its_retention_from_the_completion_on(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_answer held = cf_claim(c, c->a, &claim);
        cf_advance(c, 3 * CF_RETENTION_US); /* a long work, far beyond the retention */
        (void)cf_write(c, c->a, COMMAND_COMPLETE, cf_id(1), held.token, claim.attempt);
        cf_advance(c, CF_RETENTION_US - 20 * SECOND - c->target->slack_us);
        cf_sweep(c, c->a, 10, NULL, NULL);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_REPLAY);
        cf_advance(c, 30 * SECOND + c->target->slack_us);
        struct command_claim other = cf_claim_of(c, cf_id(1), 2, cf_hold); /* any request now */
        struct command_answer run = cf_claim(c, c->b, &other);
        assert_int_equal(run.outcome, COMMAND_RUN);
        assert_int_equal(run.token, held.token + 1);
        assert_false(run.took_over);
        assert_int_equal(cf_row(c, cf_id(1)).state, COMMAND_IN_FLIGHT); /* and no reply */
}

static void a3_it_expires_at_the_very_microsecond(struct cf *c)
{
        if (c->target->slack_us != 0)
                return;
        make_rows(c, 1, 1, true);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
        cf_advance(c, CF_RETENTION_US - 1);
        assert_int_equal(cf_claim(c, c->a, &next).outcome, COMMAND_REPLAY);
        cf_advance(c, 1);
        assert_int_equal(cf_claim(c, c->a, &next).outcome, COMMAND_RUN);
}

static void a3_each_claim_has_its_own_retention(struct cf *c)
{
        for (uint64_t i = 0; i < 2; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                claim.retention_us = i ? 10 * CF_RETENTION_US : CF_RETENTION_US;
                struct command_answer held = cf_claim(c, c->a, &claim);
                (void)cf_write(c, c->a, COMMAND_COMPLETE, cf_id(i), held.token, claim.attempt);
        }
        cf_advance(c, 2 * CF_RETENTION_US);
        cf_sweep(c, c->a, 10, NULL, NULL);
        assert_false(cf_row_exists(c, cf_id(0)));
        assert_true(cf_row_exists(c, cf_id(1)));
}

/* H80: neither the purge nor a claim may forget what is running or unknown, however old. */
static void a3_h80_unknown_and_in_flight_never_expire(struct cf *c)
{
        make_rows(c, 1, 2, false);
        struct command_row row = cf_row(c, cf_id(2));
        (void)cf_write(c, c->a, COMMAND_MARK_UNKNOWN, cf_id(2), row.token, row.attempt);
        for (int year = 0; year < 3; year++) {
                cf_advance(c, 365 * 24 * HOUR);
                cf_sweep(c, c->b, 10, NULL, NULL);
        }
        for (uint64_t i = 1; i <= 2; i++) {
                cf_expect_state(c, cf_id(i), COMMAND_UNKNOWN);
                struct command_claim same = cf_claim_of(c, cf_id(i), 1, cf_hold);
                struct command_claim other = cf_claim_of(c, cf_id(i), 2, cf_hold);
                assert_int_equal(cf_claim(c, c->a, &same).outcome, COMMAND_IS_UNKNOWN);
                assert_int_equal(cf_claim(c, c->a, &other).outcome, COMMAND_MISMATCH);
        }
}

/* A5: hold rows are listed as soon as their lease is over, though nobody retries. */
static void a5_the_sweep_turns_lease_over_hold_rows_unknown(struct cf *c)
{
        struct command_claim hold = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_claim retry = cf_claim_of(c, cf_id(2), 1, cf_retry);
        (void)cf_claim(c, c->a, &hold);
        (void)cf_claim(c, c->a, &retry);
        int64_t deleted, unknown;
        cf_sweep(c, c->a, 10, &deleted, &unknown);
        assert_int_equal(unknown, 0); /* their leases are alive */
        cf_advance(c, CF_LEASE_US + SECOND);
        cf_sweep(c, c->a, 10, &deleted, &unknown);
        assert_int_equal(unknown, 1);
        cf_expect_state(c, cf_id(1), COMMAND_UNKNOWN);
        cf_expect_state(c, cf_id(2), COMMAND_IN_FLIGHT); /* left to its next caller */
        cf_advance(c, CF_RETENTION_US + SECOND);
        cf_sweep(c, c->a, 10, &deleted, &unknown);
        assert_int_equal(unknown, 1);
        assert_int_equal(deleted, 0);
        cf_expect_state(c, cf_id(2), COMMAND_UNKNOWN);
}

/* H35: a backlog goes away in bounded steps. */
static void h35_h71_h80_a_sweep_over_many_rows_in_small_steps(struct cf *c)
{
        enum { OLD = 900, RUNNING = 150, YOUNG = 150 };
        make_rows(c, 0, OLD, true);
        make_rows(c, 1000, RUNNING, false);
        cf_advance(c, CF_LONG_US);
        make_rows(c, 2000, YOUNG, true);
        int64_t deleted, unknown;
        cf_sweep(c, c->a, 64, &deleted, &unknown);
        assert_int_equal(deleted, OLD);
        assert_int_equal(unknown, RUNNING);
        cf_sweep(c, c->b, LIMIT_SWEEP_ROWS, &deleted, &unknown);
        assert_int_equal(deleted, 0);
        assert_int_equal(unknown, 0);
        assert_false(cf_row_exists(c, cf_id(OLD - 1)));
        cf_expect_state(c, cf_id(1000 + RUNNING - 1), COMMAND_UNKNOWN);
        cf_expect_state(c, cf_id(2000 + YOUNG - 1), COMMAND_COMPLETED);
}

/* Claims of the expired rows first..first+n-1, and a purge that begins some turns later. */
static void claims_beside_a_purge(struct cf *c, uint64_t first, size_t n, int turns)
{
        struct store_op *ops = cf_ops_new(n);
        struct store_op sweeps[2];
        for (size_t i = 0; i < n; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(first + i), 2, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, c->a, &ops[i]);
        }
        for (int t = 0; t < turns; t++)
                cf_turn(c, 1);
        for (int i = 0; i < 2; i++) {
                store_op_init(&sweeps[i], STORE_SWEEP);
                sweeps[i].in.sweep.max = LIMIT_SWEEP_ROWS;
                cf_submit(c, i ? c->a : c->b, &sweeps[i]);
        }
        cf_finish(c);
        for (int i = 0; i < 2; i++) {
                cf_ok(&sweeps[i]);
                store_op_release(&sweeps[i]);
        }
        for (size_t i = 0; i < n; i++) {
                cf_ok(&ops[i]);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
                struct command_row row = cf_row(c, cf_id(first + i)); /* it is there */
                assert_int_equal(row.state, COMMAND_IN_FLIGHT);
                assert_true(command_attempt_eq(&row.attempt, &ops[i].in.claim.claim.attempt));
                assert_int_equal(row.token, ops[i].out.claim.answer.token);
        }
        cf_ops_free(ops, n);
}

/* Naive: the purge finds the row expired, a claim takes it, the purge deletes the fresh claim. */
static void a9_a_purge_beside_claims_deletes_no_fresh_claim(struct cf *c)
{
        enum { ROUNDS = 14, EACH = 25 };
        for (uint64_t round = 0; round < ROUNDS; round++) {
                struct command_row old[EACH];
                make_rows(c, round * EACH, EACH, true);
                cf_advance(c, CF_LONG_US);
                for (uint64_t i = 0; i < EACH; i++)
                        old[i] = cf_row(c, cf_id(round * EACH + i));
                claims_beside_a_purge(c, round * EACH, EACH, (int)round);
                for (uint64_t i = 0; i < EACH; i++) /* A1: over the purge too */
                        assert_true(cf_row(c, cf_id(round * EACH + i)).token > old[i].token);
        }
}

static void a3_each_reply_of_a_key_is_kept_as_long(struct cf *c)
{
        for (int life = 0; life < 3; life++) {
                struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
                struct command_answer held = cf_claim(c, c->a, &claim);
                assert_int_equal(held.outcome, COMMAND_RUN);
                (void)cf_write(c, c->a, COMMAND_COMPLETE, cf_id(1), held.token, claim.attempt);
                cf_advance(c, CF_RETENTION_US / 2);
                struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
                assert_int_equal(cf_claim(c, c->b, &next).outcome, COMMAND_REPLAY);
                cf_advance(c, CF_RETENTION_US);
        }
}

/* -- walks ------------------------------------------------------------------------------------ */

struct seen {
        struct command_id *ids;
        size_t n, max;
        int64_t created_us; /* of the last one: the walk is in order of creation */
};

static void walk(struct cf *c, size_t step, bool stuck, struct span key, struct seen *seen)
{
        struct store_cursor at = {0};
        seen->n = 0;
        seen->created_us = INT64_MIN;
        for (int steps = 0; steps < 10000; steps++) {
                struct store_op op;
                store_op_init(&op, STORE_LIST);
                op.in.list.after = at;
                op.in.list.stuck = stuck;
                op.in.list.key = key;
                op.in.list.max = step;
                cf_do(c, steps % 2 ? c->a : c->b, &op);
                cf_ok(&op);
                assert_true(op.out.list.count <= step);
                for (size_t i = 0; i < op.out.list.count; i++) {
                        const struct store_record *rec = &op.out.list.recs[i];
                        assert_true(seen->n < seen->max);
                        assert_true(rec->row.created_us >= seen->created_us);
                        seen->created_us = rec->row.created_us;
                        seen->ids[seen->n++] = rec->row.id;
                        assert_int_equal(rec->body.n, 0); /* without reply bodies */
                }
                at = op.out.list.next;
                bool end = op.out.list.end;
                store_op_release(&op);
                if (end)
                        return;
        }
        fail_msg("the walk never ends");
}

static int by_id(const void *a, const void *b)
{
        return memcmp(a, b, sizeof(struct command_id));
}

static void expect_distinct(struct seen *seen)
{
        qsort(seen->ids, seen->n, sizeof *seen->ids, by_id);
        for (size_t i = 1; i < seen->n; i++)
                assert_int_not_equal(by_id(&seen->ids[i - 1], &seen->ids[i]), 0);
}

static void a_walk_meets_every_row_once(struct cf *c)
{
        enum { ROWS = 700 }; /* many of them with the same created_us */
        make_rows(c, 0, ROWS / 2, true);
        cf_advance(c, SECOND);
        make_rows(c, ROWS / 2, ROWS / 2, false);
        struct seen seen = {.ids = calloc(ROWS, sizeof *seen.ids), .max = ROWS};
        assert_non_null(seen.ids);
        static const size_t steps[] = {1, 7, 256, LIMIT_SWEEP_ROWS};
        for (int i = 0; i < 4; i++) {
                walk(c, steps[i], false, (struct span){0}, &seen);
                assert_int_equal(seen.n, ROWS);
                expect_distinct(&seen);
        }
        walk(c, 50, true, (struct span){0}, &seen);
        assert_int_equal(seen.n, 0); /* all leases are alive */
        cf_advance(c, CF_LEASE_US + SECOND);
        walk(c, 50, true, (struct span){0}, &seen);
        assert_int_equal(seen.n, ROWS / 2);
        expect_distinct(&seen);
        free(seen.ids);
}

static void claim_with_key(struct cf *c, uint64_t n, struct span key)
{
        struct command_claim claim = cf_claim_of(c, cf_id(n), 1, cf_hold);
        struct store_op op;
        cf_op_claim(&op, &claim);
        op.in.claim.label.key = key;
        cf_do(c, c->a, &op);
        cf_ok(&op);
        store_op_release(&op);
}

static void a_walk_for_one_keys_text_compares_bytes(struct cf *c)
{
        static const char *const texts[] = {"order-7", "order-70", "ORDER-7", "%", "_",
                                            "' OR 1=1 --", "order-7 "};
        enum { TEXTS = sizeof texts / sizeof texts[0], EACH = 30 };
        for (uint64_t i = 0; i < TEXTS * EACH; i++)
                claim_with_key(c, i, span_str(texts[i % TEXTS]));
        struct seen seen = {.ids = calloc(TEXTS * EACH, sizeof *seen.ids), .max = TEXTS * EACH};
        assert_non_null(seen.ids);
        for (uint64_t t = 0; t < TEXTS; t++) {
                walk(c, 8, false, span_str(texts[t]), &seen);
                assert_int_equal(seen.n, EACH);
                expect_distinct(&seen);
        }
        walk(c, 8, false, span_str("order-"), &seen);
        assert_int_equal(seen.n, 0);
        free(seen.ids);
}

const struct cf_test cf_tests_sweep[] = {
        {"a3_a_reply_is_kept_for_its_retention_from_the_completion_on",
         a3_a_reply_is_kept_for_its_retention_from_the_completion_on},
        {"a3_each_reply_of_a_key_is_kept_as_long", a3_each_reply_of_a_key_is_kept_as_long},
        {"a3_it_expires_at_the_very_microsecond", a3_it_expires_at_the_very_microsecond},
        {"a3_each_claim_has_its_own_retention", a3_each_claim_has_its_own_retention},
        {"a3_h80_unknown_and_in_flight_never_expire", a3_h80_unknown_and_in_flight_never_expire},
        {"a5_the_sweep_turns_lease_over_hold_rows_unknown",
         a5_the_sweep_turns_lease_over_hold_rows_unknown},
        {"h35_h71_h80_a_sweep_over_many_rows_in_small_steps", h35_h71_h80_a_sweep_over_many_rows_in_small_steps},
        {"a9_a_purge_beside_claims_deletes_no_fresh_claim",
         a9_a_purge_beside_claims_deletes_no_fresh_claim},
        {"a_walk_meets_every_row_once", a_walk_meets_every_row_once},
        {"a_walk_for_one_keys_text_compares_bytes", a_walk_for_one_keys_text_compares_bytes},
        {NULL, NULL}};
