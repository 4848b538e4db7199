/* SPDX-License-Identifier: Apache-2.0
 *
 * A7 on SQLite: a COMMIT that gives no answer.  The disk keeps the bytes and says EIO, again and
 * again, or never answers at all.
 */
#include "sqlite_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/limits.h"
#include "fault_vfs.h"
#include "store/sqlite/sqlite_orphan.h"

static const struct span small = {(const uint8_t *)"ok", 2};

static int setup(void **state)
{
        static struct sqlite_world w;
        world_init(&w);
        w.env.clock = &sys_clock_host;
        w.hooks.vfs = FAULT_VFS;
        fault_vfs_register();
        fault_clear();
        *state = &w;
        return 0;
}

static int teardown(void **state)
{
        fault_clear();
        world_release(*state);
        return 0;
}

static void nap_ms(int ms)
{
        const struct timespec ts = {.tv_nsec = (long)ms * 1000000};
        (void)nanosleep(&ts, NULL); /* allowed: between two looks at a condition */
}

static int64_t row_count(struct sqlite_world *w, const char *where)
{
        char sql[128];
        sqlite3 *db = world_db(w);
        (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM semel_command %s", where);
        int64_t n = db_int64(db, sql);
        (void)sqlite3_close(db);
        return n;
}

static void a7_h15_a_claim_whose_commit_failed_is_issued_again(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false), other = claim_of(1, false);
        atomic_store(&fault.syncs, 3);
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN); /* never busy with itself */
        assert_int_equal(atomic_load(&fault.seen), 3);
        assert_int_equal(try_claim(st, &other), COMMAND_BUSY);
        assert_int_equal(row_count(w, ""), 1);
        assert_int_equal(sqlite_store_orphans(st), 0);
        world_close(st);
}

static void a7_each_write_is_issued_again(void **state)
{
        static const enum command_write_kind kinds[] = {COMMAND_EXTEND, COMMAND_MARK_UNKNOWN,
                                                        COMMAND_COMPLETE};
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false), second = claim_of(2, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_OK);
        int64_t token = op.out.claim.answer.token;
        store_op_release(&op);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
                atomic_store(&fault.syncs, 2);
                assert_int_equal(op_write(st, &op, kinds[i], &claim, token, small), SEMEL_OK);
                assert_int_equal(op.out.write.outcome, COMMAND_DONE);
                store_op_release(&op);
                assert_int_equal(atomic_load(&fault.syncs), 0);
        }
        assert_int_equal(op_claim(st, &op, &second), SEMEL_OK);
        token = op.out.claim.answer.token;
        store_op_release(&op);
        atomic_store(&fault.syncs, 2);
        assert_int_equal(op_write(st, &op, COMMAND_RELEASE, &second, token, small), SEMEL_OK);
        assert_int_equal(op.out.write.outcome, COMMAND_DONE);
        store_op_release(&op);
        assert_int_equal(row_count(w, "WHERE state = 2"), 1);
        assert_int_equal(row_count(w, "WHERE state = 0"), 1);
        world_close(st);
}

static void a7_a_resolve_is_issued_again_and_audited_once(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_OK);
        int64_t token = op.out.claim.answer.token;
        store_op_release(&op);
        assert_int_equal(op_write(st, &op, COMMAND_MARK_UNKNOWN, &claim, token, small), SEMEL_OK);
        store_op_release(&op);

        store_op_init(&op, STORE_RESOLVE);
        op.deadline_us = op_deadline_us();
        op.in.resolve.resolve = (struct command_resolve){.kind = COMMAND_RESOLVE_EXECUTED,
                                                         .id = claim.id,
                                                         .attempt = claim.attempt,
                                                         .new_attempt = {{7}}};
        op.in.resolve.reply = (struct store_reply){.status = 200, .body = small};
        op.in.resolve.reason = span_str("seen in the ledger");
        op.in.resolve.who = span_str("ann");
        atomic_store(&fault.syncs, 2);
        store_wait(st, &op);
        assert_int_equal(op.err.code, SEMEL_OK);
        assert_int_equal(op.out.resolve.outcome, COMMAND_RESOLVED);
        store_op_release(&op);
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_audit WHERE verb = 'executed' AND "
                                      "state_before = 'UNKNOWN' AND state_after = 'COMPLETED'"),
                         1);
        (void)sqlite3_close(db);
        world_close(st);
}

