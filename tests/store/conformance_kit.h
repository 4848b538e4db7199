/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_kit: what the tests of the suite are written with.  Failing calls end the test.
 */
#ifndef TESTS_STORE_CONFORMANCE_KIT_H
#define TESTS_STORE_CONFORMANCE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/limits.h"
#include "conformance.h"

/* Far beyond what a slow machine spends in one test, so that only `advance` ends a lease. */
#define CF_LEASE_US (10 * 60 * SECOND)
#define CF_REQUEST_US (5 * 60 * SECOND)
#define CF_RETENTION_US (2 * HOUR)
#define CF_LONG_US (5 * HOUR) /* longer than all of them together */

/* One test's world: no rows, and two views on them (perhaps the same handle). */
struct cf {
        const struct conformance_target *target;
        struct store *a, *b;
        size_t pending;  /* operations under way that cf_submit() sent */
        uint64_t serial; /* of attempts */
        uint64_t rng;    /* SEMEL_TEST_SEED, printed when a test fails */
};

struct cf_test {
        const char *name;
        void (*run)(struct cf *c);
};

/* The lists, one a file, each ended by a NULL name. */
extern const struct cf_test cf_tests_claim[], cf_tests_fence[], cf_tests_tables[],
        cf_tests_sweep[], cf_tests_resolve[], cf_tests_bytes[], cf_tests_life[], cf_tests_model[],
        cf_tests_races[];

/* -- identities ------------------------------------------------------------------------------- */

struct command_id cf_id(uint64_t n);
struct command_fingerprint cf_fingerprint(uint64_t n);
struct command_attempt cf_attempt(struct cf *c); /* never the same twice */
uint64_t cf_random(struct cf *c);

extern const struct command_policy cf_hold, cf_retry, cf_idempotent;
extern const struct store_label cf_label;

/* A claim with a fresh attempt and the lengths above. */
struct command_claim cf_claim_of(struct cf *c, struct command_id id, uint64_t fingerprint,
                                 struct command_policy policy);

/* -- operations in flight --------------------------------------------------------------------- */

struct store_op *cf_ops_new(size_t n); /* zeroed */
void cf_ops_free(struct store_op *ops, size_t n);

void cf_op_claim(struct store_op *op, const struct command_claim *claim);
void cf_op_write(struct store_op *op, enum command_write_kind kind, struct command_id id,
                 int64_t token, struct command_attempt attempt);
void cf_op_get(struct store_op *op, struct command_id id);
void cf_op_resolve(struct store_op *op, enum command_resolve_kind kind, struct command_id id,
                   struct command_attempt shown, struct command_attempt fresh);

/* Submit to a view; cf_finish() runs both views until all are answered, each exactly once. */
void cf_submit(struct cf *c, struct store *st, struct store_op *op);
void cf_submit_by(struct cf *c, struct store *st, struct store_op *op, int64_t deadline_us);
void cf_finish(struct cf *c);
/* Close both views, and open them again. */
void cf_close_views(struct cf *c);
void cf_open_views(struct cf *c);
/* One turn of both views' loops, at most `wait_ms` long. */
void cf_turn(struct cf *c, int wait_ms);
void cf_do(struct cf *c, struct store *st, struct store_op *op);
void cf_ok(const struct store_op *op); /* its err is OK */

/* -- one at a time: submit, wait, assert err OK ----------------------------------------------- */

struct command_answer cf_claim(struct cf *c, struct store *st, const struct command_claim *claim);
struct command_write_answer cf_write(struct cf *c, struct store *st, enum command_write_kind kind,
                                     struct command_id id, int64_t token,
                                     struct command_attempt attempt);
/* Complete with this reply. */
enum command_write_outcome cf_complete(struct cf *c, struct store *st, struct command_id id,
                                       int64_t token, struct command_attempt attempt,
                                       const struct store_reply *rep);
/* false: there is no row.  *ret_rec is to be released in either case. */
bool cf_get(struct cf *c, struct store *st, struct command_id id, struct store_record *ret_rec);
/* The row alone; fails when there is none. */
struct command_row cf_row(struct cf *c, struct command_id id);
bool cf_row_exists(struct cf *c, struct command_id id);
enum command_resolve_outcome cf_resolve(struct cf *c, struct store *st,
                                        enum command_resolve_kind kind, struct command_id id,
                                        struct command_attempt shown);
/* Sweep from the beginning to the end in steps of `max` rows. */
void cf_sweep(struct cf *c, struct store *st, size_t max, int64_t *ret_deleted,
              int64_t *ret_unknown);
void cf_advance(struct cf *c, int64_t us);

/* -- comparing -------------------------------------------------------------------------------- */

bool cf_near(const struct cf *c, int64_t a_us, int64_t b_us);
/* Every field that decisions look at; times within the target's slack. */
void cf_expect_row(const struct cf *c, const char *what, const struct command_row *want,
                   const struct command_row *got);
void cf_expect_span(const char *what, struct span want, struct span got);
void cf_expect_state(struct cf *c, struct command_id id, enum command_state state);

/* -- rows in every shape ---------------------------------------------------------------------- */

enum cf_shape {
        SHAPE_ABSENT,
        SHAPE_FREE,
        SHAPE_FREE_EXPIRED,
        SHAPE_LEASED,
        SHAPE_LEASE_OVER,
        SHAPE_LEASE_ENDED, /* by a write that leaves maybe_executed (A5a) */
        SHAPE_COMPLETED,
        SHAPE_COMPLETED_EXPIRED,
        SHAPE_UNKNOWN,        /* a hold caller met it after its lease */
        SHAPE_UNKNOWN_MARKED, /* its holder said so, lease alive */
        SHAPE_UNKNOWN_OLD,    /* and longer ago than any retention */
        SHAPES
};

const char *cf_shape_name(enum cf_shape shape);

struct cf_cell {
        struct command_id id;
        enum cf_shape shape;
        struct command_policy policy;
        bool maybe; /* an earlier holder was taken over */

        /* builder's */
        int64_t token;
        struct command_attempt attempt;
        enum command_outcome expect;

        /* for the test's own product */
        int variant;
        bool exists;
        struct store_record before;
        char name[96];
};

/* Can a row be brought into this shape by operations at all? */
bool cf_cell_possible(enum cf_shape shape, struct command_policy policy, bool maybe);
/* One cell per possible row and per variant 0..variants-1, ids from first_id on. */
struct cf_cell *cf_cells_new(uint64_t first_id, int variants, size_t *ret_n);
void cf_cells_free(struct cf_cell *cells, size_t n);
/* Build all rows by operations, many in flight, and read them back (before, exists). */
void cf_cells_build(struct cf *c, struct cf_cell *cells, size_t n);

#endif
