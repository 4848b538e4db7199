/* SPDX-License-Identifier: Apache-2.0
 *
 * spares: things that are dear to make and are used again: how many of those that were given back are
 * kept.  As many as were in use at once lately: fewer, and a crowd makes and frees them all the time (4,000
 * waiting requests: RSS 243 MB instead of 107, in pieces); more, and they are never used.  When a crowd has
 * gone, its surplus goes with the calls that come then, two with each.
 *
 * Pure: no clock, no allocation.  Lately is counted in takes: eight times the most in use, and the same
 * again.  One thread's.
 */
#ifndef BASE_SPARES_H
#define BASE_SPARES_H

#include <stdbool.h>
#include <stddef.h>

/* What each of them begins with; its owner's to overwrite while it is in use. */
struct spare {
        struct spare *next;
};

struct spares { /* all zero: none yet */
        struct spare *first;
        size_t kept, used;
        size_t most, most_before; /* in use at once, in this period and in the one before it */
        size_t takes;             /* in this period */
        bool off;                 /* none is kept: so that a sanitizer sees a use after the end */
};

/* One more is in use: a kept one, or NULL: make one, and say spares_forget() if that fails. */
struct spare *spares_take(struct spares *s);

/* One that was counted is not in use, and never comes back. */
void spares_forget(struct spares *s);

/* One is not in use any more, be it taken here or by a thread that has ended.  `drop` frees those that are
 * one too many. */
void spares_give(struct spares *s, struct spare *x, void (*drop)(struct spare *x));

/* The end: `drop` frees all that are kept. */
void spares_release(struct spares *s, void (*drop)(struct spare *x));

#endif
