/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_tx: a command inside a transaction of the caller's own connection (rule B9).
 *
 * The caller's transaction holds the file's write lock, so nobody else decides about the key until it
 * ends: there is nothing to wait for here.  Whoever comes second waits in its BEGIN IMMEDIATE.
 */
#include "store/sqlite/sqlite_store.h"

#include <stdlib.h>

#include "store/sqlite/sqlite_ops.h"

struct tx {
        struct sqlite_session ses;
        bool savepoint;
};

static struct tx *tx_of(const struct store_tx *tx)
{
        return tx->driver;
}

static int last_code(const struct tx *t)
{
        return sqlite3_extended_errcode(t->ses.db);
}

/* A transaction that began with a read cannot wait for a writer: SQLite says BUSY at once when its
 * snapshot is old or somebody writes. */
semel_code sqlite_tx_write_lock(struct sqlite_session *ses, semel_error *err)
{
        int state = sqlite3_txn_state(ses->db, "main");
        if (state == SQLITE_TXN_WRITE)
                return SEMEL_OK;
        int rc = session_run(ses, SQL_UPGRADE_LOCK);
        if (rc == SQLITE_OK)
                return SEMEL_OK;
        if ((rc & 0xff) == SQLITE_BUSY && state == SQLITE_TXN_READ)
                rc = SQLITE_BUSY_SNAPSHOT; /* to the caller it is the same */
        return sqlite_error(ses->db, rc, ses->name, err);
}

semel_code sqlite_tx_clock(struct sqlite_session *ses, semel_error *err)
{
        struct sqlite_boot_id boot_id;
        semel_code code = sqlite_boot_id_read(&boot_id, err);
        if (code == SEMEL_OK)
                code = session_load_mark(ses, err);
        if (code != SEMEL_OK)
                return code;
        if (memcmp(boot_id.b, ses->mark.boot_id.b, sizeof boot_id.b) != 0) {
                /* The machine was started anew since; a store in another one that is alive sees it
                 * in its next group, and stops. */
                sqlite_mark_reboot(&ses->mark, &boot_id, clock_boot_us(), clock_wall_us());
                ses->mark_changed = true;
        }
        session_take_time(ses, &sys_clock_host);
        int rc = session_save_mark(ses);
        ses->mark_changed = false;
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(ses->db, rc, ses->name, err);
}

static void tx_end(struct store_tx *tx)
{
        struct tx *t = tx_of(tx);
        if (!t)
                return;
        if (t->savepoint && sqlite3_get_autocommit(t->ses.db) == 0)
                (void)session_run(&t->ses, SQL_RELEASE_SAVEPOINT);
        session_release(&t->ses);
        free(t);
        tx->driver = NULL;
}

static semel_code tx_begin(struct store_tx *tx, semel_error *err)
{
        sqlite3 *db = tx->conn;
        tx->driver = NULL;
        if (sqlite3_get_autocommit(db))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "no transaction is open on the connection: begin one with BEGIN "
                               "IMMEDIATE first");
        struct tx *t = calloc(1, sizeof *t);
        if (!t)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a command");
        const char *name = sqlite3_db_filename(db, "main");
        session_init(&t->ses, db, name && *name ? name : "the database in memory");
        tx->driver = t;

        semel_code code = SEMEL_OK;
        int rc = session_run(&t->ses, SQL_SAVEPOINT);
        if (rc == SQLITE_OK)
                t->savepoint = true;
        else
                code = sqlite_error(db, rc, t->ses.name, err);
        if (code == SEMEL_OK)
                code = sqlite_tx_write_lock(&t->ses, err);
        if (code == SEMEL_OK)
                code = sqlite_tx_clock(&t->ses, err);
        if (code != SEMEL_OK)
                tx_end(tx);
        return code;
}

static semel_code result_code(const struct tx *t, enum row_result result, semel_error *err)
{
        switch (result) {
        case ROW_OK:
        case ROW_NONE:
                return SEMEL_OK;
        case ROW_REFUSED:
        case ROW_NO_MEMORY:
                return err->code;
        case ROW_FAILED:
                break;
        }
        return sqlite_error(t->ses.db, last_code(t), t->ses.name, err);
}

static semel_code tx_claim(struct store_tx *tx, const struct command_claim *claim,
                           const struct store_label *label, int64_t wait_us,
                           struct command_answer *ret_answer, struct store_record *ret_rec,
                           semel_error *err)
{
        struct tx *t = tx_of(tx);
        semel_error local = {0};
        (void)wait_us; /* only this transaction can change the row */
        enum row_result result =
                sqlite_claim(&t->ses, claim, label, ret_answer, ret_rec, &local);
        semel_code code = result_code(t, result, &local);
        if (code != SEMEL_OK)
                (void)err_copy(err, &local);
        return code;
}

static semel_code tx_complete(struct store_tx *tx, const struct command_write *write,
                              const struct store_reply *rep, semel_error *err)
{
        struct tx *t = tx_of(tx);
        semel_error local = {0};
        struct command_write_answer answer = {0};
        if (sqlite3_get_autocommit(t->ses.db))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "the command ended the transaction that it ran in: leave COMMIT and "
                               "ROLLBACK to the caller");
        enum row_result result = sqlite_write(&t->ses, write, rep, &answer, &local);
        semel_code code = result_code(t, result, &local);
        if (code == SEMEL_OK && answer.outcome == COMMAND_LOST)
                code = err_set(&local, SEMEL_ERR_LOST,
                               "the command's claim is gone: it was rolled back, or the key was "
                               "resolved by hand");
        if (code != SEMEL_OK)
                (void)err_copy(err, &local);
        return code;
}

static semel_code tx_undo(struct store_tx *tx, semel_error *err)
{
        struct tx *t = tx_of(tx);
        if (sqlite3_get_autocommit(t->ses.db))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "the transaction is over already: SQLite rolled it back, or the "
                               "command did");
        int rc = session_run(&t->ses, SQL_ROLLBACK_SAVEPOINT);
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(t->ses.db, rc, t->ses.name, err);
}

const struct store_tx_vt store_sqlite_tx = {
        .begin = tx_begin,
        .claim = tx_claim,
        .complete = tx_complete,
        .undo = tx_undo,
        .end = tx_end,
};
