/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/run.h: run a command once.
 *
 * semel_run() is the one decorator for every command.  semel_begin() and its
 * relatives are its steps, for those whose work does not fit into one function.
 */
#ifndef SEMEL_RUN_H
#define SEMEL_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include <semel/command.h>
#include <semel/error.h>
#include <semel/reply.h>
#include <semel/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call. */
typedef enum semel_outcome {
        SEMEL_ERROR = 0,     /* nothing ran; err says why */
        SEMEL_RUN = 1,       /* (semel_begin) the claim is yours: run the command */
        SEMEL_RAN = 2,       /* it ran now and its reply is kept */
        SEMEL_REPLAYED = 3,  /* it had run before; the reply is the kept one */
        SEMEL_IN_FLIGHT = 4, /* another caller is running it: try again later */
        SEMEL_MISMATCH = 5,  /* the key was used for another request */
        SEMEL_UNKNOWN = 6,   /* it may have run; an operator decides (semel keys resolve) */
        SEMEL_FAILED = 7,    /* it ran now, failed without effect, and the key is free again */
        SEMEL_RAN_UNRECORDED = 8 /* it ran now, but its reply could not be kept: the reply is
                                  * valid, the key is UNKNOWN or will be; err says why */
} semel_outcome;

/* How a command says what it did. */
typedef enum semel_effect {
        SEMEL_EFFECT_DONE = 0,   /* done; *reply is the answer to keep */
        SEMEL_EFFECT_FAILED = 1, /* nothing happened: the key is released.  Whatever is in
                                  * *reply goes to this caller only. */
        SEMEL_EFFECT_UNKNOWN = 2 /* nobody knows: hold -> UNKNOWN, retry -> the next one runs */
} semel_effect;

typedef struct semel_claim semel_claim;

/* The command.  It runs in the caller's thread; the library neither interrupts it nor
 * renews the lease for it.
 * arg    what was given to semel_run().
 * claim  the claim under which it runs, for semel_claim_token() and semel_extend();
 *        borrowed.
 * reply  empty; to be filled. */
typedef semel_effect (*semel_command_fn)(void *arg, semel_claim *claim, semel_reply *reply);

/* Run `fn` once per key.
 *
 * st, cmd    borrowed; one `cmd` may be used by one thread at a time.
 * ret_reply  receives a reply that the caller frees, for SEMEL_RAN, SEMEL_REPLAYED,
 *            SEMEL_FAILED and SEMEL_RAN_UNRECORDED; for SEMEL_UNKNOWN when the command itself
 *            said so (what it put into the reply); otherwise untouched.
 * Returns the outcome.  A reply is durable before SEMEL_RAN is returned.  The claim is a
 * write decided by the store; a store that is down means SEMEL_ERROR and nothing ran.
 * Completion and release do not depend on the caller's client being there.  A thread that is cancelled
 * (pthread_cancel(3)) while the store works stays until it has answered, one that waits for a duplicate
 * until its wait is over, and one whose command has run until the result is recorded or cannot be. */
SEMEL_API semel_outcome semel_run(semel_store *st, const semel_command *cmd, semel_command_fn fn,
                                  void *arg, semel_reply **ret_reply, semel_error *err);

/* Claim the key.  SEMEL_RUN: *ret_claim is the caller's, to be ended by exactly one of
 * semel_complete(), semel_release(), semel_unknown() and then freed.  SEMEL_REPLAYED: *ret_reply is
 * set.  SEMEL_IN_FLIGHT, SEMEL_MISMATCH, SEMEL_UNKNOWN, SEMEL_ERROR: nothing is set. */
SEMEL_API semel_outcome semel_begin(semel_store *st, const semel_command *cmd,
                                    semel_claim **ret_claim, semel_reply **ret_reply,
                                    semel_error *err);

/* The fencing token: rises with every acquisition of this key, over releases and purges. */
SEMEL_API int64_t semel_claim_token(const semel_claim *claim);

/* Milliseconds until the lease is over, counted from before the claim was sent; may be
 * zero or negative: then extend or release, do not start. */
SEMEL_API int64_t semel_claim_lease_left_ms(const semel_claim *claim);

/* Keep the reply; durable when SEMEL_OK comes back.  Writing it again is harmless.
 * Errors: SEMEL_ERR_LOST (another holder took over: the late reply is dropped),
 * SEMEL_ERR_UNKNOWN and SEMEL_ERR_STORE_DOWN (call again, or leave it: the key ends as UNKNOWN
 * under hold). */
SEMEL_API semel_code semel_complete(semel_claim *claim, const semel_reply *reply,
                                    semel_error *err);

/* Nothing happened: free the key.  Errors as semel_complete(). */
SEMEL_API semel_code semel_release(semel_claim *claim, semel_error *err);

/* Trust the claim for lease_ms more, from now.  Errors: SEMEL_ERR_LOST and as above. */
SEMEL_API semel_code semel_extend(semel_claim *claim, int64_t lease_ms, semel_error *err);

/* Nobody knows whether it happened.  Under hold the key becomes UNKNOWN; with retry or
 * idempotent the lease ends now and the next caller runs it.  Errors as above. */
SEMEL_API semel_code semel_unknown(semel_claim *claim, semel_error *err);

/* Free the handle only; a claim that was not ended stays until its lease is over. */
SEMEL_API void semel_claim_free(semel_claim *claim);

/* After SEMEL_IN_FLIGHT: how long to wait before the next try, in whole seconds,
 * 1 .. the lease (rule H18).  After SEMEL_MISMATCH: the operation the key was first used for,
 * or "".  Both speak of the last call of this thread on `err`. */
SEMEL_API int semel_error_retry_after_s(const semel_error *err);
SEMEL_API const char *semel_error_first_operation(const semel_error *err);

/* A stable name of an outcome, such as "in-flight". */
SEMEL_API const char *semel_outcome_name(semel_outcome outcome);

#ifdef __cplusplus
}
#endif
#endif
