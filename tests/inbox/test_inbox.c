/* SPDX-License-Identifier: Apache-2.0
 *
 * Inbox sessions (store/inbox.h): one suite for every driver, and the public functions for a caller's
 * own transaction.  Which driver: the first argument.
 * why this file is long: one suite over one set of small steps, as tests/outbox.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semel/postgres.h>
#include <semel/sqlite.h>

#include <libpq-fe.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "store/postgres/postgres_store.h"
#include "store/sqlite/sqlite_store.h"
#include "sys/clock.h"

static bool is_postgres;
static char url[512], path[256];
static struct inbox_session *ses;
static char consumer[32]; /* its own for each test */

static int64_t soon(void)
{
        return clock_boot_us() + 20 * SECOND;
}

/* -- the database, seen from beside ---------------------------------------------------------------- */

static int64_t pg_ask(const char *sql)
{
        PGconn *pg = PQconnectdb(url);
        PGresult *res = PQexec(pg, sql);
        ExecStatusType status = PQresultStatus(res);
        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
                fail_msg("%s: %s", sql, PQerrorMessage(pg));
        int64_t value = PQntuples(res) ? strtoll(PQgetvalue(res, 0, 0), NULL, 10) : 0;
        PQclear(res);
        PQfinish(pg);
        return value;
}

static int64_t sqlite_ask(const char *sql)
{
        sqlite3 *db = NULL;
        sqlite3_stmt *stmt = NULL;
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        (void)sqlite3_busy_timeout(db, 5000);
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
                fail_msg("%s: %s", sql, sqlite3_errmsg(db));
        int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
        (void)sqlite3_finalize(stmt);
        (void)sqlite3_close(db);
        return value;
}

/* Tables are named as in PostgreSQL. */
__attribute__((format(printf, 1, 2))) static int64_t ask(const char *fmt, ...)
{
        char sql[512], other[512];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(sql, sizeof sql, fmt, ap);
        va_end(ap);
        if (is_postgres)
                return pg_ask(sql);
        size_t n = 0;
        for (const char *p = sql; *p && n + 1 < sizeof other; p++)
                other[n++] = p > sql && *p == '.' && strncmp(p - 5, "semel", 5) == 0 ? '_' : *p;
        other[n] = '\0';
        return sqlite_ask(other);
}

static int64_t effects(void)
{
        return ask("SELECT count(*) FROM eff WHERE consumer = '%s'", consumer);
}

static int64_t recorded(void)
{
        return ask("SELECT count(*) FROM semel.processed_event WHERE consumer = '%s'", consumer);
}

/* -- events ------------------------------------------------------------------------------------------- */

enum { EVENTS = 40 };
static char ids[EVENTS][16];
static struct inbox_event events[EVENTS];

static void make_events(const char *payload)
{
        for (int i = 0; i < EVENTS; i++) {
                (void)snprintf(ids[i], sizeof ids[i], "e%d", (i * 7) % EVENTS); /* not sorted */
                events[i] = (struct inbox_event){
                        .consumer = span_str(consumer), .source = span_str("s"),
                        .id = span_str(ids[i]), .topic = span_str("t"), .key = span_str("k"),
                        .payload = span_str(payload), .headers = span_str("[[\"a\", \"b\"]]"),
                        .has_hash = true, .hash = {(uint8_t)payload[0]}, .offset = i};
        }
}

static const struct inbox_handler *insert(void)
{
        static struct inbox_handler pg = {
                .sql = "INSERT INTO eff (consumer, id, payload) VALUES (NULL, $3, $2)"};
        static struct inbox_handler lite = {
                .sql = "INSERT INTO eff (consumer, id, payload) VALUES (NULL, ?3, ?2)"};
        static char pg_sql[256], lite_sql[256];
        static unsigned turn; /* a handler is known by its pointer */
        (void)turn;
        (void)snprintf(pg_sql, sizeof pg_sql,
                       "INSERT INTO eff SELECT '%s', $3, $2 WHERE 1 / (CASE WHEN $2 = 'bad' AND $3 = "
                       "'e7' THEN 0 ELSE 1 END) > 0", consumer);
        (void)snprintf(lite_sql, sizeof lite_sql,
                       "INSERT INTO eff SELECT '%s', CASE WHEN ?2 = 'bad' AND ?3 = 'e7' THEN NULL "
                       "ELSE ?3 END, ?2", consumer);
        pg.sql = pg_sql;
        lite.sql = lite_sql;
        return is_postgres ? &pg : &lite;
}

static struct inbox_result apply(size_t from, size_t n, bool counted)
{
        struct inbox_result ret;
        ses->vt->apply(ses, events + from, n, insert(), counted, soon(), &ret);
        return ret;
}

