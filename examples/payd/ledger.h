/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: what payd has charged, in a SQLite file, each line once per key.
 *
 * Key, line and reply are one transaction (semel_sqlite_run()): whatever happens to the process,
 * a key that is on file has its line, and the other way round.
 */
#ifndef PAYD_LEDGER_H
#define PAYD_LEDGER_H

#include <jansson.h>
#include <semel/run.h>

enum { LEDGER_WHY_BYTES = 256 };

struct ledger;

/* Open the file, made when missing.  NULL: `why` says why. */
struct ledger *ledger_open(const char *path, char *why);
void ledger_close(struct ledger *ledger); /* NULL is fine */

struct charge {
        const char *key;      /* the provider's own rule: one key, one charge */
        const char *order_id, *customer_id;
        int64_t amount;       /* in minor units */
        const char *request;  /* canonical text: the same key with another one is refused */
};

/* Charge once per key.  *ret_reply (the caller's to free): the answer, new or the first one's.
 * SEMEL_RAN, SEMEL_REPLAYED, SEMEL_MISMATCH; SEMEL_ERROR: nothing happened, or nobody knows; the
 * same call again finds out. */
semel_outcome ledger_charge(struct ledger *ledger, const struct charge *c, semel_reply **ret_reply,
                            semel_error *err);

/* All lines, oldest first, as an array.  NULL: it cannot be read. */
json_t *ledger_list(struct ledger *ledger);

#endif
