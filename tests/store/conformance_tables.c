/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_tables: every cell of both tables, the operator's table and the purge's, on rows of
 * every shape.  core/command.h predicts from the row as it was read; the store must answer and
 * leave exactly that.  All rows are there at once, all operations in flight together.
 */
#include "conformance_kit.h"

#include <stdlib.h>

/* Read all rows again, many in flight.  To be freed with cf_ops_free. */
static struct store_op *read_all(struct cf *c, const struct cf_cell *cells, size_t n)
{
        struct store_op *ops = cf_ops_new(n);
        for (size_t i = 0; i < n; i++) {
                cf_op_get(&ops[i], cells[i].id);
                cf_submit(c, i % 2 ? c->a : c->b, &ops[i]);
        }
        cf_finish(c);
        return ops;
}

static void expect_after(struct cf *c, const struct cf_cell *cell, bool exists,
                         const struct command_row *want, const struct store_op *got)
{
        if (!exists) {
                if (got->err.code != SEMEL_ERR_NOT_FOUND)
                        fail_msg("%s: there is a row now", cell->name);
                return;
        }
        if (got->err.code != SEMEL_OK)
                fail_msg("%s: %s", cell->name, got->err.text);
        cf_expect_row(c, cell->name, want, &got->out.get.row);
        if (got->out.get.has_reply != (want->state == COMMAND_COMPLETED)) /* H17 */
                fail_msg("%s: has_reply is %d", cell->name, got->out.get.has_reply);
}

/* -- claims ----------------------------------------------------------------------------------- */

enum { CALLERS = 4, CLAIM_VARIANTS = CALLERS * 2 };

static struct command_claim claim_of(struct cf *c, const struct cf_cell *cell)
{
        static const struct command_policy callers[CALLERS] = {
                {false, false}, {true, false}, {false, true}, {true, true}};
        uint64_t fingerprint = (uint64_t)(cell->variant / CALLERS);
        return cf_claim_of(c, cell->id, fingerprint, callers[cell->variant % CALLERS]);
}

static void expect_answer(struct cf *c, const struct cf_cell *cell,
                          const struct command_answer *want, const struct store_op *op)
{
        const struct command_answer *got = &op->out.claim.answer;
        const struct store_record *rec = &op->out.claim.rec;
        if (op->err.code != SEMEL_OK)
                fail_msg("%s: %s", cell->name, op->err.text); /* H4: never an error */
        if (got->outcome != want->outcome)
                fail_msg("%s: %s, not %s", cell->name, command_outcome_name(got->outcome),
                         command_outcome_name(want->outcome));
        if (got->took_over != want->took_over)
                fail_msg("%s: took_over is %d", cell->name, got->took_over);
        if (cell->exists && got->token != want->token)
                fail_msg("%s: token %lld, not %lld", cell->name, (long long)got->token,
                         (long long)want->token);
        if ((want->outcome == COMMAND_RUN || want->outcome == COMMAND_BUSY) &&
            !cf_near(c, got->lease_left_us, want->lease_left_us))
                fail_msg("%s: %lld us left of the lease, not %lld", cell->name,
                         (long long)got->lease_left_us, (long long)want->lease_left_us);
        if (want->outcome == COMMAND_RUN)
                return;
        cf_expect_span(cell->name, cf_label.operation, rec->operation); /* H60 */
        cf_expect_span(cell->name, cf_label.holder, rec->holder);
        if (want->outcome == COMMAND_REPLAY) {
                assert_true(rec->has_reply);
                assert_int_equal(rec->status, 201);
                cf_expect_span(cell->name, span_str("made"), buf_span(&rec->body));
        }
}

