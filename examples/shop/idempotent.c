/* SPDX-License-Identifier: Apache-2.0
 *
 * idempotent: with_idempotency() and its three modes.
 *
 *   reserve      claim the key, run, keep the reply: three steps, each its own transaction.
 *                A crash between the last two runs the command again after the lease.
 *   transaction  claim, command and reply in one transaction of the shop's own connection:
 *                all of it or nothing.
 *   naive        look, run, store.  Wrong, and kept so that one can watch it fail.
 */
#include "idempotent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"
#include "problem.h"

enum { TRANSACTION_TRIES = 4 };

struct call {
        struct shop *shop;
        db_command_fn execute;
        void *arg;
};

/* The slow part of every command: a payment provider, a disk, a colleague's service. */
static void work(const struct options *opt)
{
        struct timespec left = {.tv_sec = opt->work_ms / 1000,
                                .tv_nsec = opt->work_ms % 1000 * 1000000};
        while (left.tv_sec + left.tv_nsec > 0 && nanosleep(&left, &left) != 0)
                ;
}

/* --crash-after-effect: the process is gone between the effect and its record. */
static void maybe_crash(const struct options *opt, semel_effect effect)
{
        if (opt->crash_after_effect && effect == SEMEL_EFFECT_DONE)
                kill(getpid(), SIGKILL);
}

/* Work, then the command on a connection of its own, in autocommit. */
static semel_effect execute_alone(struct call *call, semel_reply *reply)
{
        char why[DB_WHY_BYTES];
        struct db_conn *conn;
        semel_effect effect;

        work(call->shop->opt); /* before the connection is taken: a slow command pins none */
        conn = db_take(call->shop->db, why);
        if (!conn)
                return answer_db(DB_FAILED, why, reply);
        effect = call->execute(call->arg, conn, reply);
        db_give(conn);
        maybe_crash(call->shop->opt, effect);
        return effect;
}

static semel_reply *run_plain(struct call *call)
{
        semel_reply *reply = semel_reply_new();
        if (reply)
                execute_alone(call, reply);
        return reply;
}

/* --- reserve ---------------------------------------------------------------------------- */

static semel_effect reserve_execute(void *arg, semel_claim *claim, semel_reply *reply)
{
        (void)claim;
        return execute_alone(arg, reply);
}

static semel_reply *run_reserve(struct call *call, semel_command *cmd, semel_error *err)
{
        semel_reply *reply = NULL;
        semel_outcome outcome = semel_run(call->shop->store, cmd, reserve_execute, call, &reply,
                                          err);
        return answer(outcome, reply, err);
}

/* --- transaction ------------------------------------------------------------------------ */

static semel_effect transaction_execute(void *arg, struct db_conn *conn, semel_reply *reply)
{
        struct call *call = arg;
        semel_effect effect;
        work(call->shop->opt);
        effect = call->execute(call->arg, conn, reply);
        maybe_crash(call->shop->opt, effect);
        return effect;
}

/* One try.  true: *ret is the answer.  false: nobody knows yet, or the database asks for another
 * try; running it again is safe, for it answers REPLAYED if the first one did commit. */
static bool transaction_try(struct call *call, semel_command *cmd, semel_error *err,
                            semel_reply **ret, char *why)
{
        const struct db_driver *driver = db_driver(call->shop->db);
        struct db_conn *conn = db_take(call->shop->db, why);
        semel_reply *reply = NULL;
        semel_outcome outcome;
        enum db_result result;

        if (!conn)
                return false;
        result = driver->begin(conn, call->shop->opt->wait_ms);
        if (result == DB_BUSY) { /* SQLite has one writer: a running duplicate, or any other */
                db_give(conn);
                *ret = semel_reply_new();
                if (*ret)
                        answer_in_flight(*ret, 1, "Another command, perhaps with this key, is "
                                                  "being written; try again later.");
                return true;
        }
        if (result == DB_OK) {
                outcome = driver->run_once(conn, cmd, transaction_execute, call, &reply, err);
                if (outcome == SEMEL_RAN)
                        result = driver->commit(conn);
                else
                        driver->rollback(conn);
                if (outcome == SEMEL_ERROR && (semel_error_code(err) == SEMEL_ERR_CONFLICT ||
                                               semel_error_code(err) == SEMEL_ERR_STORE_DOWN ||
                                               semel_error_code(err) == SEMEL_ERR_UNKNOWN)) {
                        snprintf(why, DB_WHY_BYTES, "%s", semel_error_text(err));
                        result = DB_FAILED;
                }
        }
        if (result != DB_OK) {
                if (conn->why[0])
                        snprintf(why, DB_WHY_BYTES, "%s", conn->why);
                db_give(conn);
                semel_reply_free(reply);
                return false;
        }
        db_give(conn);
        *ret = answer(outcome, reply, err);
        return true;
}

