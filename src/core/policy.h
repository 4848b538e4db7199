/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: what the gateway does with a request of a route, and with its upstream's answer.
 *
 * Pure data and pure decisions.  The table of statuses is the heart of it: which answers mean
 * "it ran" (kept and replayed), which mean "it was refused before it ran" (the key is free
 * again), and which leave it unknown.
 */
#ifndef CORE_POLICY_H
#define CORE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

enum {
        METHOD_POST = 1 << 0,
        METHOD_PATCH = 1 << 1,
        METHOD_PUT = 1 << 2,
        METHOD_DELETE = 1 << 3,
        /* GET, HEAD, OPTIONS, TRACE, CONNECT and unknown methods are never claimed (H51). */
};

/* Choices are ints because core/setting.h writes them by their number. */
enum policy_missing_key { MISSING_PASS, MISSING_REJECT };
enum policy_on_unknown { ON_UNKNOWN_HOLD, ON_UNKNOWN_RETRY };
enum policy_dedupes { UPSTREAM_PLAIN, UPSTREAM_IDEMPOTENT };
enum policy_refused { REFUSED_DEFAULT, REFUSED_NONE };
enum policy_key_text { KEY_TEXT_KEPT, KEY_TEXT_DIGEST };
enum policy_anonymous { ANONYMOUS_ALLOW, ANONYMOUS_REJECT };
enum policy_principal { PRINCIPAL_AUTHORIZATION, PRINCIPAL_HEADER, PRINCIPAL_NONE };
enum policy_store_down { STORE_DOWN_CLOSED, STORE_DOWN_OPEN };
enum policy_fingerprint { FINGERPRINT_RAW, FINGERPRINT_JSON, FINGERPRINT_MULTIPART };

enum { POLICY_HEADER_NAME_BYTES = 64 };

struct policy {
        unsigned methods; /* METHOD_* that are claimed */
        int missing_key;
        int on_unknown;
        int dedupes; /* the upstream dedupes on the forwarded key */
        int refused;
        bool trust_503; /* this upstream's 503 means "not started" */
        int store_down;
        int principal;
        char principal_header[POLICY_HEADER_NAME_BYTES + 1];
        int anonymous;
        int fingerprint;
        bool fingerprint_host, fingerprint_query;
        bool store_body; /* false: tombstones only */
        int key_text;
        int64_t lease_us, upstream_timeout_us, retention_us, wait_max_us;
        int64_t request_body_max, reply_body_max;
};

/* One METHOD_* bit of a method's name, or 0: never claimed. */
unsigned policy_method(struct span method);

/* What an upstream's final answer means for the key. */
enum policy_class {
        CLASS_STORED,   /* it ran: keep the reply */
        CLASS_RELEASED, /* refused before it ran: free the key */
        CLASS_UNKNOWN,  /* nobody knows */
        CLASS_WAIT,     /* an idempotent upstream is still running the first one: ask again */
};

/* status 200..999.
 * outcome  the value of the upstream's Idempotency-Outcome field, or empty: `executed`,
 *          `not-executed`, `unknown` decide; anything else is as if it were not there. */
enum policy_class policy_classify(const struct policy *policy, int status, struct span outcome);

#endif
