/* SPDX-License-Identifier: Apache-2.0
 *
 * key: the syntax of an idempotency key.
 *
 * sf-string (RFC 8941 section 3.3.3: `"abc"`, with \" and \\ unescaped, parameters behind it
 * ignored) or bare: bytes 0x21..0x7E without `"` `,` `;` `\`.  `"abc"` and `abc` are one key;
 * 1..255 bytes after unescaping; compared as bytes.  Spaces and tabs around are trimmed.
 */
#ifndef CORE_KEY_H
#define CORE_KEY_H

#include "base/span.h"
#include "core/limits.h"

enum key_result {
        KEY_OK,
        KEY_EMPTY,
        KEY_TOO_LONG,
        KEY_BAD_BYTE,     /* outside 0x20..0x7E in a string, outside the bare set in a bare key */
        KEY_UNTERMINATED, /* a string without its closing quote, or a lone backslash */
        KEY_LIST,         /* `a, b`, or something behind the key that is no parameter */
};

struct key {
        size_t n;
        char text[LIMIT_KEY_BYTES + 1]; /* NUL-terminated; holds no NUL */
};

/* Parse a header value.  ret is untouched unless KEY_OK. */
enum key_result key_parse(struct span value, struct key *ret);

/* Is this a key that may be used as it is (library callers give keys unparsed)?  1..255 bytes
 * of 0x20..0x7E. */
enum key_result key_check(struct span text);

/* One sentence for people: what is wrong with it. */
const char *key_result_text(enum key_result result);

/* semel_key_join (semel/key.h) on spans.  KEY_OK, KEY_EMPTY (no parts, or an empty one), KEY_TOO_LONG. */
enum key_result key_join(const struct span *parts, size_t n, struct key *ret);

#endif
