/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a SQLite store: what is made, what is refused, and that the refusal says what to do.
 */
#include "sqlite_world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/limits.h"
#include "sql_sqlite.h"
#include "store/sqlite/sqlite_outbox.h"
#include "store/sqlite/sqlite_schema.h"
#include "store/sqlite/sqlite_store.h"

static const struct span small = {(const uint8_t *)"ok", 2};

static int setup(void **state)
{
        static struct sqlite_world w;
        world_init(&w);
        w.env.clock = &sys_clock_host;
        *state = &w;
        return 0;
}

static int teardown(void **state)
{
        world_release(*state);
        return 0;
}

static void expect_refusal(struct sqlite_world *w, semel_code code, const char *says)
{
        semel_error err = {0};
        semel_code got = world_open_fails(w, &err);
        if (got != code || !strstr(err.text, says))
                fail_msg("code %d, not %d, or no \"%s\" in: %s", (int)got, (int)code, says,
                         err.text);
        assert_null(strchr(err.text, '\n'));
}

static mode_t mode_of(const struct sqlite_world *w, const char *suffix)
{
        char name[128];
        struct stat st;
        (void)snprintf(name, sizeof name, "%s%s", w->path, suffix);
        assert_int_equal(stat(name, &st), 0);
        return st.st_mode & 07777;
}

static void the_file_is_its_owners_alone(void **state)
{
        struct sqlite_world *w = *state;
        mode_t before = umask(0);
        struct store *st = world_open(w);
        run_once(st, 1, small);
        assert_int_equal(mode_of(w, ""), 0600);
        assert_int_equal(mode_of(w, "-wal"), 0600);
        assert_int_equal(mode_of(w, "-semel-lock"), 0600);
        world_close(st);
        (void)umask(before);
}

static void every_statement_prepares(void **state)
{
        static const struct {
                const char *name, *sql;
        } all[] = {SQL_SQLITE_ALL};
        struct sqlite_world *w = *state;
        world_close(world_open(w));
        sqlite3 *db = world_db(w), *empty = NULL;
        assert_int_equal(sqlite3_open(":memory:", &empty), SQLITE_OK);
        assert_int_equal(outbox_functions(db, NULL), SQLITE_OK);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
                bool schema = strncmp(all[i].name, "schema_", 7) == 0;
                sqlite3_stmt *stmt = NULL;
                const char *tail = NULL;
                int rc = sqlite3_prepare_v2(schema ? empty : db, all[i].sql, -1, &stmt, &tail);
                if (rc != SQLITE_OK)
                        fail_msg("%s: %s", all[i].name, sqlite3_errmsg(db));
                (void)sqlite3_finalize(stmt);
                if (schema)
                        db_exec(empty, all[i].sql);
                else
                        assert_int_equal(strspn(tail, " \n"), strlen(tail)); /* one statement */
        }
        (void)sqlite3_close(empty);
        (void)sqlite3_close(db);
}

/* A3: no index but the key's and created_us. */
static void a3_the_only_secondary_index_is_on_created_us(void **state)
{
        struct sqlite_world *w = *state;
        world_close(world_open(w));
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND "
                                      "tbl_name = 'semel_command'"),
                         2);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM "
                                      "pragma_index_info('semel_command_created') "
                                      "WHERE name = 'created_us'"),
                         1);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM "
                                      "pragma_index_info('semel_command_created')"),
                         1);
        (void)sqlite3_close(db);
}

static void print_is_the_schema_itself(void **state)
{
        struct buf out;
        semel_error err = {0};
        sqlite3 *db = NULL;
        (void)state;
        buf_init(&out, 1 << 20);
        assert_int_equal(store_sqlite_driver.print("schema", NULL, &out, &err), SEMEL_OK);
        assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
        db_exec(db, buf_cstr(&out));
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_command"), 0);
        (void)sqlite3_close(db);
        buf_release(&out);
        assert_int_equal(store_sqlite_driver.print("grants", "r", &out, &err), SEMEL_ERR_ARGUMENT);
}

static void migrate_is_open(void **state)
{
        struct sqlite_world *w = *state;
        semel_error err = {0};
        assert_int_equal(store_sqlite_driver.migrate(w->url, &err), SEMEL_OK);
        assert_int_equal(store_sqlite_driver.migrate(w->url, &err), SEMEL_OK);
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT max(version) FROM semel_schema_version"),
                         SQLITE_SCHEMA_VERSION);
        (void)sqlite3_close(db);
}

