/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_plan: what a relay does next, decided without a database or a broker: which slots it takes
 * and gives up, how many rows it reads of each, which keys wait, and what a wave's reports mean for
 * its rows.
 *
 * Pure: time and chance are parameters, memory is the caller's.
 */
#ifndef CORE_OUTBOX_PLAN_H
#define CORE_OUTBOX_PLAN_H

#include "base/span.h"
#include "core/event.h"

/* -- shares (rule C1) ------------------------------------------------------------------------------
 *
 * Everybody has the same number of slots, or one more; in exactly-once the unit is the group of four
 * (rule C8).  One more only while nobody has less than his part: whoever comes later gets it. */
enum { OUTBOX_NOBODY = -1, OUTBOX_MINE = 0 };
struct outbox_owners { /* as the database shows them */
        int8_t of[EVENT_SLOTS]; /* OUTBOX_NOBODY: free; else a number for each living relay, from 1 on */
        int members;            /* relays that live, this one too */
};
struct outbox_share_plan {
        uint32_t take, give; /* bit n: slot n */
};
/* start: where to begin looking, so that relays that start together do not all ask for the same slot. */
struct outbox_share_plan outbox_share_plan(const struct outbox_owners *owners, bool groups, unsigned start);
uint32_t outbox_group_mask(int group);

/* -- quotas: fair among slots, and batches that are full while there are rows ----------------------- */

struct outbox_quotas {
        int32_t demand[EVENT_SLOTS]; /* what a slot is thought to have */
        int16_t turn;                /* the slot that comes first among its like */
};
void outbox_quotas_init(struct outbox_quotas *q);
/* Share `total` rows among these n slots: ret_order[i] is which of them comes i-th, ret_rows[i] how
 * many rows it may have (at least one).  The quotas are more than `total` together: whoever reads stops
 * there.  Slots with little come first, and those with much take turns at what they leave. */
void outbox_quotas_plan(const struct outbox_quotas *q, const int16_t *slots, size_t n, int32_t total,
                        int16_t *ret_order, int32_t *ret_rows);
/* What came of a plan.  cut: the batch was full, so that nobody looked behind its last row:
 * a slot that may have much costs nothing when it has little. */
void outbox_quotas_learn(struct outbox_quotas *q, const int16_t *order, const int32_t *rows,
                         const int32_t *got, size_t n, bool cut);

/* -- keys that wait (rules C4, C5) ------------------------------------------------------------------
 *
 *     bytes: |key 0|key 1|...|key n-1|      used up to bytes_n
 */
struct blocked_key {
        int64_t due_us; /* when its next attempt may be; of no meaning when dead */
        uint32_t at, len;
        int16_t slot;
        bool dead; /* until an operator decides */
};

struct blocked_keys {
        struct blocked_key *key;
        size_t n, max;
        uint8_t *bytes;
        size_t bytes_n, bytes_max;
        uint32_t full; /* slots with a key of a DEAD row for which there was no room: read nothing of
                          them, ask the database again when there is room */
};
void blocked_keys_init(struct blocked_keys *set, struct blocked_key *space, size_t max,
                       uint8_t *bytes, size_t bytes_max);
/* false: no room.  The slot of a dead one is in `full` now; one that only waits is left out by the database
 * too, from the mark on that says until when. */
bool blocked_keys_add(struct blocked_keys *set, int16_t slot, struct span key, int64_t due_us,
                      bool dead);
/* Forget those whose time has come; returns how many. */
size_t blocked_keys_release_due(struct blocked_keys *set, int64_t now_us);
void blocked_keys_forget_slots(struct blocked_keys *set, uint32_t slots);
int64_t blocked_keys_next_due(const struct blocked_keys *set); /* INT64_MAX: none */
bool blocked_keys_any_dead(const struct blocked_keys *set);
static inline struct span blocked_keys_key(const struct blocked_keys *set, size_t i)
{
        return span_of(set->bytes + set->key[i].at, set->key[i].len);
}

/* -- retries ------------------------------------------------------------------------------------------ */

