/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_world: a database and a broker of a few hundred lines, around the real relay, so that what
 * takes luck or seconds on real ones happens at a chosen moment: an answer that is late, a mark that
 * does not get through, a commit of which nobody knows, a slot that somebody else took.
 *
 * The world watches all the time (broken() says what it saw): a row is handed to the broker only by
 * the owner of its slot and before the lease ends in the database (C1); a slot is given up only
 * when nothing of it is unmarked (C2); nothing of a key is written behind a rejected row before
 * that row is DEAD (C7a).
 */
#ifndef RELAY_WORLD_H
#define RELAY_WORLD_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/relay_config.h"
#include "store/outbox.h"

enum { WORLD_ROWS_MAX = 4096, WORLD_LOG_MAX = 16384, WORLD_KEY_BYTES = 16 };

struct world_row {
        int64_t id;
        const char *key; /* "": none */
        char payload[WORLD_KEY_BYTES]; /* the id */
        const char *topic;
        int16_t slot;
        int32_t attempts;
        enum outbox_state state;
        int64_t due_us;
        uint8_t event_id[EVENT_ID_BYTES];
        bool gone;           /* deleted */
        bool handed;         /* to the broker */
        size_t written;      /* how often it is in the log */
        bool rejected;       /* reported so, and not marked yet */
};

struct world_log {
        int64_t id;
        int producer;
};

struct world {
        pthread_mutex_t lock;

        /* -- the database -- */
        struct world_row row[WORLD_ROWS_MAX];
        size_t rows;
        int64_t epoch[EVENT_SLOTS];
        uint32_t mine, other;     /* slots of the relay, of somebody else */
        int64_t lease_end_us;
        int members;
        bool beats_down, marks_down; /* no answer; nothing is done */
        int64_t beat_answer_us;      /* a beat is done at once, its answer takes so long */
        int64_t mark_us;             /* a mark takes so long before it commits */
        int marks_unknown;           /* of so many marks, which are made, the answer is lost */
        bool change_before_mark;     /* once: an operator changes the first row that is marked */

        /* -- the broker -- */
        struct world_log log[WORLD_LOG_MAX];
        size_t logged;
        int producers;
        bool stalled;             /* no reports, and nothing is written */
        bool broker_down;         /* nor is any question answered */
        int64_t produce_us;       /* handing a row over takes so long */
        int64_t reject_id;        /* the broker says no to this row; 0: to none */
        int64_t poison_id;        /* the broker says no to each request that has this row, and not why */
        size_t requests;
        const char *stuck_key;    /* what goes where this key goes is not written, and not reported */
        bool stuck_is_known;      /* a look says so */
        const char *stuck_topic;  /* of this one a look says so from the beginning */
        int64_t fail_id;          /* once: as if the broker had been away */
        /* Once so many rows are in the log, at that very moment and with the lock held: then(). */
        size_t at_logged;
        void (*then)(void);
        size_t request_rows;      /* rows of one request: written together, reported together */
        const char *topic;        /* of the rows that are added; "missing" is not there */
        size_t looks;             /* for that one */
        int commit_unknown;       /* 1: once, and it was committed; 2: once, and it was not */
        uint8_t marker[EVENT_GROUPS][1 << 16];
        size_t marker_bytes[EVENT_GROUPS];

        /* -- what was seen -- */
        size_t handed;            /* calls of produce */
        size_t unmarked, unmarked_max;
        size_t lost_marks;        /* marks that found their slot lost */
        size_t gives;
        char broken[200];
};

extern struct world world;

/* -- steps of a test ------------------------------------------------------------------------------- */

int world_setup(void **state);
int world_teardown(void **state); /* stops the relay; fails when the world saw a broken rule */

/* Rows of the keys k0 .. k(keys-1) in turn; the first one's id. */
int64_t world_add(size_t rows, size_t keys);
int64_t world_add_row(const char *key, enum outbox_state state, int32_t attempts);

/* The defaults of a test: small batches, short waits; change them, then start. */
struct relay_config *world_config(enum outbox_mode mode);
/* Another relay, of whom nobody here knows, commits a transaction of each group with all rows that are
 * pending, and dies before its marks. */
void world_other_commits(void);
void world_start(void);
void world_stop(void);
bool world_said(const char *words);
/* Where the line that has these words goes on; "": none has them.  Valid until the next call. */
const char *world_said_after(const char *words);

/* Time goes by: the world is slow on purpose. */
void world_pass(int64_t us);

/* Waits up to 10 s for it; `what` is for the failure. */
void world_wait(bool (*true_now)(void), const char *what);
bool world_all_done(void); /* every row is gone or DEAD */

/* Rows that are in the log more than once; first occurrences of a key must be in order of their ids. */
size_t world_duplicates(void);

#endif
