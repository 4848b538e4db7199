/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_queue: lists of operations, in order.
 */
#ifndef STORE_SQLITE_QUEUE_H
#define STORE_SQLITE_QUEUE_H

#include "store/store.h"

struct op_list {
        struct store_op *first, *last;
        size_t count;
};

static inline void ops_push(struct op_list *list, struct store_op *op)
{
        op->next = NULL;
        if (list->last)
                list->last->next = op;
        else
                list->first = op;
        list->last = op;
        list->count++;
}

static inline struct store_op *ops_shift(struct op_list *list)
{
        struct store_op *op = list->first;
        if (!op)
                return NULL;
        list->first = op->next;
        if (!list->first)
                list->last = NULL;
        list->count--;
        op->next = NULL;
        return op;
}

/* All of `from` behind `to`. */
static inline void ops_append(struct op_list *to, struct op_list *from)
{
        if (!from->first)
                return;
        if (to->last)
                to->last->next = from->first;
        else
                to->first = from->first;
        to->last = from->last;
        to->count += from->count;
        *from = (struct op_list){0};
}

/* The first n of `from`, in order. */
static inline struct op_list ops_split(struct op_list *from, size_t n)
{
        struct op_list head = {0};
        while (n-- > 0 && from->first)
                ops_push(&head, ops_shift(from));
        return head;
}

#endif
