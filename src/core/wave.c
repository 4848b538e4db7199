/* SPDX-License-Identifier: Apache-2.0
 *
 * wave: see outbox_plan.h: the rows of one batch on their way to the broker, in order per key.
 */
#include <assert.h>

#include "core/outbox_plan.h"

size_t wave_table_size(size_t max)
{
        size_t size = 16;
        while (size < 2 * max)
                size *= 2;
        return size;
}

void wave_init(struct wave *w, size_t max, struct wave_row *rows, int32_t *table, int32_t *ready,
               size_t table_size)
{
        assert(table_size >= 2 * max && (table_size & (table_size - 1)) == 0);
        *w = (struct wave){.row = rows, .table = table, .ready = ready, .max = max,
                           .table_size = table_size};
}

/* Only spreads keys over the table; whoever chooses keys that collide slows one batch of his own. */
static uint64_t hash_of(struct span key)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325) ^ key.n;
        size_t i = 0;
        for (; i + 8 <= key.n; i += 8) {
                uint64_t word;
                memcpy(&word, key.p + i, 8);
                h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
                h ^= h >> 32;
        }
        for (; i < key.n; i++)
                h = (h ^ key.p[i]) * UINT64_C(0x100000001b3);
        return h ^ h >> 29;
}

void wave_begin(struct wave *w, const struct span *keys, size_t n, bool strict)
{
        assert(n <= w->max);
        w->n = n;
        w->next = w->ready_n = w->unreported = w->overtaken = 0;
        w->overtaken_first = w->overtaken_by = WAVE_NO_ROW;
        w->strict = strict;
        w->stopped = false;
        memset(w->table, 0xff, w->table_size * sizeof w->table[0]);
        /* From the youngest to the eldest: the table has the row that is next in its key. */
        for (size_t at = n; at-- > 0;) {
                struct wave_row *r = &w->row[at];
                *r = (struct wave_row){.first = (int32_t)at, .younger = WAVE_NO_ROW,
                                       .fate = WAVE_UNTRIED};
                if (!keys[at].p)
                        continue;
                size_t i = hash_of(keys[at]) & (w->table_size - 1);
                while (w->table[i] >= 0 && !span_eq(keys[w->table[i]], keys[at]))
                        i = (i + 1) & (w->table_size - 1);
                r->younger = w->table[i];
                w->table[i] = (int32_t)at;
        }
        for (size_t i = 0; i < n; i++)
                if (w->row[i].younger >= 0)
                        w->row[w->row[i].younger].first = w->row[i].first;
        if (strict)
                for (size_t i = 0; i < n; i++)
                        if (w->row[i].first == (int32_t)i)
                                w->ready[w->ready_n++] = (int32_t)i;
}

int32_t wave_next(struct wave *w)
{
        if (w->stopped)
                return WAVE_NO_ROW;
        if (w->strict)
                return w->next < w->ready_n ? w->ready[w->next++] : WAVE_NO_ROW;
        while (w->next < w->n) {
                int32_t i = (int32_t)w->next++;
                if (!w->row[w->row[i].first].key_failed)
                        return i;
        }
        return WAVE_NO_ROW;
}

/* strict: the next of this key may go, or be looked at. */
static void let_younger(struct wave *w, int32_t i)
{
        if (w->strict && w->row[i].younger >= 0) {
                assert(w->ready_n < w->max);
                w->ready[w->ready_n++] = w->row[i].younger;
        }
}

void wave_sent(struct wave *w, int32_t i)
{
        assert(w->row[i].fate == WAVE_UNTRIED);
        w->row[i].fate = WAVE_SENT;
        w->unreported++;
}

void wave_refuse(struct wave *w, int32_t i)
{
        assert(w->row[i].fate == WAVE_UNTRIED);
        w->row[i].fate = WAVE_REFUSED;
        w->row[w->row[i].first].key_refused = true;
        let_younger(w, i);
}

void wave_postpone(struct wave *w, int32_t i)
{
        assert(w->row[i].fate == WAVE_UNTRIED);
        w->row[i].fate = WAVE_FAILED;
        w->row[w->row[i].first].key_failed = true;
}

void wave_hold(struct wave *w, int32_t i)
{
        wave_postpone(w, i);
        w->row[i].fate = WAVE_HELD;
}

static void count_overtaken(struct wave *w, int32_t elder, int32_t by)
{
        if (w->overtaken++ == 0) {
                w->overtaken_first = elder;
                w->overtaken_by = by;
        }
}

/* Was it surely not written, so that a younger row that is overtakes it? */
static bool was_not_taken(uint8_t fate)
{
        return fate == WAVE_FAILED || fate == WAVE_REFUSED || fate == WAVE_AGAIN;
}

/* The eldest row of this key that was not taken, in front of i. */
static int32_t failed_before(const struct wave *w, int32_t i)
{
        for (int32_t j = w->row[i].first; j >= 0 && j < i; j = w->row[j].younger)
                if (was_not_taken(w->row[j].fate))
                        return j;
        return WAVE_NO_ROW;
}

enum wave_advice wave_report(struct wave *w, int32_t i, enum wave_fate fate)
{
        struct wave_row *r = &w->row[i], *first = &w->row[r->first];
        enum wave_advice advice = WAVE_GO_ON;
        assert(r->fate == WAVE_SENT && fate != WAVE_SENT && w->unreported > 0);
        r->fate = (uint8_t)fate;
        w->unreported--;
        if (fate == WAVE_DONE) {
                if (first->key_failed) {
                        int32_t elder = failed_before(w, i);
                        if (elder >= 0)
                                count_overtaken(w, elder, i);
                } else {
                        let_younger(w, i);
                }
                return WAVE_GO_ON;
        }
        first->key_failed = true;
        if (fate == WAVE_UNTRIED)
                return WAVE_GO_ON;
        for (int32_t j = r->younger; j >= 0; j = w->row[j].younger) {
                if (w->row[j].fate == WAVE_SENT)
                        advice = WAVE_PURGE;
                if (w->row[j].fate == WAVE_DONE)
                        count_overtaken(w, i, j);
        }
        return advice;
}

void wave_stop(struct wave *w)
{
        w->stopped = true;
}