/* -- tests ---------------------------------------------------------------------------------------------- */

static void d1_o78_a_batch_is_applied_once(void **state)
{
        (void)state;
        make_events("x");
        struct inbox_result ret = apply(0, EVENTS, false);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_int_equal(ret.processed, EVENTS);
        ret = apply(0, EVENTS, false);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_int_equal(ret.processed, 0);
        assert_int_equal(ret.duplicates, EVENTS);
        assert_int_equal(ret.alarms, 0);
        assert_int_equal(effects(), EVENTS);
}

static void d1_twice_in_one_batch_is_once(void **state)
{
        (void)state;
        make_events("x");
        events[1].id = events[0].id;
        events[5].id = events[0].id;
        struct inbox_result ret = apply(0, 10, false);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_int_equal(ret.processed, 8);
        assert_int_equal(ret.duplicates, 2);
        assert_int_equal(effects(), 8);
}

static void d1_another_payload_is_an_alarm(void **state)
{
        (void)state;
        make_events("x");
        (void)apply(0, 3, false);
        make_events("y");
        struct inbox_result ret = apply(0, 4, false);
        assert_int_equal(ret.processed, 1);
        assert_int_equal(ret.alarms, 3);
        ret = apply(0, 4, false);
        assert_int_equal(ret.alarms, 0); /* known by now */
        assert_int_equal(ask("SELECT count(*) FROM semel.inbox_alarm WHERE consumer = '%s'",
                             consumer), 3);
}

static void d3_the_failing_event_is_named_and_nothing_is_written(void **state)
{
        (void)state;
        make_events("x");
        for (int i = 0; i < EVENTS; i++)
                if (strcmp(ids[i], "e7") == 0)
                        events[i].payload = span_str("bad");
        struct inbox_result ret = apply(0, EVENTS, false);
        assert_int_equal(ret.end, INBOX_FAILED);
        assert_string_equal(ids[ret.failed_at], "e7");
        assert_int_equal(effects() + recorded(), 0);
        ret = apply(0, ret.failed_at, false); /* what is before it */
        assert_int_equal(ret.end, INBOX_DONE);
}

static int count_try(int which, int number)
{
        int attempts = 0;
        assert_int_equal(ses->vt->count(ses, &events[which], number, soon(), &attempts, NULL), SEMEL_OK);
        return attempts;
}

static void d3_tries_are_counted_and_forgotten(void **state)
{
        (void)state;
        int attempts = 0;
        make_events("x");
        for (int i = 1; i <= 3; i++) {
                assert_int_equal(ses->vt->counted(ses, events, soon(), &attempts, NULL), SEMEL_OK);
                assert_int_equal(attempts, i - 1);
                assert_int_equal(count_try(0, i), i);
        }
        assert_int_equal(apply(0, 1, true).end, INBOX_DONE);
        assert_int_equal(ses->vt->counted(ses, events, soon(), &attempts, NULL), SEMEL_OK);
        assert_int_equal(attempts, 0);
        assert_int_equal(count_try(0, 1), 1);
}

/* Its answer was lost, so it is written again; another process may have counted more meanwhile. */
static void d2_a_try_that_is_counted_again_is_one_try(void **state)
{
        (void)state;
        int attempts = 0;
        make_events("x");
        for (int i = 0; i < 3; i++)
                assert_int_equal(count_try(0, 1), 1);
        assert_int_equal(count_try(0, 4), 4);
        assert_int_equal(count_try(0, 2), 4);
        assert_int_equal(ses->vt->counted(ses, events, soon(), &attempts, NULL), SEMEL_OK);
        assert_int_equal(attempts, 4);
}

/* One try, of several whose counts are there; and never one that nobody counted. */
static void d2_a_try_is_taken_back(void **state)
{
        (void)state;
        int attempts = 0;
        make_events("x");
        assert_int_equal(ses->vt->count_back(ses, events, 1, soon(), NULL), SEMEL_OK);
        for (int i = 1; i <= 3; i++)
                (void)count_try(0, i);
        (void)count_try(1, 3);
        for (int i = 0; i < 2; i++) /* the answer was lost, too */
                assert_int_equal(ses->vt->count_back(ses, events, 3, soon(), NULL), SEMEL_OK);
        assert_int_equal(ses->vt->counted(ses, events, soon(), &attempts, NULL), SEMEL_OK);
        assert_int_equal(attempts, 2);
        for (int i = 4; i > 0; i--)
                assert_int_equal(ses->vt->count_back(ses, events, i, soon(), NULL), SEMEL_OK);
        assert_int_equal(ses->vt->counted(ses, events, soon(), &attempts, NULL), SEMEL_OK);
        assert_int_equal(attempts, 0);
        assert_int_equal(ses->vt->counted(ses, events + 1, soon(), &attempts, NULL), SEMEL_OK);
        assert_int_equal(attempts, 3);
}

