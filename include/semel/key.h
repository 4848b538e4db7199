/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/key.h: idempotency keys.
 *
 * A key names one logical operation.  It is made once, before the first attempt,
 * from the data of the operation itself, and is the same in every retry.
 */
#ifndef SEMEL_KEY_H
#define SEMEL_KEY_H

#include <stddef.h>

#include <semel/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest key in bytes. */
#define SEMEL_KEY_BYTES_MAX 255

/* Join `n` parts into one key: "order-7:charge:req-9".
 *
 * Without ambiguity: ':' and '%' inside a part, and every byte that a bare key may
 * not hold (outside 0x21..0x7E, or one of `"` `,` `;` `\`), are written as %XX, so
 * two different lists of parts never give the same key.
 *
 * parts   n strings, each NUL-terminated, borrowed.
 * ret     receives the NUL-terminated key; SEMEL_KEY_BYTES_MAX + 1 bytes.
 * Errors: SEMEL_ERR_ARGUMENT (n is 0, or a part is NULL or empty), SEMEL_ERR_TOO_LARGE (more than
 * SEMEL_KEY_BYTES_MAX bytes; `ret` is untouched). */
SEMEL_API semel_code semel_key_join(const char *const *parts, size_t n, char *ret,
                                    semel_error *err);

/* Parse the value of an Idempotency-Key header: an sf-string of RFC 8941
 * (`"abc"`, unescaped, parameters ignored) or a bare key; `"abc"` and `abc` are
 * the same key.
 *
 * value, n  the header's value without the line end, borrowed.
 * ret       receives the NUL-terminated key; SEMEL_KEY_BYTES_MAX + 1 bytes.
 * Errors: SEMEL_ERR_KEY (the text says what is wrong with it). */
SEMEL_API semel_code semel_key_parse(const char *value, size_t n, char *ret, semel_error *err);

#ifdef __cplusplus
}
#endif
#endif