/* A file of version 1, with a key in it. */
static void make_version_1(struct sqlite_world *w)
{
        struct store *st = world_open(w);
        run_once(st, 1, small);
        world_close(st);
        sqlite3 *db = world_db(w);
        db_exec(db, "DROP TABLE semel_outbox; DROP TABLE semel_outbox_meta;"
                    "DROP TABLE semel_relay_slot;"
                    "DROP TABLE semel_processed_event; DROP TABLE semel_inbox_attempt;"
                    "DROP TABLE semel_dead_letter; DROP TABLE semel_inbox_alarm;"
                    "ALTER TABLE semel_audit DROP COLUMN subject;"
                    "ALTER TABLE semel_audit DROP COLUMN row_id;"
                    "ALTER TABLE semel_audit DROP COLUMN row_count;"
                    "DELETE FROM semel_schema_version WHERE version > 1");
        (void)sqlite3_close(db);
}

static void an_older_schema_is_brought_up_to_date(void **state)
{
        struct sqlite_world *w = *state;
        make_version_1(w);
        struct store *st = world_open(w);
        struct command_claim claim = claim_of(1, false);
        assert_int_equal(try_claim(st, &claim), COMMAND_REPLAY);
        world_close(st);
        world_close(world_open(w));
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_schema_version"),
                         SQLITE_SCHEMA_VERSION);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_outbox_meta"), 1);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_relay_slot"), EVENT_SLOTS);
        (void)sqlite3_close(db);
}

static void ten_processes_upgrade_one_file(void **state)
{
        struct sqlite_world *w = *state;
        pid_t pid[10];
        make_version_1(w);
        for (int i = 0; i < 10; i++) {
                pid[i] = fork();
                if (pid[i] == 0)
                        _exit(store_sqlite_driver.migrate(w->url, NULL) == SEMEL_OK ? 0 : 1);
        }
        for (int i = 0; i < 10; i++) {
                int status = -1;
                assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
                assert_int_equal(status, 0);
        }
        sqlite3 *db = world_db(w);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_schema_version"),
                         SQLITE_SCHEMA_VERSION);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_relay_slot"), EVENT_SLOTS);
        (void)sqlite3_close(db);
}

/* -- refusals -------------------------------------------------------------------------------- */

static void a_newer_schema_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        world_close(world_open(w));
        sqlite3 *db = world_db(w);
        db_exec(db, "INSERT INTO semel_schema_version VALUES (1000, 0)");
        expect_refusal(w, SEMEL_ERR_SCHEMA, "upgrade this program");
        db_exec(db, "DELETE FROM semel_schema_version");
        expect_refusal(w, SEMEL_ERR_SCHEMA, "semel migrate");
        (void)sqlite3_close(db);
}

/* And by a store that had it open when somebody upgraded it. */
static void a_schema_that_becomes_newer_stops_the_store(void **state)
{
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        sqlite3 *db = world_db(w);
        db_exec(db, "INSERT INTO semel_schema_version VALUES (1000, 0)");
        struct command_claim claim = claim_of(1, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_ERR_SCHEMA);
        store_op_release(&op);
        (void)sqlite3_close(db);
        world_close(st);
}

static void write_file(const char *path, const char *text)
{
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < 200; i++)
                assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static void what_is_no_database_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        write_file(w->path, "this is a letter to my mother. ");
        expect_refusal(w, SEMEL_ERR_CORRUPT, "is not an SQLite database");
        (void)unlink(w->path);
        assert_int_equal(mkdir(w->path, 0700), 0);
        expect_refusal(w, SEMEL_ERR_STORE_DOWN, "not a regular file");
        assert_int_equal(rmdir(w->path), 0);
}

static void a_missing_directory_is_named(void **state)
{
        struct sqlite_world *w = *state;
        char url[sizeof w->url];
        memcpy(url, w->url, sizeof url);
        (void)snprintf(w->url, sizeof w->url, "sqlite:%s/no/keys.db", w->dir);
        expect_refusal(w, SEMEL_ERR_STORE_DOWN, "make it first");
        memcpy(w->url, url, sizeof url);
}

static void a_url_that_names_no_file_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        static const struct {
                const char *url, *says;
        } bad[] = {
                {"sqlite:", "path is missing"},
                {"sqlite::memory:", "memory:"},
                {"sqlite://host/keys.db", "without slashes"},
        };
        char url[sizeof w->url];
        memcpy(url, w->url, sizeof url);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                (void)snprintf(w->url, sizeof w->url, "%s", bad[i].url);
                expect_refusal(w, SEMEL_ERR_URL, bad[i].says);
        }
        memcpy(w->url, url, sizeof url);
}

