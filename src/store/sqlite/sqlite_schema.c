/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_schema: see sqlite_schema.h.
 */
#include "store/sqlite/sqlite_schema.h"

#include "sql_sqlite.h"
#include "store/sqlite/sqlite_session.h"

static const char *const steps[SQLITE_SCHEMA_VERSION] = {
        sql_sqlite_schema_1_command,
        sql_sqlite_schema_2_outbox,
        sql_sqlite_schema_3_inbox,
};

const char *schema_step(int version)
{
        return steps[version - 1];
}

semel_code schema_check_version(const char *name, int64_t version, semel_error *err)
{
        if (version > SQLITE_SCHEMA_VERSION)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "%s was made by a newer semel (schema %lld, this one knows %d): "
                               "upgrade this program",
                               name, (long long)version, SQLITE_SCHEMA_VERSION);
        if (version < SQLITE_SCHEMA_VERSION)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "%s has schema %lld and %d is needed: run `semel migrate`", name,
                               (long long)version, SQLITE_SCHEMA_VERSION);
        return SEMEL_OK;
}

/* The first column of the first row; 0 when there is none. */
static int query_int64(sqlite3 *db, const char *sql, int64_t *ret)
{
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
        if (rc == SQLITE_OK)
                rc = sqlite3_step(stmt);
        int64_t value = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
        int final = sqlite3_finalize(stmt);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
                return final != SQLITE_OK ? final : rc;
        *ret = value;
        return SQLITE_OK;
}

static int insert_version(sqlite3 *db, int version, int64_t wall_us)
{
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(db, sql_sqlite_insert_version, -1, &stmt, NULL);
        if (rc != SQLITE_OK)
                return rc;
        (void)sqlite3_bind_int(stmt, 1, version);
        (void)sqlite3_bind_int64(stmt, 2, wall_us);
        rc = sqlite3_step(stmt);
        int final = sqlite3_finalize(stmt);
        return rc == SQLITE_DONE ? SQLITE_OK : final;
}

/* The steps from version `have` to ours. */
static int run_steps(sqlite3 *db, int64_t have, int64_t wall_us)
{
        int rc = SQLITE_OK;
        for (int v = (int)have + 1; v <= SQLITE_SCHEMA_VERSION && rc == SQLITE_OK; v++) {
                rc = sqlite3_exec(db, schema_step(v), NULL, NULL, NULL);
                if (rc == SQLITE_OK)
                        rc = insert_version(db, v, wall_us);
        }
        return rc;
}

/* In the transaction: tables, version, first mark. */
static semel_code create_all(struct sqlite_session *ses, const struct sys_clock *clock,
                             const struct sqlite_boot_id *boot_id, semel_error *err)
{
        int64_t wall_us = clock->wall_us(clock->arg);
        int rc = run_steps(ses->db, 0, wall_us);
        if (rc == SQLITE_OK) {
                sqlite_mark_init(&ses->mark, boot_id, clock->boot_us(clock->arg), wall_us);
                ses->mark_changed = true;
                rc = session_save_mark(ses);
        }
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(ses->db, rc, ses->name, err);
}

static semel_code load_version(struct sqlite_session *ses, int64_t *ret, semel_error *err)
{
        int rc = query_int64(ses->db, sql_sqlite_select_version, ret);
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(ses->db, rc, ses->name, err);
}

/* In a transaction: tables of our version, and the mark. */
static semel_code load_all(struct sqlite_session *ses, semel_error *err)
{
        int64_t version = 0;
        semel_code code = load_version(ses, &version, err);
        if (code == SEMEL_OK)
                code = schema_check_version(ses->name, version, err);
        return code == SEMEL_OK ? session_load_mark(ses, err) : code;
}

/* In the write transaction: an older schema becomes ours.  Programs of the older version that have the
 * file open see the new number in their next transaction, and stop. */
static semel_code upgrade_all(struct sqlite_session *ses, const struct sys_clock *clock,
                              semel_error *err)
{
        int64_t version = 0;
        semel_code code = load_version(ses, &version, err);
        if (code != SEMEL_OK || version < 1 || version >= SQLITE_SCHEMA_VERSION)
                return code;
        int rc = run_steps(ses->db, version, clock->wall_us(clock->arg));
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(ses->db, rc, ses->name, err);
}

/* In the write transaction: the tables are there; are they of this boot? */
static semel_code adopt_all(struct sqlite_session *ses, const struct sys_clock *clock,
                            const struct sqlite_boot_id *boot_id,
                            bool (*foreign_is_alive)(void *arg), void *arg, semel_error *err)
{
        semel_code code = upgrade_all(ses, clock, err);
        if (code == SEMEL_OK)
                code = load_all(ses, err);
        if (code != SEMEL_OK || memcmp(ses->mark.boot_id.b, boot_id->b, sizeof boot_id->b) == 0)
                return code;
        if (foreign_is_alive && foreign_is_alive(arg))
                return err_set(err, SEMEL_ERR_UNSAFE,
                               "%s is held open by a machine with another boot id, and their "
                               "clocks cannot be compared: use one machine, or PostgreSQL",
                               ses->name);
        sqlite_mark_reboot(&ses->mark, boot_id, clock->boot_us(clock->arg),
                           clock->wall_us(clock->arg));
        ses->mark_changed = true;
        int rc = session_save_mark(ses);
        return rc == SQLITE_OK ? SEMEL_OK : sqlite_error(ses->db, rc, ses->name, err);
}

/* Is all there already?  Asked without the write lock, which others may have for long. */
static bool is_ready(struct sqlite_session *ses, const struct sqlite_boot_id *boot_id)
{
        int64_t have = 0;
        if (session_run(ses, SQL_BEGIN_READ) != SQLITE_OK)
                return false;
        bool ready = query_int64(ses->db, sql_sqlite_select_tables, &have) == SQLITE_OK && have &&
                     load_all(ses, NULL) == SEMEL_OK &&
                     memcmp(ses->mark.boot_id.b, boot_id->b, sizeof boot_id->b) == 0;
        session_rollback(ses);
        return ready;
}

semel_code schema_ensure(sqlite3 *db, const char *name, const struct sys_clock *clock,
                         const struct sqlite_boot_id *boot_id,
                         bool (*foreign_is_alive)(void *arg), void *arg, semel_error *err)
{
        if (sqlite3_get_autocommit(db) == 0)
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "a transaction is open on the connection: make the tables of "
                               "semel before it begins");
        struct sqlite_session ses;
        session_init(&ses, db, name);
        int64_t have = 0;
        semel_code code = SEMEL_OK;
        int rc = SQLITE_OK;
        if (is_ready(&ses, boot_id))
                goto out;
        rc = session_run(&ses, SQL_BEGIN_IMMEDIATE);
        if (rc == SQLITE_OK)
                rc = query_int64(db, sql_sqlite_select_tables, &have);
        if (rc != SQLITE_OK) {
                code = sqlite_error(db, rc, name, err);
                goto out;
        }
        code = have ? adopt_all(&ses, clock, boot_id, foreign_is_alive, arg, err)
                    : create_all(&ses, clock, boot_id, err);
        if (code != SEMEL_OK)
                goto out;
        rc = session_run(&ses, SQL_COMMIT);
        if (rc != SQLITE_OK)
                code = sqlite_error(db, rc, name, err);
out:
        session_rollback(&ses);
        session_release(&ses);
        return code;
}
