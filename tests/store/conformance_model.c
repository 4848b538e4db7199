/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_model: ten thousand random operations beside a model: rows in an array, decided by
 * core/command.h.  Operations of one round are in flight together, each on another key, so that
 * their order does not matter; times come from small sets, so that boundaries are hit.
 */
#include "conformance_kit.h"

#include <stdlib.h>

enum { KEYS = 150, IN_FLIGHT = 100, OPERATIONS = 10000 };

struct model_row {
        bool exists;
        struct command_row row;
        int64_t highest_token;          /* over all lives of the key (A1) */
        struct command_attempt old[4];  /* of earlier holders, who still write sometimes */
        int64_t old_token[4];
        uint64_t olds;
};

struct model {
        struct model_row rows[KEYS];
        struct command_now now[KEYS];   /* the store's clock when the row was read last */
};

static const struct command_policy policies[] = {
        {false, false}, {false, false}, {true, false}, {false, true}, {true, true}};

/* With a clock that runs, rows near a boundary would be decided by luck: leave them alone. */
static bool near_boundary(const struct cf *c, const struct command_row *row,
                          struct command_now now)
{
        if (c->target->slack_us == 0)
                return false;
        return cf_near(c, row->lease_until_us, now.lease_us) ||
               cf_near(c, row->request_until_us, now.lease_us) ||
               cf_near(c, row->lease_until_us + row->retention_us, now.lease_us) ||
               cf_near(c, row->expire_us, now.wall_us);
}

static void remember_holder(struct model_row *m)
{
        uint64_t at = m->olds++ % 4;
        m->old[at] = m->row.attempt;
        m->old_token[at] = m->row.token;
}

static void random_claim(struct cf *c, uint64_t key, struct store_op *op)
{
        struct command_claim claim =
                cf_claim_of(c, cf_id(key), cf_random(c) % 8 == 0, policies[cf_random(c) % 5]);
        claim.lease_us = CF_LEASE_US * (int64_t)(1 + cf_random(c) % 2);
        claim.request_us = CF_LEASE_US * (int64_t)(cf_random(c) % 3);
        claim.retention_us = CF_LEASE_US * (int64_t)(1 + cf_random(c) % 4);
        cf_op_claim(op, &claim);
}

static void random_op(struct cf *c, struct model_row *m, uint64_t key, struct store_op *op)
{
        uint64_t dice = cf_random(c) % 100;
        int64_t token = m->row.token;
        struct command_attempt attempt = m->row.attempt;
        bool late = m->olds > 0 && cf_random(c) % 4 == 0;
        if (late) {
                uint64_t at = cf_random(c) % (m->olds < 4 ? m->olds : 4);
                attempt = m->old[at];
                token = cf_random(c) % 2 ? m->old_token[at] : token;
        }
        if (dice < 45) {
                random_claim(c, key, op);
        } else if (dice < 88) {
                enum command_write_kind kind =
                        (enum command_write_kind)(cf_random(c) % COMMAND_WRITE_KINDS);
                cf_op_write(op, kind, cf_id(key), token, attempt);
        } else {
                enum command_resolve_kind kind = (enum command_resolve_kind)(cf_random(c) % 3);
                cf_op_resolve(op, kind, cf_id(key), attempt, cf_attempt(c));
        }
}

/* Read all keys: they must be what the model says, then the model takes their exact times. */
static void compare(struct cf *c, struct model *m)
{
        struct store_op *ops = cf_ops_new(KEYS);
        for (uint64_t k = 0; k < KEYS; k++) {
                cf_op_get(&ops[k], cf_id(k));
                cf_submit(c, k % 2 ? c->a : c->b, &ops[k]);
        }
        cf_finish(c);
        for (uint64_t k = 0; k < KEYS; k++) {
                bool exists = ops[k].err.code != SEMEL_ERR_NOT_FOUND;
                assert_int_equal(exists, m->rows[k].exists);
                if (!exists)
                        continue;
                cf_ok(&ops[k]);
                cf_expect_row(c, "the model", &m->rows[k].row, &ops[k].out.get.row);
                assert_int_equal(ops[k].out.get.has_reply,
                                 ops[k].out.get.row.state == COMMAND_COMPLETED);
                m->rows[k].row = ops[k].out.get.row;
                m->now[k] = ops[k].out.get.now;
        }
        cf_ops_free(ops, KEYS);
}

