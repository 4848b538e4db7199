/* SPDX-License-Identifier: Apache-2.0
 *
 * outcome: what a store answered, in the words of the public API.
 */
#ifndef API_OUTCOME_H
#define API_OUTCOME_H

#include <semel/run.h>

#include "store/store.h"

/* SEMEL_IN_FLIGHT, with Retry-After into err.
 * held_us  how long the holder has had it;  left_us  how long its lease still is. */
semel_outcome outcome_busy(int64_t held_us, int64_t left_us, semel_error *err);

/* Any answer but COMMAND_RUN.  COMMAND_REPLAY sets *ret_reply. */
semel_outcome outcome_of_claim(const struct command_answer *answer,
                               const struct store_record *rec, semel_reply **ret_reply,
                               semel_error *err);

#endif