static void every_cell_of_the_claim_table(struct cf *c)
{
        size_t n;
        struct cf_cell *cells = cf_cells_new(1, CLAIM_VARIANTS, &n);
        cf_cells_build(c, cells, n);

        struct store_op *ops = cf_ops_new(n);
        struct command_row *want = calloc(n, sizeof *want);
        assert_non_null(want);
        for (size_t i = 0; i < n; i++) {
                struct command_claim claim = claim_of(c, &cells[i]);
                cf_op_claim(&ops[i], &claim);
                cf_submit(c, i % 3 ? c->a : c->b, &ops[i]);
        }
        cf_finish(c);

        struct store_op *after = read_all(c, cells, n);
        for (size_t i = 0; i < n; i++) {
                struct command_now now = cells[i].before.now;
                if (!cells[i].exists) /* the store's clock of that moment is in the new row */
                        now = (struct command_now){after[i].out.get.row.claimed_us,
                                                   after[i].out.get.row.created_us, false};
                want[i] = cells[i].before.row;
                struct command_answer answer =
                        command_claim(&want[i], cells[i].exists, &ops[i].in.claim.claim, now);
                expect_answer(c, &cells[i], &answer, &ops[i]);
                expect_after(c, &cells[i], true, &want[i], &after[i]);
        }
        cf_ops_free(after, n);
        cf_ops_free(ops, n);
        free(want);
        cf_cells_free(cells, n);
}

/* -- writes by the holder --------------------------------------------------------------------- */

enum { MATCHES = 4, WRITE_VARIANTS = COMMAND_WRITE_KINDS * MATCHES };

static void write_op(struct cf *c, const struct cf_cell *cell, struct store_op *op)
{
        enum command_write_kind kind = (enum command_write_kind)(cell->variant / MATCHES);
        int64_t token = cell->before.row.token;
        struct command_attempt attempt = cell->before.row.attempt;
        switch (cell->variant % MATCHES) {
        case 1:
                token--; /* an earlier holder's */
                break;
        case 2:
                attempt = cf_attempt(c);
                break;
        case 3:
                token++;
                break;
        default:
                break;
        }
        cf_op_write(op, kind, cell->id, token, attempt);
        op->in.write.write.lease_us = 2 * CF_LEASE_US;
}

static void every_cell_of_the_write_table(struct cf *c)
{
        size_t n;
        struct cf_cell *cells = cf_cells_new(100000, WRITE_VARIANTS, &n);
        cf_cells_build(c, cells, n);

        struct store_op *ops = cf_ops_new(n);
        for (size_t i = 0; i < n; i++) {
                write_op(c, &cells[i], &ops[i]);
                cf_submit(c, i % 3 ? c->b : c->a, &ops[i]);
        }
        cf_finish(c);

        struct store_op *after = read_all(c, cells, n);
        for (size_t i = 0; i < n; i++) {
                struct command_row want = cells[i].before.row;
                struct command_write_answer answer = command_write(
                        &want, cells[i].exists, &ops[i].in.write.write, cells[i].before.now);
                const struct command_write_answer *got = &ops[i].out.write;
                cf_ok(&ops[i]);
                const char *kind = command_write_kind_name(ops[i].in.write.write.kind);
                if (got->outcome != answer.outcome)
                        fail_msg("%s: %s gives %d, not %d", cells[i].name, kind, got->outcome,
                                 answer.outcome);
                if (got->self_resolved != answer.self_resolved)
                        fail_msg("%s: %s, self_resolved is %d", cells[i].name, kind,
                                 got->self_resolved);
                if (answer.lease_left_us != 0 &&
                    !cf_near(c, got->lease_left_us, answer.lease_left_us))
                        fail_msg("%s: %s, lease_left", cells[i].name, kind);
                expect_after(c, &cells[i], cells[i].exists, &want, &after[i]);
        }
        cf_ops_free(after, n);
        cf_ops_free(ops, n);
        cf_cells_free(cells, n);
}

/* -- operator verbs --------------------------------------------------------------------------- */

enum { RESOLVE_KINDS = 3, SHOWN = 4, RESOLVE_VARIANTS = RESOLVE_KINDS * SHOWN };

/* What the operator was shown: the row, its attempt alone, another token, another attempt. */
static void resolve_op(struct cf *c, const struct cf_cell *cell, struct store_op *op)
{
        const struct command_row *row = &cell->before.row;
        int shown = cell->variant % SHOWN;
        cf_op_resolve(op, (enum command_resolve_kind)(cell->variant / SHOWN), cell->id,
                      shown == 3 ? cf_attempt(c) : row->attempt, cf_attempt(c));
        op->in.resolve.resolve.token = shown == 1 ? 0 : shown == 2 ? row->token + 1 : row->token;
}

