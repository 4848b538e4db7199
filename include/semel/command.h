/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/command.h: what is to run once: a key, whose it is, what it asks for, and
 * for how long a claim is trusted.
 *
 *     semel_command *cmd = semel_command_new("k-42", 4, err);
 *     semel_command_set_operation(cmd, "POST /api/v1/products");
 *     semel_command_set_principal(cmd, user, strlen(user), NULL);
 *     semel_command_set_request(cmd, body, body_len);
 */
#ifndef SEMEL_COMMAND_H
#define SEMEL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_command semel_command;

/* What the next caller does when a lease is over and nobody knows whether the
 * command ran (docs/promises.md). */
typedef enum semel_on_unknown {
        SEMEL_ON_UNKNOWN_HOLD = 0, /* the key becomes UNKNOWN; an operator resolves it.  Default. */
        SEMEL_ON_UNKNOWN_RETRY = 1 /* the next caller runs it again: at least once */
} semel_on_unknown;

/* A command under this key (1..SEMEL_KEY_BYTES_MAX bytes, compared as bytes; copied).
 * Returns NULL and fills err: SEMEL_ERR_KEY, SEMEL_ERR_NO_MEMORY. */
SEMEL_API semel_command *semel_command_new(const char *key, size_t key_len, semel_error *err);
SEMEL_API void semel_command_free(semel_command *cmd);

/* A namespace of keys: the same key in two scopes is two commands.  Default empty.
 * At most 255 bytes, copied.  Errors: SEMEL_ERR_TOO_LARGE. */
SEMEL_API semel_code semel_command_set_scope(semel_command *cmd, const char *scope,
                                             semel_error *err);

/* Whose key it is (user id, tenant): two principals never share a key and never see
 * each other's reply.  Only a SHA-256 of it is stored.  Default: one shared principal. */
SEMEL_API semel_code semel_command_set_principal(semel_command *cmd, const void *principal,
                                                 size_t n, semel_error *err);

/* The operation's name, part of the fingerprint: one key on two operations is a
 * mismatch, and the message names the first.  At most 255 bytes, copied. */
SEMEL_API semel_code semel_command_set_operation(semel_command *cmd, const char *operation,
                                                 semel_error *err);

/* The request's bytes: hashed into the fingerprint at once (SHA-256), not kept.
 * Calling it again replaces the earlier request. */
SEMEL_API semel_code semel_command_set_request(semel_command *cmd, const void *request, size_t n,
                                               semel_error *err);

/* How long a claim is trusted, in milliseconds, 1 .. 24 h.  Default 60,000.  Must be
 * longer than the slowest honest run.  Errors: SEMEL_ERR_ARGUMENT. */
SEMEL_API semel_code semel_command_set_lease_ms(semel_command *cmd, int64_t lease_ms,
                                                semel_error *err);

/* How long a reply is kept, in milliseconds, 1 .. 10 years.  Default 24 h. */
SEMEL_API semel_code semel_command_set_retention_ms(semel_command *cmd, int64_t retention_ms,
                                                    semel_error *err);

/* The policy of a claim whose lease is over; see semel_on_unknown. */
SEMEL_API void semel_command_set_on_unknown(semel_command *cmd, semel_on_unknown on_unknown);

/* The thing called dedupes by this key itself, so running it again is safe. */
SEMEL_API void semel_command_set_idempotent(semel_command *cmd, bool idempotent);

/* How long to wait for a running duplicate before answering SEMEL_IN_FLIGHT, in
 * milliseconds, 0 .. 30,000.  Default 0. */
SEMEL_API semel_code semel_command_set_wait_ms(semel_command *cmd, int64_t wait_ms,
                                               semel_error *err);

/* Largest reply body that is kept, in bytes; above it a tombstone is stored.  Default 1 MiB,
 * at most 64 MiB. */
SEMEL_API semel_code semel_command_set_reply_bytes_max(semel_command *cmd, int64_t bytes,
                                                       semel_error *err);

/* Keep the key's text for `semel keys show` (default true), or only its digest. */
SEMEL_API void semel_command_set_store_key(semel_command *cmd, bool store_key);

#ifdef __cplusplus
}
#endif
#endif