/* One that is in RETRY, or none. */
static struct inbox_letters take(int64_t id)
{
        struct inbox_letters ret = {0};
        assert_int_equal(ses->vt->take(ses, span_str(consumer), id, false, soon(), &ret, NULL), SEMEL_OK);
        if (ret.n == 0)
                inbox_letters_release(&ret);
        return ret;
}

static bool retry(int64_t id, const struct inbox_handler *handler, struct inbox_result *ret)
{
        struct inbox_letters taken = take(id);
        bool found = false;
        if (taken.n > 0)
                ses->vt->retry_one(ses, id, handler, soon(), &found, ret);
        inbox_letters_release(&taken);
        return found;
}

static semel_code decide(int64_t id, enum inbox_letter_state to)
{
        int64_t rows = 0;
        return ses->vt->decide(ses, span_str(consumer), id, to, "me", "", soon(), &rows, NULL);
}

static void d3_a_dead_event_is_recorded_with_its_letter_and_retried_once(void **state)
{
        (void)state;
        struct inbox_result ret;
        struct inbox_letters list = {0};
        bool flag = false;
        make_events("bad");
        struct inbox_event *e = events;
        while (strncmp((const char *)e->id.p, "e7", 3) != 0)
                e++;
        ses->vt->bury(ses, e, 3, "because", "dead.topic", soon(), &flag, &ret);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_true(flag);
        ses->vt->bury(ses, e, 3, "because", "dead.topic", soon(), &flag, &ret);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_false(flag);
        assert_int_equal(recorded(), 1);
        assert_int_equal(ask("SELECT count(*) FROM semel.outbox WHERE topic = 'dead.topic'"), 1);
        (void)ask("DELETE FROM semel.outbox");

        struct span me = span_str(consumer);
        assert_int_equal(ses->vt->list(ses, me, INBOX_DEAD, 0, 10, soon(), &list, NULL), SEMEL_OK);
        assert_int_equal(list.n, 1);
        assert_true(span_eq(list.letter[0].payload, span_str("bad")));
        assert_true(span_eq(list.letter[0].reason, span_str("because")));
        int64_t id = list.letter[0].id;
        inbox_letters_release(&list);

        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_OK);
        assert_true(retry(id, insert(), &ret)); /* and it fails: DEAD again */
        assert_int_equal(ret.end, INBOX_FAILED);
        assert_int_equal(ask("SELECT state FROM semel.dead_letter WHERE id = %lld", (long long)id), 0);
        assert_int_equal(ask("SELECT attempts FROM semel.dead_letter WHERE id = %lld", (long long)id), 4);
        assert_false(retry(id, insert(), &ret)); /* it is not in RETRY */
        static const struct inbox_handler good_pg = {.sql = "INSERT INTO eff VALUES ('again', $3, $2)"},
                                          good_lite = {.sql = "INSERT INTO eff VALUES ('again', ?3, ?2)"};
        const struct inbox_handler *good = is_postgres ? &good_pg : &good_lite;
        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_OK);
        assert_true(retry(id, good, &ret));
        assert_int_equal(ret.end, INBOX_DONE);
        assert_false(retry(id, good, &ret));
        assert_int_equal(ask("SELECT count(*) FROM eff WHERE consumer = 'again'"), 1);
        assert_int_equal(ask("SELECT state FROM semel.dead_letter WHERE id = %lld", (long long)id), 2);
        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_ERR_NOT_FOUND);
}

static int fail_with_bytes(void *arg, void *conn, const struct inbox_event *event, semel_error *why)
{
        (void)arg;
        (void)conn;
        (void)event;
        return err_set(why, SEMEL_ERR_REFUSED, "caf\xe9 \xd0"), -1;
}

/* Words of another character set, cut in the middle of a character. */
static void d3_any_reason_makes_a_letter(void **state)
{
        (void)state;
        const struct inbox_handler handler = {.fn = fail_with_bytes};
        struct inbox_result ret;
        bool flag = false;
        make_events("x");
        ses->vt->bury(ses, events, 3, "na\xc3\xafve caf\xe9 \xd0", "dead.topic", soon(), &flag, &ret);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_true(flag);
        assert_int_equal(ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s' AND "
                             "reason = 'na\xc3\xafve caf? ?'", consumer), 1);
        assert_int_equal(decide(0, INBOX_RETRY), SEMEL_OK);
        assert_true(retry(ask("SELECT id FROM semel.dead_letter WHERE consumer = '%s'", consumer), &handler,
                          &ret));
        assert_int_equal(ret.end, INBOX_FAILED);
        assert_int_equal(ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s' AND state = 0 "
                             "AND reason = 'caf? ?'", consumer), 1);
        (void)ask("DELETE FROM semel.outbox");
}

