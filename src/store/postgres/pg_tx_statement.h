/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_tx_statement: the statements of pg_tx on the caller's connection, sent by text, or by name
 * once pg_tx_prepare() has been called for it.
 *
 * By name the server neither parses nor plans them again, which is most of what they cost.  Only the
 * caller knows whether his connection keeps names (a pooler that gives each transaction another
 * server does not), so that it is his choice.  Whether they are prepared is remembered at the
 * PGconn itself (libpq's instance data) and forgotten when it is reset.
 */
#ifndef STORE_POSTGRES_PG_TX_STATEMENT_H
#define STORE_POSTGRES_PG_TX_STATEMENT_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/err.h"
#include "store/postgres/pg_params.h"

enum tx_statement {
        TX_SAVEPOINT,
        TX_LIMITS,
        TX_CLAIM,
        TX_RESTORE,
        TX_READ,
        TX_TAKE,
        TX_COMPLETE,
        TX_RELEASE,
        TX_STATEMENTS
};

/* Is a transaction open on the caller's plain connection, and sound?  SEMEL_ERR_STORE_DOWN,
 * SEMEL_ERR_TX_STATE. */
semel_code pg_tx_check(PGconn *pg, semel_error *err);

/* Queue it in the pipeline.  params NULL: it has none. */
bool pg_tx_send(PGconn *pg, enum tx_statement stmt, const struct params *params);

/* The server does not know a name: from now on by text. */
void pg_tx_forget(PGconn *pg);

#endif
