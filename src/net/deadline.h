/* SPDX-License-Identifier: Apache-2.0
 *
 * deadline: very many timeouts that almost never fire.
 *
 * A timer per connection costs a heap operation per request; here a deadline is a number in a
 * list, and one timer looks every DEADLINE_STEP_US whether one of them may be due, and at all of them if
 * so.  It fires at most that much late, never early.
 */
#ifndef NET_DEADLINE_H
#define NET_DEADLINE_H

#include "net/loop.h"

#define DEADLINE_STEP_US (100 * INT64_C(1000))

struct deadline {
        int64_t at_us; /* host CLOCK_BOOTTIME */
        void (*fire)(struct deadline *d);
        struct deadline *prev, *next; /* NULL, NULL: not in the list */
};

struct deadline_list;

struct deadline_list *deadline_list_new(struct loop *loop);
/* Every deadline must be out.  NULL is fine. */
void deadline_list_free(struct deadline_list *list);

/* Fire once at or after at_us; setting it again replaces. */
void deadline_set(struct deadline_list *list, struct deadline *d, int64_t at_us);
void deadline_clear(struct deadline *d);

#endif
