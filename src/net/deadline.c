/* SPDX-License-Identifier: Apache-2.0
 *
 * deadline: see deadline.h.
 */
#include "net/deadline.h"

#include <assert.h>
#include <stdlib.h>

struct deadline_list {
        struct loop *loop;
        struct timer *timer;
        struct deadline head; /* of a ring */
        int64_t soonest_us; /* none of them is due before; mostly nothing has to be looked at */
};

static bool is_empty(const struct deadline_list *list)
{
        return list->head.next == &list->head;
}

static void unlink_one(struct deadline *d)
{
        d->prev->next = d->next;
        d->next->prev = d->prev;
        d->prev = d->next = NULL;
}

/* Firing may set, clear or free any other deadline: move those that are due into a ring of
 * their own first, then take them one by one. */
static void on_step(void *arg)
{
        struct deadline_list *list = arg;
        int64_t now_us = loop_now_us(list->loop);
        if (now_us < list->soonest_us) {
                timer_start(list->timer, DEADLINE_STEP_US);
                return;
        }
        list->soonest_us = INT64_MAX;
        struct deadline due;
        due.prev = due.next = &due;
        for (struct deadline *d = list->head.next, *next; d != &list->head; d = next) {
                next = d->next;
                if (d->at_us > now_us) {
                        if (d->at_us < list->soonest_us)
                                list->soonest_us = d->at_us;
                        continue;
                }
                unlink_one(d);
                d->prev = due.prev;
                d->next = &due;
                due.prev->next = d;
                due.prev = d;
        }
        while (due.next != &due) {
                struct deadline *d = due.next;
                unlink_one(d);
                if (d->at_us > now_us) /* set anew by one that fired before it */
                        deadline_set(list, d, d->at_us);
                else
                        d->fire(d);
        }
        if (!is_empty(list))
                timer_start(list->timer, DEADLINE_STEP_US);
}

struct deadline_list *deadline_list_new(struct loop *loop)
{
        struct deadline_list *list = calloc(1, sizeof *list);
        if (!list)
                return NULL;
        list->loop = loop;
        list->soonest_us = INT64_MAX;
        list->head.prev = list->head.next = &list->head;
        list->timer = timer_new(loop, on_step, list);
        if (!list->timer) {
                free(list);
                return NULL;
        }
        return list;
}

void deadline_list_free(struct deadline_list *list)
{
        if (!list)
                return;
        assert(is_empty(list));
        timer_free(list->timer);
        free(list);
}

void deadline_set(struct deadline_list *list, struct deadline *d, int64_t at_us)
{
        d->at_us = at_us;
        if (at_us < list->soonest_us)
                list->soonest_us = at_us;
        if (d->next)
                return;
        d->prev = list->head.prev;
        d->next = &list->head;
        d->prev->next = d;
        list->head.prev = d;
        if (!timer_is_running(list->timer))
                timer_start(list->timer, DEADLINE_STEP_US);
}

void deadline_clear(struct deadline *d)
{
        if (d->next)
                unlink_one(d);
}
