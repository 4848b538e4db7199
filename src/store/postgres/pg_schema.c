/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_schema: create and upgrade the schema, and print what that would be.
 *
 * One transaction under an advisory lock: ten that start at once take turns, and none leaves
 * half a schema behind.
 */
#include <stdio.h>

#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_store.h"

/* What each version added, in order.  A step never changes once it was released: what it made is
 * changed by a step of a later version.  PG_SCHEMA_VERSION is the last one's. */
static const struct {
        int version;
        const char *sql;
} steps[] = {
        {1, sql_postgres_schema_3_command},
        {1, sql_postgres_schema_4_body_storage},
        {1, sql_postgres_schema_5_created_index},
        {1, sql_postgres_schema_6_audit},
        {1, sql_postgres_schema_7_view},
        /* 2: the outbox */
        {2, sql_postgres_schema_v2_audit},
        {2, sql_postgres_schema_v2_slot_of},
        {2, sql_postgres_schema_v2_outbox},
        {2, sql_postgres_schema_v2_outbox_storage},
        {2, sql_postgres_schema_v2_index_open},
        {2, sql_postgres_schema_v2_index_held},
        {2, sql_postgres_schema_v2_index_dead},
        {2, sql_postgres_schema_v2_index_published},
        {2, sql_postgres_schema_v2_relay_slot},
        {2, sql_postgres_schema_v2_relay_slot_rows},
        {2, sql_postgres_schema_v2_relay_member},
        {2, sql_postgres_schema_v2_outbox_meta},
        {2, sql_postgres_schema_v2_outbox_meta_row},
        {2, sql_postgres_schema_v2_publish},
        {2, sql_postgres_schema_v2_publish_json},
        {2, sql_postgres_schema_v2_notify},
        /* 3: the inbox */
        {3, sql_postgres_schema_v3_1_processed},
        {3, sql_postgres_schema_v3_2_processed_at},
        {3, sql_postgres_schema_v3_3_attempt},
        {3, sql_postgres_schema_v3_4_letter},
        {3, sql_postgres_schema_v3_5_letter_open},
        {3, sql_postgres_schema_v3_6_letter_nameless},
        {3, sql_postgres_schema_v3_7_alarm},
        {3, sql_postgres_schema_v3_8_first_time},
};
enum { STEPS = sizeof steps / sizeof *steps };

semel_code pg_schema_check(int64_t version, semel_error *err)
{
        if (version < PG_SCHEMA_VERSION)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the semel schema has version %lld and this program needs %d; run "
                               "`semel migrate`", (long long)version, PG_SCHEMA_VERSION);
        if (version > PG_SCHEMA_VERSION)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the semel schema has version %lld, newer than this program's %d; "
                               "upgrade semel here", (long long)version, PG_SCHEMA_VERSION);
        return SEMEL_OK;
}

static semel_code run(PGconn *pg, const char *sql, semel_error *err)
{
        PGresult *res = PQexec(pg, sql);
        ExecStatusType status = PQresultStatus(res);
        semel_code code = SEMEL_OK;
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
                code = pg_error_from_result(err, res);
        PQclear(res);
        return code;
}

/* One value as text; "" for none or NULL. */
static semel_code ask(PGconn *pg, const char *sql, char *out, size_t n, semel_error *err)
{
        PGresult *res = PQexec(pg, sql);
        semel_code code = SEMEL_OK;
        if (PQresultStatus(res) != PGRES_TUPLES_OK)
                code = pg_error_from_result(err, res);
        else
                (void)snprintf(out, n, "%s", PQntuples(res) ? PQgetvalue(res, 0, 0) : "");
        PQclear(res);
        return code;
}

static semel_code set_version(PGconn *pg, int version, semel_error *err)
{
        char text[16];
        const char *value = text;
        (void)snprintf(text, sizeof text, "%d", version);
        PGresult *res = PQexecParams(pg, sql_postgres_schema_set_version, 1, NULL, &value, NULL,
                                     NULL, 0);
        semel_code code = SEMEL_OK;
        if (PQresultStatus(res) != PGRES_COMMAND_OK)
                code = pg_error_from_result(err, res);
        PQclear(res);
        return code;
}

static semel_code read_version(PGconn *pg, int *ret_version, semel_error *err)
{
        char text[16] = "";
        semel_code code = ask(pg, sql_postgres_schema_has_version, text, sizeof text, err);
        if (code != SEMEL_OK)
                return code;
        int version = 0;
        if (text[0] == 't') {
                code = ask(pg, sql_postgres_select_version, text, sizeof text, err);
                if (code != SEMEL_OK)
                        return code;
                (void)sscanf(text, "%d", &version);
        }
        *ret_version = version;
        return SEMEL_OK;
}

static semel_code migrate_in_tx(PGconn *pg, semel_error *err)
{
        int version = 0;
        semel_code code = run(pg, sql_postgres_schema_lock, err);
        if (code == SEMEL_OK)
                code = read_version(pg, &version, err);
        if (code != SEMEL_OK || version == PG_SCHEMA_VERSION)
                return code;
        if (version > PG_SCHEMA_VERSION)
                return pg_schema_check(version, err);
        code = run(pg, sql_postgres_schema_1_schema, err);
        if (code == SEMEL_OK)
                code = run(pg, sql_postgres_schema_2_version, err);
        for (int i = 0; i < STEPS && code == SEMEL_OK; i++) {
                if (steps[i].version > version)
                        code = run(pg, steps[i].sql, err);
        }
        if (code == SEMEL_OK)
                code = set_version(pg, PG_SCHEMA_VERSION, err);
        return code;
}

