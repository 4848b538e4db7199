/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest: "did you mean ...?" for a name that was mistyped.
 */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

/* The nearest of n names by edit distance, or the one that `word` begins; NULL when nothing is
 * near. */
const char *suggest(const char *word, const char *const *names, size_t n);

#endif
