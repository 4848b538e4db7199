/* SPDX-License-Identifier: Apache-2.0
 *
 * claim: what the program and the outbound client may do with a claim beyond
 * semel/run.h.
 */
#ifndef API_CLAIM_H
#define API_CLAIM_H

#include <semel/run.h>

#include "core/identity.h"

/* semel_begin() in any mode (rule A8). */
semel_outcome claim_begin(semel_store *st, const semel_command *cmd, enum command_mode mode,
                          semel_claim **ret_claim, semel_reply **ret_reply, semel_error *err);

/* Did an earlier holder have this key, and nobody knows what it did? */
bool claim_took_over(const semel_claim *claim);

/* As semel_release(), for work that was never started: it also frees a key that became
 * UNKNOWN meanwhile (A2). */
semel_code claim_release_not_executed(semel_claim *claim, semel_error *err);

#endif
