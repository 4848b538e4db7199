/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: is this well-formed UTF-8 (RFC 3629: shortest form, no surrogates)?
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/span.h"

/* Length of the well-formed character at s.p, 1..4, or 0.  s.n > 0. */
size_t utf8_char(struct span s);

/* All of it. */
bool utf8_valid(struct span s);

/* Copy what fits into out[max] (max > 0) as text that a database takes, with its NUL: it ends behind a whole
 * character, and a byte that is none becomes '?'.  Returns its length. */
size_t utf8_copy(char *out, size_t max, struct span s);

#endif
