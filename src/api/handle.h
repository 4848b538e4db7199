/* SPDX-License-Identifier: Apache-2.0
 *
 * handle: what is behind semel_store: a driver, and the one thread that runs it.
 *
 * Callers put operations on a list and sleep; the thread hands them to the driver, which
 * batches what has come together, and wakes each caller when its operation is done.
 */
#ifndef API_HANDLE_H
#define API_HANDLE_H

#include <semel/store.h>

#include "api/held.h"
#include "core/limits.h"
#include "store/store.h"

/* Run one operation: sets its deadline, waits, returns err.code (copied into err too). */
semel_code handle_call(semel_store *h, struct store_op *op, semel_error *err);

/* This process, as a holder's label: "host=... pid=...". */
struct span handle_holder(const semel_store *h);

int64_t handle_call_timeout_us(const semel_store *h);

/* The keys that this process holds, and who waits for them. */
struct held *handle_held(semel_store *h);

#endif
