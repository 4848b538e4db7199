/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the user's own as a SQLite outbox: the presets, and what VACUUM does to them.
 */
#include "sqlite_outbox_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fault_vfs.h"
#include "store/sqlite/sqlite_store.h"

static void run_mapping_script(sqlite3 *db, const struct outbox_mapping *m)
{
        struct buf script;
        buf_init(&script, 1 << 16);
        assert_int_equal(store_sqlite_driver.print_mapping(m, &script, NULL), SEMEL_OK);
        db_exec(db, buf_cstr(&script));
        buf_release(&script);
}

static void the_tutorials_table_is_published_too(void **state)
{
        static const struct outbox_mapping m = {.preset = "tutorial", .topic = "orders"};
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        semel_error err = {0};
        struct outbox_view view;
        db_exec(db, "CREATE TABLE outbox_event (id TEXT PRIMARY KEY, aggregate_id TEXT, payload TEXT,"
                    " status TEXT NOT NULL DEFAULT 'PENDING', locked_at TEXT, created_at TEXT,"
                    " published_at TEXT)");
        struct outbox_session *s = open_mapped(w, &m);
        assert_int_equal(s->vt->check(s, OUTBOX_OWNED, soon(), &view, &err), SEMEL_ERR_SCHEMA);
        assert_non_null(strstr(err.text, "attempts, next_attempt_at, last_error"));
        assert_non_null(strstr(err.text, "semel migrate --for-table outbox_event"));
        run_mapping_script(db, &m);
        db_exec(db, "INSERT INTO outbox_event (id, aggregate_id, payload, created_at) VALUES "
                    "('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'o-7', '{\"n\": 1}', datetime('now')),"
                    "('not a uuid', 'o-7', '{\"n\": 2}', datetime('now')),"
                    "('third', 'o-8', '{\"n\": 3}', datetime('now'))");
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 3);
        for (size_t i = 0; i < rows.n; i++) {
                assert_true(span_eq(rows.row[i].event.topic, span_str("orders")));
                assert_in_range(rows.now_us - rows.row[i].created_us + 2 * SECOND, 0, 60 * SECOND);
                if (rows.row[i].id == 1)
                        assert_int_equal(rows.row[i].event.id[0], 0x6b);
        }
        /* One of each verdict, by rowid. */
        struct outbox_mark marks[3];
        for (size_t i = 0; i < 3; i++)
                marks[i] = (struct outbox_mark){.id = rows.row[i].id,
                                                .slot = rows.row[i].slot,
                                                .verdict = rows.row[i].id == 1   ? OUTBOX_DONE
                                                           : rows.row[i].id == 2 ? OUTBOX_RETRY
                                                                                 : OUTBOX_BURY,
                                                .retry_after_us = HOUR,
                                                .reason = "no"};
        struct outbox_marked marked;
        assert_int_equal(s->vt->mark(s, OUTBOX_OWNED, true, o.slots, o.n, marks, 3, soon(), &marked,
                                     NULL),
                         SEMEL_OK);
        assert_int_equal(marked.marked, 3);
        outbox_rows_release(&rows);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM outbox_event WHERE (rowid = 1 AND status = "
                                      "'PUBLISHED' AND published_at > 0) OR (rowid = 2 AND status = "
                                      "'PENDING' AND attempts = 1 AND last_error = 'no') OR (rowid = 3 "
                                      "AND status = 'DEAD')"),
                         3);
        int64_t n = 0;
        assert_int_equal(s->vt->retry(s, 3, "ada", soon(), &n, NULL), SEMEL_OK);
        assert_int_equal(n, 1);
        assert_int_equal(s->vt->prune(s, 0, false, soon(), &n, NULL), SEMEL_OK);
        assert_int_equal(n, 1);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM outbox_event"), 2);
        s->vt->close(s);
        (void)sqlite3_close(db);
}

