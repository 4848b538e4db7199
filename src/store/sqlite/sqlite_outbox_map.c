/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_map: outbox tables that exist already.
 *
 * The connection gets a temporary view `semel_outbox` over the user's table, with triggers that pass
 * changes on: the name is found there before the real table, so that every statement works on
 * both.  The order column is the rowid, which every SQLite table has; VACUUM may change it where
 * no INTEGER PRIMARY KEY stands for it, and a mark notices that (schema_cookie).  SQLite gives the
 * largest one again when its row is gone, and a mark looks at the event's id too.
 */
#include "store/sqlite/sqlite_outbox.h"

#include <stdlib.h>

/* A column of the view, and where it comes from. */
struct column {
        const char *name;
        const char *from; /* the user's column */
        const char *add;  /* as `semel migrate --for-table` adds it; NULL: the table is not of this
                             preset without it */
};

struct preset {
        const char *name, *table;
        const char *topic_column; /* NULL: the mapping's topic */
        struct column columns[14];
};

#define RETRY_COLUMNS                                                                              \
        {"attempts", "attempts", "INTEGER NOT NULL DEFAULT 0"},                                    \
        {"next_attempt_at", "next_attempt_at", "INTEGER"},                                         \
        {"last_error", "last_error", "TEXT"}

static const struct preset presets[] = {
        {.name = "semel", .table = "semel_outbox"},
        {.name = "tutorial",
         .table = "outbox_event",
         .columns = {{"event_id", "id", NULL},
                     {"key", "aggregate_id", NULL},
                     {"payload", "payload", NULL},
                     {"status", "status", NULL},
                     {"published_at", "published_at", NULL},
                     RETRY_COLUMNS}},
        {.name = "debezium",
         .table = "outbox",
         .topic_column = "aggregatetype",
         .columns = {{"event_id", "id", NULL},
                     {"key", "aggregateid", NULL},
                     {"payload", "payload", NULL},
                     {"status", "status", "TEXT NOT NULL DEFAULT 'PENDING'"},
                     {"published_at", "published_at", "INTEGER"},
                     RETRY_COLUMNS}},
};

static const struct preset *preset_of(const char *name)
{
        for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
                if (strcmp(presets[i].name, name ? name : "semel") == 0)
                        return &presets[i];
        return NULL;
}

bool outbox_is_mapped(const struct outbox_mapping *m)
{
        return strcmp(m->preset, "semel") != 0;
}

/* -- the mapping ------------------------------------------------------------------------------ */

static bool copy(const char *from, const char **ret)
{
        *ret = from ? strdup(from) : NULL;
        return !from || *ret;
}

semel_code outbox_mapping_copy(const struct outbox_mapping *m, struct outbox_mapping *ret,
                               semel_error *err)
{
        const struct preset *p = preset_of(m->preset);
        if (!p)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "there is no table preset \"%.32s\": semel, tutorial or debezium",
                               m->preset);
        if (p == &presets[0] && m->table && strcmp(m->table, p->table) != 0)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the preset semel has the table semel_outbox; for a table of your own "
                               "choose tutorial or debezium");
        if (p->table && !p->topic_column && p != &presets[0] && !m->topic)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a table of preset %s has no column for the topic: give one, fixed, "
                               "for all rows",
                               p->name);
        if (m->topic && strchr(m->topic, '\''))
                return err_set(err, SEMEL_ERR_ARGUMENT, "a topic has no quotes");
        struct outbox_mapping copied = {.unordered = m->unordered};
        if (!copy(p->name, &copied.preset) ||
            !copy(m->table ? m->table : p->table, &copied.table) || !copy(m->topic, &copied.topic)) {
                outbox_mapping_release(&copied);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a table's mapping");
        }
        *ret = copied;
        return SEMEL_OK;
}

void outbox_mapping_release(struct outbox_mapping *m)
{
        free((void *)(uintptr_t)m->preset);
        free((void *)(uintptr_t)m->table);
        free((void *)(uintptr_t)m->topic);
        *m = (struct outbox_mapping){0};
}

/* -- what the table has --------------------------------------------------------------------------- */

/* 1: it has; 0: it has not; -1: SQLite failed. */
static int query_has(sqlite3 *db, const char *sql, const char *table, const char *column)
{
        sqlite3_stmt *stmt = NULL;
        int has = -1;
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK) {
                bind_str(stmt, 1, table);
                bind_str(stmt, 2, column);
                int rc = sqlite3_step(stmt);
                has = rc == SQLITE_ROW ? sqlite3_column_int(stmt, 0) != 0 : -1;
        }
        (void)sqlite3_finalize(stmt);
        return has;
}

