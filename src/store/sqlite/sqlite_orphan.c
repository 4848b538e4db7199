/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_orphan: see sqlite_orphan.h.
 */
#include "store/sqlite/sqlite_orphan.h"

#include <stdlib.h>

#include "core/limits.h"

void orphans_init(struct orphan_list *list)
{
        *list = (struct orphan_list){0};
        list->last = &list->first;
}

void orphans_release(struct orphan_list *list)
{
        struct orphan *orphan;
        while ((orphan = orphans_take(list)))
                free(orphan);
}

static struct span text_put(struct orphan *orphan, size_t *at, struct span s)
{
        uint8_t *p = orphan->text + *at;
        if (s.n)
                memcpy(p, s.p, s.n);
        *at += s.n;
        return span_of(p, s.n);
}

void orphans_add(struct orphan_list *list, const struct store_op *op)
{
        const struct store_label *label = &op->in.claim.label;
        size_t n = label->scope.n + label->operation.n + label->key.n + label->holder.n, at = 0;
        struct orphan *orphan = malloc(sizeof *orphan + n);
        if (!orphan)
                return;
        orphan->next = NULL;
        orphan->claim = op->in.claim.claim;
        orphan->label.mode = label->mode;
        orphan->label.scope = text_put(orphan, &at, label->scope);
        orphan->label.operation = text_put(orphan, &at, label->operation);
        orphan->label.key = text_put(orphan, &at, label->key);
        orphan->label.holder = text_put(orphan, &at, label->holder);
        if (list->count == LIMIT_ORPHAN_CLAIMS)
                free(orphans_take(list));
        *list->last = orphan;
        list->last = &orphan->next;
        list->count++;
}

struct orphan *orphans_take(struct orphan_list *list)
{
        struct orphan *orphan = list->first;
        if (!orphan)
                return NULL;
        list->first = orphan->next;
        if (!list->first)
                list->last = &list->first;
        list->count--;
        return orphan;
}

void orphans_put_back(struct orphan_list *list, struct orphan *orphan)
{
        orphan->next = list->first;
        list->first = orphan;
        if (!orphan->next)
                list->last = &orphan->next;
        list->count++;
}
