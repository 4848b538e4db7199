/* SPDX-License-Identifier: Apache-2.0
 *
 * What a consumer does next (rules D2, D3), as stories: a queue in which some events misbehave, and
 * how often each was tried, in which order, and what became of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/inbox_plan.h"
#include "core/limits.h"

enum { EVENTS = 64, ATTEMPTS = 3, STEPS_MAX = 2000 };

enum mood { GOOD, FAILS, KILLS, AT_COMMIT };

struct story {
        enum mood mood[EVENTS];
        int tries[EVENTS];  /* counted ones */
        int runs[EVENTS];   /* times that its handler ran */
        bool done[EVENTS], dead[EVENTS];
        size_t at;          /* the first that is not finished */
        int steps;
        unsigned crash_after; /* the process ends after so many counted tries; 0: never */
};

/* Carry out a step as a database would. */
static enum inbox_outcome carry_out(struct story *t, struct inbox_step step, size_t *ret_at)
{
        enum mood commit = GOOD;
        for (size_t i = 0; i < step.n; i++) {
                size_t e = t->at + i;
                t->runs[e]++;
                if (t->mood[e] == FAILS) {
                        *ret_at = i;
                        return INBOX_EVENT_FAILED;
                }
                if (t->mood[e] == KILLS)
                        return INBOX_CONNECTION_LOST;
                if (t->mood[e] == AT_COMMIT)
                        commit = AT_COMMIT;
        }
        return commit == GOOD ? INBOX_WORKED : INBOX_COMMIT_FAILED;
}

/* Ask for the number of the try, where the plan wants to know it, and count it: `tries` are counted before. */
static void count_try(struct inbox_plan *plan, int *tries)
{
        if (plan->number == 0)
                inbox_plan_numbered(plan, *tries + 1);
        assert_int_equal(plan->number, *tries + 1);
        inbox_plan_counted(plan, ++*tries);
}

/* A start at which nothing is recorded. */
static void begin(struct inbox_plan *plan)
{
        struct inbox_step step = inbox_plan_next(plan, 1);
        assert_int_equal(step.action, INBOX_LOOK);
        inbox_plan_looked(plan, 0);
        (void)inbox_plan_done(plan, step, INBOX_WORKED, 0);
}

static void play(struct story *t, struct inbox_plan *plan)
{
        while (t->at < EVENTS) {
                struct inbox_step step = inbox_plan_next(plan, EVENTS - t->at);
                size_t at = 0;
                assert_in_range(step.n, 1, EVENTS - t->at);
                assert_true(++t->steps < STEPS_MAX);
                if (step.action == INBOX_LOOK) {
                        inbox_plan_looked(plan, 0);
                        (void)inbox_plan_done(plan, step, INBOX_WORKED, 0);
                        continue;
                }
                if (step.action == INBOX_COUNT) {
                        count_try(plan, &t->tries[t->at]);
                        (void)inbox_plan_done(plan, step, INBOX_WORKED, 0);
                        continue;
                }
                if (step.action == INBOX_BURY) {
                        t->dead[t->at++] = true;
                        (void)inbox_plan_done(plan, step, INBOX_WORKED, 0);
                        continue;
                }
                if (step.action == INBOX_TRY)
                        assert_true(t->tries[t->at] > 0); /* counted before it began */
                enum inbox_outcome outcome = carry_out(t, step, &at);
                int64_t wait_us = inbox_plan_done(plan, step, outcome, at);
                assert_in_range(wait_us, 0, 5 * SECOND);
                if (outcome != INBOX_WORKED)
                        continue;
                for (size_t i = 0; i < step.n; i++)
                        t->done[t->at++] = true;
        }
}

static struct inbox_plan fresh(void)
{
        struct inbox_plan plan;
        inbox_plan_init(&plan, ATTEMPTS, 16);
        return plan;
}

static void good_events_go_in_growing_batches(void **state)
{
        (void)state;
        struct story t = {0};
        struct inbox_plan plan = fresh();
        play(&t, &plan);
        for (size_t i = 0; i < EVENTS; i++)
                assert_int_equal(t.runs[i], 1);
        assert_true(t.steps <= 2 + 3 + EVENTS / 16 + 2);
}