static int has_column(sqlite3 *db, const char *table, const char *column)
{
        return query_has(db,
                         "SELECT count(*) FROM pragma_table_info(?1, 'main') "
                         "WHERE name = ?2 COLLATE NOCASE",
                         table, column);
}

static const char *from_of(const struct preset *p, const char *name)
{
        for (const struct column *c = p->columns; c->name; c++)
                if (strcmp(c->name, name) == 0)
                        return c->from;
        return "";
}

/* The event's id is the rowid, and SQLite may give one again whose row was deleted: consumers that
 * remember events would take the new one for the old, and so would a mark that is issued again. */
static int ids_come_again(sqlite3 *db, const char *table, const char *column)
{
        const char *type = NULL;
        int is_key = 0, counts_on = 0, has_others;
        if (sqlite3_table_column_metadata(db, "main", table, column, &type, NULL, NULL, &is_key,
                                          &counts_on) != SQLITE_OK)
                return -1;
        has_others = query_has(db,
                               "SELECT count(*) FROM pragma_table_info(?1, 'main') "
                               "WHERE pk > 0 AND name <> ?2 COLLATE NOCASE",
                               table, column);
        if (has_others < 0)
                return -1;
        return is_key && !counts_on && !has_others && type && sqlite3_stricmp(type, "INTEGER") == 0;
}

static semel_code check_ids(sqlite3 *db, const char *name, const char *table, const char *column,
                            semel_error *err)
{
        int again = ids_come_again(db, table, column);
        if (again < 0)
                return sqlite_error(db, sqlite3_extended_errcode(db), name, err);
        if (again == 0)
                return SEMEL_OK;
        return err_set(err, SEMEL_ERR_SCHEMA,
                       "SQLite gives the ids of the table %.64s of %s again once rows are deleted, and "
                       "consumers would take a new event for an old one: make %.32s INTEGER PRIMARY KEY "
                       "AUTOINCREMENT, or TEXT with a uuid",
                       table, name, column);
}

static semel_code check_table(sqlite3 *db, const char *name, const struct outbox_mapping *m,
                              const struct preset *p, semel_error *err)
{
        char missing[256] = "";
        int is_table = query_has(db,
                                 "SELECT count(*) FROM pragma_table_list(?1) WHERE schema = 'main' "
                                 "AND type = 'table' AND wr = 0",
                                 m->table, NULL);
        if (is_table < 0)
                return sqlite_error(db, sqlite3_extended_errcode(db), name, err);
        if (is_table == 0)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "%s has no table %.64s with a rowid: name the right one with --table",
                               name, m->table);
        for (const struct column *c = p->columns; c->name; c++) {
                int has = has_column(db, m->table, c->from);
                if (has < 0)
                        return sqlite_error(db, sqlite3_extended_errcode(db), name, err);
                size_t at = strlen(missing);
                if (!has)
                        (void)sqlite3_snprintf((int)(sizeof missing - at), missing + at, "%s%s",
                                               at ? ", " : "", c->from);
        }
        if (*missing)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the table %.64s of %s lacks %s: `semel migrate --for-table %.64s` "
                               "prints what to run",
                               m->table, name, missing, m->table);
        return check_ids(db, name, m->table, from_of(p, "event_id"), err);
}

/* -- the view ------------------------------------------------------------------------------------- */

/* created_at is theirs and of any form, so text is read as a date; NULL: the row does not say. */
static char *created_sql(sqlite3 *db, const char *table)
{
        if (has_column(db, table, "created_at") != 1)
                return sqlite3_mprintf("NULL");
        return sqlite3_mprintf(
                "CASE typeof(created_at) WHEN 'text' THEN "
                "CAST((julianday(created_at) - 2440587.5) * 86400000 AS INTEGER) * 1000 "
                "WHEN 'integer' THEN nullif(created_at, 0) * CASE WHEN created_at < 100000000000 THEN "
                "1000000 WHEN created_at < 100000000000000 THEN 1000 ELSE 1 END END");
}

/* debezium: the topic is a prefix and the aggregate's type. */
static char *topic_sql(const struct outbox_mapping *m, const struct preset *p)
{
        if (!p->topic_column)
                return sqlite3_mprintf("%Q", m->topic);
        return sqlite3_mprintf("%Q || \"%w\"", m->topic ? m->topic : "outbox.event.",
                               p->topic_column);
}