/* The letter has its headers; the copy has them where an outbox takes them. */
static void d3_any_headers_make_a_letter(void **state)
{
        (void)state;
        enum { LARGE = INBOX_DEAD_HEADERS_BYTES_MAX, MANY = LIMIT_EVENT_HEADERS + 1 };
        static char large[LARGE + 64], many[MANY * 16];
        struct inbox_result ret;
        bool buried = false;
        size_t n = 0;
        memset(large, 'x', sizeof large);
        memcpy(large, "{\"a\":\"", 6);
        memcpy(large + sizeof large - 2, "\"}", 2);
        for (int i = 0; i < MANY; i++)
                n += (size_t)snprintf(many + n, sizeof many - n, "%c\"h%d\":\"v\"", i ? ',' : '{', i);
        many[n++] = '}';
        make_events("x");
        events[0].headers = span_of(large, sizeof large);
        events[1].headers = span_of(many, n);
        events[2].headers = span_str("{\"a\":\"b\"}");
        for (int i = 0; i < 3; i++) {
                ses->vt->bury(ses, &events[i], 3, "because", "dead.topic", soon(), &buried, &ret);
                assert_int_equal(ret.end, INBOX_DONE);
                assert_true(buried);
        }
        assert_int_equal(ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s' AND "
                             "length(CAST(headers AS text)) > %d", consumer, LARGE), 1);
        const char *text = is_postgres ? "headers::text" : "CAST(headers AS text)";
        assert_int_equal(ask("SELECT count(*) FROM semel.outbox WHERE %s LIKE '%%dead-from%%'", text), 3);
        assert_int_equal(ask("SELECT count(*) FROM semel.outbox WHERE %s LIKE '%%dead-headers%%left out%%'", text),
                         1); /* many are one header with all of them as JSON */
        (void)ask("DELETE FROM semel.outbox");
}

/* The letter has its key; the copy in the dead-letter topic, which goes through the outbox, has none. */
static void d3_any_key_makes_a_letter(void **state)
{
        (void)state;
        static char key[LIMIT_EVENT_KEY_BYTES + 1];
        struct inbox_result ret;
        bool buried = false;
        memset(key, 'k', sizeof key);
        make_events("x");
        events[0].key = span_of(key, sizeof key);
        events[1].key = span_of(key, sizeof key - 1);
        events[2].key = span_str("\xff");
        for (int i = 0; i < 3; i++) {
                ses->vt->bury(ses, &events[i], 3, "because", "dead.topic", soon(), &buried, &ret);
                assert_int_equal(ret.end, INBOX_DONE);
                assert_true(buried);
        }
        assert_int_equal(ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s' AND "
                             "length(key) = %d", consumer, LIMIT_EVENT_KEY_BYTES + 1), 1);
        assert_int_equal(ask("SELECT count(*) FROM semel.outbox WHERE key IS NULL"), 2);
        assert_int_equal(ask("SELECT count(*) FROM semel.outbox WHERE length(key) = %d",
                             LIMIT_EVENT_KEY_BYTES), 1);
        (void)ask("DELETE FROM semel.outbox");
}

static bool letter_is(enum inbox_letter_state state, int attempts, const char *reason)
{
        return ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s' AND state = %d AND attempts "
                   "= %d AND reason = '%s'", consumer, (int)state, attempts, reason) == 1;
}

/* So whoever ends in a try of it leaves it DEAD, and counted. */
static void d3_a_letter_is_dead_while_it_is_tried(void **state)
{
        (void)state;
        struct inbox_result ret;
        bool flag = false;
        make_events("x");
        ses->vt->bury(ses, events, 3, "because", NULL, soon(), &flag, &ret);
        int64_t id = ask("SELECT id FROM semel.dead_letter WHERE consumer = '%s'", consumer);
        assert_int_equal(take(id).n, 0); /* nobody wants it applied */
        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_OK);
        struct inbox_letters taken = take(id);
        assert_int_equal(taken.n, 1);
        assert_int_equal(taken.letter[0].state, INBOX_RETRY);
        assert_true(span_eq(taken.letter[0].payload, span_str("x")));
        assert_true(letter_is(INBOX_DEAD, 4, INBOX_LETTER_TRIED));
        assert_int_equal(take(id).n, 0); /* another consumer does not try it meanwhile */
        for (int i = 0; i < 2; i++)
                assert_int_equal(ses->vt->untake(ses, &taken.letter[0], soon(), NULL), SEMEL_OK);
        inbox_letters_release(&taken);
        assert_true(letter_is(INBOX_RETRY, 3, "because"));
        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_ERR_NOT_FOUND);
        assert_int_equal(decide(id, INBOX_DISCARDED), SEMEL_OK);
        ses->vt->retry_one(ses, id, insert(), soon(), &flag, &ret);
        assert_false(flag);
        assert_true(letter_is(INBOX_DISCARDED, 3, "because"));
}

