/* SPDX-License-Identifier: Apache-2.0
 *
 * tx_run: a command inside the caller's own transaction: the steps that semel_pg_run() and
 * semel_sqlite_run() share.
 */
#ifndef API_TX_RUN_H
#define API_TX_RUN_H

#include <semel/run.h>

#include "store/tx.h"

/* The caller's function, whatever its connection's type is. */
struct tx_call {
        semel_effect (*run)(const struct tx_call *call, semel_reply *rep);
        void *arg;
        void *conn;
        void (*fn)(void); /* the public function pointer, cast back in run */
};

semel_outcome tx_run(const struct store_tx_vt *vt, const semel_command *cmd,
                     const struct tx_call *call, semel_reply **ret_reply, semel_error *err);

#endif
