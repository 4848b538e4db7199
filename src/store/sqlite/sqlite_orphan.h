/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_orphan: claims whose outcome nobody learned, kept until they can be undone (A7).
 *
 * Bounded by LIMIT_ORPHAN_CLAIMS; past it the oldest is dropped, and ends as UNKNOWN when its lease is
 * over.  Not thread-safe: the store's mutex.
 */
#ifndef STORE_SQLITE_ORPHAN_H
#define STORE_SQLITE_ORPHAN_H

#include "store/store.h"

struct orphan {
        struct orphan *next;
        struct command_claim claim;
        struct store_label label; /* points into text */
        uint8_t text[];
};

struct orphan_list {
        struct orphan *first, **last;
        size_t count;
};

void orphans_init(struct orphan_list *list);
void orphans_release(struct orphan_list *list);
/* Copy a claim; without memory it is dropped. */
void orphans_add(struct orphan_list *list, const struct store_op *op);
/* The oldest, which the caller frees; NULL when empty. */
struct orphan *orphans_take(struct orphan_list *list);
/* Back to the front. */
void orphans_put_back(struct orphan_list *list, struct orphan *orphan);

#endif
