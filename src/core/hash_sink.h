/* SPDX-License-Identifier: Apache-2.0
 *
 * hash_sink: where core puts bytes to be hashed.  Core frames; whoever owns the crypto
 * library hashes (src/sys/sha256.h).  Tests put a recorder here.
 */
#ifndef CORE_HASH_SINK_H
#define CORE_HASH_SINK_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_BYTES = 32 };

struct hash_sink {
        void (*begin)(void *arg);
        void (*update)(void *arg, const void *p, size_t n);
        void (*finish)(void *arg, uint8_t *ret_32);
        void *arg;
};

#endif
