/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance: one suite for every store (H12: two stores must not disagree on when a lease may
 * be taken).  It works through src/store/store.h only: rows are built by operations, answers are
 * predicted by core/command.h from the row read just before.
 *
 * How to run it on a store, in ten lines (test_conformance_memory.c is the example):
 *
 *     static struct store *my_open(void *arg)  // one more view on the same rows; assert on failure
 *     static void my_reset(void *arg)          // delete all rows; no view is open meanwhile
 *     static void my_advance(void *arg, int64_t us)  // both clocks later; or make all rows older
 *     int main(int argc, char **argv) {
 *             const struct conformance_target t = {.name = "mine", .arg = &my, .open = my_open,
 *                     .reset = my_reset, .advance = my_advance, .slack_us = 10 * SECOND};
 *             return conformance_main(&t, 1, argc, argv);  // argv[1]: "mine_a1_*", say
 *     }
 *     meson: link_with conformance_lib and the store, dependencies: cmocka_dep
 *
 * "Make all rows older": a store that asks its server's clock gets the same effect by taking `us`
 * from lease_until, claimed, request_until and expire of every row.
 */
#ifndef TESTS_STORE_CONFORMANCE_H
#define TESTS_STORE_CONFORMANCE_H

#include "store/store.h"

struct conformance_target {
        const char *name;
        void *arg;

        struct store *(*open)(void *arg);
        void (*close)(void *arg, struct store *st); /* NULL: the store's own close */
        void (*reset)(void *arg);
        void (*advance)(void *arg, int64_t us);
        bool ages_rows; /* advance makes rows older instead of the clocks later */

        /* How far the store's clocks may run by themselves during one test.  0: they stand still,
         * and the suite also tests the very microsecond of a boundary. */
        int64_t slack_us;

        bool durable; /* rows are there after all views were closed */

        /* Optional.  The calendar alone jumps by `us` (leases must not care, A6). */
        void (*step_wall)(void *arg, int64_t us);
        /* Optional.  The audit rows of this id with this reason and name. */
        int (*audit_count)(void *arg, const struct command_id *id, struct span reason,
                           struct span who);
};

/* Run the suite on each target.  The exit code of main(). */
int conformance_main(const struct conformance_target *targets, size_t n, int argc, char **argv);

#endif
