/* SPDX-License-Identifier: Apache-2.0
 *
 * charge: ask the payment provider for an order's total, once per key.  The shop does it when it
 * charges directly, billing when an event comes.
 *
 * The key is made by the caller, of the operation's own data and before any attempt: the same
 * operation, tried again by whichever process, has the same key.
 */
#ifndef EXAMPLES_CHARGE_H
#define EXAMPLES_CHARGE_H

#include <stdint.h>

enum { CHARGE_WHY_BYTES = 256 };

enum charge_result {
        CHARGE_DONE,
        CHARGE_REFUSED, /* the provider said no: nothing was charged */
        CHARGE_UNKNOWN  /* no final answer in time: ask again, with the same key */
};

/* POST {"order_id", "customer_id", "amount"} to pay_url.
 * within_ms  at most so long, all attempts together.
 * why        CHARGE_WHY_BYTES; filled unless DONE. */
enum charge_result charge(const char *pay_url, const char *key, const char *order_id,
                          const char *customer_id, int64_t amount, int64_t within_ms, char *why);

#endif
