/* SPDX-License-Identifier: Apache-2.0
 *
 * claim: what the program may do with a claim beyond semel/run.h.
 */
#ifndef API_CLAIM_H
#define API_CLAIM_H

#include <semel/run.h>

/* As semel_release(), for work that was never started: it also frees a key that became
 * UNKNOWN meanwhile (A2). */
semel_code claim_release_not_executed(semel_claim *claim, semel_error *err);

#endif
