/* SPDX-License-Identifier: Apache-2.0
 *
 * run_claim: how `semel run` comes to hold a key, or learns why not.
 *
 * Two things must be had: the lock file of this host, which a living command keeps though
 * its parent died, and the claim in the store.  The lock first: whoever has no lock never
 * claims what it could win (rule A10).
 */
#ifndef CMD_RUN_CLAIM_H
#define CMD_RUN_CLAIM_H

#include <semel/keys.h>
#include <semel/run.h>

#include "base/err.h"
#include "sys/lock_file.h"
#include "sys/signals.h"

/* The scope of all keys of `semel run`. */
#define RUN_SCOPE "semel run"

struct run_claim {
        semel_store *st;
        semel_command *cmd;
        const char *key;
        unsigned char id[SEMEL_KEY_ID_BYTES];
        struct lock_file lock;
        struct signals *signals;
        int64_t lease_ms, wait_ms;
        bool again; /* a run whose outcome nobody knows may be run again */
        bool idempotent;

        semel_claim *claim;  /* SEMEL_RUN */
        semel_reply *reply;  /* SEMEL_REPLAYED */
        int signal;          /* ended by it while waiting; outcome SEMEL_ERROR */
        struct semel_error err;
};

/* SEMEL_RUN: the lock and the claim are ours, with enough of the lease left.  Else nothing
 * is ours.  SEMEL_IN_FLIGHT after wait_ms. */
semel_outcome run_claim(struct run_claim *rc);

/* Who runs it, since when, until when: for the message of SEMEL_IN_FLIGHT and SEMEL_UNKNOWN. */
void run_claim_explain(struct run_claim *rc, char *ret, size_t ret_max);

#endif