/* Each kind of bad event at each place, alone and with a neighbour. */
static void d3_a_bad_event_dies_after_its_attempts_and_the_others_are_done(void **state)
{
        (void)state;
        for (int mood = FAILS; mood <= AT_COMMIT; mood++) {
                for (size_t bad = 0; bad < EVENTS; bad++) {
                        struct story t = {0};
                        struct inbox_plan plan = fresh();
                        t.mood[bad] = (enum mood)mood;
                        if (bad + 1 < EVENTS && bad % 2)
                                t.mood[bad + 1] = (enum mood)mood;
                        play(&t, &plan);
                        for (size_t i = 0; i < EVENTS; i++) {
                                assert_int_equal(t.dead[i], t.mood[i] != GOOD);
                                if (t.mood[i] != GOOD)
                                        assert_int_equal(t.tries[i], ATTEMPTS);
                        }
                }
        }
}

static void o79_nothing_behind_a_failing_event_is_done_before_it_is_dead(void **state)
{
        (void)state;
        struct story t = {.mood = {[5] = FAILS}};
        struct inbox_plan plan = fresh();
        begin(&plan);
        while (!t.dead[5]) {
                struct inbox_step step = inbox_plan_next(&plan, EVENTS - t.at);
                size_t at = 0;
                if (step.action == INBOX_COUNT) {
                        count_try(&plan, &t.tries[t.at]);
                        (void)inbox_plan_done(&plan, step, INBOX_WORKED, 0);
                        continue;
                }
                enum inbox_outcome outcome = INBOX_WORKED;
                if (step.action != INBOX_BURY)
                        outcome = carry_out(&t, step, &at);
                (void)inbox_plan_done(&plan, step, outcome, at);
                if (outcome == INBOX_WORKED) {
                        t.dead[t.at] = step.action == INBOX_BURY;
                        t.at += step.n;
                }
                assert_true(t.at <= 6);
                if (t.at > 5)
                        assert_true(t.dead[5]);
        }
}

static void d2_what_is_nobodys_fault_is_repeated_as_it_was_and_not_counted(void **state)
{
        (void)state;
        struct inbox_plan plan = fresh();
        begin(&plan);
        struct inbox_step step = inbox_plan_next(&plan, 9);
        inbox_plan_counted(&plan, 1);
        step = inbox_plan_next(&plan, 9);
        assert_int_equal(step.action, INBOX_TRY);
        for (int i = 0; i < 100; i++) {
                int64_t wait_us = inbox_plan_done(&plan, step, INBOX_TRY_AGAIN, 0);
                assert_in_range(wait_us, 1, SECOND);
                step = inbox_plan_next(&plan, 9);
                assert_int_equal(step.action, INBOX_TRY); /* the same try, counted once */
        }
        int64_t last_us = 0;
        for (int i = 0; i < 9; i++) { /* what is taken back is counted anew, and waited for longer */
                inbox_plan_taken_back(&plan);
                int64_t wait_us = inbox_plan_done(&plan, step, INBOX_TRY_AGAIN, 0);
                assert_in_range(wait_us, last_us, SECOND);
                last_us = wait_us;
                step = inbox_plan_next(&plan, 9);
                assert_int_equal(step.action, INBOX_COUNT);
                inbox_plan_counted(&plan, 1);
                (void)inbox_plan_done(&plan, step, INBOX_WORKED, 0);
                step = inbox_plan_next(&plan, 9);
                assert_int_equal(step.action, INBOX_TRY);
        }
        assert_int_equal(last_us, SECOND);
        (void)inbox_plan_done(&plan, step, INBOX_WORKED, 0);
        step = inbox_plan_next(&plan, 9);
        assert_int_equal(step.action, INBOX_BATCH);
        size_t n = step.n;
        for (int i = 0; i < 100; i++) {
                (void)inbox_plan_done(&plan, step, INBOX_TRY_AGAIN, 0);
                step = inbox_plan_next(&plan, 9);
                assert_int_equal(step.action, INBOX_BATCH);
                assert_int_equal(step.n, n); /* the whole batch again */
        }
}

