/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_row: rows between semel_command and core's structs.
 *
 * Reading trusts nothing: a damaged row is an error of the one operation that met it.  A row of another
 * boot is read as one whose lease is over and whose request is long gone (A6).
 */
#ifndef STORE_SQLITE_ROW_H
#define STORE_SQLITE_ROW_H

#include "store/sqlite/sqlite_session.h"
#include "store/store.h"

enum row_result {
        ROW_OK,
        ROW_NONE,
        ROW_REFUSED, /* err is set: a damaged row, or more bytes than a row may have; the
                      * transaction goes on */
        ROW_FAILED,  /* SQLite failed: session_error() */
        ROW_NO_MEMORY, /* err is set */
};

struct sqlite_row {
        int64_t rowid;
        struct command_row row;
};

/* Look a command up. */
enum row_result row_select(struct sqlite_session *ses, const struct command_id *id,
                           struct sqlite_row *ret, semel_error *err);

/* Decode the current row of a statement that begins with select_row's columns. */
enum row_result row_decode(const struct sqlite_session *ses, sqlite3_stmt *stmt,
                           struct sqlite_row *ret, semel_error *err);

/* The label (and with_reply the reply) of a row into `rec`, and the row as people read it. */
enum row_result row_load_record(struct sqlite_session *ses, const struct sqlite_row *r,
                                bool with_reply, struct store_record *rec, semel_error *err);
/* Row and clock alone. */
void row_show(const struct sqlite_session *ses, const struct command_row *row,
              struct store_record *rec);
/* The label from columns at, at + 1, ... : mode, scope, operation, key, holder. */
enum row_result row_decode_label(sqlite3_stmt *stmt, int at, struct store_record *rec,
                                 semel_error *err);

/* The writes.  SQLITE_OK or an extended code. */
int row_insert(struct sqlite_session *ses, const struct command_row *row,
               const struct store_label *label);
int row_take(struct sqlite_session *ses, const struct sqlite_row *r,
             const struct store_label *label);
int row_update(struct sqlite_session *ses, const struct sqlite_row *r);
/* rep NULL: forget the reply. */
int row_complete(struct sqlite_session *ses, const struct sqlite_row *r,
                 const struct store_reply *rep);
/* *ret_deleted is false when the row is not what the decision saw. */
int row_delete(struct sqlite_session *ses, const struct sqlite_row *r, bool *ret_deleted);

#endif
