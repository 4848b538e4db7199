/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: see policy.h.
 */
#include "core/policy.h"

unsigned policy_method(struct span method)
{
        static const struct {
                const char *name;
                unsigned bit;
        } methods[] = {{"POST", METHOD_POST},
                       {"PATCH", METHOD_PATCH},
                       {"PUT", METHOD_PUT},
                       {"DELETE", METHOD_DELETE}};
        for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
                if (span_eq(method, span_str(methods[i].name)))
                        return methods[i].bit;
        return 0;
}

/* Refused by definition, before anything ran: authentication, authorisation, a request that came
 * too slowly, to the wrong server, too early, or too often (H65). */
static bool is_refusal(int status)
{
        switch (status) {
        case 401:
        case 403:
        case 407:
        case 408:
        case 421:
        case 425:
        case 429:
                return true;
        default:
                return false;
        }
}

static enum policy_class class_of_status(const struct policy *policy, int status)
{
        if (policy->dedupes == UPSTREAM_IDEMPOTENT && status == 409)
                return CLASS_WAIT;
        if (is_refusal(status) && policy->refused == REFUSED_DEFAULT)
                return CLASS_RELEASED;
        if (status == 503 && policy->trust_503 && policy->refused == REFUSED_DEFAULT)
                return CLASS_RELEASED;
        if (status < 500 || status == 500 || status == 501)
                return CLASS_STORED;
        return CLASS_UNKNOWN; /* 502, 503, 504 and the like: said by somebody in between (H62) */
}

enum policy_class policy_classify(const struct policy *policy, int status, struct span outcome)
{
        if (span_eq(outcome, span_str("executed")))
                return CLASS_STORED;
        if (span_eq(outcome, span_str("not-executed")))
                return CLASS_RELEASED;
        if (span_eq(outcome, span_str("unknown")))
                return CLASS_UNKNOWN;
        return class_of_status(policy, status);
}