static void d2_one_lost_connection_repeats_the_whole_batch(void **state)
{
        (void)state;
        struct inbox_plan plan = fresh();
        begin(&plan);
        inbox_plan_counted(&plan, 1);
        (void)inbox_plan_done(&plan, (struct inbox_step){INBOX_TRY, 1}, INBOX_WORKED, 0);
        for (int i = 0; i < 3; i++)
                (void)inbox_plan_done(&plan, inbox_plan_next(&plan, 99), INBOX_WORKED, 0);
        struct inbox_step step = inbox_plan_next(&plan, 99);
        assert_int_equal(step.n, 16);
        (void)inbox_plan_done(&plan, step, INBOX_CONNECTION_LOST, 0);
        step = inbox_plan_next(&plan, 99);
        assert_int_equal(step.action, INBOX_BATCH);
        assert_int_equal(step.n, 16);
        (void)inbox_plan_done(&plan, step, INBOX_CONNECTION_LOST, 0);
        step = inbox_plan_next(&plan, 99);
        assert_int_equal(step.n, 8);
}

/* Its COMMIT may have landed: the same number again, and one is not asked for anew. */
static void d2_a_count_without_an_answer_is_repeated_with_its_number(void **state)
{
        (void)state;
        struct inbox_plan plan = fresh();
        begin(&plan);
        for (int number = 1; number <= ATTEMPTS; number++) {
                struct inbox_step step = inbox_plan_next(&plan, 9);
                assert_int_equal(step.action, INBOX_COUNT);
                assert_int_equal(plan.number, number == 1 ? 0 : number);
                inbox_plan_numbered(&plan, number);
                for (int i = 0; i < 3; i++) { /* taken back, and that has no answer either */
                        assert_int_equal(inbox_plan_next(&plan, 9).action, INBOX_COUNT);
                        assert_int_equal(plan.number, number);
                        inbox_plan_counted(&plan, number);
                        (void)inbox_plan_done(&plan, step, INBOX_WORKED, 0);
                        assert_int_equal(inbox_plan_next(&plan, 9).action, INBOX_TRY);
                        if (i < 2)
                                inbox_plan_taken_back(&plan);
                }
                (void)inbox_plan_done(&plan, inbox_plan_next(&plan, 9), INBOX_EVENT_FAILED, 0);
        }
        assert_int_equal(inbox_plan_next(&plan, 9).action, INBOX_BURY);
}

/* A process that the event kills: it starts anew each time, with the counts that were committed. */
static void d3_tries_are_counted_across_crashes(void **state)
{
        (void)state;
        int counted = 0, starts = 0;
        for (bool dead = false; !dead; starts++) {
                struct inbox_plan plan = fresh();
                begin(&plan);
                assert_int_equal(inbox_plan_next(&plan, 5).action, INBOX_COUNT);
                count_try(&plan, &counted);
                dead = inbox_plan_next(&plan, 5).action == INBOX_BURY;
                assert_true(starts < 10);
        }
        assert_int_equal(starts, ATTEMPTS + 1); /* the last one only buries */
}

/* One life of a process, with a broker that delivers all again: false when the killer ended it. */
static bool live(bool recorded[EVENTS], size_t killer, int *counted, bool *dead)
{
        struct inbox_plan plan = fresh();
        for (size_t at = 0, steps = 0; at < EVENTS; steps++) {
                struct inbox_step step = inbox_plan_next(&plan, EVENTS - at);
                size_t n = 0;
                assert_true(steps < STEPS_MAX);
                while (step.action == INBOX_LOOK && n < step.n && recorded[at + n])
                        n++;
                if (step.action == INBOX_LOOK)
                        inbox_plan_looked(&plan, n);
                if (step.action == INBOX_COUNT)
                        inbox_plan_counted(&plan, at == killer ? ++*counted : 1);
                if (step.action == INBOX_BURY)
                        *dead = recorded[at++] = true;
                if (step.action == INBOX_TRY || step.action == INBOX_BATCH) {
                        for (size_t i = 0; i < step.n; i++)
                                if (at + i == killer && !recorded[killer])
                                        return false;
                        for (size_t i = 0; i < step.n; i++)
                                recorded[at++] = true;
                }
                (void)inbox_plan_done(&plan, step, INBOX_WORKED, 0);
        }
        return true;
}

