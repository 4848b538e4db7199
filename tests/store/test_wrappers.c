/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrappers themselves: what a trace says, and what A7 promises when operations and answers are
 * lost.  A lost answer is repeated with the same attempt until it is heard; whatever arrives late
 * finds that the row has moved on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/buf.h"
#include "core/limits.h"
#include "store/memory/memory.h"

enum { LEASE_US = 60 * 1000 * 1000 };

struct world {
        struct store *st;
        int64_t now_us;
        struct sys_clock clock;
        enum store_fault fault; /* of the next operation, once */
        struct buf lines;
        uint8_t attempts;
};

static int64_t world_now(void *arg)
{
        return ((struct world *)arg)->now_us;
}

static enum store_fault decide(void *arg, const struct store_op *op)
{
        struct world *w = arg;
        (void)op;
        enum store_fault fault = w->fault;
        w->fault = FAULT_NONE;
        return fault;
}

static void line(void *arg, const char *text)
{
        struct world *w = arg;
        assert_int_equal(buf_append_str(&w->lines, text), BUF_OK);
        assert_int_equal(buf_append_str(&w->lines, "\n"), BUF_OK);
}

static struct world *world_new(bool faulty)
{
        struct world *w = calloc(1, sizeof *w);
        assert_non_null(w);
        w->now_us = 1000 * SECOND;
        w->clock = (struct sys_clock){world_now, world_now, w};
        buf_init(&w->lines, 64 * 1024);
        const struct store_env env = {.clock = &w->clock};
        struct store *inner;
        assert_int_equal(store_memory_driver.open("memory:", &env, &inner, NULL), SEMEL_OK);
        w->st = faulty ? store_faulty_new(inner, decide, w) : store_trace_new(inner, line, w);
        assert_non_null(w->st);
        return w;
}

static int setup_faulty(void **state)
{
        *state = world_new(true);
        return 0;
}

static int setup_trace(void **state)
{
        *state = world_new(false);
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;
        w->st->vt->close(w->st);
        buf_release(&w->lines);
        free(w);
        return 0;
}

static void run(struct world *w, struct store_op *op)
{
        op->deadline_us = clock_boot_us() + 10 * SECOND;
        store_wait(w->st, op);
}

static struct command_claim claim_by(struct world *w, struct command_policy policy)
{
        struct command_claim claim = {
                .policy = policy, .lease_us = LEASE_US, .retention_us = HOUR, .request_us = 0};
        claim.id.b[0] = 7;
        claim.attempt.b[0] = ++w->attempts;
        return claim;
}

static const struct command_policy HOLD = {false, false}, RETRY = {true, false};

/* Claim through this fault.  The answer when there is one. */
static semel_code claim_with(struct world *w, enum store_fault fault,
                             const struct command_claim *claim, struct command_answer *ret)
{
        struct store_op op;
        store_op_init(&op, STORE_CLAIM);
        op.in.claim.claim = *claim;
        char holder[] = "holder";
        op.in.claim.label.holder = span_str(holder);
        w->fault = fault;
        run(w, &op);
        holder[0] = '!'; /* a late copy must not look here any more */
        semel_code code = op.err.code;
        if (code == SEMEL_OK && ret)
                *ret = op.out.claim.answer;
        store_op_release(&op);
        return code;
}

static struct command_answer claim_ok(struct world *w, const struct command_claim *claim)
{
        struct command_answer answer = {0};
        assert_int_equal(claim_with(w, FAULT_NONE, claim, &answer), SEMEL_OK);
        return answer;
}

static semel_code write_with(struct world *w, enum store_fault fault,
                             enum command_write_kind kind, const struct command_claim *claim,
                             int64_t token, enum command_write_outcome *ret)
{
        struct store_op op;
        store_op_init(&op, STORE_WRITE);
        op.in.write.write = (struct command_write){
                .kind = kind, .id = claim->id, .token = token, .attempt = claim->attempt};
        char body[] = "paid";
        op.in.write.reply = (struct store_reply){.status = 200, .body = span_str(body)};
        w->fault = fault;
        run(w, &op);
        memset(body, '!', sizeof body);
        semel_code code = op.err.code;
        if (code == SEMEL_OK && ret)
                *ret = op.out.write.outcome;
        store_op_release(&op);
        return code;
}

