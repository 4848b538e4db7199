/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_row: results in PostgreSQL's binary format, which knows no time zone, date style or
 * encoding.
 */
#ifndef STORE_POSTGRES_PG_ROW_H
#define STORE_POSTGRES_PG_ROW_H

#include <libpq-fe.h>

#include "store/postgres/pg_params.h"
#include "store/store.h"

/* Values of a result.  A NULL is 0, an empty span. */
int64_t pg_result_int(const PGresult *res, int row, int column);
int64_t pg_result_changed(PGresult *res); /* by the command's tag */
int64_t pg_result_time_us(const PGresult *res, int row, int column); /* Unix time */
struct span pg_result_bytes(const PGresult *res, int row, int column);
bool pg_result_bool(const PGresult *res, int row, int column);

enum row_part { ROW_LABEL, ROW_LABEL_AND_REPLY };

/* A row of list_rows.sql (ROW_LABEL) or select_rows.sql (ROW_LABEL_AND_REPLY) into `rec`, which
 * is initialised.  ret_body_left_out (may be NULL) says that the reply's body was too long
 * for this statement.  Errors: NO_MEMORY, CORRUPT. */
semel_code pg_row_decode(const PGresult *res, int row, enum row_part part, struct store_record *rec,
                      bool *ret_body_left_out, semel_error *err);

/* The guard of an update: what the row was when it was read.  Parameters 0..5. */
void pg_guard_begin(struct params *p, void (*begin)(struct params *, int, enum pg_type));
void pg_guard_add(struct params *p, const struct command_row *row);

#endif