/* Whatever is recorded in front of it, and wherever it is: each death counts a try, or leaves more events
 * recorded. */
static void d3_what_kills_the_process_dies_also_behind_recorded_events(void **state)
{
        (void)state;
        for (size_t killer = 0; killer < EVENTS; killer++) {
                for (size_t before = 0; before <= killer; before++) {
                        bool recorded[EVENTS] = {false}, dead = false;
                        int counted = 0, deaths = 0;
                        memset(recorded, true, before);
                        while (!live(recorded, killer, &counted, &dead))
                                assert_true(++deaths <= ATTEMPTS + 8);
                        assert_true(dead);
                        if (before == killer)
                                assert_int_equal(deaths, ATTEMPTS);
                        for (size_t i = 0; i < EVENTS; i++)
                                assert_true(recorded[i]);
                }
        }
}

static void d1_ids(void **state)
{
        (void)state;
        char longest[LIMIT_INBOX_NAME_BYTES + 1];
        memset(longest, 'a', sizeof longest);
        static const char *const bad[] = {"\xff", "a\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80"};
        assert_null(inbox_id_fault((const uint8_t *)"7", 1));
        assert_null(inbox_id_fault((const uint8_t *)"\xc3\xa9\xf0\x9f\x98\x80", 6));
        assert_non_null(inbox_id_fault((const uint8_t *)"", 0));
        assert_non_null(inbox_id_fault((const uint8_t *)"a\0b", 3));
        assert_null(inbox_id_fault((const uint8_t *)longest, LIMIT_INBOX_NAME_BYTES));
        assert_non_null(inbox_id_fault((const uint8_t *)longest, LIMIT_INBOX_NAME_BYTES + 1));
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                assert_non_null(inbox_id_fault((const uint8_t *)bad[i], strlen(bad[i])));
}

static void d2_sqlstates(void **state)
{
        (void)state;
        static const char *const transient[] = {"40001", "40P01", "55P03", "57P01", "25P03", "08006"};
        static const char *const faults[] = {"23505", "P0001", "22P02", "42883", "57014", ""};
        for (size_t i = 0; i < sizeof transient / sizeof transient[0]; i++)
                assert_true(inbox_sqlstate_is_transient(transient[i]));
        for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
                assert_false(inbox_sqlstate_is_transient(faults[i]));
}

static void a_statement_must_not_end_the_transaction(void **state)
{
        (void)state;
        static const char *const bad[] = {"COMMIT", " commit;", "ROLLBACK TO x", "End", "begin;",
                                          "SAVEPOINT a", "COPY t FROM stdin"};
        static const char *const good[] = {"SELECT 1", "commits()", "INSERT INTO t VALUES ($1)",
                                           "WITH a AS (SELECT 1) SELECT 2", "ending_view"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                assert_true(inbox_sql_ends_transaction(bad[i]));
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
                assert_false(inbox_sql_ends_transaction(good[i]));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(good_events_go_in_growing_batches),
                cmocka_unit_test(d3_a_bad_event_dies_after_its_attempts_and_the_others_are_done),
                cmocka_unit_test(o79_nothing_behind_a_failing_event_is_done_before_it_is_dead),
                cmocka_unit_test(d2_what_is_nobodys_fault_is_repeated_as_it_was_and_not_counted),
                cmocka_unit_test(d2_a_count_without_an_answer_is_repeated_with_its_number),
                cmocka_unit_test(d2_one_lost_connection_repeats_the_whole_batch),
                cmocka_unit_test(d3_tries_are_counted_across_crashes),
                cmocka_unit_test(d3_what_kills_the_process_dies_also_behind_recorded_events),
                cmocka_unit_test(d1_ids),
                cmocka_unit_test(d2_sqlstates),
                cmocka_unit_test(a_statement_must_not_end_the_transaction),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
