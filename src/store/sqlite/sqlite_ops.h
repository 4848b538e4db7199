/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_ops: one operation inside the transaction that is open on a session.
 *
 * Read the row, let core/command.h decide, write it back.  Nothing here commits.
 */
#ifndef STORE_SQLITE_OPS_H
#define STORE_SQLITE_OPS_H

#include "store/sqlite/sqlite_row.h"

/* Run the op.  true: it has its answer (op->err says which), valid once the transaction is
 * committed; an op whose err is set has written nothing.  false: SQLite failed, op->err is set, and the
 * transaction must be rolled back, if it is not already. */
bool sqlite_op_run(struct sqlite_session *ses, struct store_op *op);

/* Forget the answer of a run that was rolled back. */
void sqlite_op_reset(struct store_op *op);

/* The steps that a tx shares.  SQLITE_OK, or the extended code of a failure. */
enum row_result sqlite_claim(struct sqlite_session *ses, const struct command_claim *claim,
                             const struct store_label *label, struct command_answer *ret_answer,
                             struct store_record *rec, semel_error *err);
enum row_result sqlite_write(struct sqlite_session *ses, const struct command_write *write,
                             const struct store_reply *rep,
                             struct command_write_answer *ret_answer, semel_error *err);

/* A claim whose outcome nobody learned: issue it again, then release it (A7). */
enum row_result sqlite_undo_claim(struct sqlite_session *ses, const struct command_claim *claim,
                                  const struct store_label *label, semel_error *err);

#endif
