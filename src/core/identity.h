/* SPDX-License-Identifier: Apache-2.0
 *
 * identity: which command a key names, and whether two requests are the same.
 *
 * Everything is length-framed before it is hashed, so that no two different lists of
 * fields give the same bytes: each field is written as a 64-bit big-endian length and its
 * bytes; the first field is a version tag (H55).
 *
 *   id           "semel-id-1" mode scope principal key
 *   fingerprint  "semel-fp-1" operation field... body
 */
#ifndef CORE_IDENTITY_H
#define CORE_IDENTITY_H

#include "core/command.h"
#include "core/hash_sink.h"

/* One key in two modes is two commands (A8).  The numbers are stored. */
enum command_mode {
        MODE_GATEWAY = 0,
        MODE_RUN = 1,
        MODE_TX = 2,
        MODE_CALL = 3,
};
enum { COMMAND_MODES = 4 };

const char *mode_name(enum command_mode mode);
/* false when the name is none. */
bool mode_parse(const char *name, enum command_mode *ret_mode);

/* The id of a command.  `principal` is the 32-byte digest of the principal, or empty. */
void identity_id(const struct hash_sink *sink, enum command_mode mode, struct span scope,
                 struct span principal, struct span key, struct command_id *ret_id);

/* A fingerprint, streamed: begin, any number of fields, one body of known length in any
 * number of pieces, end.
 *
 *     fingerprint_begin(&fp, sink);
 *     fingerprint_field(&fp, operation);
 *     fingerprint_body(&fp, piece);   // any number of times
 *     fingerprint_end(&fp, &out);
 *
 * The body's length is written behind it (a chunked body's length is not known before),
 * which frames it just as well, since it is always the last field. */
struct fingerprint {
        const struct hash_sink *sink;
        uint64_t body_bytes;
};

void fingerprint_begin(struct fingerprint *fp, const struct hash_sink *sink);
void fingerprint_field(struct fingerprint *fp, struct span field);
void fingerprint_body(struct fingerprint *fp, struct span piece);
void fingerprint_end(struct fingerprint *fp, struct command_fingerprint *ret);

#endif
