/* SPDX-License-Identifier: Apache-2.0
 *
 * spares: see spares.h.
 */
#include "base/spares.h"

enum { PERIOD_TIMES = 8, PERIOD_LEAST = 1024, DROPS = 2 };

static struct spare *pop(struct spares *s)
{
        struct spare *x = s->first;
        if (x) {
                s->first = x->next;
                s->kept--;
        }
        return x;
}

struct spare *spares_take(struct spares *s)
{
        if (++s->takes > PERIOD_TIMES * s->most + PERIOD_LEAST) {
                s->most_before = s->most;
                s->most = s->used;
                s->takes = 0;
        }
        if (++s->used > s->most)
                s->most = s->used;
        return pop(s);
}

void spares_forget(struct spares *s)
{
        if (s->used > 0)
                s->used--;
}

static size_t wanted(const struct spares *s)
{
        if (s->off)
                return 0;
        return s->most > s->most_before ? s->most : s->most_before;
}

void spares_give(struct spares *s, struct spare *x, void (*drop)(struct spare *x))
{
        spares_forget(s);
        x->next = s->first;
        s->first = x;
        s->kept++;
        for (int i = 0; i < DROPS && s->kept > 0 && s->used + s->kept > wanted(s); i++)
                drop(pop(s));
}

void spares_release(struct spares *s, void (*drop)(struct spare *x))
{
        for (struct spare *x; (x = pop(s));)
                drop(x);
}
