/* SPDX-License-Identifier: Apache-2.0
 *
 * outcome: see outcome.h.
 */
#include "api/outcome.h"

#include <stdio.h>

#include "api/reply_object.h"
#include "base/err.h"
#include "core/retry.h"

const char *semel_outcome_name(semel_outcome outcome)
{
        switch (outcome) {
        case SEMEL_ERROR:
                return "error";
        case SEMEL_RUN:
                return "run";
        case SEMEL_RAN:
                return "ran";
        case SEMEL_REPLAYED:
                return "replayed";
        case SEMEL_IN_FLIGHT:
                return "in-flight";
        case SEMEL_MISMATCH:
                return "mismatch";
        case SEMEL_UNKNOWN:
                return "unknown";
        case SEMEL_FAILED:
                return "failed";
        case SEMEL_RAN_UNRECORDED:
                return "ran-unrecorded";
        }
        return "?";
}

semel_outcome outcome_busy(int64_t held_us, int64_t left_us, semel_error *err)
{
        err_clear(err);
        if (err)
                err->retry_after_s = retry_after_s(held_us, left_us);
        return SEMEL_IN_FLIGHT;
}

static semel_outcome outcome_mismatch(const struct store_record *rec, semel_error *err)
{
        err_clear(err);
        if (err && rec->operation.n < sizeof err->first_operation) {
                if (rec->operation.n > 0)
                        memcpy(err->first_operation, rec->operation.p, rec->operation.n);
                err->first_operation[rec->operation.n] = 0;
        }
        return SEMEL_MISMATCH;
}

semel_outcome outcome_of_claim(const struct command_answer *answer,
                               const struct store_record *rec, semel_reply **ret_reply,
                               semel_error *err)
{
        switch (answer->outcome) {
        case COMMAND_BUSY:
                return outcome_busy(rec->now.lease_us - rec->row.claimed_us, answer->lease_left_us,
                                    err);
        case COMMAND_REPLAY:
                if (reply_from_record(rec, ret_reply, err) != SEMEL_OK)
                        return SEMEL_ERROR;
                return SEMEL_REPLAYED;
        case COMMAND_MISMATCH:
                return outcome_mismatch(rec, err);
        case COMMAND_IS_UNKNOWN:
                return SEMEL_UNKNOWN;
        case COMMAND_RUN:
                break;
        }
        (void)err_set(err, SEMEL_ERR_INTERNAL, "a claim was answered %s where it cannot be",
                      command_outcome_name(answer->outcome));
        return SEMEL_ERROR;
}
