/* SPDX-License-Identifier: Apache-2.0
 *
 * reply_codec: the stored form of a reply's headers: ordered, repeated, binary-safe.
 *
 *   byte 0        version (1)
 *   then, per header: u16 big-endian name length, name, u32 big-endian value length, value
 *
 * The decoder trusts nothing: a row may be damaged, or written by another version.
 */
#ifndef CORE_REPLY_CODEC_H
#define CORE_REPLY_CODEC_H

#include "base/buf.h"

/* Start an encoding (writes the version when the buf is empty) and append one header.
 * BUF_OK, BUF_FULL (also when name or value do not fit their length), BUF_NO_MEMORY. */
int reply_encode_header(struct buf *b, struct span name, struct span value);

struct reply_cursor {
        struct span rest;
};

/* Begin to read.  An empty blob is a reply without headers.  false: unknown version. */
bool reply_decode_begin(struct reply_cursor *cur, struct span blob);

/* 1: one header; 0: end; -1: the bytes are corrupt. */
int reply_decode_next(struct reply_cursor *cur, struct span *ret_name, struct span *ret_value);

#endif
