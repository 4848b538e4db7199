/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_plan: see inbox_plan.h.
 */
#include "core/inbox_plan.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "core/limits.h"
#include "core/retry.h"

/* A failing event is tried ten times within half a minute: long enough for a deploy that repairs it
 * to be noticed, short enough for the partition behind it. */
#define WAIT_BASE_US (100 * MS)
#define WAIT_MAX_US (5 * SECOND)
/* Deadlocks and lock waits are over soon. */
#define AGAIN_BASE_US (10 * MS)
#define AGAIN_MAX_US (1 * SECOND)

void inbox_plan_init(struct inbox_plan *plan, int attempts_max, size_t batch_max)
{
        assert(attempts_max > 0 && batch_max > 0);
        *plan = (struct inbox_plan){
                .attempts_max = attempts_max, .batch_max = batch_max, .size = 1, .starting = true};
}

struct inbox_step inbox_plan_next(const struct inbox_plan *plan, size_t available)
{
        assert(available > 0);
        if (plan->dead)
                return (struct inbox_step){INBOX_BURY, 1};
        if (plan->alone)
                return (struct inbox_step){plan->counted ? INBOX_TRY : INBOX_COUNT, 1};
        if (plan->starting && plan->before == 0)
                return (struct inbox_step){INBOX_LOOK,
                                           available < plan->batch_max ? available : plan->batch_max};
        size_t n = plan->before ? plan->before : plan->size;
        if (n > plan->size && plan->losses > 1)
                n = plan->size;
        return (struct inbox_step){INBOX_BATCH, n < available ? n : available};
}

static void go_alone(struct inbox_plan *plan)
{
        plan->alone = true;
        plan->counted = false;
        plan->dead = false;
        plan->attempts = 0;
        plan->number = 0;
        plan->before = 0;
        plan->size = 1;
}

void inbox_plan_looked(struct inbox_plan *plan, size_t recorded)
{
        if (recorded == 0)
                go_alone(plan);
        else
                plan->before = recorded;
}

void inbox_plan_numbered(struct inbox_plan *plan, int number)
{
        plan->number = number;
}

void inbox_plan_counted(struct inbox_plan *plan, int attempts)
{
        plan->attempts = attempts;
        plan->counted = true;
        /* All its tries were made, and none of them lived to tell. */
        plan->dead = attempts > plan->attempts_max;
}

void inbox_plan_taken_back(struct inbox_plan *plan)
{
        plan->counted = false;
}

static void worked(struct inbox_plan *plan, struct inbox_step step)
{
        if (step.action == INBOX_LOOK) /* says nothing of what comes */
                return;
        plan->losses = 0;
        if (step.action != INBOX_COUNT) /* the next try may wait longer than the one before it */
                plan->waits = 0;
        switch (step.action) {
        case INBOX_LOOK:
        case INBOX_COUNT:
                break; /* inbox_plan_counted */
        case INBOX_TRY:
                plan->starting = false;
                __attribute__((fallthrough));
        case INBOX_BURY:
                plan->alone = plan->counted = plan->dead = false;
                plan->attempts = plan->number = 0;
                plan->size = plan->batch_max < 2 ? plan->batch_max : 2;
                break;
        case INBOX_BATCH:
                if (plan->before) {
                        plan->before -= step.n;
                        if (plan->before == 0 && !plan->starting)
                                go_alone(plan); /* at a start the next one may be recorded too */
                } else {
                        plan->size = plan->size * 2 < plan->batch_max ? plan->size * 2
                                                                      : plan->batch_max;
                }
                break;
        }
}

/* The try was counted and failed. */
static int64_t try_failed(struct inbox_plan *plan)
{
        if (plan->attempts >= plan->attempts_max) {
                plan->dead = true;
                return 0;
        }
        plan->counted = false;
        plan->number = plan->attempts + 1;
        return retry_wait_us(WAIT_BASE_US, WAIT_MAX_US, (unsigned)plan->attempts - 1);
}

static void halve(struct inbox_plan *plan, size_t n)
{
        if (n <= 1 || plan->starting)
                go_alone(plan);
        else
                plan->size = n / 2;
        plan->before = 0;
}

static int64_t lost(struct inbox_plan *plan, struct inbox_step step)
{
        plan->losses++;
        if (step.action == INBOX_TRY)
                return try_failed(plan);
        if (step.action == INBOX_BATCH && plan->losses > 1)
                halve(plan, step.n);
        return retry_wait_us(WAIT_BASE_US, WAIT_MAX_US, plan->losses - 1);
}

int64_t inbox_plan_done(struct inbox_plan *plan, struct inbox_step step, enum inbox_outcome outcome,
                        size_t at)
{
        switch (outcome) {
        case INBOX_WORKED:
                worked(plan, step);
                return 0;
        case INBOX_EVENT_FAILED:
        case INBOX_COMMIT_FAILED:
                plan->losses = 0;
                plan->waits = 0;
                if (step.action == INBOX_TRY)
                        return try_failed(plan);
                if (step.action != INBOX_BATCH) /* counting or burying: the database's trouble */
                        return WAIT_MAX_US;
                if (outcome == INBOX_COMMIT_FAILED)
                        halve(plan, step.n);
                else if (at == 0)
                        go_alone(plan);
                else
                        plan->before = at;
                return 0;
        case INBOX_TRY_AGAIN:
                return retry_wait_us(AGAIN_BASE_US, AGAIN_MAX_US, plan->waits++);
        case INBOX_CONNECTION_LOST:
                break;
        }
        return lost(plan, step);
}

/* -- texts -------------------------------------------------------------------------------------- */

bool inbox_is_text(const uint8_t *p, size_t n)
{
        /* A NUL is UTF-8, but no text of a database. */
        return n == 0 || (!memchr(p, 0, n) && utf8_valid(span_of(p, n)));
}

const char *inbox_id_fault(const uint8_t *p, size_t n)
{
        if (n == 0)
                return "the event has no id";
        if (n > LIMIT_INBOX_NAME_BYTES)
                return "the event's id is longer than 255 bytes";
        if (!inbox_is_text(p, n))
                return "the event's id is not UTF-8 text";
        return NULL;
}

static bool begins_with_word(const char *text, const char *word)
{
        size_t i = 0;
        for (; word[i]; i++)
                if ((text[i] | 0x20) != word[i])
                        return false;
        uint8_t next = (uint8_t)text[i];
        return !((next | 0x20) >= 'a' && (next | 0x20) <= 'z') && next != '_' &&
               !(next >= '0' && next <= '9');
}

bool inbox_sql_ends_transaction(const char *sql)
{
        static const char *const words[] = {"commit", "rollback", "abort", "end", "begin", "start",
                                            "savepoint", "release", "prepare", "copy"};
        sql += strspn(sql, " \t\r\n");
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
                if (begins_with_word(sql, words[i]))
                        return true;
        return false;
}

/* -- SQLSTATEs ---------------------------------------------------------------------------------- */

bool inbox_sqlstate_is_goodbye(const char *sqlstate)
{
        static const char *const states[] = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"};
        for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
                if (strcmp(sqlstate, states[i]) == 0)
                        return true;
        return strncmp(sqlstate, "08", 2) == 0;
}

bool inbox_sqlstate_is_transient(const char *sqlstate)
{
        static const char *const states[] = {"40001", "40P01", "55P03"};
        for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
                if (strcmp(sqlstate, states[i]) == 0)
                        return true;
        return inbox_sqlstate_is_goodbye(sqlstate);
}
