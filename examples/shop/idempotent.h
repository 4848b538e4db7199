/* SPDX-License-Identifier: Apache-2.0
 *
 * idempotent: the one wrapper around every command of the shop.
 */
#ifndef SHOP_IDEMPOTENT_H
#define SHOP_IDEMPOTENT_H

#include "shop.h"

/* Run `execute` once per key, in the mode the shop was started with; without a key just run it.
 * Returns the reply to send: a fresh one, a kept one, or a problem.  NULL when memory is out. */
semel_reply *with_idempotency(struct shop *shop, struct request *req, db_command_fn execute,
                              void *arg);

#endif