/* An operator's own try is of a letter that is DEAD already, which a repeated way back must not mistake for one
 * that was just taken. */
static void d2_a_dead_letter_is_put_back_once(void **state)
{
        (void)state;
        struct inbox_result ret;
        struct inbox_letters taken = {0};
        bool flag = false;
        make_events("x");
        ses->vt->bury(ses, events, 3, "because", NULL, soon(), &flag, &ret);
        int64_t id = ask("SELECT id FROM semel.dead_letter WHERE consumer = '%s'", consumer);
        assert_int_equal(ses->vt->take(ses, span_str(consumer), id, true, soon(), &taken, NULL), SEMEL_OK);
        assert_int_equal(taken.n, 1);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(ses->vt->untake(ses, &taken.letter[0], soon(), NULL), SEMEL_OK);
                assert_true(letter_is(INBOX_DEAD, 3, "because"));
        }
        inbox_letters_release(&taken);
}

static void an_event_without_an_id_is_one_letter(void **state)
{
        (void)state;
        struct inbox_result ret;
        bool buried = false;
        make_events("x");
        events[0].id = span_of(NULL, 0);
        for (int i = 0; i < 2; i++) {
                ses->vt->bury(ses, events, 0, "no id", NULL, soon(), &buried, &ret);
                assert_int_equal(ret.end, INBOX_DONE);
        }
        assert_int_equal(recorded(), 0);
        assert_int_equal(ask("SELECT count(*) FROM semel.dead_letter WHERE consumer = '%s'",
                             consumer), 1);
}

static void seen_tells_what_is_recorded(void **state)
{
        (void)state;
        bool seen[4];
        make_events("x");
        (void)apply(1, 2, false);
        assert_int_equal(ses->vt->seen(ses, events, 4, soon(), seen, NULL), SEMEL_OK);
        assert_true(!seen[0] && seen[1] && seen[2] && !seen[3]);
}

static int64_t counted(void)
{
        return ask("SELECT count(*) FROM semel.inbox_attempt WHERE consumer = '%s'", consumer);
}

static void o70_old_events_are_forgotten_in_batches(void **state)
{
        (void)state;
        int64_t rows = 0;
        make_events("x");
        (void)apply(0, EVENTS, false);
        /* By one that ends now: its partition was another's, who had applied the event. */
        (void)count_try(0, 1);
        assert_int_equal(ses->vt->prune(ses, span_str(consumer), HOUR, soon(), &rows, NULL), SEMEL_OK);
        assert_int_equal(rows, 0);
        assert_int_equal(ses->vt->prune(ses, span_str("another"), -HOUR, soon(), &rows, NULL),
                         SEMEL_OK);
        assert_int_equal(rows, 0);
        assert_int_equal(counted(), 1);
        assert_int_equal(ses->vt->prune(ses, span_str(consumer), -HOUR, soon(), &rows, NULL),
                         SEMEL_OK);
        assert_int_equal(rows, EVENTS);
        assert_int_equal(recorded(), 0);
        assert_int_equal(counted(), 0);
}

static int count_and_fail(void *arg, void *conn, const struct inbox_event *event, semel_error *why)
{
        int *calls = arg;
        assert_non_null(conn);
        if (++*calls == 3)
                return err_set(why, SEMEL_ERR_REFUSED, "not %.*s", (int)event->id.n,
                               (const char *)event->id.p), -1;
        return 0;
}

static void a_function_gets_the_transaction(void **state)
{
        (void)state;
        int calls = 0;
        const struct inbox_handler handler = {.fn = count_and_fail, .arg = &calls};
        struct inbox_result ret;
        make_events("x");
        ses->vt->apply(ses, events, 5, &handler, false, soon(), &ret);
        assert_int_equal(ret.end, INBOX_FAILED);
        assert_int_equal(ret.failed_at, 2);
        assert_int_equal(recorded(), 0);
        ses->vt->apply(ses, events, 5, &handler, false, soon(), &ret);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_int_equal(calls, 3 + 5);
        ses->vt->apply(ses, events, 5, &handler, false, soon(), &ret);
        assert_int_equal(ret.duplicates, 5);
        assert_int_equal(calls, 3 + 5);
}

static void a_statement_that_does_not_prepare_is_said(void **state)
{
        (void)state;
        semel_error err = {0};
        static const char *const bad[] = {"SELECT nonsense(1)", "COMMIT", "this is no SQL"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                const struct inbox_handler handler = {.sql = bad[i]};
                assert_int_equal(ses->vt->check(ses, &handler, soon(), &err), SEMEL_ERR_ARGUMENT);
        }
        assert_int_equal(ses->vt->check(ses, insert(), soon(), &err), SEMEL_OK);
        make_events("x");
        assert_int_equal(apply(0, 2, false).end, INBOX_DONE);
}