static char *view_sql(sqlite3 *db, const struct outbox_mapping *m, const struct preset *p)
{
        char *topic = topic_sql(m, p), *created = created_sql(db, m->table);
        const char *headers = has_column(db, m->table, "headers") == 1 ? "headers" : "NULL";
        if (strcmp(p->name, "debezium") == 0) /* as its event router does */
                headers = "CASE typeof(id) WHEN 'text' THEN json_object('id', id) END";
        const char *trace = has_column(db, m->table, "traceparent") == 1 ? "traceparent" : "NULL";
        char *sql = NULL;
        if (topic && created)
                sql = sqlite3_mprintf(
                        "CREATE TEMP VIEW semel_outbox AS SELECT rowid AS id, \"%w\" AS event_id, "
                        "%s AS topic, \"%w\" AS key, \"%w\" AS payload, %s AS headers, "
                        "%s AS traceparent, NULL AS \"partition\", status, attempts, "
                        "next_attempt_at, last_error, %s AS created_at, published_at "
                        "FROM main.\"%w\";"
                        "CREATE TEMP TRIGGER semel_outbox_delete INSTEAD OF DELETE ON semel_outbox "
                        "BEGIN DELETE FROM \"%w\" WHERE rowid = OLD.id; END;"
                        "CREATE TEMP TRIGGER semel_outbox_update INSTEAD OF UPDATE ON semel_outbox "
                        "BEGIN UPDATE \"%w\" SET status = NEW.status, attempts = NEW.attempts, "
                        "next_attempt_at = NEW.next_attempt_at, last_error = NEW.last_error, "
                        "published_at = NEW.published_at WHERE rowid = OLD.id; END",
                        from_of(p, "event_id"), topic, from_of(p, "key"), from_of(p, "payload"),
                        headers, trace, created, m->table, m->table, m->table);
        sqlite3_free(topic);
        sqlite3_free(created);
        return sql;
}

semel_code outbox_map(sqlite3 *db, const char *name, const struct outbox_mapping *m,
                      semel_error *err)
{
        const struct preset *p = preset_of(m->preset);
        if (!outbox_is_mapped(m))
                return SEMEL_OK;
        semel_code code = check_table(db, name, m, p, err);
        if (code != SEMEL_OK)
                return code;
        char *sql = view_sql(db, m, p);
        if (!sql)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a table's mapping");
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
                code = sqlite_error(db, sqlite3_extended_errcode(db), name, err);
        sqlite3_free(sql);
        return code;
}

/* -- what a table needs ------------------------------------------------------------------------------ */

/* Append what sqlite3_mprintf() made, and free it. */
static bool add(struct buf *out, char *sql)
{
        bool ok = sql && buf_append_str(out, sql) == BUF_OK;
        sqlite3_free(sql);
        return ok;
}

semel_code sqlite_outbox_print_mapping(const struct outbox_mapping *m, struct buf *out,
                                       semel_error *err)
{
        const struct preset *p = preset_of(m->preset);
        if (!p || p == &presets[0])
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "say which kind of table it is: --preset tutorial or --preset debezium");
        if (m->renamed_from)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--renamed-from is for PostgreSQL: a SQLite file has one outbox, whatever its "
                               "table is called");
        const char *table = m->table ? m->table : p->table;
        bool ok = add(out, sqlite3_mprintf("-- What the relay needs in a table of preset %s; rows that "
                                           "are there already count as waiting.\n",
                                           p->name));
        for (const struct column *c = p->columns; c->name; c++)
                if (c->add)
                        ok = ok && add(out, sqlite3_mprintf("ALTER TABLE \"%w\" ADD COLUMN %s %s;\n",
                                                            table, c->from, c->add));
        ok = ok && add(out, sqlite3_mprintf("CREATE INDEX \"%w_pending\" ON \"%w\" (status) WHERE "
                                            "status = 'PENDING';\n",
                                            table, table));
        ok = ok && add(out, sqlite3_mprintf("CREATE INDEX \"%w_retry\" ON \"%w\" (\"%w\") WHERE "
                                            "status = 'PENDING' AND attempts > 0;\n",
                                            table, table, from_of(p, "key")));
        ok = ok && add(out, sqlite3_mprintf("CREATE INDEX \"%w_dead\" ON \"%w\" (status) WHERE "
                                            "status = 'DEAD';\n"
                                            "CREATE INDEX \"%w_published\" ON \"%w\" (published_at) "
                                            "WHERE status = 'PUBLISHED';\n",
                                            table, table, table, table));
        return ok ? SEMEL_OK : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory to print statements");
}