static semel_reply *run_transaction(struct call *call, semel_command *cmd, semel_error *err)
{
        char why[DB_WHY_BYTES] = "the database kept asking for another try";
        semel_reply *reply = NULL;
        for (int i = 0; i < TRANSACTION_TRIES; i++)
                if (transaction_try(call, cmd, err, &reply, why))
                        return reply;
        reply = semel_reply_new();
        if (reply)
                answer_store_down(reply, why);
        return reply;
}

/* --- naive ------------------------------------------------------------------------------ */

struct naive_record {
        bool found;
        const char *request; /* ours, to compare with */
        bool same;
        semel_reply *reply;
};

static void naive_on_row(void *arg, const char *const *cells)
{
        struct naive_record *rec = arg;
        rec->found = true;
        rec->same = strcmp(cells[0], rec->request) == 0;
        semel_reply_set_status(rec->reply, (int)strtol(cells[2], NULL, 10));
        semel_reply_set_body(rec->reply, cells[1], strlen(cells[1]), NULL);
        reply_header(rec->reply, "Content-Type", "application/json"); /* the others are lost */
        reply_header(rec->reply, "Idempotent-Replayed", "true");
}

static enum db_result naive_run(struct call *call, enum db_statement stmt,
                                const char *const *params, db_row_fn fn, void *arg, char *why)
{
        struct db_conn *conn = db_take(call->shop->db, why);
        enum db_result result;
        if (!conn)
                return DB_FAILED;
        result = db_run(conn, stmt, params, fn, arg, NULL);
        snprintf(why, DB_WHY_BYTES, "%s", conn->why);
        db_give(conn);
        return result;
}

static semel_reply *run_naive(struct call *call, const char *key, const char *request)
{
        char why[DB_WHY_BYTES] = "", status[16], *body;
        struct naive_record rec = {.request = request, .reply = semel_reply_new()};
        enum db_result result;
        const void *p;
        size_t n;

        if (!rec.reply)
                return NULL;
        result = naive_run(call, NAIVE_FIND, &key, naive_on_row, &rec, why);
        if (result != DB_OK) {
                answer_db(result, why, rec.reply);
                return rec.reply;
        }
        if (rec.found) {
                if (!rec.same)
                        problem_fill(rec.reply, PROBLEM_KEY_REUSED, NULL, "Another payload.");
                return rec.reply;
        }
        /* Between the look above and the store below, every duplicate gets here too. */
        if (execute_alone(call, rec.reply) != SEMEL_EFFECT_DONE)
                return rec.reply;
        p = semel_reply_body(rec.reply, &n);
        body = n ? strndup(p, n) : strdup("");
        snprintf(status, sizeof status, "%d", semel_reply_status(rec.reply));
        if (body)
                naive_run(call, NAIVE_STORE, (const char *[]){key, request, body, status}, NULL,
                          NULL, why);
        free(body);
        return rec.reply;
}

/* --- the wrapper ------------------------------------------------------------------------ */

/* What the request asks for, in one canonical text: spaces, and the order of members, are no
 * other request. */
static char *request_text(const struct request *req)
{
        return req->body ? json_dumps(req->body, JSON_COMPACT | JSON_SORT_KEYS) : strdup("");
}

static semel_command *command_of(const struct options *opt, const struct request *req,
                                 const char *text, semel_error *err)
{
        semel_command *cmd = semel_command_new(req->key, strlen(req->key), err);
        if (!cmd)
                return NULL;
        semel_command_set_on_unknown(cmd, SEMEL_ON_UNKNOWN_RETRY);
        if (semel_command_set_scope(cmd, "shop", err) == SEMEL_OK &&
            semel_command_set_principal(cmd, req->principal, strlen(req->principal), err) ==
                    SEMEL_OK &&
            semel_command_set_operation(cmd, req->operation, err) == SEMEL_OK &&
            semel_command_set_request(cmd, text, strlen(text), err) == SEMEL_OK &&
            semel_command_set_lease_ms(cmd, opt->lease_ms, err) == SEMEL_OK &&
            semel_command_set_wait_ms(cmd, opt->wait_ms, err) == SEMEL_OK)
                return cmd;
        semel_command_free(cmd);
        return NULL;
}

semel_reply *with_idempotency(struct shop *shop, struct request *req, db_command_fn execute,
                              void *arg)
{
        struct call call = {shop, execute, arg};
        semel_error *err = NULL;
        semel_command *cmd = NULL;
        semel_reply *reply = NULL;
        char *text = NULL;

        if (!req->has_key)
                return run_plain(&call);
        text = request_text(req);
        err = semel_error_new();
        if (!text || !err)
                goto out;
        if (shop->opt->mode == MODE_NAIVE) {
                reply = run_naive(&call, req->key, text);
                goto out;
        }
        cmd = command_of(shop->opt, req, text, err);
        if (!cmd)
                reply = answer(SEMEL_ERROR, NULL, err);
        else if (shop->opt->mode == MODE_TRANSACTION)
                reply = run_transaction(&call, cmd, err);
        else
                reply = run_reserve(&call, cmd, err);
out:
        semel_command_free(cmd);
        semel_error_free(err);
        free(text);
        return reply;
}
