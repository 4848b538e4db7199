/* SPDX-License-Identifier: Apache-2.0
 *
 * tx: a command inside the caller's own transaction (rules B8, B9).
 *
 * Synchronous, on the caller's connection.  The steps are a driver's; their order is
 * api/tx_run.c's:
 *
 *     begin    check the caller's transaction; set a savepoint
 *     claim    insert or take the row, waiting up to wait_us for a running duplicate
 *     (the command)
 *     complete write COMPLETED and the reply     | undo: back to the savepoint
 *     end      savepoint released, settings as they were
 */
#ifndef STORE_TX_H
#define STORE_TX_H

#include "store/store.h"

struct store_tx {
        void *conn;   /* the driver's connection */
        void *driver; /* the driver's own state between begin and end */
};

struct store_tx_vt {
        semel_code (*begin)(struct store_tx *tx, semel_error *err);
        semel_code (*claim)(struct store_tx *tx, const struct command_claim *claim,
                            const struct store_label *label, int64_t wait_us,
                            struct command_answer *ret_answer, struct store_record *ret_rec,
                            semel_error *err);
        semel_code (*complete)(struct store_tx *tx, const struct command_write *write,
                               const struct store_reply *rep, semel_error *err);
        semel_code (*undo)(struct store_tx *tx, semel_error *err);
        /* Frees the driver's state, whatever happened before.  Never fails: a transaction that
         * is broken stays broken for the caller to see. */
        void (*end)(struct store_tx *tx);
};

#endif