static void wait_for_no_orphans(struct store *st)
{
        for (int i = 0; sqlite_store_orphans(st) != 0; i++) {
                assert_true(i < 5000);
                nap_ms(2);
        }
}

static semel_code claim_within(struct store *st, struct store_op *op,
                               const struct command_claim *claim, int64_t us)
{
        store_op_init(op, STORE_CLAIM);
        op->deadline_us = clock_boot_us() + us;
        op->in.claim.claim = *claim;
        op->in.claim.label.key = span_str("k");
        store_wait(st, op);
        return op->err.code;
}

static void a7_a_claim_that_stays_unknown_is_undone_later(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false), next = claim_of(1, false);
        struct store_op op;
        atomic_store(&fault.syncs, -1);
        int64_t from_us = clock_boot_us();
        assert_int_equal(claim_within(st, &op, &claim, 300 * MS), SEMEL_ERR_UNKNOWN);
        assert_true(clock_boot_us() - from_us >= 300 * MS);
        assert_true(clock_boot_us() - from_us < 1300 * MS);
        store_op_release(&op);
        assert_int_equal(sqlite_store_orphans(st), 1);

        fault_clear();
        wait_for_no_orphans(st); /* by itself, though nobody asks for anything */
        assert_int_equal(row_count(w, "WHERE state = 0"), 1);
        assert_int_equal(try_claim(st, &next), COMMAND_RUN);
        world_close(st);
}

static void note_done(struct store_op *op)
{
        *(int *)op->arg += 1;
}

/* One after the other: an fsync that fails, a full disk, and a stranger who has the lock from then on.
 * Whatever queue they wait in, they were in doubt once. */
static void a7_what_is_in_doubt_stays_so_behind_a_stranger(void **state)
{
        enum { N = 2 };
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        static struct store_op ops[N];
        int done = 0;
        atomic_store(&fault.locks, -1); /* so that both are one group */
        for (unsigned i = 0; i < N; i++) {
                store_op_init(&ops[i], STORE_CLAIM);
                ops[i].deadline_us = clock_boot_us() + 1500 * MS;
                ops[i].in.claim.claim = claim_of(i, false);
                ops[i].in.claim.label.key = span_str("k");
                ops[i].done = note_done;
                ops[i].arg = &done;
                store_submit(st, &ops[i]);
        }
        atomic_store(&fault.write_code, SQLITE_FULL);
        atomic_store(&fault.locks_next, -1);
        atomic_store(&fault.synced, 0);
        atomic_store(&fault.writes_after_syncs, 1);
        atomic_store(&fault.writes, 1);
        atomic_store(&fault.syncs, 1);
        atomic_store(&fault.locks, 0);
        while (done < N) {
                nap_ms(2);
                st->vt->step(st);
        }
        assert_int_equal(atomic_load(&fault.locks), -1); /* all three struck */
        for (unsigned i = 0; i < N; i++) {
                assert_int_equal(ops[i].err.code, SEMEL_ERR_UNKNOWN);
                store_op_release(&ops[i]);
        }
        assert_int_equal(sqlite_store_orphans(st), N);
        fault_clear();
        wait_for_no_orphans(st);
        assert_int_equal(row_count(w, "WHERE state = 0"), N);
        world_close(st);
}

/* Its commit is in the file: what recovers after the crash sees it, and the same attempt has it. */
static void a7_what_a_crash_leaves_is_ours_by_attempt(void **state)
{
        struct sqlite_world *w = *state;
        struct command_claim claim = claim_of(1, false), other = claim_of(1, false);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                struct store *st = world_open(w);
                struct store_op op;
                atomic_store(&fault.hang, true); /* written, never acknowledged */
                (void)claim_within(st, &op, &claim, 100 * MS);
                (void)kill(getpid(), SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));

        struct store *st = world_open(w);
        assert_int_equal(row_count(w, ""), 1);
        assert_int_equal(try_claim(st, &other), COMMAND_BUSY);
        assert_int_equal(try_claim(st, &claim), COMMAND_RUN);
        world_close(st);
}

