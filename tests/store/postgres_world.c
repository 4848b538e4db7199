/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres_world: see postgres_world.h.
 */
#include "postgres_world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/random.h"

const char *world_url(void)
{
        const char *url = getenv("SEMEL_TEST_PG");
        if (!url) {
                (void)fprintf(stderr, "no server: run me under tests/support/with_postgres\n");
                exit(77);
        }
        return url;
}

const char *world_url_with(const char *parameters)
{
        static char urls[4][512];
        static unsigned turn;
        char *url = urls[turn++ % 4];
        (void)snprintf(url, sizeof urls[0], "%s%c%s", world_url(),
                       strchr(world_url(), '?') ? '&' : '?', parameters);
        return url;
}

void world_fresh(void)
{
        semel_error err = {0};
        PGconn *pg = db_open();
        db_exec(pg, "DROP SCHEMA IF EXISTS semel CASCADE");
        PQfinish(pg);
        if (store_postgres_driver.migrate(world_url(), &err) != SEMEL_OK)
                fail_msg("migrate: %s", err.text);
}

static const struct store_env env = {.clock = &sys_clock_host};
static const struct store_env env_sleeping = {.clock = &sys_clock_host, .sleeping_callers = true};

static struct store *open_with(const char *url, const struct store_env *with)
{
        struct store *st = NULL;
        semel_error err = {0};
        if (store_postgres_driver.open(url, with, &st, &err) != SEMEL_OK)
                fail_msg("open: %s", err.text);
        return st;
}

struct store *world_open(const char *url)
{
        return open_with(url, &env);
}

struct store *world_open_sleeping(const char *url)
{
        return open_with(url, &env_sleeping);
}

semel_code world_open_fails(const char *url, semel_error *ret_err)
{
        struct store *st = NULL;
        semel_code code = store_postgres_driver.open(url, &env, &st, ret_err);
        assert_int_not_equal(code, SEMEL_OK);
        assert_null(st);
        assert_int_equal(code, ret_err->code);
        print_message("   %s: %s\n", err_code_name(code), ret_err->text);
        return code;
}

/* -- beside the store -------------------------------------------------------------------------- */

static void ignore_notice(void *arg, const PGresult *res)
{
        (void)arg;
        (void)res;
}

PGconn *db_open(void)
{
        PGconn *pg = PQconnectdb(world_url());
        if (PQstatus(pg) != CONNECTION_OK)
                fail_msg("connect: %s", PQerrorMessage(pg));
        (void)PQsetNoticeReceiver(pg, ignore_notice, NULL);
        return pg;
}

static PGresult *run(PGconn *pg, const char *sql)
{
        PGresult *res = PQexec(pg, sql);
        ExecStatusType status = PQresultStatus(res);
        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
                fail_msg("%s: %s", sql, PQresultErrorMessage(res));
        return res;
}

#define FORMAT(sql, fmt)                                                                          \
        do {                                                                                      \
                va_list ap;                                                                       \
                va_start(ap, fmt);                                                                \
                (void)vsnprintf(sql, sizeof sql, fmt, ap);                                        \
                va_end(ap);                                                                       \
        } while (0)

void db_exec(PGconn *pg, const char *fmt, ...)
{
        char sql[4096];
        FORMAT(sql, fmt);
        PQclear(run(pg, sql));
}

int64_t db_int(PGconn *pg, const char *fmt, ...)
{
        char sql[4096];
        FORMAT(sql, fmt);
        PGresult *res = run(pg, sql);
        int64_t v = PQntuples(res) ? strtoll(PQgetvalue(res, 0, 0), NULL, 10) : -1;
        PQclear(res);
        return v;
}

void db_wait(PGconn *pg, int64_t want, const char *fmt, ...)
{
        char sql[4096];
        FORMAT(sql, fmt);
        int64_t until_us = clock_boot_us() + 10 * SECOND;
        while (db_int(pg, "%s", sql) != want) {
                if (clock_boot_us() > until_us)
                        fail_msg("%s is %lld, not %lld", sql, (long long)db_int(pg, "%s", sql),
                                 (long long)want);
                (void)poll(NULL, 0, 5);
        }
}

const char *sql_id(const struct command_claim *claim)
{
        static char texts[4][2 * COMMAND_ID_BYTES + 5];
        static unsigned turn;
        char *text = texts[turn++ % 4];
        size_t n = (size_t)snprintf(text, sizeof texts[0], "'\\x");
        for (size_t i = 0; i < sizeof claim->id.b; i++)
                n += (size_t)snprintf(text + n, sizeof texts[0] - n, "%02x", claim->id.b[i]);
        (void)snprintf(text + n, sizeof texts[0] - n, "'");
        return text;
}