/* Full jitter: anything up to min * 2^attempts, at most max. */
int64_t outbox_retry_wait_us(int64_t min_us, int64_t max_us, int32_t attempts, uint64_t chance);

/* -- looking for rows ---------------------------------------------------------------------------- */

/* The pause after a look that found nothing: twice the last one, at most max; and so long that looking
 * takes a tenth of the time, up to a second: while a large transaction is open, each look walks over all
 * its rows and sees none of them. */
int64_t outbox_look_pause_us(int64_t pause_us, int64_t max_us, int64_t took_us);

/* -- a wave: the rows of one batch on their way to the broker ----------------------------------------
 *
 *     wave_begin(w, keys, n, strict);
 *     while ((i = wave_next(w)) >= 0)
 *             too large ? wave_refuse(w, i) : (produce row i, wave_sent(w, i));
 *     for each report: wave_report(w, i, kind);   // in strict mode wave_next() then has more
 *     wave_fate(w, i)                             // of each row, once nothing is unreported
 *
 * Rows of one key go in order.  Once a row of a key has failed, no younger row of that key is handed
 * out in this wave: they are untried, and read again after the mark. */

enum wave_fate {
        WAVE_UNTRIED, /* never sent, or thrown away: nothing is known and nothing is counted */
        WAVE_SENT,    /* no report yet */
        WAVE_DONE,
        WAVE_FAILED, /* the same message may succeed later */
        WAVE_REFUSED, /* it never will: too large, rejected by the broker */
        WAVE_HELD,    /* not sent: where it goes nothing is taken now; nothing is counted, its key waits */
        WAVE_AGAIN,   /* not written, because of another row perhaps: nothing is counted, it is read again */
};

enum wave_advice {
        WAVE_GO_ON,
        WAVE_PURGE, /* a row failed and younger rows of its key are under way (rule C7a) */
};

enum { WAVE_NO_ROW = -1 };

struct wave_row {
        int32_t first, younger; /* of the same key; a row without a key is alone */
        uint8_t fate;
        bool key_failed, key_refused; /* kept at the key's first row */
};

struct wave {
        struct wave_row *row; /* max of them */
        int32_t *table;       /* wave_table_size(max) of them */
        int32_t *ready;       /* max of them: strict */
        size_t max, table_size;
        size_t n;
        size_t next, ready_n;
        size_t unreported;
        size_t overtaken; /* younger rows that the broker took although an elder one failed */
        int32_t overtaken_first, overtaken_by; /* the first pair */
        bool strict, stopped;
};
size_t wave_table_size(size_t max);
void wave_init(struct wave *w, size_t max, struct wave_row *rows, int32_t *table, int32_t *ready,
               size_t table_size);
/* keys[i].p NULL: row i has no key. */
void wave_begin(struct wave *w, const struct span *keys, size_t n, bool strict);
/* The next row to be produced, or WAVE_NO_ROW: for now (strict), or for good. */
int32_t wave_next(struct wave *w);
void wave_sent(struct wave *w, int32_t i);
/* false: a row before it was refused, so that this one may only be refused too, or left alone. */
static inline bool wave_may_send(const struct wave *w, int32_t i)
{
        return !w->row[w->row[i].first].key_refused;
}
/* Not sent: it never can be.  Later rows of the key may be refused too, but not sent: the DEAD mark
 * commits first (rule C7). */
void wave_refuse(struct wave *w, int32_t i);
/* Not sent, for now: an unknown topic. */
void wave_postpone(struct wave *w, int32_t i);
void wave_hold(struct wave *w, int32_t i);
/* fate: DONE, FAILED, REFUSED, AGAIN, or UNTRIED for what was thrown away. */
enum wave_advice wave_report(struct wave *w, int32_t i, enum wave_fate fate);
/* Hand out nothing more. */
void wave_stop(struct wave *w);
static inline enum wave_fate wave_fate(const struct wave *w, int32_t i)
{
        return (enum wave_fate)w->row[i].fate;
}

#endif