/* Another connection's transaction is at one of the ids, or has the file. */
static void d2_what_is_locked_is_again_and_not_a_failure(void **state)
{
        (void)state;
        make_events("x");
        PGconn *pg = NULL;
        sqlite3 *db = NULL;
        char sql[256];
        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO semel.processed_event (consumer, source, event_id) "
                       "VALUES ('%s', 's', 'e7')", consumer);
        if (is_postgres) {
                pg = PQconnectdb(url);
                PQclear(PQexec(pg, "BEGIN"));
                PQclear(PQexec(pg, sql));
        } else {
                assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
                assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        }
        int64_t before_us = clock_boot_us();
        struct inbox_result ret = apply(0, EVENTS, false);
        assert_int_equal(ret.end, INBOX_AGAIN);
        assert_in_range(clock_boot_us() - before_us, SECOND, 8 * SECOND);
        PQfinish(pg);
        (void)sqlite3_close(db);
        ret = apply(0, EVENTS, false);
        assert_int_equal(ret.end, INBOX_DONE);
        assert_int_equal(ret.processed, EVENTS);
}

/* Two consumers with the same ids in opposite order, at the same moment. */
enum { ROUNDS = 20, MEETING = 400 };
static pthread_barrier_t meet;

static void *meet_from(void *arg)
{
        bool backwards = arg != NULL;
        static const struct inbox_handler nothing;
        struct inbox_session *mine = NULL;
        struct inbox_event *all = calloc(MEETING, sizeof *all);
        char (*names)[32] = calloc(MEETING, sizeof *names);
        size_t again = 0;
        if (!all || !names || store_postgres_driver.inbox_open(url, &mine, NULL) != SEMEL_OK)
                abort();
        for (int r = 0; r < ROUNDS; r++) {
                struct inbox_result ret;
                for (int i = 0; i < MEETING; i++) {
                        int at = backwards ? MEETING - 1 - i : i;
                        (void)snprintf(names[i], sizeof names[i], "r%d-%04d", r, at);
                        all[i] = (struct inbox_event){.consumer = span_str(consumer),
                                                      .source = span_str("s"),
                                                      .id = span_str(names[i]),
                                                      .topic = span_str("t")};
                }
                (void)pthread_barrier_wait(&meet);
                mine->vt->apply(mine, all, MEETING, &nothing, false, soon(), &ret);
                again += ret.end != INBOX_DONE;
        }
        mine->vt->close(mine);
        free(all);
        free(names);
        return (void *)again;
}

static void d2_two_consumers_meet_in_opposite_order_without_a_deadlock(void **state)
{
        (void)state;
        pthread_t other;
        void *again = NULL;
        assert_int_equal(pthread_barrier_init(&meet, NULL, 2), 0);
        assert_int_equal(pthread_create(&other, NULL, meet_from, &meet), 0);
        assert_null(meet_from(NULL));
        assert_int_equal(pthread_join(other, &again), 0);
        assert_null(again);
        assert_int_equal(recorded(), ROUNDS * MEETING);
        (void)pthread_barrier_destroy(&meet);
}

static int look_at_limits(void *arg, void *conn, const struct inbox_event *event, semel_error *why)
{
        (void)arg;
        (void)event;
        (void)why;
        PGresult *res = PQexec(conn, "SELECT current_setting('lock_timeout') = '2s', "
                                     "current_setting('idle_in_transaction_session_timeout') <> '0', "
                                     "current_setting('synchronous_commit') = 'on', "
                                     "current_setting('transaction_isolation') = 'read committed'");
        for (int i = 0; i < 4; i++)
                assert_string_equal(PQgetvalue(res, 0, i), "t");
        PQclear(res);
        return 0;
}

static void d4_a_transaction_has_limits(void **state)
{
        (void)state;
        const struct inbox_handler handler = {.fn = look_at_limits};
        struct inbox_result ret;
        make_events("x");
        ses->vt->apply(ses, events, 1, &handler, false, soon(), &ret);
        assert_int_equal(ret.end, INBOX_DONE);
}

/* -- in the caller's transaction -------------------------------------------------------------------- */