/* A name is a name, also where SQLite would read more into it. */
static void a_relative_name_is_taken_literally(void **state)
{
        struct sqlite_world *w = *state;
        char here[256], name[160];
        static const char odd[] = "file:x?mode=memory";
        assert_non_null(getcwd(here, sizeof here));
        assert_int_equal(chdir(w->dir), 0);
        struct sqlite_world in = *w;
        (void)snprintf(in.url, sizeof in.url, "sqlite:%s", odd);
        in.env.clock = &sys_clock_host;
        world_close(world_open(&in));
        (void)snprintf(name, sizeof name, "%s/%s", w->dir, odd);
        assert_int_equal(access(name, F_OK), 0);
        assert_int_equal(unlink(name), 0);
        (void)snprintf(name, sizeof name, "%s/%s-semel-lock", w->dir, odd);
        assert_int_equal(unlink(name), 0);
        assert_int_equal(chdir(here), 0);
}

/* As a user whom modes stop: root walks through them. */
static int as_nobody(struct sqlite_world *w, int (*check)(struct sqlite_world *w))
{
        int status;
        if (getuid() == 0)
                assert_int_equal(chown(w->dir, 65534, 65534), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
                        _exit(99);
                _exit(check(w));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static int check_read_only(struct sqlite_world *w)
{
        semel_error err = {0};
        struct store *st = NULL;
        if (sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, &err) != SEMEL_OK)
                return 1;
        world_close(st);

        (void)chmod(w->path, 0400);
        if (sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, &err) !=
                    SEMEL_ERR_STORE_READ_ONLY ||
            !strstr(err.text, "permissions"))
                return 2;
        (void)chmod(w->path, 0600);

        (void)chmod(w->dir, 0500);
        semel_code code = sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, &err);
        (void)chmod(w->dir, 0700);
        if (code == SEMEL_OK) /* the side file was there: SQLite's own are the question */
                return 3;
        if (code != SEMEL_ERR_STORE_READ_ONLY && code != SEMEL_ERR_STORE_DOWN)
                return 4;

        world_remove_file(w);
        (void)chmod(w->dir, 0500);
        code = sqlite_store_open_with(w->url, &w->env, &w->hooks, &st, &err);
        (void)chmod(w->dir, 0700);
        return code == SEMEL_ERR_STORE_READ_ONLY ? 0 : 5;
}

static void a_read_only_file_or_directory_is_refused(void **state)
{
        assert_int_equal(as_nobody(*state, check_read_only), 0);
}

static void a_file_that_stays_locked_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        db_exec(db, "CREATE TABLE theirs (x)");
        db_exec(db, "BEGIN EXCLUSIVE");
        w->hooks.open_wait_ms = 300;
        int64_t from_us = clock_boot_us();
        expect_refusal(w, SEMEL_ERR_BUSY, "locked by another connection");
        assert_true(clock_boot_us() - from_us >= 300 * MS);
        assert_true(clock_boot_us() - from_us < 5 * SECOND);
        w->hooks.open_wait_ms = 0;
        db_exec(db, "ROLLBACK");
        struct store *st = world_open(w); /* a user's own file is fine */
        run_once(st, 1, small);
        assert_int_equal(db_int64(db, "SELECT count(*) FROM theirs"), 0);
        world_close(st);
        (void)sqlite3_close(db);
}

static void a6_network_file_systems_are_refused(void **state)
{
        (void)state;
        static const unsigned long shared[] = {0x6969, 0x517B, 0xFF534D42, 0xFE534D42,
                                               0x01021997, 0x65735546, 0x00C36400};
        static const unsigned long local[] = {0xEF53, 0x58465342, 0x9123683E, 0x01021994,
                                              0x794C7630, 0x2FC12FC1};
        for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
                assert_non_null(sqlite_network_fs(shared[i]));
        for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
                assert_null(sqlite_network_fs(local[i]));
}

static void a_file_that_was_replaced_is_refused(void **state)
{
        struct sqlite_world *w = *state;
        char old[128];
        struct store *st = world_open(w);
        run_once(st, 1, small);
        (void)snprintf(old, sizeof old, "%s.old", w->path);
        assert_int_equal(rename(w->path, old), 0);
        write_file(w->path, "");
        struct command_claim claim = claim_of(2, false);
        struct store_op op;
        assert_int_equal(op_claim(st, &op, &claim), SEMEL_ERR_UNSAFE);
        assert_non_null(strstr(op.err.text, "replaced"));
        store_op_release(&op);
        world_close(st);
        assert_int_equal(unlink(old), 0);
}

/* -- together ---------------------------------------------------------------------------------- */

