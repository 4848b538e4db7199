/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres_store: the shared store, and a command inside a caller's PostgreSQL transaction.
 */
#ifndef STORE_POSTGRES_STORE_H
#define STORE_POSTGRES_STORE_H

#include "store/tx.h"

extern const struct store_driver store_postgres_driver;
extern const struct store_tx_vt store_postgres_tx; /* conn is a struct pg_conn * */

/* semel_pg_prepare() */
struct pg_conn;
semel_code postgres_store_prepare(struct pg_conn *conn, semel_error *err);

#endif