static void first_in_the_callers_transaction(void **state)
{
        (void)state;
        const unsigned char one[32] = {1}, two[32] = {2};
        PGconn *pg = is_postgres ? PQconnectdb(url) : NULL;
        sqlite3 *db = NULL;
        if (!is_postgres)
                assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
#define RUN(sql) (pg ? PQclear(PQexec(pg, sql)) : (void)sqlite3_exec(db, sql, NULL, NULL, NULL))
#define FIRST(id, hash, ret)                                                                   \
        (pg ? semel_pg_inbox_first(pg, consumer, "s", id, hash, ret, NULL)                     \
            : semel_sqlite_inbox_first(db, consumer, "s", id, hash, ret, NULL))
        bool first = false;
        const char *begin = is_postgres ? "BEGIN" : "BEGIN IMMEDIATE";
        assert_int_equal(FIRST("a", NULL, &first), SEMEL_ERR_TX_STATE);
        RUN(begin);
        assert_int_equal(FIRST("a", one, &first), SEMEL_OK);
        assert_true(first);
        assert_int_equal(FIRST("a", one, &first), SEMEL_OK);
        assert_false(first);
        RUN("ROLLBACK");
        assert_int_equal(recorded(), 0);
        RUN(begin);
        assert_int_equal(FIRST("a", one, &first), SEMEL_OK);
        assert_true(first);
        assert_int_equal(FIRST("", one, &first), SEMEL_ERR_ARGUMENT);
        RUN("COMMIT");
        RUN(begin);
        assert_int_equal(FIRST("a", two, &first), SEMEL_OK);
        assert_false(first);
        RUN("COMMIT");
        assert_int_equal(recorded(), 1);
        assert_int_equal(ask("SELECT count(*) FROM semel.inbox_alarm WHERE consumer = '%s'",
                             consumer), 1);
        if (is_postgres) {
                char sql[200];
                (void)snprintf(sql, sizeof sql, "SELECT semel.first_time('%s', 's', 'a')::int", consumer);
                assert_int_equal(ask("%s", sql), 0);
                (void)snprintf(sql, sizeof sql, "SELECT semel.first_time('%s', 's', 'b')::int", consumer);
                assert_int_equal(ask("%s", sql), 1);
        }
        PQfinish(pg);
        (void)sqlite3_close(db);
}

/* The same bytes are the same event, whatever the caller's connection speaks. */
static void b8_first_is_of_utf8_in_any_encoding(void **state)
{
        (void)state;
        static const char *const encodings[] = {"LATIN1", "SJIS", "UTF8"};
        const unsigned char hash[2][32] = {{1}, {2}};
        PGconn *pg = PQconnectdb(url);
        char name[100];
        (void)snprintf(name, sizeof name, "%s\xc3\xa9", consumer);
        for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
                semel_error err = {0};
                bool first = i > 0;
                assert_int_equal(PQsetClientEncoding(pg, encodings[i]), 0);
                PQclear(PQexec(pg, "BEGIN"));
                if (semel_pg_inbox_first(pg, name, "\xc3\xa9", "\xc3\xa9", hash[i % 2], &first, &err) !=
                    SEMEL_OK)
                        fail_msg("%s: %s", encodings[i], err.text);
                assert_int_equal(first, i == 0);
                PQclear(PQexec(pg, "COMMIT"));
        }
        assert_int_equal(ask("SELECT count(*) FROM semel.processed_event WHERE consumer = '%s' AND "
                             "source || event_id = '\xc3\xa9\xc3\xa9'", name), 1);
        assert_int_equal(ask("SELECT count(*) FROM semel.inbox_alarm WHERE consumer = '%s' AND source || "
                             "event_id = '\xc3\xa9\xc3\xa9'", name), 1);
        PQfinish(pg);
}

static void server_has_synchronous_commit(const char *change, const char *setting)
{
        int64_t until_us = soon();
        (void)ask("ALTER SYSTEM %s", change);
        (void)ask("SELECT pg_reload_conf()");
        while (!ask("SELECT (current_setting('synchronous_commit') = '%s')::int", setting))
                assert_true(clock_boot_us() < until_us);
}