static enum command_write_outcome write_ok(struct world *w, enum command_write_kind kind,
                                           const struct command_claim *claim, int64_t token)
{
        enum command_write_outcome outcome = COMMAND_LOST;
        assert_int_equal(write_with(w, FAULT_NONE, kind, claim, token, &outcome), SEMEL_OK);
        return outcome;
}

static void settle(struct world *w)
{
        store_faulty_flush(w->st);
        while (w->st->vt->deadline_us(w->st) <= clock_boot_us())
                w->st->vt->step(w->st);
}

static bool row_of(struct world *w, struct command_row *ret_row)
{
        struct store_op op;
        store_op_init(&op, STORE_GET);
        op.in.get.id.b[0] = 7;
        run(w, &op);
        bool found = op.err.code == SEMEL_OK;
        if (found) {
                *ret_row = op.out.get.row;
                if (op.out.get.has_reply)
                        assert_memory_equal(op.out.get.body.p, "paid", 4);
        }
        store_op_release(&op);
        return found;
}

/* -- faulty --------------------------------------------------------------------------------- */

static void before_means_that_nothing_happened(void **state)
{
        struct world *w = *state;
        struct command_claim claim = claim_by(w, HOLD);
        struct command_row row;
        assert_int_equal(claim_with(w, FAULT_BEFORE, &claim, NULL), SEMEL_ERR_STORE_DOWN);
        assert_false(row_of(w, &row));
        assert_int_equal(claim_ok(w, &claim).outcome, COMMAND_RUN);
}

static void a7_h15_a_claim_whose_answer_is_lost_is_found_by_asking_again(void **state)
{
        struct world *w = *state;
        struct command_claim claim = claim_by(w, HOLD), other = claim_by(w, HOLD);
        assert_int_equal(claim_with(w, FAULT_LOST_REPLY, &claim, NULL), SEMEL_ERR_UNKNOWN);
        assert_int_equal(claim_ok(w, &other).outcome, COMMAND_BUSY); /* it is there */
        assert_int_equal(claim_with(w, FAULT_LOST_REPLY, &claim, NULL), SEMEL_ERR_UNKNOWN);
        struct command_answer again = claim_ok(w, &claim);
        assert_int_equal(again.outcome, COMMAND_RUN); /* not 409 against itself */
        assert_int_equal(write_ok(w, COMMAND_COMPLETE, &claim, again.token), COMMAND_DONE);
}

static void a7_writes_whose_answer_is_lost_are_done_again_without_a_change(void **state)
{
        struct world *w = *state;
        static const enum command_write_kind kinds[] = {COMMAND_COMPLETE, COMMAND_RELEASE,
                                                        COMMAND_MARK_UNKNOWN};
        for (int i = 0; i < 3; i++) {
                struct command_claim claim = claim_by(w, HOLD);
                claim.retention_us = 0; /* the next round claims it anew */
                int64_t token = claim_ok(w, &claim).token;
                assert_int_equal(
                        write_with(w, FAULT_LOST_REPLY, kinds[i], &claim, token, NULL),
                        SEMEL_ERR_UNKNOWN);
                struct command_row before, after;
                assert_true(row_of(w, &before));
                assert_int_equal(write_ok(w, kinds[i], &claim, token), COMMAND_DONE);
                assert_true(row_of(w, &after));
                assert_memory_equal(&before, &after, sizeof before);
        }
}

