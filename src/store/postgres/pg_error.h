/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_error: what an SQLSTATE means for an operation, and the one sentence about it.
 */
#ifndef STORE_POSTGRES_PG_ERROR_H
#define STORE_POSTGRES_PG_ERROR_H

#include <libpq-fe.h>

#include "base/err.h"

/* What to do with a batch that failed with this state: nothing of it happened. */
enum pg_verdict {
        PG_VERDICT_BLAME,   /* one operation is at fault: find it by splitting (B4) */
        PG_VERDICT_LOCKED,  /* one key is held by somebody: find it by splitting (B2) */
        PG_VERDICT_AGAIN,   /* deadlock or serialisation: one by one (B1) */
        PG_VERDICT_LATER,   /* the server is going, coming, or out of something: try again */
        PG_VERDICT_PLAN,    /* our prepared statements are not there: do without them */
        PG_VERDICT_ALL,     /* every operation would fail alike: answer them all */
};

enum pg_verdict pg_error_verdict(const char *sqlstate);

/* The code that stands for a state. */
semel_code pg_error_code(const char *sqlstate);

/* Fill err from a failed result: a sentence of ours where there is one to say what to do, the
 * server's own message behind it, the SQLSTATE kept.  Returns the code. */
semel_code pg_error_from_result(semel_error *err, const PGresult *res);

/* From a connection that could not be made or was lost.  The connection's verbosity must have
 * been PQERRORS_VERBOSE while it was made, else the SQLSTATE is not known. */
semel_code pg_error_from_connection(semel_error *err, const PGconn *conn);

#endif
