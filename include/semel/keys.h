/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/keys.h: looking at keys and resolving the ones nobody can know about.
 * What `semel keys` does, for programs.
 */
#ifndef SEMEL_KEYS_H
#define SEMEL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/command.h>
#include <semel/error.h>
#include <semel/reply.h>
#include <semel/store.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SEMEL_KEY_ID_BYTES 32
#define SEMEL_ATTEMPT_BYTES 16

typedef enum semel_key_state {
        SEMEL_KEY_FREE = 0,
        SEMEL_KEY_IN_FLIGHT = 1,
        SEMEL_KEY_COMPLETED = 2,
        SEMEL_KEY_UNKNOWN = 3
} semel_key_state;

/* One row, as it was read.  Opaque; its strings live as long as it does. */
typedef struct semel_key_row semel_key_row;

/* What a row holds: who it is, whose turn it is, and until when. */
SEMEL_API const unsigned char *semel_key_row_id(const semel_key_row *row);      /* 32 bytes */
SEMEL_API const unsigned char *semel_key_row_attempt(const semel_key_row *row); /* 16 bytes */
SEMEL_API semel_key_state semel_key_row_state(const semel_key_row *row);
SEMEL_API int64_t semel_key_row_token(const semel_key_row *row);
/* Microseconds since 1970-01-01 UTC, by the store's clock. */
SEMEL_API int64_t semel_key_row_created_us(const semel_key_row *row);
/* 0: before the machine's last boot, and nobody knows when (SQLite, whose leases count from a boot). */
SEMEL_API int64_t semel_key_row_claimed_us(const semel_key_row *row);
/* End of the lease on the same scale, or 0 as above; meaningful while IN_FLIGHT. */
SEMEL_API int64_t semel_key_row_lease_until_us(const semel_key_row *row);
SEMEL_API bool semel_key_row_lease_over(const semel_key_row *row);
/* While IN_FLIGHT or UNKNOWN: was the lease over when the row was read, and no request under way any
 * more?  Only who looks at the other side after such a reading may say that it did not happen. */
SEMEL_API bool semel_key_row_settled(const semel_key_row *row);
/* From when on that is so, unless the holder extends its lease. */
SEMEL_API int64_t semel_key_row_settled_us(const semel_key_row *row);
/* When a COMPLETED or FREE row may be forgotten. */
SEMEL_API int64_t semel_key_row_expire_us(const semel_key_row *row);
SEMEL_API bool semel_key_row_maybe_executed(const semel_key_row *row);
SEMEL_API semel_on_unknown semel_key_row_on_unknown(const semel_key_row *row);
SEMEL_API bool semel_key_row_idempotent(const semel_key_row *row);
SEMEL_API const char *semel_key_row_mode(const semel_key_row *row);      /* "run", "tx", ... */
SEMEL_API const char *semel_key_row_scope(const semel_key_row *row);
SEMEL_API const char *semel_key_row_operation(const semel_key_row *row);
SEMEL_API const char *semel_key_row_key(const semel_key_row *row);       /* "" when not kept */
SEMEL_API const char *semel_key_row_holder(const semel_key_row *row);    /* host, pid; "" unknown */
/* The kept reply of a COMPLETED row, or NULL. */
SEMEL_API const semel_reply *semel_key_row_reply(const semel_key_row *row);
SEMEL_API void semel_key_row_free(semel_key_row *row);

/* The 32-byte id of a command in a mode ("run", "tx", "gateway", "call"). */
SEMEL_API semel_code semel_command_id(const semel_command *cmd, const char *mode,
                                      unsigned char *ret_id, semel_error *err);

/* Read one row.  Errors: SEMEL_ERR_NOT_FOUND and the store's. */
SEMEL_API semel_code semel_keys_get(semel_store *st, const unsigned char *id,
                                    semel_key_row **ret_row, semel_error *err);

/* Return false to stop the walk.  `row` is borrowed. */
typedef bool (*semel_keys_fn)(void *arg, const semel_key_row *row);

/* Walk rows in the order of creation (batches inside, nothing is locked).
 * stuck  only rows whose lease is over, and UNKNOWN ones.
 * key    only rows with this key's text, or NULL. */
SEMEL_API semel_code semel_keys_list(semel_store *st, bool stuck, const char *key,
                                     semel_keys_fn fn, void *arg, semel_error *err);

typedef enum semel_resolve {
        SEMEL_RESOLVE_EXECUTED = 0,     /* it happened: keep this reply (or an empty tombstone) */
        SEMEL_RESOLVE_NOT_EXECUTED = 1, /* it did not happen and cannot happen any more: free */
        SEMEL_RESOLVE_FORGET = 2        /* a COMPLETED row: let the key run again */
} semel_resolve;

/* Decide what nobody could know.  Guarded by the attempt and token that were shown; the token
 * rises, a late holder finds its claim LOST.  Leaves an audit row.
 * shown   the row as you looked at it, before you looked at the other side.  For NOT_EXECUTED it
 *         must have been settled by then (semel_key_row_settled()): else what you did not find
 *         there may have come since, and only a new row and a new look can tell.
 * reply   for EXECUTED, or NULL.
 * reason, who   NUL-terminated, reason must not be empty.
 * Errors: SEMEL_ERR_LOST (the row changed since it was shown), SEMEL_ERR_REFUSED (its state or the
 * longest life of a request does not allow it yet, or did not when it was shown: the text says
 * which), SEMEL_ERR_NOT_FOUND. */
SEMEL_API semel_code semel_keys_resolve(semel_store *st, const semel_key_row *shown,
                                        semel_resolve what,
                                        const semel_reply *reply, const char *reason,
                                        const char *who, semel_error *err);

/* One pass over the table: deletes FREE and COMPLETED rows past their retention, turns
 * IN_FLIGHT rows whose lease is over into UNKNOWN (hold at once, retry after the retention).
 * ret_deleted, ret_unknown  counts, may be NULL. */
SEMEL_API semel_code semel_keys_purge(semel_store *st, int64_t *ret_deleted, int64_t *ret_unknown,
                                      semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
