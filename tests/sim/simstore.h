/* SPDX-License-Identifier: Apache-2.0
 *
 * simstore: a store behind an unreliable message layer.
 *
 * Wraps any store whose operations are done in one step (the memory store).  Every operation
 * travels as a message that may be delayed, lost, overtaken, or land long after its connection
 * broke; every answer may be lost.  Its own side of the protocol is that of the real stores:
 * after a break the operation is issued again with the same attempt (rule A7), so that a message
 * may land twice; a claim that was given up is issued again and released.
 *
 *      REQUEST --land--> ANSWER --deliver--> done
 *         |                 |
 *         +--break--+--lose-+
 *         |         v
 *         |       BROKEN --issue again--> REQUEST
 *         v         |
 *       LATE        +--give up--> done(SEMEL_ERR_UNKNOWN), a claim: ORPHAN
 *
 * Each event happens when simstore_event() is called, and which one comes from the rng alone.
 * step() of the store interface calls it until something is done: that is how the conformance
 * suite runs over it.
 */
#ifndef SIM_SIMSTORE_H
#define SIM_SIMSTORE_H

#include "rng.h"
#include "store/store.h"

/* In percent. */
struct simstore_faults {
        uint32_t lose_request; /* the message never lands, the connection breaks */
        uint32_t cut;          /* the connection breaks, the message lands some time later */
        uint32_t lose_answer;
        uint32_t give_up;      /* when broken */
        uint32_t drop_late;    /* a late message never lands */
        uint32_t linger;       /* a late message waits on */
        bool no_late_claims;   /* late claims never land */
};

enum simstore_event {
        SIMSTORE_LOST_REQUEST,
        SIMSTORE_CUT,
        SIMSTORE_LOST_ANSWER,
        SIMSTORE_ISSUED_AGAIN,
        SIMSTORE_GAVE_UP,
        SIMSTORE_DROPPED,
        SIMSTORE_ORPHAN_RELEASED,
};

struct simstore_hooks {
        void *arg;
        void (*event)(void *arg, enum simstore_event what, const struct store_op *op);
        /* An operation was done by the inner store; `late`: its caller is not waiting. */
        void (*landed)(void *arg, const struct store_op *op, bool late);
        /* Transaction mode: a claim that landed as RUN; fill the completion that is part of the
         * same transaction.  NULL: no transactions. */
        void (*effect)(void *arg, const struct store_op *claim, struct store_op *complete);
};

/* Owns and closes `inner`.  hooks may be NULL. */
struct store *simstore_new(struct store *inner, struct rng *rng,
                           const struct simstore_hooks *hooks);
void simstore_set_faults(struct store *st, struct simstore_faults faults);

/* Messages, answers and broken operations that something can happen to. */
uint32_t simstore_flights(const struct store *st);

/* One random event; false when there is none. */
bool simstore_event(struct store *st);

/* The process that waits for `op` died: its message may still land. */
void simstore_abandon(struct store *st, struct store_op *op);

/* Do it now, on the inner store, without the network. */
void simstore_direct(struct store *st, struct store_op *op);

#endif
