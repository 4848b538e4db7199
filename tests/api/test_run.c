/* SPDX-License-Identifier: Apache-2.0
 *
 * The public API with real threads, on the store that the URL in argv[1] names.  Only public
 * headers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

static const char *url;
static semel_store *st;
static semel_error *err;

/* A key that no other test, round or run has used. */
static const char *fresh_key(void)
{
        static atomic_int n;
        static _Thread_local char key[64];
        (void)snprintf(key, sizeof key, "t-%ld-%lld-%d", (long)getpid(), (long long)time(NULL),
                       atomic_fetch_add(&n, 1));
        return key;
}

static semel_command *command(const char *key, const char *request)
{
        semel_command *cmd = semel_command_new(key, strlen(key), err);
        assert_non_null(cmd);
        assert_int_equal(semel_command_set_operation(cmd, "create", err), SEMEL_OK);
        assert_int_equal(semel_command_set_request(cmd, request, strlen(request), err), SEMEL_OK);
        return cmd;
}

struct work {
        atomic_int executions;
        semel_effect effect;
        int work_ms;
        int64_t token;
};

static void sleep_ms(int ms)
{
        struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        nanosleep(&ts, NULL); /* allowed: it is the command's own slow work, not a wait */
}

static semel_effect work(void *arg, semel_claim *claim, semel_reply *rep)
{
        struct work *w = arg;
        int n = atomic_fetch_add(&w->executions, 1) + 1;
        w->token = semel_claim_token(claim);
        if (w->work_ms)
                sleep_ms(w->work_ms);
        char body[32];
        int len = snprintf(body, sizeof body, "made%c%d", 0, n);
        semel_reply_set_status(rep, 201);
        (void)semel_reply_add_header(rep, "Link", 4, "<a>", 3, NULL);
        (void)semel_reply_add_header(rep, "Link", 4, "", 0, NULL);
        (void)semel_reply_set_body(rep, body, (size_t)len, NULL);
        return w->effect;
}

static semel_outcome run(struct work *w, const char *key, const char *request, semel_reply **rep)
{
        semel_command *cmd = command(key, request);
        semel_outcome outcome = semel_run(st, cmd, work, w, rep, err);
        semel_command_free(cmd);
        return outcome;
}

static void h21_h26_a_retry_gets_the_same_bytes(void **state)
{
        (void)state;
        struct work w = {0};
        const char *key = fresh_key();
        semel_reply *first = NULL, *again = NULL;
        assert_int_equal(run(&w, key, "x", &first), SEMEL_RAN);
        assert_false(semel_reply_replayed(first));
        assert_int_equal(run(&w, key, "x", &again), SEMEL_REPLAYED);
        assert_true(semel_reply_replayed(again));
        assert_int_equal(w.executions, 1);

        size_t n, m;
        const char *name, *value;
        assert_int_equal(semel_reply_status(again), 201);
        const void *a = semel_reply_body(first, &n), *b = semel_reply_body(again, &m);
        assert_int_equal(n, 6);
        assert_int_equal(m, n);
        assert_memory_equal(a, b, n);
        assert_int_equal(semel_reply_header_count(again), 2);
        assert_true(semel_reply_header(again, 1, &name, &n, &value, &m));
        assert_int_equal(m, 0);
        assert_false(semel_reply_header(again, 2, &name, &n, &value, &m));
        semel_reply_free(first);
        semel_reply_free(again);
}

static void h60_another_request_is_a_mismatch_and_names_the_first_operation(void **state)
{
        (void)state;
        struct work w = {0};
        const char *key = fresh_key();
        semel_reply *rep = NULL;
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_RAN);
        semel_reply_free(rep);
        rep = NULL;
        assert_int_equal(run(&w, key, "y", &rep), SEMEL_MISMATCH);
        assert_null(rep);
        assert_string_equal(semel_error_first_operation(err), "create");
        assert_int_equal(w.executions, 1);
}

static void a_failed_command_frees_its_key_and_the_token_rises(void **state)
{
        (void)state;
        struct work w = {.effect = SEMEL_EFFECT_FAILED};
        const char *key = fresh_key();
        semel_reply *rep = NULL;
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_FAILED);
        int64_t first = w.token;
        semel_reply_free(rep);
        rep = NULL;
        w.effect = SEMEL_EFFECT_DONE;
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_RAN);
        semel_reply_free(rep);
        assert_int_equal(w.executions, 2);
        assert_true(w.token > first);
}