static void debeziums_table_is_published_too(void **state)
{
        static const struct outbox_mapping m = {.preset = "debezium", .table = "my \"outbox"};
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        db_exec(db, "CREATE TABLE \"my \"\"outbox\" (id TEXT, aggregatetype TEXT, aggregateid INTEGER, "
                    "type TEXT, payload TEXT)");
        run_mapping_script(db, &m);
        db_exec(db, "INSERT INTO \"my \"\"outbox\" (id, aggregatetype, aggregateid, type, payload) "
                    "VALUES ('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'order', 7, 'Confirmed', '{}')");
        struct outbox_session *s = open_mapped(w, &m);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 1);
        assert_true(span_eq(rows.row[0].event.topic, span_str("outbox.event.order")));
        assert_true(span_eq(rows.row[0].event.key, span_str("7")));
        assert_int_equal(rows.row[0].event.header_count, 1);
        assert_true(span_eq(rows.row[0].event.headers[0].name, span_str("id"))); /* as its router does */
        struct outbox_stats stats = {0};
        assert_int_equal(rows.row[0].created_us, 0); /* it does not say when it was made */
        assert_int_equal(s->vt->stats(s, soon(), &stats, NULL), SEMEL_OK);
        assert_int_equal(stats.oldest_pending_us, -1);
        stats.release(stats.driver);
        assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_DONE).marked, 1);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM \"my \"\"outbox\""), 0);
        s->vt->close(s);
        (void)sqlite3_close(db);
}

/* VACUUM numbers rows anew where no INTEGER PRIMARY KEY names them: what was read under the old numbers is
 * not marked. */
static void a_vacuum_between_fetch_and_mark_marks_nothing_wrong(void **state)
{
        static const struct outbox_mapping m = {.preset = "tutorial", .topic = "orders"};
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        db_exec(db, "CREATE TABLE outbox_event (id TEXT PRIMARY KEY, aggregate_id TEXT, payload TEXT,"
                    " status TEXT NOT NULL DEFAULT 'PENDING', locked_at TEXT, created_at TEXT,"
                    " published_at TEXT)");
        run_mapping_script(db, &m);
        db_exec(db, "INSERT INTO outbox_event (id, aggregate_id, payload) VALUES ('a', 'x', '1'), "
                    "('b', 'y', '2'), ('c', 'z', '3'); DELETE FROM outbox_event WHERE id = 'a'");
        struct outbox_session *s = open_mapped(w, &m);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 2);
        db_exec(db, "VACUUM");
        struct outbox_marked marked = mark_all(s, &o, false, &rows, OUTBOX_DONE);
        assert_int_equal(marked.marked, 0);
        assert_int_equal(marked.changed, 2);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM outbox_event"), 2);
        rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_DONE).marked, 2);
        s->vt->close(s);
        (void)sqlite3_close(db);
}

/* -- numbers that come again ---------------------------------------------------------------------- */

static const struct outbox_mapping texts = {.preset = "tutorial", .topic = "orders"};

enum { MANY = 1200, LEFT = 200 }; /* marks are committed by the thousand */

/* Rows of a table with a key of text, on a disk that fails when it is told to. */
static struct outbox_session *open_texts(struct sqlite_world *w, sqlite3 *db)
{
        const struct sqlite_hooks hooks = {.vfs = FAULT_VFS};
        struct outbox_session *s = NULL;
        db_exec(db, "CREATE TABLE outbox_event (id TEXT PRIMARY KEY, aggregate_id TEXT, payload TEXT,"
                    " status TEXT NOT NULL DEFAULT 'PENDING', locked_at TEXT, created_at TEXT,"
                    " published_at TEXT)");
        run_mapping_script(db, &texts);
        char *sql = sqlite3_mprintf("WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i - 1 FROM n WHERE "
                                    "i > 1) INSERT INTO outbox_event (rowid, id, aggregate_id, payload) "
                                    "SELECT i, 'old ' || i, 'k', '1' FROM n", MANY);
        db_exec(db, sql);
        sqlite3_free(sql);
        fault_vfs_register();
        fault_clear();
        assert_int_equal(sqlite_outbox_open_with(w->url, &texts, &hooks, &s, NULL), SEMEL_OK);
        return s;
}

/* The disk is full once the first thousand marks are committed, which are those of the largest numbers; before all
 * of them are issued again somebody inserts rows, which SQLite gives numbers of those that are gone. */
