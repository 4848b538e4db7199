/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_rows: rows in every shape that operations can give them, built many at a time.
 *
 * Time goes in four epochs, CF_LONG_US apart, so that leases and retentions of one epoch are over
 * in the next.  Each cell has a holder who claims in one epoch, and an end: what makes the
 * row's last state, in the same epoch or the next.
 */
#include "conformance_kit.h"

#include <stdio.h>
#include <stdlib.h>

enum { EPOCHS = 4, LAST = EPOCHS - 1, NEVER = EPOCHS };

static const struct command_policy policies[] = {
        {false, false}, {true, false}, {false, true}, {true, true}};
enum { POLICIES = sizeof policies / sizeof policies[0] };

const char *cf_shape_name(enum cf_shape shape)
{
        static const char *const names[SHAPES] = {
                "absent",      "free",      "free expired",      "leased",
                "lease over",  "lease ended", "completed",       "completed expired",
                "unknown",     "unknown marked", "unknown old"};
        return names[shape];
}

static bool runs_again(struct command_policy policy)
{
        return policy.retry || policy.idempotent;
}

bool cf_cell_possible(enum cf_shape shape, struct command_policy policy, bool maybe)
{
        if (maybe && !runs_again(policy))
                return false; /* a hold caller never takes over */
        switch (shape) {
        case SHAPE_ABSENT:
                return !maybe && !runs_again(policy);
        case SHAPE_LEASE_ENDED:
                return runs_again(policy);
        case SHAPE_UNKNOWN_MARKED:
                return !runs_again(policy);
        default:
                return true;
        }
}

struct cf_cell *cf_cells_new(uint64_t first_id, int variants, size_t *ret_n)
{
        struct cf_cell *cells =
                calloc((size_t)SHAPES * POLICIES * 2 * (size_t)variants, sizeof *cells);
        assert_non_null(cells);
        size_t n = 0;
        for (int shape = 0; shape < SHAPES; shape++)
                for (int p = 0; p < POLICIES; p++)
                        for (int maybe = 0; maybe < 2; maybe++) {
                                if (!cf_cell_possible((enum cf_shape)shape, policies[p], maybe))
                                        continue;
                                for (int v = 0; v < variants; v++, n++) {
                                        struct cf_cell *cell = &cells[n];
                                        cell->id = cf_id(first_id + n);
                                        cell->shape = (enum cf_shape)shape;
                                        cell->policy = policies[p];
                                        cell->maybe = maybe;
                                        cell->variant = v;
                                        (void)snprintf(cell->name, sizeof cell->name,
                                                       "row %s%s%s%s, variant %d",
                                                       cf_shape_name(cell->shape),
                                                       policies[p].retry ? ", retry" : "",
                                                       policies[p].idempotent ? ", idempotent" : "",
                                                       maybe ? ", maybe executed" : "", v);
                                }
                        }
        *ret_n = n;
        return cells;
}

void cf_cells_free(struct cf_cell *cells, size_t n)
{
        for (size_t i = 0; i < n; i++)
                store_record_release(&cells[i].before);
        free(cells);
}

/* -- when ------------------------------------------------------------------------------------- */

static int holder_epoch(const struct cf_cell *cell)
{
        switch (cell->shape) {
        case SHAPE_ABSENT:
        case SHAPES:
                return NEVER;
        case SHAPE_UNKNOWN_OLD:
                return LAST - 2;
        case SHAPE_FREE_EXPIRED:
                return cell->maybe ? LAST - 2 : LAST - 1;
        case SHAPE_FREE:
                return cell->maybe ? LAST - 1 : LAST;
        case SHAPE_LEASE_OVER:
        case SHAPE_COMPLETED_EXPIRED:
        case SHAPE_UNKNOWN:
                return LAST - 1;
        case SHAPE_LEASED:
        case SHAPE_LEASE_ENDED:
        case SHAPE_COMPLETED:
        case SHAPE_UNKNOWN_MARKED:
                return LAST;
        }
        return NEVER;
}

/* FREE with maybe_executed: only an operator can say so, and only when the lease is over. */
static bool freed_by_operator(const struct cf_cell *cell)
{
        return cell->maybe && (cell->shape == SHAPE_FREE || cell->shape == SHAPE_FREE_EXPIRED);
}

static bool ended_by_next_caller(const struct cf_cell *cell)
{
        return cell->shape == SHAPE_UNKNOWN || cell->shape == SHAPE_UNKNOWN_OLD;
}

static int end_epoch(const struct cf_cell *cell)
{
        if (cell->shape == SHAPE_LEASED || cell->shape == SHAPE_LEASE_OVER)
                return NEVER;
        bool later = freed_by_operator(cell) || ended_by_next_caller(cell);
        return holder_epoch(cell) + (later ? 1 : 0);
}

/* -- what ------------------------------------------------------------------------------------- */