static semel_key_row *row_of(semel_command *cmd)
{
        unsigned char id[SEMEL_KEY_ID_BYTES];
        semel_key_row *row = NULL;
        assert_int_equal(semel_command_id(cmd, "run", id, err), SEMEL_OK);
        assert_int_equal(semel_keys_get(st, id, &row, err), SEMEL_OK);
        return row;
}

/* The holder may have its effect after the look: only a look at what is over counts. */
static void a5b_a_row_that_was_shown_too_early_is_not_freed(void **state)
{
        (void)state;
        semel_command *cmd = command(fresh_key(), "x");
        semel_claim *claim = NULL;
        semel_reply *rep = NULL;
        assert_int_equal(semel_command_set_lease_ms(cmd, 1000, err), SEMEL_OK);
        assert_int_equal(semel_begin(st, cmd, &claim, &rep, err), SEMEL_RUN);
        semel_key_row *shown = row_of(cmd), *late = row_of(cmd);
        assert_false(semel_key_row_settled(shown));
        assert_true(semel_key_row_settled_us(shown) >= semel_key_row_lease_until_us(shown));
        while (!semel_key_row_settled(late)) {
                sleep_ms(20); /* allowed: between two looks at a condition */
                semel_key_row_free(late);
                late = row_of(cmd);
        }
        assert_int_equal(semel_keys_resolve(st, shown, SEMEL_RESOLVE_NOT_EXECUTED, NULL, "looked",
                                            "me", err),
                         SEMEL_ERR_REFUSED);
        assert_non_null(strstr(semel_error_text(err), "when the key was shown"));
        assert_int_equal(semel_keys_resolve(st, late, SEMEL_RESOLVE_NOT_EXECUTED, NULL, "looked",
                                            "me", err),
                         SEMEL_OK);
        semel_key_row_free(shown);
        semel_key_row_free(late);
        semel_claim_free(claim);
        semel_command_free(cmd);
}

static void h62_an_unknown_outcome_holds_until_an_operator_decides(void **state)
{
        (void)state;
        struct work w = {.effect = SEMEL_EFFECT_UNKNOWN};
        const char *key = fresh_key();
        semel_reply *rep = NULL;
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_UNKNOWN);
        semel_reply_free(rep);
        rep = NULL;
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_UNKNOWN);
        assert_null(rep);
        assert_int_equal(w.executions, 1);

        semel_command *cmd = command(key, "x");
        unsigned char id[SEMEL_KEY_ID_BYTES];
        semel_key_row *row = NULL;
        assert_int_equal(semel_command_id(cmd, "run", id, err), SEMEL_OK);
        assert_int_equal(semel_keys_get(st, id, &row, err), SEMEL_OK);
        assert_int_equal(semel_key_row_state(row), SEMEL_KEY_UNKNOWN);
        assert_string_equal(semel_key_row_key(row), key);
        semel_reply *verdict = semel_reply_new();
        semel_reply_set_status(verdict, 299);
        assert_int_equal(semel_keys_resolve(st, row, SEMEL_RESOLVE_NOT_EXECUTED, NULL, "looked",
                                            "me", err),
                         SEMEL_ERR_REFUSED); /* a request may still be under way */
        assert_int_equal(semel_keys_resolve(st, row, SEMEL_RESOLVE_EXECUTED, verdict, "looked", "me",
                                            err),
                         SEMEL_OK);
        assert_int_equal(semel_keys_resolve(st, row, SEMEL_RESOLVE_EXECUTED, verdict, "looked", "me",
                                            err),
                         SEMEL_ERR_LOST);
        assert_int_equal(run(&w, key, "x", &rep), SEMEL_REPLAYED);
        assert_int_equal(semel_reply_status(rep), 299);
        semel_reply_free(rep);
        semel_reply_free(verdict);
        semel_key_row_free(row);
        semel_command_free(cmd);
}

static void h30_h31_h39_a_reply_too_big_to_keep_never_runs_twice(void **state)
{
        (void)state;
        struct work w = {0};
        const char *key = fresh_key();
        semel_command *cmd = command(key, "x");
        assert_int_equal(semel_command_set_reply_bytes_max(cmd, 3, err), SEMEL_OK);
        semel_reply *rep = NULL;
        size_t n;
        assert_int_equal(semel_run(st, cmd, work, &w, &rep, err), SEMEL_RAN);
        (void)semel_reply_body(rep, &n);
        assert_int_equal(n, 6); /* the first caller gets it all */
        semel_reply_free(rep);
        assert_int_equal(semel_run(st, cmd, work, &w, &rep, err), SEMEL_REPLAYED);
        assert_true(semel_reply_is_tombstone(rep));
        assert_int_equal(semel_reply_status(rep), 201);
        (void)semel_reply_body(rep, &n);
        assert_int_equal(n, 0);
        assert_int_equal(w.executions, 1);
        semel_reply_free(rep);
        semel_command_free(cmd);
}

