/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_life: the life of an operation: answered exactly once, never inside submit, also
 * when its deadline is past, when the store is closed, when `done` submits or frees.
 */
#include "conformance_kit.h"

#include <poll.h>
#include <stdlib.h>

static bool is_answer_or_refusal(const struct store_op *op)
{
        switch (op->err.code) {
        case SEMEL_OK:
        case SEMEL_ERR_STORE_DOWN:
        case SEMEL_ERR_BUSY:
        case SEMEL_ERR_UNKNOWN:
                return true;
        default:
                return false;
        }
}

/* -- done submits ----------------------------------------------------------------------------- */

struct chain {
        struct cf *c;
        int left;
        bool inside; /* done is running */
        bool claiming;
        struct store_op op;
};

static void chain_done(struct store_op *op)
{
        struct chain *ch = op->arg;
        assert_false(ch->inside); /* never inside submit */
        ch->inside = true;
        cf_ok(op);
        if (ch->claiming) {
                assert_int_equal(op->out.claim.answer.outcome, COMMAND_RUN);
                struct command_claim claim = op->in.claim.claim;
                int64_t token = op->out.claim.answer.token;
                store_op_release(op);
                cf_op_write(op, COMMAND_RELEASE, claim.id, token, claim.attempt);
        } else {
                assert_int_equal(op->out.write.outcome, COMMAND_DONE);
                struct command_claim claim = cf_claim_of(ch->c, op->in.write.write.id, 1, cf_hold);
                store_op_release(op);
                cf_op_claim(op, &claim);
        }
        ch->claiming = !ch->claiming;
        if (--ch->left > 0) {
                op->done = chain_done;
                op->arg = ch;
                op->deadline_us = clock_boot_us() + 30 * SECOND;
                store_submit(ch->c->a, op);
        }
        ch->inside = false;
}

static void done_may_submit_the_same_operation_again(struct cf *c)
{
        enum { CHAINS = 8 };
        struct chain *chains = calloc(CHAINS, sizeof *chains);
        assert_non_null(chains);
        int left = CHAINS;
        for (uint64_t i = 0; i < CHAINS; i++) {
                struct chain *ch = &chains[i];
                *ch = (struct chain){.c = c, .left = 25, .claiming = true};
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                cf_op_claim(&ch->op, &claim);
                ch->op.done = chain_done;
                ch->op.arg = ch;
                ch->op.deadline_us = clock_boot_us() + 30 * SECOND;
                store_submit(c->a, &ch->op);
        }
        for (int turns = 0; left > 0; turns++) {
                assert_true(turns < 100000);
                cf_turn(c, 1000);
                left = 0;
                for (int i = 0; i < CHAINS; i++)
                        left += chains[i].left > 0;
        }
        for (uint64_t i = 0; i < CHAINS; i++) {
                store_op_release(&chains[i].op);
                cf_expect_state(c, cf_id(i), COMMAND_IN_FLIGHT); /* 25 steps: claimed last */
        }
        free(chains);
}

/* -- done frees ------------------------------------------------------------------------------- */

static void free_done(struct store_op *op)
{
        int *answered = op->arg;
        (*answered)++;
        store_op_release(op);
        memset(op, 0xa5, sizeof *op); /* a store that looks at it again finds this */
        free(op);
}

static void done_may_free_the_operation(struct cf *c)
{
        enum { N = 200 };
        int answered = 0;
        for (uint64_t i = 0; i < N; i++) {
                struct store_op *op = malloc(sizeof *op);
                assert_non_null(op);
                struct command_claim claim = cf_claim_of(c, cf_id(i / 2), 1, cf_hold);
                if (i % 5 == 4)
                        cf_op_get(op, cf_id(i));
                else
                        cf_op_claim(op, &claim);
                op->done = free_done;
                op->arg = &answered;
                op->deadline_us = clock_boot_us() + 30 * SECOND;
                store_submit(c->a, op);
                assert_int_equal(answered, 0);
        }
        for (int turns = 0; answered < N; turns++) {
                assert_true(turns < 100000);
                cf_turn(c, 1000);
        }
}

/* -- deadlines -------------------------------------------------------------------------------- */

