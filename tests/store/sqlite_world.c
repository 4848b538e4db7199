/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_world: see sqlite_world.h.
 */
#include "sqlite_world.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/limits.h"
#include "store/sqlite/sqlite_store.h"
#include "sys/random.h"

static int64_t world_boot(void *arg)
{
        return ((struct sqlite_world *)arg)->boot_us;
}

static int64_t world_wall(void *arg)
{
        return ((struct sqlite_world *)arg)->wall_us;
}

void world_init(struct sqlite_world *w)
{
        const char *tmp = getenv("TMPDIR");
        memset(w, 0, sizeof *w);
        (void)snprintf(w->dir, sizeof w->dir, "%s/semel-sqlite-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(w->dir));
        (void)snprintf(w->path, sizeof w->path, "%s/keys.db", w->dir);
        (void)snprintf(w->url, sizeof w->url, "sqlite:%s", w->path);
        w->boot_us = 1000 * SECOND;
        w->wall_us = INT64_C(1700000000) * SECOND;
        w->clock = (struct sys_clock){world_boot, world_wall, w};
        w->env = (struct store_env){.clock = &w->clock};
}

void world_remove_file(struct sqlite_world *w)
{
        static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", "-semel-lock"};
        char name[128];
        for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
                (void)snprintf(name, sizeof name, "%s%s", w->path, suffixes[i]);
                (void)unlink(name);
        }
}

void world_release(struct sqlite_world *w)
{
        world_remove_file(w);
        assert_int_equal(rmdir(w->dir), 0); /* and nothing else was left behind */
}

void world_advance(struct sqlite_world *w, int64_t us)
{
        w->boot_us += us;
        w->wall_us += us;
}

struct store *world_open(struct sqlite_world *w)
{
        struct store *st = NULL;
        semel_error err = {0};
        semel_code code = sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, &err);
        if (code != SEMEL_OK)
                fail_msg("open: %s", err.text);
        return st;
}

void world_close(struct store *st)
{
        st->vt->close(st);
}

semel_code world_open_fails(struct sqlite_world *w, semel_error *ret_err)
{
        struct store *st = NULL;
        semel_code code = sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, ret_err);
        assert_int_not_equal(code, SEMEL_OK);
        assert_null(st);
        assert_int_equal(code, ret_err->code);
        return code;
}

sqlite3 *world_db(struct sqlite_world *w)
{
        sqlite3 *db = NULL;
        assert_int_equal(sqlite3_open(w->path, &db), SQLITE_OK);
        (void)sqlite3_busy_timeout(db, 5000);
        return db;
}

int64_t db_int64(sqlite3 *db, const char *sql)
{
        sqlite3_stmt *stmt = NULL;
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK ||
            sqlite3_step(stmt) != SQLITE_ROW)
                fail_msg("%s: %s", sql, sqlite3_errmsg(db));
        int64_t v = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_finalize(stmt);
        return v;
}

void db_exec(sqlite3 *db, const char *sql)
{
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
                fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

/* -- commands -------------------------------------------------------------------------- */

int64_t op_deadline_us(void)
{
        return clock_boot_us() + 20 * SECOND;
}

struct command_claim claim_of(unsigned n, bool retry)
{
        struct command_claim claim = {.policy.retry = retry,
                                      .lease_us = WORLD_LEASE_US,
                                      .retention_us = WORLD_RETENTION_US,
                                      .request_us = WORLD_LEASE_US};
        memset(claim.id.b, 0x5a, sizeof claim.id.b);
        memcpy(claim.id.b, &n, sizeof n);
        memcpy(claim.fingerprint.b, &n, sizeof n);
        assert_int_equal(random_bytes(claim.attempt.b, sizeof claim.attempt.b), 0);
        return claim;
}

static const struct store_label label = {.mode = MODE_RUN};

semel_code op_claim(struct store *st, struct store_op *op, const struct command_claim *claim)
{
        store_op_init(op, STORE_CLAIM);
        op->deadline_us = op_deadline_us();
        op->in.claim.claim = *claim;
        op->in.claim.label = label;
        store_wait(st, op);
        return op->err.code;
}

semel_code op_write(struct store *st, struct store_op *op, enum command_write_kind kind,
                    const struct command_claim *claim, int64_t token, struct span body)
{
        store_op_init(op, STORE_WRITE);
        op->deadline_us = op_deadline_us();
        op->in.write.write = (struct command_write){.kind = kind,
                                                    .id = claim->id,
                                                    .token = token,
                                                    .attempt = claim->attempt,
                                                    .lease_us = claim->lease_us};
        op->in.write.reply = (struct store_reply){.status = 201, .body = body};
        store_wait(st, op);
        return op->err.code;
}

static void count_done(struct store_op *op)
{
        ++*(size_t *)op->arg;
}

void ops_wait(struct store *st, struct store_op *ops, size_t n)
{
        size_t done = 0;
        for (size_t i = 0; i < n; i++) {
                ops[i].arg = &done;
                ops[i].done = count_done;
                store_submit(st, &ops[i]);
        }
        while (done < n) {
                struct pollfd pfd = {.fd = st->vt->fd(st), .events = st->vt->events(st)};
                (void)poll(&pfd, 1, 20);
                st->vt->step(st);
        }
        assert_int_equal(done, n);
}

enum command_outcome try_claim(struct store *st, const struct command_claim *claim)
{
        struct store_op op;
        if (op_claim(st, &op, claim) != SEMEL_OK)
                fail_msg("claim: %s", op.err.text);
        enum command_outcome outcome = op.out.claim.answer.outcome;
        store_op_release(&op);
        return outcome;
}

void run_once(struct store *st, unsigned n, struct span body)
{
        struct command_claim claim = claim_of(n, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_OK);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        int64_t token = op.out.claim.answer.token;
        store_op_release(&op);
        if (op_write(st, &op, COMMAND_COMPLETE, &claim, token, body) != SEMEL_OK)
                fail_msg("complete: %s", op.err.text);
        assert_int_equal(op.out.write.outcome, COMMAND_DONE);
        store_op_release(&op);
}
