/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_suite: what every driver of store/outbox.h must do, run over a target: the driver's way to
 * open sessions and to put rows there behind its back.
 *
 *     static const struct outbox_target target = {...};
 *     int main(int argc, char **argv) { return outbox_suite_run(&target, argc > 1 ? argv[1] : NULL); }
 */
#ifndef TESTS_OUTBOX_SUITE_H
#define TESTS_OUTBOX_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/limits.h"
#include "store/outbox.h"

struct outbox_target {
        const char *name;
        void *arg;
        bool many_relays; /* several may join; else a second is refused while the first lives */
        bool all_modes;   /* single, two-phase and exactly-once exist; else only owned */
        /* An empty outbox with its schema, nobody a member, mode owned. */
        void (*fresh)(void *arg);
        struct outbox_session *(*open)(void *arg, const char *name);
        /* Append and commit; the row's id. */
        int64_t (*append)(void *arg, const struct event *ev);
        /* The same n times in one transaction, keys "PREFIX0".. or, with one_key, all "PREFIX". */
        void (*append_many)(void *arg, size_t n, const char *prefix, bool one_key);
        /* A row as it is: its state, or -1: there is none. */
        int (*state)(void *arg, int64_t id, int32_t *ret_attempts);
        /* Change a row by hand; wait_us: next attempt, 0: none; age_us: published and locked ago. */
        void (*force)(void *arg, int64_t id, enum outbox_state state, int32_t attempts,
                      int64_t wait_us, int64_t age_us);
        /* The row was made so long ago; negative: it says a time to come. */
        void (*made)(void *arg, int64_t id, int64_t age_us);
        /* All leases are over now. */
        void (*expire_leases)(void *arg);
        int64_t (*count)(void *arg, enum outbox_state state);
        int64_t (*audit_count)(void *arg, const char *verb, const char *who);
};

/* 0: all passed. */
int outbox_suite_run(const struct outbox_target *target, const char *filter);

#endif
