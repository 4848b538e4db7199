/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose turn it is to write (B9): the gate makes room for those who wait, and a group owns the
 * file's write lock from its first statement on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/limits.h"
#include "sqlite_world.h"
#include "store/sqlite/sqlite_gate.h"

static int setup(void **state)
{
        static struct sqlite_world w;
        world_init(&w);
        *state = &w;
        return 0;
}

static int teardown(void **state)
{
        world_release(*state);
        return 0;
}

/* -- the gate ----------------------------------------------------------------------------- */

struct waiter {
        struct sqlite_gate gate;
        atomic_bool inside;
        sem_t leave;
};

static void *wait_at_the_gate(void *arg)
{
        struct waiter *waiter = arg;
        gate_enter(&waiter->gate);
        atomic_store(&waiter->inside, waiter->gate.inside);
        (void)sem_wait(&waiter->leave);
        gate_leave(&waiter->gate);
        return NULL;
}

/* Byte 1 of the side file is locked by whoever waits (sqlite_gate.h). */
static bool somebody_waits(const struct sqlite_gate *gate)
{
        struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
        assert_int_equal(fcntl(gate->fd, F_OFD_GETLK, &fl), 0);
        return fl.l_type != F_UNLCK;
}

/* Leave the gate while another waits: was that one in before the caller could come again? */
static bool one_hand_over(struct sqlite_world *w, struct sqlite_gate *gate)
{
        struct waiter waiter = {.gate = {.fd = -1}};
        pthread_t thread;
        assert_int_equal(sem_init(&waiter.leave, 0, 0), 0);
        assert_int_equal(gate_open(&waiter.gate, w->path, NULL), SEMEL_OK);
        gate_enter(gate);
        assert_true(gate->inside);
        assert_int_equal(pthread_create(&thread, NULL, wait_at_the_gate, &waiter), 0);
        while (!somebody_waits(gate))
                (void)poll(NULL, 0, 1);
        gate_leave(gate);
        gate_enter(gate); /* who never pauses comes again at once */
        bool made_room = atomic_load(&waiter.inside);
        gate_leave(gate);
        (void)sem_post(&waiter.leave);
        (void)pthread_join(thread, NULL);
        gate_close(&waiter.gate);
        (void)sem_destroy(&waiter.leave);
        return made_room;
}

/* Naive: the one inside takes the lock again before anybody who sleeps between two looks. */
static void b9_who_waits_at_the_gate_comes_first(void **state)
{
        enum { ROUNDS = 8 };
        struct sqlite_world *w = *state;
        struct sqlite_gate gate;
        int made_room = 0;
        assert_int_equal(gate_open(&gate, w->path, NULL), SEMEL_OK);
        for (int i = 0; i < ROUNDS; i++)
                made_room += one_hand_over(w, &gate);
        gate_close(&gate);
        assert_true(made_room >= ROUNDS / 2); /* a busy machine may wake the waiter late */
}

/* -- the write lock ------------------------------------------------------------------------- */

/* A clock that is read inside a group's transaction, and lets another connection write there. */
struct intruder {
        struct sqlite_world *w;
        sqlite3 *db;
        atomic_bool armed;
        int rc;
};

static int64_t intruder_boot(void *arg)
{
        struct intruder *in = arg;
        if (atomic_exchange(&in->armed, false))
                in->rc = sqlite3_exec(in->db, "UPDATE semel_meta SET lag_us = lag_us", NULL, NULL,
                                      NULL);
        return atomic_load(&in->w->boot_us);
}

static int64_t intruder_wall(void *arg)
{
        return atomic_load(&((struct intruder *)arg)->w->wall_us);
}

/* Naive (H74): a transaction that begins with a read cannot write once somebody else did, and no
 * busy timeout helps: SQLITE_BUSY_SNAPSHOT at once. */
static void b9_h74_nobody_writes_between_a_groups_read_and_its_write(void **state)
{
        struct sqlite_world *w = *state;
        struct intruder in = {.w = w};
        const struct sys_clock clock = {intruder_boot, intruder_wall, &in};
        w->env.clock = &clock;
        struct store *st = world_open(w);
        in.db = world_db(w);
        assert_int_equal(sqlite3_busy_timeout(in.db, 0), SQLITE_OK);
        for (unsigned i = 0; i < 5; i++) {
                atomic_store(&in.armed, true);
                struct command_claim claim = claim_of(i, false);
                assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
                assert_false(atomic_load(&in.armed));
                assert_int_equal(in.rc, SQLITE_BUSY); /* the group had the lock already */
        }
        (void)sqlite3_close(in.db);
        world_close(st);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(b9_who_waits_at_the_gate_comes_first),
                TEST(b9_h74_nobody_writes_between_a_groups_read_and_its_write),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