static void a7_a_disk_that_hangs_is_answered_as_unknown(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false), next = claim_of(1, false);
        struct store_op op, waiting;
        atomic_store(&fault.hang, true);
        int64_t from_us = clock_boot_us();
        assert_int_equal(claim_within(st, &op, &claim, 200 * MS), SEMEL_ERR_UNKNOWN);
        assert_true(clock_boot_us() - from_us < 1200 * MS);
        store_op_release(&op);
        /* what the hanging thread never took did not happen */
        assert_int_equal(claim_within(st, &waiting, &next, 200 * MS), SEMEL_ERR_STORE_DOWN);
        store_op_release(&waiting);
        atomic_store(&fault.hang, false);
        wait_for_no_orphans(st);
        assert_int_equal(try_claim(st, &next), COMMAND_RUN);
        world_close(st);
}

/* B9, B4: a write that fails before the COMMIT's end is "nothing happened" or is done again; either
 * way acknowledged and kept are the same set. */
static void a7_acknowledged_is_kept_whatever_fails(void **state)
{
        enum { ROUNDS = 60, OPS = 20 };
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        static struct store_op ops[OPS];
        static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE};
        int64_t acknowledged = 0;
        for (unsigned round = 0; round < ROUNDS; round++) {
                atomic_store(&fault.write_code, codes[round % 2]);
                atomic_store(&fault.writes, (int)(round % 5));
                atomic_store(&fault.syncs, (int)(round % 3));
                for (unsigned i = 0; i < OPS; i++) {
                        store_op_init(&ops[i], STORE_CLAIM);
                        ops[i].deadline_us = op_deadline_us();
                        ops[i].in.claim.claim = claim_of(round * OPS + i, false);
                }
                ops_wait(st, ops, OPS);
                for (unsigned i = 0; i < OPS; i++) {
                        if (ops[i].err.code == SEMEL_OK)
                                acknowledged++;
                        else
                                assert_true(ops[i].err.code == SEMEL_ERR_STORE_FULL ||
                                            ops[i].err.code == SEMEL_ERR_STORE_DOWN);
                        store_op_release(&ops[i]);
                }
        }
        fault_clear();
        assert_int_equal(row_count(w, ""), acknowledged);
        world_close(st);
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM pragma_integrity_check "
                                      "WHERE integrity_check = 'ok'"),
                         1);
        (void)sqlite3_close(db);
}

/* A7: past the bound the oldest is dropped. */
static void a7_the_list_of_orphans_is_bounded(void **state)
{
        struct orphan_list list;
        struct store_op op;
        struct sqlite_world *w = *state;
        (void)w;
        orphans_init(&list);
        for (unsigned i = 0; i < LIMIT_ORPHAN_CLAIMS + 3; i++) {
                store_op_init(&op, STORE_CLAIM);
                op.in.claim.claim = claim_of(i, false);
                op.in.claim.label.key = span_str("k");
                orphans_add(&list, &op);
        }
        assert_int_equal(list.count, LIMIT_ORPHAN_CLAIMS);
        struct orphan *first = orphans_take(&list);
        struct command_id third = claim_of(3, false).id;
        assert_true(command_id_eq(&first->claim.id, &third));
        assert_true(span_eq(first->label.key, span_str("k")));
        orphans_put_back(&list, first);
        assert_int_equal(list.count, LIMIT_ORPHAN_CLAIMS);
        orphans_release(&list);
        assert_int_equal(list.count, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(a7_h15_a_claim_whose_commit_failed_is_issued_again),
                TEST(a7_each_write_is_issued_again),
                TEST(a7_a_resolve_is_issued_again_and_audited_once),
                TEST(a7_a_claim_that_stays_unknown_is_undone_later),
                TEST(a7_what_is_in_doubt_stays_so_behind_a_stranger),
                TEST(a7_what_a_crash_leaves_is_ours_by_attempt),
                TEST(a7_a_disk_that_hangs_is_answered_as_unknown),
                TEST(a7_acknowledged_is_kept_whatever_fails),
                TEST(a7_the_list_of_orphans_is_bounded),
        };
        return cmocka_run_group_tests_name("sqlite_a7", tests, NULL, NULL);
}