/* The claim travels while its caller gives up; another runs and completes; then it lands. */
static void a7_a_claim_that_lands_late_does_not_run_again(void **state)
{
        struct world *w = *state;
        struct command_claim slow = claim_by(w, HOLD), other = claim_by(w, HOLD);
        assert_int_equal(claim_with(w, FAULT_LATE, &slow, NULL), SEMEL_ERR_UNKNOWN);
        struct command_row row;
        assert_false(row_of(w, &row));
        int64_t token = claim_ok(w, &other).token;
        assert_int_equal(write_ok(w, COMMAND_COMPLETE, &other, token), COMMAND_DONE);
        settle(w);
        assert_true(row_of(w, &row));
        assert_int_equal(row.state, COMMAND_COMPLETED);
        assert_memory_equal(&row.attempt, &other.attempt, sizeof row.attempt);
}

/* ... or lands as an orphan: it is released by the one who knows its attempt. */
static void a7_a_claim_that_lands_late_is_claimed_again_and_released(void **state)
{
        struct world *w = *state;
        struct command_claim slow = claim_by(w, HOLD), next = claim_by(w, HOLD);
        assert_int_equal(claim_with(w, FAULT_LATE, &slow, NULL), SEMEL_ERR_UNKNOWN);
        /* a release alone finds no row, and changes nothing */
        assert_int_equal(write_ok(w, COMMAND_RELEASE, &slow, 0), COMMAND_LOST);
        settle(w);
        assert_int_equal(claim_ok(w, &next).outcome, COMMAND_BUSY); /* the orphan */
        struct command_answer again = claim_ok(w, &slow);
        assert_int_equal(again.outcome, COMMAND_RUN);
        assert_int_equal(write_ok(w, COMMAND_RELEASE_NOT_EXECUTED, &slow, again.token),
                         COMMAND_DONE);
        assert_int_equal(claim_ok(w, &next).outcome, COMMAND_RUN);
}

/* H9, H10: the write was under way while another took the key over. */
static void a1_a_write_that_lands_after_a_takeover_changes_nothing(void **state)
{
        struct world *w = *state;
        for (int kind = 0; kind < COMMAND_WRITE_KINDS; kind++) {
                struct command_claim old = claim_by(w, RETRY), next = claim_by(w, RETRY);
                old.retention_us = next.retention_us = 0;
                int64_t token = claim_ok(w, &old).token;
                assert_int_equal(write_with(w, FAULT_LATE, (enum command_write_kind)kind, &old,
                                            token, NULL),
                                 SEMEL_ERR_UNKNOWN);
                w->now_us += LEASE_US;
                struct command_answer held = claim_ok(w, &next);
                assert_true(held.took_over);
                struct command_row before, after;
                assert_true(row_of(w, &before));
                settle(w);
                assert_true(row_of(w, &after));
                assert_memory_equal(&before, &after, sizeof before);
                assert_int_equal(write_ok(w, COMMAND_COMPLETE, &next, held.token), COMMAND_DONE);
        }
}

/* A's release is lost on the way and repeated; B claims; then the first one lands (A1). */
static void a1_a_release_that_lands_twice_frees_once(void **state)
{
        struct world *w = *state;
        struct command_claim a = claim_by(w, HOLD), b = claim_by(w, HOLD);
        struct command_claim third = claim_by(w, HOLD);
        int64_t token = claim_ok(w, &a).token;
        assert_int_equal(write_with(w, FAULT_LATE, COMMAND_RELEASE, &a, token, NULL),
                         SEMEL_ERR_UNKNOWN);
        assert_int_equal(write_ok(w, COMMAND_RELEASE, &a, token), COMMAND_DONE);
        assert_int_equal(claim_ok(w, &b).outcome, COMMAND_RUN);
        settle(w);
        assert_int_equal(claim_ok(w, &third).outcome, COMMAND_BUSY);
}

static void a_late_completion_keeps_its_own_bytes(void **state)
{
        struct world *w = *state;
        struct command_claim claim = claim_by(w, HOLD);
        int64_t token = claim_ok(w, &claim).token;
        assert_int_equal(write_with(w, FAULT_LATE, COMMAND_COMPLETE, &claim, token, NULL),
                         SEMEL_ERR_UNKNOWN);
        settle(w);
        struct command_row row;
        assert_true(row_of(w, &row)); /* compares the body */
        assert_int_equal(row.state, COMMAND_COMPLETED);
}

