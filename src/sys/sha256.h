/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256: SHA-256 and HMAC-SHA-256 by OpenSSL, as the hash sink that core asks for.
 */
#ifndef SYS_SHA256_H
#define SYS_SHA256_H

#include "core/hash_sink.h"

struct sha256;

/* A hash; with a secret (n > 0) HMAC-SHA-256.  NULL when memory is out. */
struct sha256 *sha256_new(const void *secret, size_t n);
void sha256_free(struct sha256 *h);

/* Its sink: begin, update any number of times, finish into 32 bytes; reusable.
 * Lives as long as the hash. */
const struct hash_sink *sha256_sink(struct sha256 *h);

/* One call for one run of bytes. */
int sha256_once(const void *p, size_t n, uint8_t *ret_32);

#endif