void db_insert_row(PGconn *pg, const struct command_claim *claim)
{
        db_exec(pg,
                "INSERT INTO semel.command SELECT %s, 1, 1, substr(sha256(''), 1, 16), sha256(''), false, "
                "false, false, t + '60 s', 60000000, t, t, 3600000000, NULL, t, 1, '', '', '', '' "
                "FROM (SELECT clock_timestamp()) AS n(t)",
                sql_id(claim));
}

void server(const char *verb, const char *mode)
{
        char *ctl = getenv("SEMEL_TEST_PG_CTL");
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
                (void)execl(ctl, ctl, verb, mode, (char *)NULL);
                _exit(127);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
                fail_msg("%s %s failed", ctl, verb);
}

/* -- operations --------------------------------------------------------------------------- */

static size_t pending;

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
        /* Spread like digests, so that batches are sorted in another order than submitted. */
        uint64_t h = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
        memset(claim.id.b, 0x5a, sizeof claim.id.b);
        memcpy(claim.id.b, &h, sizeof h);
        memcpy(claim.id.b + 8, &n, sizeof n);
        memcpy(claim.fingerprint.b, &n, sizeof n);
        assert_int_equal(random_bytes(claim.attempt.b, sizeof claim.attempt.b), 0);
        return claim;
}

static void count_done(struct store_op *op)
{
        (void)op;
        assert_true(pending > 0);
        pending--;
}

void op_claim_init(struct store_op *op, const struct command_claim *claim)
{
        store_op_init(op, STORE_CLAIM);
        op->deadline_us = op_deadline_us();
        op->done = count_done;
        op->in.claim.claim = *claim;
        op->in.claim.label = (struct store_label){.mode = MODE_RUN,
                                                  .scope = span_str("scope"),
                                                  .operation = span_str("POST /things"),
                                                  .key = span_str("a-key"),
                                                  .holder = span_str("a holder")};
}

void op_write_init(struct store_op *op, enum command_write_kind kind,
                   const struct command_claim *claim, int64_t token, struct span body)
{
        store_op_init(op, STORE_WRITE);
        op->deadline_us = op_deadline_us();
        op->done = count_done;
        op->in.write.write = (struct command_write){.kind = kind,
                                                    .id = claim->id,
                                                    .token = token,
                                                    .attempt = claim->attempt,
                                                    .lease_us = WORLD_LEASE_US};
        op->in.write.reply = (struct store_reply){.status = 201, .body = body};
}

size_t ops_pending(void)
{
        return pending;
}

void ops_submit(struct store *st, struct store_op *ops, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                pending++;
                store_submit(st, &ops[i]);
        }
}

void world_turn(struct store *const *stores, size_t store_count)
{
        struct pollfd pfds[8];
        int timeout_ms = 10;
        for (size_t i = 0; i < store_count; i++) {
                pfds[i] = (struct pollfd){.fd = stores[i]->vt->fd(stores[i]),
                                          .events = stores[i]->vt->events(stores[i])};
                if (stores[i]->vt->deadline_us(stores[i]) <= clock_boot_us())
                        timeout_ms = 0;
        }
        (void)poll(pfds, store_count, timeout_ms);
        for (size_t i = 0; i < store_count; i++)
                stores[i]->vt->step(stores[i]);
}

void ops_finish(struct store *const *stores, size_t store_count, size_t left)
{
        int64_t until_us = clock_boot_us() + 30 * SECOND;
        while (pending > left) {
                if (clock_boot_us() > until_us)
                        fail_msg("%zu operations were never answered", pending);
                world_turn(stores, store_count);
        }
}

semel_code do_claim(struct store *st, struct store_op *op, const struct command_claim *claim)
{
        op_claim_init(op, claim);
        op->done = NULL;
        store_wait(st, op);
        return op->err.code;
}

semel_code do_write(struct store *st, struct store_op *op, enum command_write_kind kind,
                    const struct command_claim *claim, int64_t token, struct span body)
{
        op_write_init(op, kind, claim, token, body);
        op->done = NULL;
        store_wait(st, op);
        return op->err.code;
}

enum command_outcome try_claim(struct store *st, const struct command_claim *claim)
{
        struct store_op op;
        if (do_claim(st, &op, claim) != SEMEL_OK)
                fail_msg("claim: %s", op.err.text);
        enum command_outcome outcome = op.out.claim.answer.outcome;
        store_op_release(&op);
        return outcome;
}

void run_once(struct store *st, unsigned n, struct span body)
{
        struct command_claim claim = claim_of(n, false);
        struct store_op op;
        if (do_claim(st, &op, &claim) != SEMEL_OK)
                fail_msg("claim: %s", op.err.text);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        int64_t token = op.out.claim.answer.token;
        store_op_release(&op);
        if (do_write(st, &op, COMMAND_COMPLETE, &claim, token, body) != SEMEL_OK)
                fail_msg("complete: %s", op.err.text);
        assert_int_equal(op.out.write.outcome, COMMAND_DONE);
        store_op_release(&op);
}
