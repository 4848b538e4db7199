/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/reply.h: what a command answered, kept so that a retry gets the same bytes.
 */
#ifndef SEMEL_REPLY_H
#define SEMEL_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_reply semel_reply;

/* An empty reply: status 0, no headers, empty body.  NULL when memory is out. */
SEMEL_API semel_reply *semel_reply_new(void);
SEMEL_API void semel_reply_free(semel_reply *rep);

/* Back to empty, keeping the memory. */
SEMEL_API void semel_reply_clear(semel_reply *rep);

/* The status: any int the caller's protocol uses (an HTTP status, an exit code). */
SEMEL_API void semel_reply_set_status(semel_reply *rep, int status);
SEMEL_API int semel_reply_status(const semel_reply *rep);

/* Append a header.  Order and repeats are kept, empty values too; bytes are copied.
 * Errors: SEMEL_ERR_NO_MEMORY, SEMEL_ERR_TOO_LARGE (all headers over 64 KiB). */
SEMEL_API semel_code semel_reply_add_header(semel_reply *rep, const char *name, size_t name_len,
                                            const char *value, size_t value_len,
                                            semel_error *err);
SEMEL_API size_t semel_reply_header_count(const semel_reply *rep);

/* Header number i in order.  Pointers stay valid until the reply is changed or freed;
 * they are not NUL-terminated.  false when i is out of range. */
SEMEL_API bool semel_reply_header(const semel_reply *rep, size_t i, const char **ret_name,
                                  size_t *ret_name_len, const char **ret_value,
                                  size_t *ret_value_len);

/* Replace the body by a copy of n bytes (NUL bytes are fine).
 * Errors: SEMEL_ERR_NO_MEMORY, SEMEL_ERR_TOO_LARGE (over 64 MiB). */
SEMEL_API semel_code semel_reply_set_body(semel_reply *rep, const void *body, size_t n,
                                          semel_error *err);
SEMEL_API const void *semel_reply_body(const semel_reply *rep, size_t *ret_n);

/* A reply that is known but whose body is not kept (too big, or on purpose): status
 * and headers are stored, a retry learns that it ran. */
SEMEL_API void semel_reply_set_tombstone(semel_reply *rep, bool tombstone);
SEMEL_API bool semel_reply_is_tombstone(const semel_reply *rep);

/* true when these bytes came from the store, not from a run of this call. */
SEMEL_API bool semel_reply_replayed(const semel_reply *rep);

#ifdef __cplusplus
}
#endif
#endif
