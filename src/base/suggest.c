/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest: see suggest.h.
 */
#include "base/suggest.h"

#include <string.h>

/* Levenshtein's distance; names are short, so one row on the stack does. */
static size_t distance(const char *a, const char *b)
{
        enum { MAX = 32 };
        size_t row[MAX + 1], na = strlen(a), nb = strlen(b);
        if (na > MAX || nb > MAX)
                return MAX;
        for (size_t j = 0; j <= nb; j++)
                row[j] = j;
        for (size_t i = 1; i <= na; i++) {
                size_t diagonal = row[0];
                row[0] = i;
                for (size_t j = 1; j <= nb; j++) {
                        size_t change = diagonal + (a[i - 1] != b[j - 1]);
                        diagonal = row[j];
                        size_t least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
                        row[j] = change < least ? change : least;
                }
        }
        return row[nb];
}

const char *suggest(const char *word, const char *const *names, size_t n)
{
        const char *best = NULL;
        size_t best_distance = strlen(word) < 3 ? 2 : 3; /* must be less than this */
        for (size_t i = 0; i < n; i++) {
                size_t d = distance(word, names[i]);
                if (d < best_distance || (!best && strlen(word) > 1 &&
                                          strncmp(word, names[i], strlen(word)) == 0)) {
                        best = names[i];
                        best_distance = d;
                }
        }
        return best;
}