static void h6_durations_are_validated(void **state)
{
        (void)state;
        semel_command *cmd = command("k", "x");
        assert_int_equal(semel_command_set_lease_ms(cmd, 0, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_command_set_lease_ms(cmd, -1, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_command_set_lease_ms(cmd, INT64_MAX, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_command_set_retention_ms(cmd, 0, err), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_command_set_wait_ms(cmd, 30001, err), SEMEL_ERR_ARGUMENT);
        semel_command_free(cmd);
}

static void h38_h42_two_principals_never_meet(void **state)
{
        (void)state;
        struct work w = {0};
        const char *key = fresh_key();
        for (int i = 0; i < 2; i++) {
                semel_command *cmd = command(key, "x");
                semel_reply *rep = NULL;
                assert_int_equal(semel_command_set_principal(cmd, i ? "ann" : "bob", 3, err),
                                 SEMEL_OK);
                assert_int_equal(semel_run(st, cmd, work, &w, &rep, err), SEMEL_RAN);
                semel_reply_free(rep);
                semel_command_free(cmd);
        }
        assert_int_equal(w.executions, 2);
}

/* -- threads ---------------------------------------------------------------------------- */

enum { THREADS = 64 };

struct caller {
        pthread_t thread;
        pthread_barrier_t *barrier;
        struct work *w;
        const char *key;
        int64_t wait_ms;
        semel_outcome outcome;
        int retry_after_s;
        char body[16];
        size_t body_len;
};

static void *call(void *arg)
{
        struct caller *c = arg;
        semel_error *my_err = semel_error_new();
        semel_command *cmd = semel_command_new(c->key, strlen(c->key), my_err);
        semel_reply *rep = NULL;
        (void)semel_command_set_wait_ms(cmd, c->wait_ms, my_err);
        (void)pthread_barrier_wait(c->barrier);
        c->outcome = semel_run(st, cmd, work, c->w, &rep, my_err);
        c->retry_after_s = semel_error_retry_after_s(my_err);
        if (rep) {
                const void *body = semel_reply_body(rep, &c->body_len);
                if (c->body_len <= sizeof c->body)
                        memcpy(c->body, body, c->body_len);
        }
        semel_reply_free(rep);
        semel_command_free(cmd);
        semel_error_free(my_err);
        return NULL;
}

static void race(struct work *w, int64_t wait_ms, struct caller *callers)
{
        char key[64];
        pthread_barrier_t barrier;
        (void)snprintf(key, sizeof key, "%s", fresh_key());
        (void)pthread_barrier_init(&barrier, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
                callers[i] = (struct caller){
                        .barrier = &barrier, .w = w, .key = key, .wait_ms = wait_ms};
                assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
                (void)pthread_join(callers[i].thread, NULL);
        (void)pthread_barrier_destroy(&barrier);
}

static int rounds(void)
{
        const char *s = getenv("SEMEL_TEST_ROUNDS");
        return s ? (int)strtol(s, NULL, 10) : 200;
}

static void h1_sixty_four_threads_on_one_key_execute_once(void **state)
{
        (void)state;
        static struct caller callers[THREADS];
        for (int round = 0; round < rounds(); round++) {
                struct work w = {0};
                int ran = 0;
                race(&w, 0, callers);
                for (int i = 0; i < THREADS; i++) {
                        semel_outcome o = callers[i].outcome;
                        ran += o == SEMEL_RAN;
                        if (o == SEMEL_IN_FLIGHT)
                                assert_in_range(callers[i].retry_after_s, 1, 60); /* H18 */
                        else if (o != SEMEL_RAN)
                                assert_int_equal(o, SEMEL_REPLAYED);
                }
                assert_int_equal(ran, 1);
                assert_int_equal(w.executions, 1);
        }
}

static void h76_waiters_get_the_winners_bytes(void **state)
{
        (void)state;
        static struct caller callers[THREADS];
        struct work w = {.work_ms = 50};
        race(&w, 10000, callers);
        int ran = 0;
        for (int i = 0; i < THREADS; i++) {
                ran += callers[i].outcome == SEMEL_RAN;
                assert_true(callers[i].outcome == SEMEL_RAN ||
                            callers[i].outcome == SEMEL_REPLAYED);
                assert_int_equal(callers[i].body_len, 6);
                assert_memory_equal(callers[i].body, callers[0].body, 6);
        }
        assert_int_equal(ran, 1);
        assert_int_equal(w.executions, 1);
}

/* -- the steps -------------------------------------------------------------------------- */

static void h9_h10_a_late_holder_changes_nothing(void **state)
{
        (void)state;
        const char *key = fresh_key();
        semel_command *cmd = command(key, "x");
        semel_claim *late = NULL, *now = NULL;
        semel_reply *rep = NULL, *kept = NULL;
        (void)semel_command_set_lease_ms(cmd, 1, err);
        semel_command_set_on_unknown(cmd, SEMEL_ON_UNKNOWN_RETRY);
        assert_int_equal(semel_begin(st, cmd, &late, &rep, err), SEMEL_RUN);
        while (semel_claim_lease_left_ms(late) > -5)
                sleep_ms(1);
        (void)semel_command_set_lease_ms(cmd, 60000, err);
        assert_int_equal(semel_begin(st, cmd, &now, &rep, err), SEMEL_RUN);
        assert_true(semel_claim_token(now) > semel_claim_token(late));

        rep = semel_reply_new();
        semel_reply_set_status(rep, 500);
        assert_int_equal(semel_complete(late, rep, err), SEMEL_ERR_LOST);
        assert_int_equal(semel_error_class(err), SEMEL_CLASS_CONFLICT);
        assert_int_equal(semel_release(late, err), SEMEL_ERR_LOST);
        assert_int_equal(semel_extend(late, 1000, err), SEMEL_ERR_LOST);
        semel_reply_set_status(rep, 201);
        assert_int_equal(semel_extend(now, 60000, err), SEMEL_OK);
        assert_int_equal(semel_complete(now, rep, err), SEMEL_OK);
        assert_int_equal(semel_complete(now, rep, err), SEMEL_OK); /* again: harmless */
        assert_int_equal(semel_complete(late, rep, err), SEMEL_ERR_LOST);
        semel_claim_free(late);
        semel_claim_free(now);
        assert_int_equal(semel_begin(st, cmd, &now, &kept, err), SEMEL_REPLAYED);
        assert_int_equal(semel_reply_status(kept), 201);
        semel_reply_free(kept);
        semel_reply_free(rep);
        semel_command_free(cmd);
}

static void h8_a_dead_holder_is_unknown_under_hold_after_the_lease(void **state)
{
        (void)state;
        semel_command *cmd = command(fresh_key(), "x");
        semel_claim *claim = NULL;
        semel_reply *rep = NULL;
        (void)semel_command_set_lease_ms(cmd, 1, err);
        assert_int_equal(semel_begin(st, cmd, &claim, &rep, err), SEMEL_RUN);
        while (semel_claim_lease_left_ms(claim) > -5)
                sleep_ms(1);
        semel_claim_free(claim); /* never ended: as a crash leaves it */
        assert_int_equal(semel_begin(st, cmd, &claim, &rep, err), SEMEL_UNKNOWN);
        semel_command_free(cmd);
}

struct cancelled {
        const char *key;
        struct work work;
        semel_outcome outcome;
};

/* The next thing that would end the thread is its wait for the completion. */
static semel_effect work_and_be_cancelled(void *arg, semel_claim *claim, semel_reply *rep)
{
        semel_effect effect = work(arg, claim, rep);
        (void)pthread_cancel(pthread_self());
        return effect;
}

static void *run_cancelled(void *arg)
{
        struct cancelled *c = arg;
        semel_reply *rep = NULL;
        semel_error *own = semel_error_new();
        semel_command *cmd = semel_command_new(c->key, strlen(c->key), own);
        c->outcome = semel_run(st, cmd, work_and_be_cancelled, &c->work, &rep, own);
        semel_reply_free(rep);
        semel_command_free(cmd);
        semel_error_free(own);
        return &c->outcome;
}

static void a_thread_that_is_cancelled_stays_until_the_store_has_answered(void **state)
{
        (void)state;
        struct cancelled c = {.key = fresh_key()};
        pthread_t thread;
        void *got = NULL;
        assert_int_equal(pthread_create(&thread, NULL, run_cancelled, &c), 0);
        assert_int_equal(pthread_join(thread, &got), 0);
        assert_ptr_equal(got, &c.outcome);
        assert_int_equal(c.outcome, SEMEL_RAN);
}

/* The next thing that would end the thread is its wait for the holder. */
static void *wait_cancelled(void *arg)
{
        struct cancelled *c = arg;
        semel_claim *claim = NULL;
        semel_reply *rep = NULL;
        semel_error *own = semel_error_new();
        semel_command *cmd = semel_command_new(c->key, strlen(c->key), own);
        (void)semel_command_set_wait_ms(cmd, 100, own);
        (void)pthread_cancel(pthread_self());
        c->outcome = semel_begin(st, cmd, &claim, &rep, own);
        semel_command_free(cmd);
        semel_error_free(own);
        return &c->outcome;
}

/* It would take a lock of the store with it, and nobody could use that any more. */
static void a_waiting_thread_that_is_cancelled_stays_until_its_wait_is_over(void **state)
{
        (void)state;
        struct cancelled c = {.key = fresh_key()};
        semel_command *cmd = semel_command_new(c.key, strlen(c.key), err);
        semel_claim *claim = NULL;
        semel_reply *rep = NULL;
        pthread_t thread;
        void *got = NULL;
        assert_int_equal(semel_begin(st, cmd, &claim, &rep, err), SEMEL_RUN);
        assert_int_equal(pthread_create(&thread, NULL, wait_cancelled, &c), 0);
        assert_int_equal(pthread_join(thread, &got), 0);
        assert_ptr_equal(got, &c.outcome);
        assert_int_equal(c.outcome, SEMEL_IN_FLIGHT);
        assert_int_equal(semel_release(claim, err), SEMEL_OK);
        semel_claim_free(claim);
        semel_command_free(cmd);
}

static void an_unknown_scheme_is_refused(void **state)
{
        (void)state;
        semel_store *other = NULL;
        assert_int_equal(semel_store_open("mysql://x", &other, err), SEMEL_ERR_URL);
        assert_null(other);
}

static void derived_keys_are_unambiguous(void **state)
{
        (void)state;
        char key[SEMEL_KEY_BYTES_MAX + 1], other[SEMEL_KEY_BYTES_MAX + 1];
        assert_int_equal(semel_key_join((const char *const[]){"order-7", "charge", "req-9"}, 3, key,
                                        err),
                         SEMEL_OK);
        assert_string_equal(key, "order-7:charge:req-9");
        (void)semel_key_join((const char *const[]){"a:b", "c"}, 2, key, err);
        (void)semel_key_join((const char *const[]){"a", "b:c"}, 2, other, err);
        assert_string_not_equal(key, other);
        assert_int_equal(semel_key_join((const char *const[]){"a", ""}, 2, key, err),
                         SEMEL_ERR_ARGUMENT);
}

static int open_store(void **state)
{
        (void)state;
        /* What is not registered yet is named. */
        semel_store *none = NULL;
        semel_error *first = semel_error_new();
        if (semel_store_open("postgres://x", &none, first) != SEMEL_ERR_NOT_LINKED ||
            !strstr(semel_error_text(first), "-lsemel-postgres"))
                return -1;
        semel_error_free(first);
        semel_sqlite_register();
        semel_postgres_register();
        err = semel_error_new();
        if (semel_store_migrate(url, err) != SEMEL_OK || semel_store_open(url, &st, err) != SEMEL_OK) {
                fprintf(stderr, "%s\n", semel_error_text(err));
                return -1;
        }
        return 0;
}

static int close_store(void **state)
{
        (void)state;
        semel_store_close(st);
        semel_error_free(err);
        return 0;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(h21_h26_a_retry_gets_the_same_bytes),
                cmocka_unit_test(h60_another_request_is_a_mismatch_and_names_the_first_operation),
                cmocka_unit_test(a_failed_command_frees_its_key_and_the_token_rises),
                cmocka_unit_test(a5b_a_row_that_was_shown_too_early_is_not_freed),
                cmocka_unit_test(h62_an_unknown_outcome_holds_until_an_operator_decides),
                cmocka_unit_test(h30_h31_h39_a_reply_too_big_to_keep_never_runs_twice),
                cmocka_unit_test(h6_durations_are_validated),
                cmocka_unit_test(h38_h42_two_principals_never_meet),
                cmocka_unit_test(h1_sixty_four_threads_on_one_key_execute_once),
                cmocka_unit_test(h76_waiters_get_the_winners_bytes),
                cmocka_unit_test(h9_h10_a_late_holder_changes_nothing),
                cmocka_unit_test(h8_a_dead_holder_is_unknown_under_hold_after_the_lease),
                cmocka_unit_test(a_thread_that_is_cancelled_stays_until_the_store_has_answered),
                cmocka_unit_test(a_waiting_thread_that_is_cancelled_stays_until_its_wait_is_over),
                cmocka_unit_test(an_unknown_scheme_is_refused),
                cmocka_unit_test(derived_keys_are_unambiguous),
        };
        url = argc > 1 ? argv[1] : getenv("SEMEL_TEST_URL");
        return cmocka_run_group_tests(tests, open_store, close_store);
}
