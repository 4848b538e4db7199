/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of headers are whatever bytes a producer wrote: one that is no text costs no other header, neither
 * of what the handler gets nor of a letter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "consume/consume.h"
#include "produce.h"
#include "store/sqlite/sqlite_store.h"

static const char kept[] = "[[\"event-id\",\"00000000-0000-0000-0000-000000000000\"],[\"?\",\"1\"],"
                           "[\"tenant\",\"7\"]]";
static char path[64];

/* The first column of the first row; "" for none. */
static const char *ask(const char *sql)
{
        static char text[256];
        sqlite3 *db = NULL;
        sqlite3_stmt *stmt = NULL;
        text[0] = '\0';
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        (void)sqlite3_busy_timeout(db, 20000);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
        if (sqlite3_step(stmt) == SQLITE_ROW)
                (void)snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(stmt, 0));
        (void)sqlite3_finalize(stmt);
        (void)sqlite3_close(db);
        return text;
}

/* What `sql` keeps of one event. */
static void consume_one(const char *topic, const char *sql, const char *look, char ret[256])
{
        static const struct event_header headers[] = {
                {.name = {(const uint8_t *)"\xe4", 1}, .value = {(const uint8_t *)"1", 1}},
                {.name = {(const uint8_t *)"tenant", 6}, .value = {(const uint8_t *)"7", 1}}};
        const struct event event = {.topic = span_str(topic), .key = span_str("k"),
                                    .payload = span_str("x"), .headers = headers, .header_count = 2,
                                    .partition = EVENT_NO_PARTITION};
        const char *const topics[] = {topic};
        char url[80];
        semel_error err = {0};
        struct bus_mock *mock = NULL;
        struct consume *c = NULL;
        (void)snprintf(url, sizeof url, "sqlite:%s", path);
        assert_int_equal(bus_mock_new(1, &mock, &err), SEMEL_OK);
        assert_int_equal(bus_mock_topic(mock, topic, 1, &err), SEMEL_OK);
        const struct consume_config config = {
                .db = url, .inbox_open = store_sqlite_driver.inbox_open,
                .bus = {.brokers = bus_mock_bootstrap(mock)}, .group = "g", .topics = topics,
                .topic_count = 1, .handler = {.sql = sql}, .attempts_max = 1, .batch_rows = 1,
                .workers = 1};
        produce_one(&config.bus, &event);
        if (consume_new(&config, &c, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        int64_t until_us = clock_boot_us() + 40 * SECOND;
        while (!*ask(look) && clock_boot_us() < until_us)
                (void)poll(NULL, 0, 20);
        (void)snprintf(ret, 256, "%s", ask(look));
        consume_drain(c, clock_boot_us() + 20 * SECOND);
        assert_int_equal(consume_close(c, &err), SEMEL_OK);
        bus_mock_free(mock);
}

static void the_handler_gets_all_others(void **state)
{
        char got[256];
        (void)state;
        consume_one("t", "INSERT INTO eff (id, headers) VALUES (?3, ?5)", "SELECT headers FROM eff", got);
        assert_string_equal(got, kept);
}

static void a_letter_keeps_all_others(void **state)
{
        char got[256];
        (void)state;
        consume_one("u", "INSERT INTO eff (id) VALUES (NULL)", "SELECT headers FROM semel_dead_letter", got);
        assert_string_equal(got, kept);
}

int main(void)
{
        char dir[] = "/tmp/semel-headers-XXXXXX", url[80], name[80];
        semel_error err = {0};
        if (!mkdtemp(dir))
                return 1;
        (void)snprintf(path, sizeof path, "%s/inbox.db", dir);
        (void)snprintf(url, sizeof url, "sqlite:%s", path);
        if (store_sqlite_driver.migrate(url, &err) != SEMEL_OK) {
                fprintf(stderr, "%s\n", err.text);
                return 1;
        }
        (void)ask("CREATE TABLE eff (id text NOT NULL, headers text)");
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_handler_gets_all_others),
                cmocka_unit_test(a_letter_keeps_all_others),
        };
        int rc = cmocka_run_group_tests_name("consume_headers", tests, NULL, NULL);
        static const char *const ends[] = {"", "-wal", "-shm", "-semel-lock"};
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
                (void)snprintf(name, sizeof name, "%s%s", path, ends[i]);
                (void)unlink(name);
        }
        (void)rmdir(dir);
        return rc;
}