static void count_done(struct store_op *op)
{
        (*(int *)op->arg)++;
}

static void close_answers_the_queued_and_drops_the_late(void **state)
{
        (void)state;
        struct world *w = world_new(true);
        struct store_op ops[4];
        int answered = 0;
        for (int i = 0; i < 4; i++) {
                struct command_claim claim = claim_by(w, HOLD);
                store_op_init(&ops[i], STORE_CLAIM);
                ops[i].in.claim.claim = claim;
                ops[i].done = count_done;
                ops[i].arg = &answered;
                w->fault = (enum store_fault)i;
                store_submit(w->st, &ops[i]);
        }
        assert_int_equal(answered, 0); /* never inside submit */
        w->st->vt->close(w->st);
        assert_int_equal(answered, 4);
        static const semel_code codes[] = {SEMEL_OK, SEMEL_ERR_STORE_DOWN, SEMEL_ERR_UNKNOWN,
                                           SEMEL_ERR_UNKNOWN};
        for (int i = 0; i < 4; i++) {
                assert_int_equal(ops[i].err.code, codes[i]);
                store_op_release(&ops[i]);
        }
        free(w);
}

/* -- trace ------------------------------------------------------------------------------------ */

static void h45_a_trace_has_one_line_in_and_one_line_out_and_no_text_of_the_user(void **state)
{
        struct world *w = *state;
        struct command_claim claim = claim_by(w, HOLD), other = claim_by(w, HOLD);
        int64_t token = claim_ok(w, &claim).token;
        (void)claim_ok(w, &other);
        (void)write_ok(w, COMMAND_COMPLETE, &claim, token);
        (void)write_ok(w, COMMAND_RELEASE, &claim, token);
        struct store_op op;
        store_op_init(&op, STORE_GET);
        run(w, &op);
        store_op_release(&op);
        assert_string_equal(buf_cstr(&w->lines),
                            "> claim 0700000000000000 attempt 01000000\n"
                            "< claim 0700000000000000 attempt 01000000: "
                            "RUN token 1000000000 lease 60000000\n"
                            "> claim 0700000000000000 attempt 02000000\n"
                            "< claim 0700000000000000 attempt 02000000: "
                            "BUSY token 1000000000 lease 60000000\n"
                            "> write 0700000000000000 complete attempt 01000000\n"
                            "< write 0700000000000000 complete attempt 01000000: done\n"
                            "> write 0700000000000000 release attempt 01000000\n"
                            "< write 0700000000000000 release attempt 01000000: lost\n"
                            "> get 0000000000000000\n"
                            "< get 0000000000000000: error not-found\n");
}

int main(void)
{
#define FAULTY(test) cmocka_unit_test_setup_teardown(test, setup_faulty, teardown)
        const struct CMUnitTest tests[] = {
                FAULTY(before_means_that_nothing_happened),
                FAULTY(a7_h15_a_claim_whose_answer_is_lost_is_found_by_asking_again),
                FAULTY(a7_writes_whose_answer_is_lost_are_done_again_without_a_change),
                FAULTY(a7_a_claim_that_lands_late_does_not_run_again),
                FAULTY(a7_a_claim_that_lands_late_is_claimed_again_and_released),
                FAULTY(a1_a_write_that_lands_after_a_takeover_changes_nothing),
                FAULTY(a1_a_release_that_lands_twice_frees_once),
                FAULTY(a_late_completion_keeps_its_own_bytes),
                cmocka_unit_test(close_answers_the_queued_and_drops_the_late),
                cmocka_unit_test_setup_teardown(
                        h45_a_trace_has_one_line_in_and_one_line_out_and_no_text_of_the_user,
                        setup_trace, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