static void a5b_every_cell_of_the_operators_table(struct cf *c)
{
        size_t n;
        struct cf_cell *cells = cf_cells_new(200000, RESOLVE_VARIANTS, &n);
        cf_cells_build(c, cells, n);

        struct store_op *ops = cf_ops_new(n);
        for (size_t i = 0; i < n; i++) {
                resolve_op(c, &cells[i], &ops[i]);
                cf_submit(c, i % 3 ? c->b : c->a, &ops[i]);
        }
        cf_finish(c);

        struct store_op *after = read_all(c, cells, n);
        for (size_t i = 0; i < n; i++) {
                struct command_row want = cells[i].before.row;
                int64_t wait_us = 0;
                enum command_resolve_outcome outcome =
                        command_resolve(&want, cells[i].exists, &ops[i].in.resolve.resolve,
                                        cells[i].before.now, &wait_us);
                cf_ok(&ops[i]);
                if (ops[i].out.resolve.outcome != outcome)
                        fail_msg("%s: %d, not %d", cells[i].name, ops[i].out.resolve.outcome,
                                 outcome);
                if (wait_us != 0 && !cf_near(c, ops[i].out.resolve.wait_us, wait_us))
                        fail_msg("%s: wait %lld us, not %lld", cells[i].name,
                                 (long long)ops[i].out.resolve.wait_us, (long long)wait_us);
                expect_after(c, &cells[i], cells[i].exists, &want, &after[i]);
        }
        cf_ops_free(after, n);
        cf_ops_free(ops, n);
        cf_cells_free(cells, n);
}

/* -- the purge pass, and what --stuck lists --------------------------------------------------- */

static void a9_every_row_of_the_purge_table(struct cf *c)
{
        size_t n;
        struct cf_cell *cells = cf_cells_new(300000, 2, &n);
        cf_cells_build(c, cells, n);
        int64_t deleted, unknown, want_deleted = 0, want_unknown = 0;
        cf_sweep(c, c->a, 7, &deleted, &unknown);

        struct store_op *after = read_all(c, cells, n);
        for (size_t i = 0; i < n; i++) {
                struct command_row want = cells[i].before.row;
                enum command_sweep sweep = cells[i].exists
                                                   ? command_sweep(&want, cells[i].before.now)
                                                   : COMMAND_KEEP;
                want_deleted += sweep == COMMAND_DELETE;
                want_unknown += sweep == COMMAND_TO_UNKNOWN;
                expect_after(c, &cells[i], cells[i].exists && sweep != COMMAND_DELETE, &want,
                             &after[i]);
        }
        assert_int_equal(deleted, want_deleted);
        assert_int_equal(unknown, want_unknown);
        assert_true(deleted > 0 && unknown > 0);
        cf_ops_free(after, n);
        cf_cells_free(cells, n);
}

static bool listed(const struct store_op *op, const struct command_id *id)
{
        for (size_t i = 0; i < op->out.list.count; i++)
                if (command_id_eq(&op->out.list.recs[i].row.id, id))
                        return true;
        return false;
}

static void a5_stuck_lists_unknown_and_every_row_whose_lease_is_over(struct cf *c)
{
        size_t n;
        struct cf_cell *cells = cf_cells_new(400000, 1, &n);
        assert_true(n <= LIMIT_SWEEP_ROWS);
        cf_cells_build(c, cells, n);
        struct store_op op;
        store_op_init(&op, STORE_LIST);
        op.in.list.stuck = true;
        op.in.list.max = LIMIT_SWEEP_ROWS;
        cf_do(c, c->a, &op);
        cf_ok(&op);
        assert_true(op.out.list.end);
        for (size_t i = 0; i < n; i++) {
                bool want = cells[i].exists &&
                            command_stuck(&cells[i].before.row, cells[i].before.now);
                if (listed(&op, &cells[i].id) != want)
                        fail_msg("%s: listed is %d", cells[i].name, !want);
        }
        store_op_release(&op);
        cf_cells_free(cells, n);
}

const struct cf_test cf_tests_tables[] = {
        {"every_cell_of_the_claim_table", every_cell_of_the_claim_table},
        {"every_cell_of_the_write_table", every_cell_of_the_write_table},
        {"a5b_every_cell_of_the_operators_table", a5b_every_cell_of_the_operators_table},
        {"a9_every_row_of_the_purge_table", a9_every_row_of_the_purge_table},
        {"a5_stuck_lists_unknown_and_every_row_whose_lease_is_over",
         a5_stuck_lists_unknown_and_every_row_whose_lease_is_over},
        {NULL, NULL}};
