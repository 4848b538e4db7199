/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: see answer.h.
 *
 * Our own 409 and 503 say `Idempotency-Outcome: unknown`: this request did nothing, but an
 * earlier one with its key may have, so that a proxy that honours keys in front of us does not
 * take the refusal for an answer to keep.
 */
#include "answer.h"

#include <stdio.h>

#include "problem.h"

static void retry_after(semel_reply *rep, int seconds)
{
        char text[16];
        snprintf(text, sizeof text, "%d", seconds > 0 ? seconds : 1);
        reply_header(rep, "Retry-After", text);
        reply_header(rep, "Idempotency-Outcome", "unknown");
}

void answer_store_down(semel_reply *rep, const char *why)
{
        fprintf(stderr, "shop: %s\n", why);
        problem_fill(rep, PROBLEM_STORE_DOWN, NULL,
                     "Send the same request with the same key again.");
        retry_after(rep, 1);
}

void answer_in_flight(semel_reply *rep, int retry_after_s, const char *detail)
{
        problem_fill(rep, PROBLEM_IN_FLIGHT, NULL, "%s", detail);
        retry_after(rep, retry_after_s);
}

semel_effect answer_db(enum db_result result, const char *why, semel_reply *rep)
{
        if (result != DB_UNKNOWN) {
                answer_store_down(rep, why); /* nothing happened: the key may be used again */
                return SEMEL_EFFECT_FAILED;
        }
        answer_store_down(rep, why[0] ? why : "the answer of the database was lost");
        return SEMEL_EFFECT_UNKNOWN;
}

semel_effect answer_missing(const char *what, const char *id, semel_reply *rep)
{
        problem_fill(rep, PROBLEM_NOT_FOUND, NULL, "No %s has the id %s.", what, id);
        return SEMEL_EFFECT_FAILED;
}

semel_effect answer_removed(enum db_result result, const char *why, int n, const char *what,
                            const char *id, semel_reply *rep)
{
        if (result != DB_OK)
                return answer_db(result, why, rep);
        if (n == 0)
                return answer_missing(what, id, rep);
        semel_reply_set_status(rep, 204);
        return SEMEL_EFFECT_DONE;
}

/* A kept reply, or a fresh one. */
static void answer_reply(semel_reply *rep)
{
        if (semel_reply_is_tombstone(rep) && semel_reply_replayed(rep)) {
                int status = semel_reply_status(rep);
                problem_fill(rep, PROBLEM_REPLY_NOT_KEPT,
                             json_pack("{s:i}", "original_status", status),
                             "It was answered once, with status %d.", status);
                reply_header(rep, "Idempotent-Replayed", "true");
        } else if (semel_reply_replayed(rep)) {
                reply_header(rep, "Idempotent-Replayed", "true");
        }
}

static void answer_error(semel_reply *rep, const semel_error *err)
{
        switch (semel_error_code(err)) {
        case SEMEL_ERR_BUSY:
                answer_in_flight(rep, 1, "The database is busy with other commands.");
                break;
        case SEMEL_ERR_KEY:
                problem_fill(rep, PROBLEM_KEY_MALFORMED, NULL, "%s", semel_error_text(err));
                break;
        case SEMEL_ERR_ARGUMENT:
        case SEMEL_ERR_CORRUPT:
        case SEMEL_ERR_INTERNAL:
        case SEMEL_ERR_TX_STATE:
                fprintf(stderr, "shop: %s\n", semel_error_text(err));
                problem_fill(rep, PROBLEM_INTERNAL, NULL, "Error %s.",
                             semel_code_name(semel_error_code(err)));
                break;
        default: /* down, full, read-only, no access, no schema: nothing ran */
                answer_store_down(rep, semel_error_text(err));
                break;
        }
}

semel_reply *answer(semel_outcome outcome, semel_reply *rep, const semel_error *err)
{
        const char *first = semel_error_first_operation(err);

        if (!rep)
                rep = semel_reply_new();
        if (!rep)
                return NULL;
        switch (outcome) {
        case SEMEL_RAN:
        case SEMEL_REPLAYED:
        case SEMEL_FAILED: /* the command's own refusal; the key is free again */
                answer_reply(rep);
                break;
        case SEMEL_RAN_UNRECORDED: /* done, and the caller has its result; a retry may run again */
                fprintf(stderr, "shop: a reply was not recorded: %s\n", semel_error_text(err));
                reply_header(rep, "Warning", "199 shop \"done, but the reply was not recorded\"");
                break;
        case SEMEL_IN_FLIGHT:
                answer_in_flight(rep, semel_error_retry_after_s(err),
                                 "Its first request is still running; try again later.");
                break;
        case SEMEL_MISMATCH:
                problem_fill(rep, PROBLEM_KEY_REUSED, json_pack("{s:s}", "first_operation", first),
                             "It was first used for %s. Make a new key for a new operation.",
                             first[0] ? first : "another request");
                break;
        case SEMEL_UNKNOWN:
                if (semel_reply_status(rep) != 0)
                        break; /* the command's own words */
                problem_fill(rep, PROBLEM_OUTCOME_UNKNOWN, NULL,
                             "An operator decides: semel keys list --stuck.");
                reply_header(rep, "Idempotency-Outcome", "unknown");
                break;
        case SEMEL_ERROR:
        case SEMEL_RUN: /* only semel_begin() says so */
                answer_error(rep, err);
                break;
        }
        return rep;
}
