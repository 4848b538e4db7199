/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: from what semel and the database said to what the client is told, in one place.
 */
#ifndef SHOP_ANSWER_H
#define SHOP_ANSWER_H

#include <semel/run.h>

#include "db.h"

/* The HTTP reply of an outcome.  rep: what semel gave (taken), or NULL. */
semel_reply *answer(semel_outcome outcome, semel_reply *rep, const semel_error *err);

/* Fill `rep` for a write that gave this result (not DB_OK, not DB_REFERENCE), and say to semel
 * what it means for the key. */
semel_effect answer_db(enum db_result result, const char *why, semel_reply *rep);

/* 404: no `what` has this id. */
semel_effect answer_missing(const char *what, const char *id, semel_reply *rep);

/* Fill `rep` for a DELETE of one row by its id that gave this result (not DB_REFERENCE) and hit n. */
semel_effect answer_removed(enum db_result result, const char *why, int n, const char *what,
                            const char *id, semel_reply *rep);

/* The database cannot be used: 503 + Retry-After.  The sentence goes to stderr, not to the
 * client: it names hosts and files. */
void answer_store_down(semel_reply *rep, const char *why);

/* Another command is still writing: 409 + Retry-After. */
void answer_in_flight(semel_reply *rep, int retry_after_s, const char *detail);

#endif