/* O30's kind: the first start of ten at once is clean. */
static void ten_processes_open_a_new_file_at_once(void **state)
{
        enum { ROUNDS = 10, PROCESSES = 10 };
        struct sqlite_world *w = *state;
        for (unsigned round = 0; round < ROUNDS; round++) {
                pid_t pids[PROCESSES];
                int gun[2];
                char c;
                assert_int_equal(pipe(gun), 0);
                for (unsigned i = 0; i < PROCESSES; i++) {
                        pids[i] = fork();
                        assert_true(pids[i] >= 0);
                        if (pids[i] != 0)
                                continue;
                        (void)close(gun[1]);
                        if (read(gun[0], &c, 1) != 0)
                                _exit(2);
                        struct store *st = world_open(w);
                        run_once(st, i, small);
                        struct command_claim same = claim_of(1000, false);
                        enum command_outcome outcome = try_claim(st, &same);
                        world_close(st);
                        _exit(outcome == COMMAND_RUN ? 10 : outcome == COMMAND_BUSY ? 11 : 12);
                }
                (void)close(gun[0]);
                (void)close(gun[1]);
                int ran = 0;
                for (unsigned i = 0; i < PROCESSES; i++) {
                        int status;
                        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                        assert_true(WIFEXITED(status));
                        assert_true(WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11);
                        ran += WEXITSTATUS(status) == 10;
                }
                assert_int_equal(ran, 1); /* H1 */
                sqlite3 *db = world_db(w);
                assert_int_equal(db_int64(db, "SELECT count(*) FROM semel_command"), PROCESSES + 1);
                (void)sqlite3_close(db);
                world_remove_file(w);
        }
}

/* H17: an error of its own; and one damaged row does not stop a walk. */
static void h17_damaged_rows_are_errors_of_their_own(void **state)
{
        static const char *const damage[] = {
                "UPDATE semel_command SET status = NULL, headers = NULL, body = NULL",
                "UPDATE semel_command SET state = 9",
                "UPDATE semel_command SET attempt = 'short'",
                "UPDATE semel_command SET expire_us = 9223372036854775807",
                "UPDATE semel_command SET token = -1",
                "UPDATE semel_command SET mode = 77",
        };
        struct sqlite_world *w = *state;
        struct store *st = world_open(w);
        sqlite3 *db = world_db(w);
        for (unsigned i = 0; i < sizeof damage / sizeof damage[0]; i++) {
                db_exec(db, "DELETE FROM semel_command");
                run_once(st, 1, small);
                db_exec(db, damage[i]);
                run_once(st, 2, small);
                struct command_claim claim = claim_of(1, false);
                struct store_op op;
                if (op_claim(st, &op, &claim) != SEMEL_ERR_CORRUPT)
                        fail_msg("%s: code %d", damage[i], (int)op.err.code);
                store_op_release(&op);
                store_op_init(&op, STORE_SWEEP);
                op.deadline_us = op_deadline_us();
                op.in.sweep.max = 10;
                store_wait(st, &op);
                assert_int_equal(op.err.code, SEMEL_OK);
                assert_true(op.out.sweep.end);
                store_op_release(&op);
                store_op_init(&op, STORE_LIST);
                op.deadline_us = op_deadline_us();
                op.in.list.max = 10;
                store_wait(st, &op);
                assert_int_equal(op.err.code, SEMEL_OK);
                assert_true(op.out.list.count >= 1);
                store_op_release(&op);
        }
        (void)sqlite3_close(db);
        world_close(st);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(the_file_is_its_owners_alone),
                TEST(every_statement_prepares),
                TEST(a3_the_only_secondary_index_is_on_created_us),
                TEST(print_is_the_schema_itself),
                TEST(migrate_is_open),
                TEST(an_older_schema_is_brought_up_to_date),
                TEST(ten_processes_upgrade_one_file),
                TEST(a_newer_schema_is_refused),
                TEST(a_schema_that_becomes_newer_stops_the_store),
                TEST(what_is_no_database_is_refused),
                TEST(a_missing_directory_is_named),
                TEST(a_url_that_names_no_file_is_refused),
                TEST(a_relative_name_is_taken_literally),
                TEST(a_read_only_file_or_directory_is_refused),
                TEST(a_file_that_stays_locked_is_refused),
                TEST(a6_network_file_systems_are_refused),
                TEST(a_file_that_was_replaced_is_refused),
                TEST(ten_processes_open_a_new_file_at_once),
                TEST(h17_damaged_rows_are_errors_of_their_own),
        };
        return cmocka_run_group_tests_name("sqlite_open", tests, NULL, NULL);
}
