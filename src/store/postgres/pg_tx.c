/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_tx: a command inside the caller's transaction (rule B8).
 */
#include "store/postgres/postgres_store.h"

const struct store_tx_vt store_postgres_tx = {0};