static void mark_over_new_rows(struct sqlite_world *w, enum outbox_verdict again)
{
        sqlite3 *db = world_db(w);
        struct outbox_session *s = open_texts(w, db);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, MANY, NULL, 0);
        struct outbox_marked marked = {0};
        assert_int_equal(rows.n, MANY);
        for (size_t i = 0; i < MANY / 2; i++) {
                struct outbox_row row = rows.row[i];
                rows.row[i] = rows.row[MANY - 1 - i];
                rows.row[MANY - 1 - i] = row;
        }
        fault_clear();
        fault.write_code = SQLITE_FULL;
        fault.writes_after_syncs = 1;
        fault.writes = 1000000;
        assert_int_equal(mark_rows(s, &o, false, &rows, OUTBOX_DONE, &marked, NULL),
                         SEMEL_ERR_STORE_FULL);
        fault_clear();
        assert_int_equal(db_int64(db, "SELECT count(*) FROM outbox_event"), LEFT);
        db_exec(db, "INSERT INTO outbox_event (id, aggregate_id, payload) VALUES ('new 1', 'k', '2'), "
                    "('new 2', 'k', '3')");
        assert_int_equal(db_int64(db, "SELECT max(rowid) FROM outbox_event"), LEFT + 2);
        marked = mark_all(s, &o, false, &rows, again);
        assert_int_equal(marked.marked, LEFT);
        assert_int_equal(marked.changed, again == OUTBOX_DONE ? 0 : MANY - LEFT);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM outbox_event WHERE status = 'PENDING' AND "
                                      "attempts = 0 AND id LIKE 'new %'"),
                         2);
        s->vt->close(s);
        (void)sqlite3_close(db);
}

static void c1_a_new_row_with_an_old_number_is_not_deleted(void **state)
{
        mark_over_new_rows(*state, OUTBOX_DONE);
}

static void c1_a_new_row_with_an_old_number_is_not_buried(void **state)
{
        mark_over_new_rows(*state, OUTBOX_BURY);
}

static void c1_a_new_row_with_an_old_number_is_not_put_off(void **state)
{
        mark_over_new_rows(*state, OUTBOX_RETRY);
}

/* The event's id is the number itself: what SQLite gives again, no fence and no consumer can tell apart. */
static void a_table_whose_event_ids_come_again_is_refused(void **state)
{
        static const struct {
                const char *id;
                semel_code code;
        } cases[] = {{"id INTEGER PRIMARY KEY", SEMEL_ERR_SCHEMA},
                     {"id INTEGER PRIMARY KEY AUTOINCREMENT", SEMEL_OK},
                     {"id INT PRIMARY KEY", SEMEL_OK},
                     {"id TEXT PRIMARY KEY", SEMEL_OK},
                     {"id INTEGER, part INTEGER, PRIMARY KEY (id, part)", SEMEL_OK}};
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct outbox_view view;
                semel_error err = {0};
                char *sql = sqlite3_mprintf("DROP TABLE IF EXISTS outbox_event; CREATE TABLE outbox_event "
                                            "(aggregate_id TEXT, payload TEXT, status TEXT, published_at "
                                            "TEXT, %s)",
                                            cases[i].id);
                db_exec(db, sql);
                sqlite3_free(sql);
                run_mapping_script(db, &texts);
                struct outbox_session *s = open_mapped(w, &texts);
                assert_int_equal(s->vt->check(s, OUTBOX_OWNED, soon(), &view, &err), cases[i].code);
                if (cases[i].code != SEMEL_OK)
                        assert_non_null(strstr(err.text, "INTEGER PRIMARY KEY AUTOINCREMENT"));
                s->vt->close(s);
        }
        (void)sqlite3_close(db);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, outbox_setup, outbox_teardown)
        const struct CMUnitTest tests[] = {
                TEST(the_tutorials_table_is_published_too),
                TEST(debeziums_table_is_published_too),
                TEST(a_vacuum_between_fetch_and_mark_marks_nothing_wrong),
                TEST(c1_a_new_row_with_an_old_number_is_not_deleted),
                TEST(c1_a_new_row_with_an_old_number_is_not_buried),
                TEST(c1_a_new_row_with_an_old_number_is_not_put_off),
                TEST(a_table_whose_event_ids_come_again_is_refused),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
