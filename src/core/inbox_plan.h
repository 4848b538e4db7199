/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_plan: what a consumer does next for one partition (rules D2, D3).
 *
 * Pure: results in, the next step out.  A partition's events are a queue; each step is about its
 * first n.
 *
 *     start --> look --> alone --ok--> batches of 2, 4, 8 ...
 *                          ^                  |
 *                          +-- event k failed: what is before k as a batch, then k alone
 *
 * After a start the first event that is not recorded may be the one that ended the last process, whatever
 * recorded ones the broker delivers again in front of it: so it is looked for, what is in front of it is a
 * batch in which no handler runs, and a start is over when a new event is done.
 *
 * Alone: the try is counted in a committed row before it begins, so that an event that kills its
 * backend or this process is counted too, and dies after attempts_max.  What is nobody's fault
 * (deadlocks, lock waits, a server that is away) is tried again as it was, and its count is taken back.  A
 * connection that breaks twice in a row in a batch is suspected: the batch is halved, until the event
 * that breaks it is alone.
 */
#ifndef CORE_INBOX_PLAN_H
#define CORE_INBOX_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum inbox_action {
        INBOX_LOOK,  /* how many of the first n events are recorded? */
        INBOX_COUNT, /* count a try of the first event */
        INBOX_TRY,   /* the first event alone; its attempts are forgotten if it works */
        INBOX_BATCH, /* the first n events */
        INBOX_BURY,  /* the first event is dead */
};

/* What became of a step. */
enum inbox_outcome {
        INBOX_WORKED,
        INBOX_EVENT_FAILED,  /* of a batch: at */
        INBOX_COMMIT_FAILED, /* of a batch: nobody knows which */
        INBOX_TRY_AGAIN,     /* nobody's fault */
        INBOX_CONNECTION_LOST,
};

struct inbox_plan {
        int attempts_max;
        size_t batch_max;

        size_t size;     /* of the next batch */
        bool starting;   /* no new event is done yet */
        size_t before;   /* events in front of one that failed, or is new; 0: none is known */
        bool alone;      /* the first event is tried alone */
        bool counted;    /* and this try is counted already */
        bool dead;       /* and it is to be buried */
        int attempts;    /* tries of it that were counted */
        int number;      /* which try COUNT writes down, however often until it is answered; 0: to be asked */
        unsigned losses; /* connections lost in a row */
        unsigned waits;  /* steps in a row that were nobody's fault */
};

struct inbox_step {
        enum inbox_action action;
        size_t n;
};

void inbox_plan_init(struct inbox_plan *plan, int attempts_max, size_t batch_max);

/* The next step with `available` (> 0) events in the queue. */
struct inbox_step inbox_plan_next(const struct inbox_plan *plan, size_t available);

/* LOOK worked: so many events at the front are recorded. */
void inbox_plan_looked(struct inbox_plan *plan, size_t recorded);

/* COUNT has asked the database which number the next try has. */
void inbox_plan_numbered(struct inbox_plan *plan, int number);

/* COUNT worked: so many tries were counted, this one included. */
void inbox_plan_counted(struct inbox_plan *plan, int attempts);

/* It was nobody's fault that the try came to no end, and it was taken back, or nobody knows: the next one
 * is counted anew, with the same number. */
void inbox_plan_taken_back(struct inbox_plan *plan);

/* A step of n events ended; `at` with INBOX_EVENT_FAILED.  Returns how long to wait before
 * the next step. */
int64_t inbox_plan_done(struct inbox_plan *plan, struct inbox_step step, enum inbox_outcome outcome,
                        size_t at);

/* -- what an event's id may be ------------------------------------------------------------------- */

/* UTF-8 without NUL of 1 .. LIMIT_INBOX_NAME_BYTES bytes.  NULL, or what is wrong with it. */
const char *inbox_id_fault(const uint8_t *p, size_t n);
/* Is it UTF-8 without NUL? */
bool inbox_is_text(const uint8_t *p, size_t n);

/* A statement that begins or ends a transaction would take the record of the event with it. */
bool inbox_sql_ends_transaction(const char *sql);

/* SQLSTATEs that are nobody's fault (rule D2). */
bool inbox_sqlstate_is_transient(const char *sqlstate);
/* ... and of those, the ones after which the connection is gone. */
bool inbox_sqlstate_is_goodbye(const char *sqlstate);

#endif