static void model_claim(struct cf *c, struct model_row *m, struct command_now now,
                        const struct store_op *op)
{
        const struct command_answer *got = &op->out.claim.answer;
        if (!m->exists) {
                assert_int_equal(got->outcome, COMMAND_RUN);
                assert_true(got->token > m->highest_token);
                m->row = cf_row(c, op->in.claim.claim.id); /* the clock of that moment */
                assert_int_equal(m->row.state, COMMAND_IN_FLIGHT);
                assert_true(command_attempt_eq(&m->row.attempt, &op->in.claim.claim.attempt));
                assert_int_equal(m->row.token, got->token);
                m->exists = true;
                return;
        }
        struct command_answer want = command_claim(&m->row, true, &op->in.claim.claim, now);
        assert_int_equal(got->outcome, want.outcome);
        assert_int_equal(got->token, want.token);
        assert_int_equal(got->took_over, want.took_over);
        if (want.outcome == COMMAND_RUN)
                assert_true(got->token > m->highest_token);
}

static void model_op(struct cf *c, struct model_row *m, struct command_now now,
                     const struct store_op *op)
{
        int64_t wait_us = 0;
        cf_ok(op);
        switch (op->kind) {
        case STORE_CLAIM:
                model_claim(c, m, now, op);
                break;
        case STORE_WRITE: {
                struct command_write_answer want =
                        command_write(&m->row, m->exists, &op->in.write.write, now);
                assert_int_equal(op->out.write.outcome, want.outcome);
                assert_int_equal(op->out.write.self_resolved, want.self_resolved);
                break;
        }
        case STORE_RESOLVE:
                assert_int_equal(op->out.resolve.outcome,
                                 command_resolve(&m->row, m->exists, &op->in.resolve.resolve, now,
                                                 &wait_us));
                break;
        default:
                break;
        }
        if (m->exists && m->row.token > m->highest_token)
                m->highest_token = m->row.token;
}

static size_t random_round(struct cf *c, struct model *m)
{
        struct store_op *ops = cf_ops_new(IN_FLIGHT);
        uint64_t keys[IN_FLIGHT];
        size_t n = 0;
        for (uint64_t k = cf_random(c) % 3; k < KEYS && n < IN_FLIGHT; k += 1 + cf_random(c) % 2) {
                if (m->rows[k].exists && near_boundary(c, &m->rows[k].row, m->now[k]))
                        continue;
                keys[n] = k;
                random_op(c, &m->rows[k], k, &ops[n]);
                if (m->rows[k].exists)
                        remember_holder(&m->rows[k]);
                cf_submit(c, cf_random(c) % 2 ? c->a : c->b, &ops[n++]);
        }
        cf_finish(c);
        for (size_t i = 0; i < n; i++)
                model_op(c, &m->rows[keys[i]], m->now[keys[i]], &ops[i]);
        cf_ops_free(ops, n);
        return n;
}

static void random_sweep(struct cf *c, struct model *m)
{
        for (uint64_t k = 0; k < KEYS; k++)
                if (m->rows[k].exists && near_boundary(c, &m->rows[k].row, m->now[k]))
                        return;
        int64_t deleted, unknown, want_deleted = 0, want_unknown = 0;
        cf_sweep(c, c->a, 1 + cf_random(c) % 60, &deleted, &unknown);
        for (uint64_t k = 0; k < KEYS; k++) {
                if (!m->rows[k].exists)
                        continue;
                enum command_sweep sweep = command_sweep(&m->rows[k].row, m->now[k]);
                want_unknown += sweep == COMMAND_TO_UNKNOWN;
                if (sweep == COMMAND_DELETE) {
                        want_deleted++;
                        m->rows[k].exists = false;
                        m->rows[k].row = (struct command_row){0};
                }
        }
        assert_int_equal(deleted, want_deleted);
        assert_int_equal(unknown, want_unknown);
}

/* Rows that were made older are so in the model too. */
static void advance(struct cf *c, struct model *m, int64_t us)
{
        cf_advance(c, us);
        for (uint64_t k = 0; c->target->ages_rows && k < KEYS; k++) {
                m->rows[k].row.lease_until_us -= us;
                m->rows[k].row.claimed_us -= us;
                m->rows[k].row.request_until_us -= us;
                m->rows[k].row.expire_us -= us;
        }
}

static void ten_thousand_random_operations_beside_a_model(struct cf *c)
{
        struct model *m = calloc(1, sizeof *m);
        assert_non_null(m);
        for (size_t done = 0; done < OPERATIONS;) {
                done += random_round(c, m);
                compare(c, m);
                if (cf_random(c) % 3 == 0)
                        advance(c, m, CF_LEASE_US * (int64_t)(1 + cf_random(c) % 2) +
                                              4 * c->target->slack_us);
                compare(c, m);
                if (cf_random(c) % 6 == 0) {
                        random_sweep(c, m);
                        compare(c, m);
                }
        }
        free(m);
}

const struct cf_test cf_tests_model[] = {
        {"ten_thousand_random_operations_beside_a_model",
         ten_thousand_random_operations_beside_a_model},
        {NULL, NULL}};
