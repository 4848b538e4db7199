/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: see ledger.h.  One connection, one writer at a time: SQLite has no more.
 */
#include "ledger.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <semel/sqlite.h>

enum { BUSY_MS = 10000 };
#define RETENTION_MS (INT64_C(30) * 24 * 3600 * 1000) /* how long a key is known: providers say 1 to 30 days */

struct ledger {
        sqlite3 *lite;
        sqlite3_stmt *insert, *list;
        pthread_mutex_t lock;
};

static const char schema[] =
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE IF NOT EXISTS ledger ("
        " id INTEGER PRIMARY KEY, key TEXT NOT NULL, order_id TEXT NOT NULL,"
        " customer_id TEXT NOT NULL, amount INTEGER NOT NULL,"
        " at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))";

/* No UNIQUE anywhere: that a key has one line is the promise that is shown here, not an index's. */
static const char insert_sql[] = "INSERT INTO ledger (key, order_id, customer_id, amount)"
                                 " VALUES (?1, ?2, ?3, ?4) RETURNING id";
static const char list_sql[] = "SELECT id, key, order_id, customer_id, amount, at FROM ledger"
                               " ORDER BY id";

static bool prepare(struct ledger *l, const char *path)
{
        if (sqlite3_open(path, &l->lite) != SQLITE_OK)
                return false;
        sqlite3_busy_timeout(l->lite, BUSY_MS);
        return sqlite3_exec(l->lite, schema, NULL, NULL, NULL) == SQLITE_OK &&
               sqlite3_prepare_v2(l->lite, insert_sql, -1, &l->insert, NULL) == SQLITE_OK &&
               sqlite3_prepare_v2(l->lite, list_sql, -1, &l->list, NULL) == SQLITE_OK;
}

struct ledger *ledger_open(const char *path, char *why)
{
        struct ledger *l = calloc(1, sizeof *l);
        semel_error *err = semel_error_new();
        bool ok = false;

        snprintf(why, LEDGER_WHY_BYTES, "no memory");
        if (!l || !err)
                goto out;
        pthread_mutex_init(&l->lock, NULL);
        ok = prepare(l, path);
        if (!ok)
                snprintf(why, LEDGER_WHY_BYTES, "%.150s: %s", path, sqlite3_errmsg(l->lite));
        if (ok && semel_sqlite_migrate(l->lite, err) != SEMEL_OK) {
                snprintf(why, LEDGER_WHY_BYTES, "%s", semel_error_text(err));
                ok = false;
        }
out:
        semel_error_free(err);
        if (ok)
                return l;
        ledger_close(l);
        return NULL;
}

void ledger_close(struct ledger *l)
{
        if (!l)
                return;
        sqlite3_finalize(l->insert);
        sqlite3_finalize(l->list);
        sqlite3_close(l->lite);
        pthread_mutex_destroy(&l->lock);
        free(l);
}

struct work {
        struct ledger *ledger;
        const struct charge *c;
};

/* The command: one line. */
static semel_effect write_line(void *arg, struct sqlite3 *lite, semel_reply *reply)
{
        struct work *w = arg;
        sqlite3_stmt *s = w->ledger->insert;
        char body[128];
        int64_t id = 0;
        int rc;

        (void)lite;
        sqlite3_bind_text(s, 1, w->c->key, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, w->c->order_id, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 3, w->c->customer_id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s, 4, w->c->amount);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW)
                id = sqlite3_column_int64(s, 0);
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
        if (rc != SQLITE_DONE)
                return SEMEL_EFFECT_FAILED;
        snprintf(body, sizeof body, "{\"charge_id\":%lld,\"amount\":%lld}\n", (long long)id,
                 (long long)w->c->amount);
        semel_reply_set_status(reply, 201);
        semel_reply_add_header(reply, "Content-Type", 12, "application/json", 16, NULL);
        semel_reply_set_body(reply, body, strlen(body), NULL);
        return SEMEL_EFFECT_DONE;
}

static semel_command *command_of(const struct charge *c, semel_error *err)
{
        semel_command *cmd = semel_command_new(c->key, strlen(c->key), err);
        if (cmd && semel_command_set_scope(cmd, "payd", err) == SEMEL_OK &&
            semel_command_set_operation(cmd, "POST /charges", err) == SEMEL_OK &&
            semel_command_set_retention_ms(cmd, RETENTION_MS, err) == SEMEL_OK &&
            semel_command_set_request(cmd, c->request, strlen(c->request), err) == SEMEL_OK)
                return cmd;
        semel_command_free(cmd);
        return NULL;
}

static bool lite_exec(struct ledger *l, const char *sql)
{
        return sqlite3_exec(l->lite, sql, NULL, NULL, NULL) == SQLITE_OK;
}

semel_outcome ledger_charge(struct ledger *l, const struct charge *c, semel_reply **ret_reply,
                            semel_error *err)
{
        semel_command *cmd = command_of(c, err);
        struct work w = {l, c};
        semel_outcome outcome = SEMEL_ERROR;

        if (!cmd)
                return SEMEL_ERROR;
        pthread_mutex_lock(&l->lock);
        if (lite_exec(l, "BEGIN IMMEDIATE")) {
                outcome = semel_sqlite_run(l->lite, cmd, write_line, &w, ret_reply, err);
                if (outcome == SEMEL_RAN && !lite_exec(l, "COMMIT")) {
                        semel_reply_free(*ret_reply);
                        *ret_reply = NULL;
                        outcome = SEMEL_ERROR;
                }
                if (!sqlite3_get_autocommit(l->lite))
                        lite_exec(l, "ROLLBACK");
        }
        pthread_mutex_unlock(&l->lock);
        semel_command_free(cmd);
        return outcome;
}

json_t *ledger_list(struct ledger *l)
{
        json_t *array = json_array();
        sqlite3_stmt *s = l->list;
        int rc;

        pthread_mutex_lock(&l->lock);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW)
                json_array_append_new(
                        array, json_pack("{s:I, s:s, s:s, s:s, s:I, s:s}", "id",
                                         (json_int_t)sqlite3_column_int64(s, 0), "key",
                                         sqlite3_column_text(s, 1), "order_id",
                                         sqlite3_column_text(s, 2), "customer_id",
                                         sqlite3_column_text(s, 3), "amount",
                                         (json_int_t)sqlite3_column_int64(s, 4), "at",
                                         sqlite3_column_text(s, 5)));
        sqlite3_reset(s);
        pthread_mutex_unlock(&l->lock);
        if (rc == SQLITE_DONE)
                return array;
        json_decref(array);
        return NULL;
}