/* What the server would do by default with the statements of others. */
static void b7_d3_counts_and_letters_are_durable_where_nothing_else_is(void **state)
{
        (void)state;
        struct inbox_result ret;
        bool buried = false;
        make_events("x");
        (void)ask("CREATE TABLE how (setting text)");
        (void)ask("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO how "
                  "VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$");
        (void)ask("CREATE TRIGGER note BEFORE INSERT OR UPDATE ON semel.inbox_attempt FOR EACH ROW "
                  "EXECUTE FUNCTION note()");
        (void)ask("CREATE TRIGGER note BEFORE INSERT OR UPDATE ON semel.dead_letter FOR EACH ROW "
                  "EXECUTE FUNCTION note()");
        server_has_synchronous_commit("SET synchronous_commit = off", "off");
        (void)ask("INSERT INTO semel.inbox_attempt VALUES ('another', 's', 'e', 1)");
        assert_int_equal(ask("DELETE FROM how WHERE setting = 'off' RETURNING 1"), 1);

        (void)count_try(0, 1);
        assert_int_equal(ses->vt->count_back(ses, events, 1, soon(), NULL), SEMEL_OK);
        ses->vt->bury(ses, events, 3, "because", NULL, soon(), &buried, &ret);
        assert_true(buried);
        int64_t id = ask("SELECT id FROM semel.dead_letter WHERE consumer = '%s'", consumer);
        assert_int_equal(decide(id, INBOX_RETRY), SEMEL_OK);
        struct inbox_letters taken = take(id);
        assert_int_equal(ses->vt->untake(ses, &taken.letter[0], soon(), NULL), SEMEL_OK);
        inbox_letters_release(&taken);
        assert_int_equal(ask("SELECT count(*) FROM how WHERE setting = 'on'"), 6);
        assert_int_equal(ask("SELECT count(*) FROM how"), 6);

        server_has_synchronous_commit("RESET synchronous_commit", "on");
        (void)ask("DROP FUNCTION note() CASCADE");
        (void)ask("DROP TABLE how");
}

/* -- the suite ------------------------------------------------------------------------------------------- */

static int open_session(void **state)
{
        static int number;
        semel_error err = {0};
        const struct store_driver *driver = is_postgres ? &store_postgres_driver
                                                        : &store_sqlite_driver;
        (void)state;
        (void)snprintf(consumer, sizeof consumer, "c%d", ++number);
        if (driver->inbox_open(url, &ses, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return 0;
}

static int close_session(void **state)
{
        (void)state;
        ses->vt->close(ses);
        return 0;
}

int main(int argc, char **argv)
{
        semel_error err = {0};
        is_postgres = argc > 1 && strcmp(argv[1], "postgres") == 0;
        char dir[] = "/tmp/semel-inbox-XXXXXX";
        if (is_postgres) {
                (void)snprintf(url, sizeof url, "%s", getenv("SEMEL_TEST_PG"));
        } else {
                if (!mkdtemp(dir))
                        return 1;
                (void)snprintf(path, sizeof path, "%s/inbox.db", dir);
                (void)snprintf(url, sizeof url, "sqlite:%s", path);
        }
        const struct store_driver *driver = is_postgres ? &store_postgres_driver
                                                        : &store_sqlite_driver;
        if (driver->migrate(url, &err) != SEMEL_OK) {
                fprintf(stderr, "%s\n", err.text);
                return 1;
        }
        (void)ask("CREATE TABLE eff (consumer text, id text NOT NULL, payload text)");
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, open_session, close_session)
                T(d1_o78_a_batch_is_applied_once),
                T(d1_twice_in_one_batch_is_once),
                T(d1_another_payload_is_an_alarm),
                T(d3_the_failing_event_is_named_and_nothing_is_written),
                T(d3_tries_are_counted_and_forgotten),
                T(d2_a_try_that_is_counted_again_is_one_try),
                T(d2_a_try_is_taken_back),
                T(d3_a_dead_event_is_recorded_with_its_letter_and_retried_once),
                T(d3_any_reason_makes_a_letter),
                T(d3_any_key_makes_a_letter),
                T(d3_any_headers_make_a_letter),
                T(d3_a_letter_is_dead_while_it_is_tried),
                T(d2_a_dead_letter_is_put_back_once),
                T(an_event_without_an_id_is_one_letter),
                T(seen_tells_what_is_recorded),
                T(o70_old_events_are_forgotten_in_batches),
                T(a_function_gets_the_transaction),
                T(a_statement_that_does_not_prepare_is_said),
                T(d2_what_is_locked_is_again_and_not_a_failure),
                T(first_in_the_callers_transaction),
                T(d2_two_consumers_meet_in_opposite_order_without_a_deadlock),
                T(d4_a_transaction_has_limits),
                T(b8_first_is_of_utf8_in_any_encoding),
                T(b7_d3_counts_and_letters_are_durable_where_nothing_else_is),
        };
        /* The last four are not SQLite's: it has one writer at a time, one limit for all, its busy
         * timeout, connections speak UTF-8, and there is one way to commit. */
        size_t n = sizeof tests / sizeof *tests - (is_postgres ? 0 : 4);
        int rc = _cmocka_run_group_tests("inbox", tests, n, NULL, NULL);
        if (!is_postgres) {
                char command[300];
                (void)snprintf(command, sizeof command, "%s-wal", path);
                (void)unlink(command);
                (void)snprintf(command, sizeof command, "%s-shm", path);
                (void)unlink(command);
                (void)snprintf(command, sizeof command, "%s-semel-lock", path);
                (void)unlink(command);
                (void)unlink(path);
                (void)rmdir(dir);
        }
        return rc;
}