static void end_op(struct cf *c, const struct cf_cell *cell, struct store_op *op)
{
        if (ended_by_next_caller(cell)) {
                struct command_claim claim = cf_claim_of(c, cell->id, 0, cf_hold);
                cf_op_claim(op, &claim);
                return;
        }
        if (freed_by_operator(cell)) {
                cf_op_resolve(op, COMMAND_RESOLVE_NOT_EXECUTED, cell->id, cell->attempt,
                              cf_attempt(c));
                return;
        }
        enum command_write_kind kind = COMMAND_RELEASE;
        if (cell->shape == SHAPE_COMPLETED || cell->shape == SHAPE_COMPLETED_EXPIRED)
                kind = COMMAND_COMPLETE;
        else if (cell->shape == SHAPE_UNKNOWN_MARKED ||
                 (cell->shape == SHAPE_LEASE_ENDED && !cell->maybe))
                kind = COMMAND_MARK_UNKNOWN;
        cf_op_write(op, kind, cell->id, cell->token, cell->attempt);
}

/* The cell's operation in this epoch and round, if it has one. */
static bool next_op(struct cf *c, struct cf_cell *cell, int epoch, int round, struct store_op *op)
{
        bool first = cell->maybe && epoch == 0 && round == 0;
        if (first || (epoch == holder_epoch(cell) && round == 0)) {
                struct command_claim claim =
                        cf_claim_of(c, cell->id, 0, first ? (struct command_policy){true, true}
                                                          : cell->policy);
                cf_op_claim(op, &claim);
                cell->expect = COMMAND_RUN;
                return true;
        }
        if (epoch == end_epoch(cell) && round == 1) {
                end_op(c, cell, op);
                cell->expect = COMMAND_IS_UNKNOWN;
                return true;
        }
        return false;
}

static void check_op(struct cf_cell *cell, struct store_op *op)
{
        if (op->err.code != SEMEL_OK)
                fail_msg("building %s: %s", cell->name, op->err.text);
        bool ok = true;
        if (op->kind == STORE_CLAIM) {
                ok = op->out.claim.answer.outcome == cell->expect;
                if (cell->expect == COMMAND_RUN) {
                        cell->token = op->out.claim.answer.token;
                        cell->attempt = op->in.claim.claim.attempt;
                }
        } else if (op->kind == STORE_WRITE) {
                ok = op->out.write.outcome == COMMAND_DONE;
        } else {
                ok = op->out.resolve.outcome == COMMAND_RESOLVED;
        }
        if (!ok)
                fail_msg("building %s: unexpected answer", cell->name);
}

static void build_round(struct cf *c, struct cf_cell *cells, size_t n, int epoch, int round)
{
        struct store_op *ops = cf_ops_new(n);
        bool *has = calloc(n, sizeof *has);
        assert_non_null(has);
        for (size_t i = 0; i < n; i++) {
                has[i] = next_op(c, &cells[i], epoch, round, &ops[i]);
                if (has[i])
                        cf_submit(c, c->a, &ops[i]);
        }
        cf_finish(c);
        for (size_t i = 0; i < n; i++)
                if (has[i]) {
                        check_op(&cells[i], &ops[i]);
                        store_op_release(&ops[i]);
                }
        free(has);
        free(ops);
}

static void check_shape(const struct cf_cell *cell)
{
        static const enum command_state states[SHAPES] = {
                COMMAND_FREE,      COMMAND_FREE,      COMMAND_FREE,    COMMAND_IN_FLIGHT,
                COMMAND_IN_FLIGHT, COMMAND_IN_FLIGHT, COMMAND_COMPLETED, COMMAND_COMPLETED,
                COMMAND_UNKNOWN,   COMMAND_UNKNOWN,   COMMAND_UNKNOWN};
        const struct command_row *row = &cell->before.row;
        struct command_now now = cell->before.now;
        now.expiry_frozen = false;
        bool over = cell->shape == SHAPE_LEASE_OVER || cell->shape == SHAPE_LEASE_ENDED;
        bool expired = cell->shape == SHAPE_FREE_EXPIRED || cell->shape == SHAPE_COMPLETED_EXPIRED;
        bool maybe = cell->maybe || cell->shape == SHAPE_LEASE_ENDED;
        if (cell->exists != (cell->shape != SHAPE_ABSENT))
                fail_msg("%s: exists is %d", cell->name, cell->exists);
        if (!cell->exists)
                return;
        if (row->state != states[cell->shape] || row->maybe_executed != maybe ||
            row->policy.retry != cell->policy.retry ||
            row->policy.idempotent != cell->policy.idempotent ||
            (row->state == COMMAND_IN_FLIGHT && command_lease_over(row, now) != over) ||
            command_expired(row, now) != expired)
                fail_msg("%s: it is %s, maybe %d, lease %lld us left", cell->name,
                         command_state_name(row->state), row->maybe_executed,
                         (long long)(row->lease_until_us - now.lease_us));
}

void cf_cells_build(struct cf *c, struct cf_cell *cells, size_t n)
{
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
                for (int round = 0; round < 2; round++)
                        build_round(c, cells, n, epoch, round);
                if (epoch < LAST)
                        cf_advance(c, CF_LONG_US);
        }
        struct store_op *ops = cf_ops_new(n);
        for (size_t i = 0; i < n; i++) {
                cf_op_get(&ops[i], cells[i].id);
                cf_submit(c, c->b, &ops[i]);
        }
        cf_finish(c);
        for (size_t i = 0; i < n; i++) {
                cells[i].exists = ops[i].err.code != SEMEL_ERR_NOT_FOUND;
                if (cells[i].exists)
                        cf_ok(&ops[i]);
                cells[i].before = ops[i].out.get; /* ownership moves */
                check_shape(&cells[i]);
        }
        free(ops);
}
