/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight processes on one key, round after round: each key executes once.  The store's URL is
 * argv[1]; the rounds come from SEMEL_TEST_ROUNDS (200).
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
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

enum { PROCESSES = 8, ROUNDS_MAX = 10000 };

/* Shared by all processes. */
struct board {
        pthread_barrier_t barrier;
        atomic_int executions[ROUNDS_MAX];
        atomic_int ran[ROUNDS_MAX];
        atomic_int wrong; /* outcomes that cannot be */
};

static const char *url;
static int rounds;
static struct board *board;

static semel_effect work(void *arg, semel_claim *claim, semel_reply *rep)
{
        (void)claim;
        atomic_fetch_add((atomic_int *)arg, 1);
        semel_reply_set_status(rep, 201);
        return SEMEL_EFFECT_DONE;
}

static int child(const char *tag)
{
        semel_store *st = NULL;
        semel_error *err = semel_error_new();
        semel_sqlite_register();
        semel_postgres_register();
        if (semel_store_open(url, &st, err) != SEMEL_OK) {
                fprintf(stderr, "open: %s\n", semel_error_text(err));
                _exit(1); /* the others hang at the barrier: the test times out, loudly */
        }
        for (int r = 0; r < rounds; r++) {
                char key[64];
                semel_reply *rep = NULL;
                (void)snprintf(key, sizeof key, "%s-%d", tag, r);
                semel_command *cmd = semel_command_new(key, strlen(key), err);
                (void)pthread_barrier_wait(&board->barrier);
                semel_outcome o = semel_run(st, cmd, work, &board->executions[r], &rep, err);
                if (o == SEMEL_RAN)
                        atomic_fetch_add(&board->ran[r], 1);
                else if (o != SEMEL_IN_FLIGHT && o != SEMEL_REPLAYED) {
                        fprintf(stderr, "round %d: %s: %s\n", r, semel_outcome_name(o),
                                semel_error_text(err));
                        atomic_fetch_add(&board->wrong, 1);
                }
                semel_reply_free(rep);
                semel_command_free(cmd);
        }
        semel_store_close(st);
        semel_error_free(err);
        return 0;
}

static void h1_eight_processes_on_one_key_execute_once(void **state)
{
        (void)state;
        char tag[48];
        pid_t pids[PROCESSES];
        (void)snprintf(tag, sizeof tag, "p-%ld-%lld", (long)getpid(), (long long)time(NULL));
        for (int i = 0; i < PROCESSES; i++) {
                pids[i] = fork();
                assert_true(pids[i] >= 0);
                if (pids[i] == 0)
                        _exit(child(tag));
        }
        for (int i = 0; i < PROCESSES; i++) {
                int status;
                assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                assert_int_equal(status, 0);
        }
        assert_int_equal(board->wrong, 0);
        for (int r = 0; r < rounds; r++) {
                assert_int_equal(board->executions[r], 1);
                assert_int_equal(board->ran[r], 1);
        }
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(h1_eight_processes_on_one_key_execute_once),
        };
        const char *s = getenv("SEMEL_TEST_ROUNDS");
        rounds = s ? (int)strtol(s, NULL, 10) : 200;
        url = argc > 1 ? argv[1] : getenv("SEMEL_TEST_URL");
        board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (!url || rounds < 1 || rounds > ROUNDS_MAX || board == MAP_FAILED)
                return 1;
        pthread_barrierattr_t attr;
        (void)pthread_barrierattr_init(&attr);
        (void)pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        (void)pthread_barrier_init(&board->barrier, &attr, PROCESSES);

        /* The schema, before anybody races for it: that race is another test's. */
        semel_error *err = semel_error_new();
        semel_sqlite_register();
        semel_postgres_register();
        if (semel_store_migrate(url, err) != SEMEL_OK) {
                fprintf(stderr, "%s\n", semel_error_text(err));
                return 1;
        }
        semel_error_free(err);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
