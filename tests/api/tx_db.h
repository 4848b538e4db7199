/* SPDX-License-Identifier: Apache-2.0
 *
 * tx_db: one face for the two databases whose transactions a command can run in, so that
 * test_tx.c says each thing once.
 */
#ifndef TESTS_TX_DB_H
#define TESTS_TX_DB_H

#include <stdbool.h>

#include <semel/event.h>
#include <semel/run.h>

/* The command of the tests: gets the face again, to write its effect through. */
struct tx_db;
typedef semel_effect (*tx_fn)(void *arg, struct tx_db *db, semel_reply *rep);

/* A connection to the database of the URL; fails the test when it cannot. */
struct tx_db *tx_db_open(const char *url);
void tx_db_close(struct tx_db *db);

bool tx_db_is_postgres(const char *url);

/* Run statements; false when one fails (tx_db_error says why). */
bool tx_db_exec(struct tx_db *db, const char *sql);
const char *tx_db_error(struct tx_db *db);

/* The first column of the first row, as text in the caller's buffer; "" without rows. */
const char *tx_db_value(struct tx_db *db, const char *sql, char *buf, int size);

/* BEGIN, as the database wants it for a write. */
bool tx_db_begin(struct tx_db *db);

/* semel_pg_run() or semel_sqlite_run(). */
semel_outcome tx_db_run(struct tx_db *db, const semel_command *cmd, tx_fn fn, void *arg,
                        semel_reply **ret_reply, semel_error *err);

/* semel_pg_outbox_append() or semel_sqlite_outbox_append(). */
semel_code tx_db_append(struct tx_db *db, const semel_event *ev, char *ret_event_id,
                        semel_error *err);

#endif
