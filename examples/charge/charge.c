/* SPDX-License-Identifier: Apache-2.0
 *
 * charge: see charge.h.  semel_call() sends the key, and the same bytes, with every attempt.
 */
#include "charge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <semel/call.h>

enum { ATTEMPT_MS = 5000 };

static const char *const words[] = {
        [CHARGE_DONE] = "charged",
        [CHARGE_REFUSED] = "the provider refuses the charge",
        [CHARGE_UNKNOWN] = "the provider has not said whether it charged",
};

static enum charge_result result_of(semel_call_result r)
{
        switch (r) {
        case SEMEL_CALL_DONE: return CHARGE_DONE;
        case SEMEL_CALL_REJECTED: return CHARGE_REFUSED;
        case SEMEL_CALL_UNKNOWN:
        case SEMEL_CALL_IN_FLIGHT:
        case SEMEL_CALL_ERROR:
                break;
        }
        return CHARGE_UNKNOWN;
}

enum charge_result charge(const char *pay_url, const char *key, const char *order_id,
                          const char *customer_id, int64_t amount, int64_t within_ms, char *why)
{
        json_t *json = json_pack("{s:s, s:s, s:I}", "order_id", order_id, "customer_id",
                                 customer_id, "amount", (json_int_t)amount);
        char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
        semel_error *err = semel_error_new();
        semel_reply *rep = semel_reply_new();
        semel_call *call = semel_call_new("POST", pay_url, key, err);
        enum charge_result result = CHARGE_UNKNOWN;

        if (body && rep && call &&
            semel_call_set_body(call, body, strlen(body), "application/json", err) == SEMEL_OK &&
            semel_call_set_deadline_ms(call, within_ms,
                                       within_ms < ATTEMPT_MS ? within_ms : ATTEMPT_MS,
                                       err) == SEMEL_OK) {
                /* Perhaps by a process that has ended: then a provider that is not reached, or lets
                 * nobody in today (401), has refused nothing. */
                semel_call_set_sent_before(call, true);
                result = result_of(semel_call_run(call, rep, err));
        }
        if (result != CHARGE_DONE)
                snprintf(why, CHARGE_WHY_BYTES, "%s (status %d): %.150s", words[result],
                         rep ? semel_reply_status(rep) : 0, semel_error_text(err));
        semel_call_free(call);
        semel_reply_free(rep);
        semel_error_free(err);
        free(body);
        json_decref(json);
        return result;
}