/* Connect, and one transaction around `work`. */
static semel_code in_tx(const char *url, semel_code (*work)(PGconn *pg, semel_error *err),
                        semel_error *err)
{
        struct pg_config config;
        semel_code code = pg_config_parse(url, &config, err);
        if (code != SEMEL_OK)
                return code;
        PGconn *pg = PQconnectStartParams((const char *const *)config.keywords,
                                          (const char *const *)config.values, 0);
        if (!pg) {
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a connection");
                goto out;
        }
        (void)PQsetErrorVerbosity(pg, PQERRORS_VERBOSE); /* for the SQLSTATE */
        PQreset(pg);                                     /* connect, and wait for it */
        (void)PQsetNoticeReceiver(pg, pg_ignore_notice, NULL);
        if (PQstatus(pg) != CONNECTION_OK) {
                code = pg_error_from_connection(err, pg);
                goto out;
        }
        code = run(pg, "BEGIN ISOLATION LEVEL READ COMMITTED", err);
        if (code == SEMEL_OK)
                code = work(pg, err);
        if (code == SEMEL_OK)
                code = run(pg, "COMMIT", err);
out:
        PQfinish(pg); /* rolls back what is not committed */
        pg_config_release(&config);
        return code;
}

semel_code pg_schema_migrate(const char *url, semel_error *err)
{
        return in_tx(url, migrate_in_tx, err);
}

/* Rule C11: off unless asked for, since notifying commits take turns. */
static semel_code notify_off(PGconn *pg, semel_error *err)
{
        return run(pg, sql_postgres_notify_off, err);
}

static semel_code notify_on(PGconn *pg, semel_error *err)
{
        semel_code code = notify_off(pg, err);
        if (code == SEMEL_OK)
                code = run(pg, sql_postgres_notify_function, err);
        return code == SEMEL_OK ? run(pg, sql_postgres_notify_on, err) : code;
}

semel_code pg_schema_notify(const char *url, bool on, semel_error *err)
{
        return in_tx(url, on ? notify_on : notify_off, err);
}

/* -- print --------------------------------------------------------------------------------- */

static int print_schema(struct buf *out)
{
        int rc = buf_append_str(out, "BEGIN;\n");
        if (rc == BUF_OK)
                rc = buf_printf(out, "%s;\n%s;\n", sql_postgres_schema_1_schema,
                                sql_postgres_schema_2_version);
        for (int i = 0; i < STEPS && rc == BUF_OK; i++)
                rc = buf_printf(out, "%s;\n", steps[i].sql);
        if (rc == BUF_OK)
                rc = buf_printf(out,
                                "INSERT INTO semel.schema_version (version) VALUES (%d);\n"
                                "COMMIT;\n", PG_SCHEMA_VERSION);
        return rc;
}

/* A name as SQL's quoted identifier. */
static int print_name(struct buf *out, const char *name)
{
        int rc = buf_append_byte(out, '"');
        for (; *name && rc == BUF_OK; name++) {
                rc = buf_append_byte(out, (uint8_t)*name);
                if (*name == '"' && rc == BUF_OK)
                        rc = buf_append_byte(out, '"');
        }
        return rc == BUF_OK ? buf_append_byte(out, '"') : rc;
}

static int print_grant_list(const char *const *grants, size_t n, const char *role,
                            struct buf *out)
{
        int rc = BUF_OK;
        for (size_t i = 0; i < n && rc == BUF_OK; i++) {
                rc = buf_append_str(out, grants[i]);
                if (rc == BUF_OK)
                        rc = print_name(out, role);
                if (rc == BUF_OK)
                        rc = buf_append_str(out, ";\n");
        }
        return rc;
}

/* What all programs of semel and the library need, and nothing else.  A service that only appends to
 * the outbox needs the fewest: docs/outbox.md. */
static int print_grants(const char *role, struct buf *out)
{
        static const char *const grants[] = {
                "GRANT USAGE ON SCHEMA semel TO ",
                "GRANT SELECT ON semel.schema_version TO ",
                "GRANT SELECT, INSERT, UPDATE, DELETE ON semel.command TO ",
                "GRANT SELECT, INSERT ON semel.audit TO ",
                "GRANT SELECT, INSERT, UPDATE, DELETE ON semel.outbox TO ",
                "GRANT SELECT, UPDATE ON semel.outbox_meta, semel.relay_slot TO ",
                "GRANT SELECT, INSERT, UPDATE, DELETE ON semel.relay_member TO ",
                ("GRANT SELECT, INSERT, UPDATE, DELETE ON semel.processed_event, "
                 "semel.inbox_attempt, semel.dead_letter, semel.inbox_alarm TO "),
        };
        return print_grant_list(grants, sizeof grants / sizeof *grants, role, out);
}

/* For services that leave events and do nothing else here. */
static int print_append_grants(const char *role, struct buf *out)
{
        static const char *const grants[] = {
                "GRANT USAGE ON SCHEMA semel TO ",
                "GRANT INSERT, SELECT (event_id) ON semel.outbox TO ",
        };
        return print_grant_list(grants, sizeof grants / sizeof *grants, role, out);
}

semel_code pg_schema_print(const char *what, const char *role, struct buf *out, semel_error *err)
{
        int rc;
        if (strcmp(what, "schema") == 0)
                rc = print_schema(out);
        else if (strcmp(what, "grants") == 0 && role && *role)
                rc = print_grants(role, out);
        else if (strcmp(what, "append-grants") == 0 && role && *role)
                rc = print_append_grants(role, out);
        else
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "print \"schema\", or \"grants\" or \"append-grants\" and the name of a "
                               "role");
        return rc == BUF_OK ? SEMEL_OK
                            : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the script");
}