/* An operation whose deadline is past is still answered, soon; and what the answer says is true. */
static void a_deadline_in_the_past_is_answered_at_once(struct cf *c)
{
        enum { N = 20 };
        struct store_op *ops = cf_ops_new(N);
        for (uint64_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (uint64_t i = 0; i < N; i++) { /* warmed up: connected, files open */
                cf_ok(&ops[i]);
                int64_t token = ops[i].out.claim.answer.token;
                struct command_attempt attempt = ops[i].in.claim.claim.attempt;
                store_op_release(&ops[i]);
                cf_op_write(&ops[i], COMMAND_COMPLETE, cf_id(i), token, attempt);
        }
        int64_t start_us = clock_boot_us();
        for (uint64_t i = 0; i < N; i++) {
                cf_submit_by(c, c->a, &ops[i], i % 2 ? 0 : start_us - SECOND);
        }
        cf_finish(c);
        assert_true(clock_boot_us() - start_us < 10 * SECOND);
        for (uint64_t i = 0; i < N; i++) {
                assert_true(is_answer_or_refusal(&ops[i]));
                bool done = cf_row(c, cf_id(i)).state == COMMAND_COMPLETED;
                if (ops[i].err.code != SEMEL_ERR_UNKNOWN)
                        assert_int_equal(done, ops[i].err.code == SEMEL_OK);
        }
        cf_ops_free(ops, N);
}

/* -- close ------------------------------------------------------------------------------------ */

/* Whatever is under way is answered before close returns; what was answered RUN is true. */
static void close_answers_what_is_under_way(struct cf *c)
{
        enum { N = 150 };
        for (int turns = 0; turns < 3; turns++) {
                struct store_op *ops = cf_ops_new(N);
                for (uint64_t i = 0; i < N; i++) {
                        struct command_claim claim =
                                cf_claim_of(c, cf_id(i + 1000 * (uint64_t)turns), 1, cf_hold);
                        cf_op_claim(&ops[i], &claim);
                        cf_submit(c, i % 2 ? c->a : c->b, &ops[i]);
                }
                for (int t = 0; t < turns; t++)
                        cf_turn(c, 0); /* none, some, more of the way */
                cf_close_views(c);
                assert_int_equal(c->pending, 0);
                cf_open_views(c);
                for (uint64_t i = 0; i < N; i++) {
                        assert_true(is_answer_or_refusal(&ops[i]));
                        if (!c->target->durable || ops[i].err.code == SEMEL_ERR_UNKNOWN)
                                continue;
                        assert_int_equal(cf_row_exists(c, ops[i].in.claim.claim.id),
                                         ops[i].err.code == SEMEL_OK);
                }
                cf_ops_free(ops, N);
        }
}

static void rows_outlive_their_handles(struct cf *c)
{
        if (!c->target->durable)
                return;
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        struct command_claim done = cf_claim_of(c, cf_id(2), 1, cf_hold);
        (void)cf_claim(c, c->a, &claim);
        struct command_answer held = cf_claim(c, c->a, &done);
        (void)cf_write(c, c->b, COMMAND_COMPLETE, cf_id(2), held.token, done.attempt);
        struct command_row before[2] = {cf_row(c, cf_id(1)), cf_row(c, cf_id(2))};
        cf_close_views(c);
        cf_open_views(c);
        for (uint64_t i = 0; i < 2; i++) {
                struct command_row after = cf_row(c, cf_id(i + 1));
                cf_expect_row(c, "opened again", &before[i], &after);
        }
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &next).outcome, COMMAND_BUSY);
}

/* -- idle ------------------------------------------------------------------------------------- */

static void stepping_an_idle_store_is_harmless(struct cf *c)
{
        for (int i = 0; i < 100; i++)
                cf_turn(c, 0);
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        assert_int_equal(cf_claim(c, c->a, &claim).outcome, COMMAND_RUN);
        for (int i = 0; i < 100; i++)
                cf_turn(c, 0);
        cf_expect_state(c, cf_id(1), COMMAND_IN_FLIGHT);
}

static void store_wait_runs_one_operation(struct cf *c)
{
        struct store_op op;
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_hold);
        cf_op_claim(&op, &claim);
        op.deadline_us = clock_boot_us() + 30 * SECOND;
        store_wait(c->a, &op);
        cf_ok(&op);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        store_op_release(&op);
        cf_op_get(&op, cf_id(2));
        op.deadline_us = clock_boot_us() + 30 * SECOND;
        store_wait(c->a, &op);
        assert_int_equal(op.err.code, SEMEL_ERR_NOT_FOUND);
        store_op_release(&op);
        store_op_release(&op); /* twice is fine */
}

static void more_operations_than_one_batch(struct cf *c)
{
        enum { N = 4 * LIMIT_BATCH_OPS + 3 };
        struct store_op *ops = cf_ops_new(N);
        for (uint64_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (uint64_t i = 0; i < N; i++) {
                cf_ok(&ops[i]);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
        }
        cf_ops_free(ops, N);
}

const struct cf_test cf_tests_life[] = {
        {"done_may_submit_the_same_operation_again", done_may_submit_the_same_operation_again},
        {"done_may_free_the_operation", done_may_free_the_operation},
        {"a_deadline_in_the_past_is_answered_at_once",
         a_deadline_in_the_past_is_answered_at_once},
        {"close_answers_what_is_under_way", close_answers_what_is_under_way},
        {"rows_outlive_their_handles", rows_outlive_their_handles},
        {"stepping_an_idle_store_is_harmless", stepping_an_idle_store_is_harmless},
        {"store_wait_runs_one_operation", store_wait_runs_one_operation},
        {"more_operations_than_one_batch", more_operations_than_one_batch},
        {NULL, NULL}};
