/* SPDX-License-Identifier: Apache-2.0
 *
 * Outbox tables that were there before semel, on PostgreSQL: what `semel migrate --for-table` prints makes
 * them readable, and without it the refusal names what is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "outbox_suite.h"
#include "postgres_world.h"
#include "sys/clock.h"

static PGconn *db;
static const struct outbox_member me = {.id = {1}, .info = "test"};

static int setup(void **state)
{
        (void)state;
        world_fresh();
        db = db_open();
        db_exec(db, "DROP SCHEMA IF EXISTS app CASCADE; DROP SCHEMA IF EXISTS app2 CASCADE; "
                    "CREATE SCHEMA app; CREATE SCHEMA app2");
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        db_exec(db, "ALTER ROLE CURRENT_USER RESET search_path");
        PQfinish(db);
        return 0;
}

static struct outbox_session *open_mapped(const struct outbox_mapping *mapping)
{
        struct outbox_session *s = NULL;
        semel_error err = {0};
        if (store_postgres_driver.outbox_open(world_url(), mapping, "test", &s, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return s;
}

static void check_says(const struct outbox_mapping *mapping, semel_code code, const char *says)
{
        semel_error err = {0};
        static struct outbox_view view;
        struct outbox_session *s = open_mapped(mapping);
        assert_int_equal(s->vt->check(s, OUTBOX_OWNED, clock_boot_us() + 5 * SECOND, &view, &err),
                         code);
        if (!strstr(err.text, says))
                fail_msg("\"%s\" does not say \"%s\"", err.text, says);
        s->vt->close(s);
}

/* What the script says when it is run; "": nothing. */
static void apply_says(const struct outbox_mapping *mapping, const char *says)
{
        struct buf script;
        semel_error err = {0};
        buf_init(&script, 64 * 1024);
        if (store_postgres_driver.print_mapping(mapping, &script, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        PGresult *res = PQexec(db, buf_cstr(&script));
        const char *said = PQresultErrorMessage(res);
        if (!strstr(said, says) || (*says == 0) != (*said == 0))
                fail_msg("\"%s\" is not \"%s\"", said, says);
        PQclear(res);
        buf_release(&script);
        if (*says)
                db_exec(db, "ROLLBACK");
}

static void apply(const struct outbox_mapping *mapping)
{
        apply_says(mapping, "");
}

static void take_all(struct outbox_session *s, enum outbox_mode mode, struct outbox_view *view)
{
        semel_error err = {0};
        int64_t until = clock_boot_us() + 5 * SECOND;
        if (s->vt->take(s, &me, mode, 0xffff, 30 * SECOND, until, view, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
}

/* Fetch as a relay does. */
static struct outbox_rows fetch_some(struct outbox_session *s, struct outbox_view *view,
                                     int32_t rows_max)
{
        struct outbox_quota quotas[EVENT_SLOTS];
        struct outbox_rows rows = {0};
        semel_error err = {0};
        int64_t until = clock_boot_us() + 5 * SECOND;
        take_all(s, OUTBOX_OWNED, view);
        for (int16_t i = 0; i < EVENT_SLOTS; i++)
                quotas[i] = (struct outbox_quota){
                        .slot = {.slot = i, .epoch = view->slots[i].epoch}, .rows_max = rows_max};
        const struct outbox_fetch in = {
                .quotas = quotas, .quota_count = EVENT_SLOTS, .bytes_max = 1000000};
        if (s->vt->fetch(s, &in, until, &rows, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        return rows;
}

static struct outbox_rows fetch_all(struct outbox_session *s, struct outbox_view *view)
{
        return fetch_some(s, view, 100);
}

static void mark_done(struct outbox_session *s, const struct outbox_view *view,
                      const struct outbox_rows *rows, bool keep)
{
        struct outbox_slot slots[EVENT_SLOTS];
        struct outbox_mark marks[10];
        struct outbox_marked m = {0};
        semel_error err = {0};
        for (int16_t i = 0; i < EVENT_SLOTS; i++)
                slots[i] = (struct outbox_slot){.slot = i, .epoch = view->slots[i].epoch};
        for (size_t i = 0; i < rows->n; i++)
                marks[i] = (struct outbox_mark){.id = rows->row[i].id, .slot = rows->row[i].slot,
                                                .place = rows->row[i].place};
        if (s->vt->mark(s, OUTBOX_OWNED, keep, slots, EVENT_SLOTS, marks, rows->n,
                        clock_boot_us() + 5 * SECOND, &m, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        assert_int_equal(m.marked, rows->n);
}

static void the_tutorials_table_is_published_from(void **state)
{
        (void)state;
        static struct outbox_view view;
        const struct outbox_mapping mapping = {
                .preset = "tutorial", .table = "app.outbox_event", .topic = "orders"};
        const struct outbox_mapping no_topic = {.preset = "tutorial", .table = "app.outbox_event"};
        check_says(&mapping, SEMEL_ERR_SCHEMA, "there is no table app.outbox_event");
        db_exec(db, "CREATE TABLE app.outbox_event (id bigserial PRIMARY KEY, aggregate_id uuid NOT NULL, "
                    "payload jsonb NOT NULL, status varchar(20) NOT NULL DEFAULT 'PENDING', "
                    "locked_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), "
                    "published_at timestamptz)");
        db_exec(db, "INSERT INTO app.outbox_event (aggregate_id, payload) VALUES "
                    "('00112233-4455-6677-8899-aabbccddeeff', '{\"n\": 1}')");
        check_says(&mapping, SEMEL_ERR_SCHEMA, "semel_id, attempts");
        apply(&mapping);
        check_says(&no_topic, SEMEL_ERR_ARGUMENT, "--topic");
        check_says(&mapping, SEMEL_OK, "");
        db_exec(db, "INSERT INTO app.outbox_event (aggregate_id, payload) VALUES "
                    "('00112233-4455-6677-8899-aabbccddeeff', '{\"n\": 2}')");
        struct outbox_session *s = open_mapped(&mapping);
        struct outbox_rows rows = fetch_all(s, &view);
        assert_int_equal(rows.n, 2);
        const struct event *ev = &rows.row[0].event;
        assert_true(span_eq(ev->topic, span_str("orders")));
        assert_true(span_eq(ev->key, span_str("00112233-4455-6677-8899-aabbccddeeff")));
        assert_true(span_eq(ev->payload, span_str("{\"n\": 1}")));
        assert_true(rows.row[0].id < rows.row[1].id);
        assert_memory_not_equal(ev->id, rows.row[1].event.id, EVENT_ID_BYTES);
        mark_done(s, &view, &rows, true);
        assert_int_equal(db_int(db, "SELECT count(*) FROM app.outbox_event WHERE status = "
                                    "'PUBLISHED' AND published_at IS NOT NULL"), 2);
        /* Another outbox of the same database is another set of slots. */
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.relay_slot WHERE owner IS NOT NULL"),
                         EVENT_SLOTS);
        outbox_rows_release(&rows);
        s->vt->close(s);
}

/* Nothing but what a first write-up has: a uuid, and when the transaction began. */
static void a_table_without_an_order_is_published_by_time_when_told_so(void **state)
{
        (void)state;
        static struct outbox_view view;
        const struct outbox_mapping ordered = {
                .preset = "tutorial", .table = "app.outbox_event", .topic = "orders"};
        const struct outbox_mapping mapping = {.preset = "tutorial", .table = "app.outbox_event",
                                               .topic = "orders", .unordered = true};
        db_exec(db, "CREATE TABLE app.outbox_event (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "
                    "aggregate_id uuid NOT NULL, payload jsonb NOT NULL, status text NOT NULL DEFAULT "
                    "'PENDING', locked_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), "
                    "published_at timestamptz)");
        check_says(&mapping, SEMEL_ERR_SCHEMA, "attempts, next_attempt_at, last_error; run");
        apply(&mapping);
        check_says(&ordered, SEMEL_ERR_SCHEMA, "semel_id");
        check_says(&mapping, SEMEL_OK, "");
        db_exec(db, "INSERT INTO app.outbox_event (aggregate_id, payload, created_at) SELECT "
                    "'00112233-4455-6677-8899-aabbccddeeff', to_jsonb(i), now() + i * interval '1 s' "
                    "FROM generate_series(8, 1, -1) i");
        struct outbox_session *s = open_mapped(&mapping);
        struct outbox_rows rows = fetch_all(s, &view);
        assert_int_equal(rows.n, 8);
        for (size_t i = 0; i < rows.n; i++) {
                char n[] = {(char)('1' + i), 0};
                assert_true(span_eq(rows.row[i].event.payload, span_str(n)));
                assert_true(rows.row[i].id >= 0);
        }
        struct outbox_rows first = fetch_some(s, &view, 2);
        assert_int_equal(first.n, 2);
        assert_true(span_eq(first.row[0].event.payload, span_str("1")));
        assert_true(span_eq(first.row[1].event.payload, span_str("2")));
        outbox_rows_release(&first);
        /* The first is tried again later: its key waits, whole (rule C4). */
        struct outbox_slot slots[] = {
                {.slot = rows.row[0].slot, .epoch = view.slots[rows.row[0].slot].epoch}};
        const struct outbox_mark again = {.id = rows.row[0].id, .slot = rows.row[0].slot,
                                          .verdict = OUTBOX_RETRY, .retry_after_us = 60 * SECOND,
                                          .reason = "not now"};
        struct outbox_marked m = {0};
        assert_int_equal(s->vt->mark(s, OUTBOX_OWNED, true, slots, 1, &again, 1,
                                     clock_boot_us() + 5 * SECOND, &m, NULL), SEMEL_OK);
        assert_int_equal(m.marked, 1);
        outbox_rows_release(&rows);
        rows = fetch_all(s, &view);
        assert_int_equal(rows.n, 0);
        const struct outbox_blocked *blocked = NULL;
        size_t n = 0;
        assert_int_equal(s->vt->blocked(s, 0xffff, OUTBOX_SKIP, 10, clock_boot_us() + 5 * SECOND,
                                        &blocked, &n, NULL), SEMEL_OK);
        assert_int_equal(n, 1);
        assert_true(blocked[0].id == again.id);
        db_exec(db, "UPDATE app.outbox_event SET attempts = 0, next_attempt_at = NULL");
        rows = fetch_all(s, &view);
        assert_int_equal(rows.n, 8);
        mark_done(s, &view, &rows, true);
        assert_int_equal(db_int(db, "SELECT count(*) FROM app.outbox_event WHERE status = "
                                    "'PUBLISHED' AND published_at IS NOT NULL"), 8);
        outbox_rows_release(&rows);
        s->vt->close(s);
}

static void debeziums_table_is_published_from(void **state)
{
        (void)state;
        static struct outbox_view view;
        const struct outbox_mapping mapping = {.preset = "debezium", .table = "app.out \"box\""};
        db_exec(db, "CREATE TABLE app.\"out \"\"box\"\"\" (id uuid PRIMARY KEY, aggregatetype varchar(255) "
                    "NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255), payload bytea)");
        apply(&mapping);
        check_says(&mapping, SEMEL_OK, "");
        db_exec(db, "INSERT INTO app.\"out \"\"box\"\"\" VALUES ('00112233-4455-6677-8899-aabbccddeeff', "
                    "'order', '7', 'OrderConfirmed', '\\x00ff'), (gen_random_uuid(), 'order', '7', "
                    "'Gone', NULL)");
        struct outbox_session *s = open_mapped(&mapping);
        struct outbox_rows rows = fetch_all(s, &view);
        assert_int_equal(rows.n, 2);
        const struct event *ev = &rows.row[0].event;
        assert_true(span_eq(ev->topic, span_str("outbox.event.order")));
        assert_true(span_eq(ev->key, span_str("7")));
        assert_true(span_eq(ev->payload, span_of("\0\xff", 2)));
        assert_int_equal(ev->id[1], 0x11);
        assert_int_equal(ev->header_count, 1);
        assert_true(span_eq(ev->headers[0].name, span_str("id"))); /* as Debezium's event router */
        assert_true(rows.row[1].event.payload_is_null);
        mark_done(s, &view, &rows, false);
        assert_int_equal(db_int(db, "SELECT count(*) FROM app.\"out \"\"box\"\"\""), 0);
        outbox_rows_release(&rows);
        s->vt->close(s);
}

#define EVENTS(name) \
        "CREATE TABLE " name " (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text NOT NULL, " \
        "payload jsonb NOT NULL, status text NOT NULL DEFAULT 'PENDING', locked_at timestamptz, " \
        "created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)"

static const struct outbox_mapping bare = {
        .preset = "tutorial", .table = "outbox_event", .topic = "orders"};
static const struct outbox_mapping qualified = {
        .preset = "tutorial", .table = "app.outbox_event", .topic = "orders"};

/* For sessions that begin from here on, and for ours. */
static void search(const char *schema)
{
        db_exec(db, "ALTER ROLE CURRENT_USER SET search_path = %s", schema);
        db_exec(db, "SET search_path = %s", schema);
}

static void view_of(const struct outbox_mapping *mapping, struct outbox_view *ret)
{
        semel_error err = {0};
        struct outbox_session *s = open_mapped(mapping);
        if (s->vt->check(s, OUTBOX_OWNED, clock_boot_us() + 5 * SECOND, ret, &err) != SEMEL_OK)
                fail_msg("%s", err.text);
        s->vt->close(s);
}

/* It is the outbox whose slots `me` took. */
static void is_outbox_of(const struct outbox_mapping *mapping, const struct outbox_view *taken)
{
        static struct outbox_view view;
        view_of(mapping, &view);
        for (int i = 0; i < EVENT_SLOTS; i++)
                assert_memory_equal(view.slots[i].owner_id, me.id, sizeof me.id);
        assert_memory_equal(view.uuid, taken->uuid, sizeof view.uuid);
}

/* outbox_event of this schema, by its bare name, with all slots taken. */
static struct outbox_session *take_bare(const char *schema, struct outbox_view *ret)
{
        search(schema);
        db_exec(db, EVENTS("outbox_event"));
        apply(&bare);
        struct outbox_session *s = open_mapped(&bare);
        take_all(s, OUTBOX_OWNED, ret);
        return s;
}

/* Rule C1: two sets of slots of one table are two owners of each row. */
static void c1_a_table_is_one_outbox_however_it_is_spelled(void **state)
{
        (void)state;
        static struct outbox_view taken;
        struct outbox_session *s = take_bare("app", &taken);
        is_outbox_of(&qualified, &taken);
        apply(&qualified);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox_meta"), 2); /* semel.outbox's too */
        s->vt->close(s);
}

/* Also semel's own, which keeps the name that it has always had. */
static void c1_semels_own_table_has_one_name(void **state)
{
        (void)state;
        static struct outbox_view taken;
        const struct outbox_mapping own = {.preset = "semel", .table = "outbox"};
        struct outbox_session *s = open_mapped(NULL);
        take_all(s, OUTBOX_OWNED, &taken);
        search("semel");
        is_outbox_of(&own, &taken);
        apply(&own);
        is_outbox_of(&own, &taken);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox_meta WHERE outbox = 'semel.outbox'"), 1);
        assert_int_equal(db_int(db, "SELECT count(*) FROM semel.outbox_meta"), 1);
        s->vt->close(s);
}

/* Rule C1: one set of slots of two tables leaves rows of each to nobody. */
static void c1_two_tables_of_one_name_are_two_outboxes(void **state)
{
        (void)state;
        static struct outbox_view first, second;
        struct outbox_session *s = take_bare("app", &first);
        search("app2");
        db_exec(db, EVENTS("outbox_event"));
        check_says(&bare, SEMEL_ERR_SCHEMA, "semel_id");
        apply(&bare);
        view_of(&bare, &second);
        for (int i = 0; i < EVENT_SLOTS; i++)
                assert_true(second.slots[i].free);
        assert_memory_not_equal(second.uuid, first.uuid, sizeof first.uuid);
        s->vt->close(s);
}

static void take_and_stop(const struct outbox_mapping *mapping, struct outbox_view *ret)
{
        struct outbox_session *s = open_mapped(mapping);
        take_all(s, OUTBOX_OWNED, ret);
        s->vt->close(s);
}

static void is_what_it_was(const struct outbox_mapping *mapping, const struct outbox_view *before)
{
        static struct outbox_view now;
        view_of(mapping, &now);
        assert_memory_equal(now.uuid, before->uuid, sizeof now.uuid);
        for (int i = 0; i < EVENT_SLOTS; i++) {
                assert_true(now.slots[i].epoch == before->slots[i].epoch);
                assert_memory_equal(now.slots[i].owner_id, me.id, sizeof me.id);
        }
}

/* Rule C8: an outbox that had the spelling for its name keeps its uuid, and what its relays left behind. */
static void c8_a_name_of_before_is_moved_with_all_that_it_has(void **state)
{
        (void)state;
        static struct outbox_view before;
        struct outbox_mapping said = qualified;
        said.renamed_from = "outbox_event";
        search("app");
        db_exec(db, EVENTS("outbox_event"));
        apply(&bare);
        take_and_stop(&bare, &before);
        db_exec(db, "UPDATE semel.outbox_meta SET outbox = '\"outbox_event\"' WHERE outbox <> 'semel.outbox'");
        db_exec(db, "UPDATE semel.relay_slot SET outbox = '\"outbox_event\"' WHERE outbox <> 'semel.outbox'");
        db_exec(db, "UPDATE semel.relay_member SET outbox = '\"outbox_event\"', lease_until = "
                    "clock_timestamp() + interval '1 h'");
        check_says(&bare, SEMEL_ERR_SCHEMA, "--for-table app.outbox_event --preset tutorial --renamed-from "
                                            "outbox_event`");
        apply_says(&qualified, "relays run on \"app\".\"outbox_event\" under its name of before");
        db_exec(db, "UPDATE semel.relay_member SET lease_until = '-infinity'");
        search("public");
        apply_says(&qualified, "semel.outbox_meta has \"outbox_event\", which says no schema");
        apply(&said);
        is_what_it_was(&qualified, &before);
        apply(&said); /* again: nothing is left to do */
        assert_int_equal(db_int(db, "SELECT count(*) FROM pg_index WHERE indrelid = 'app.outbox_event'::"
                                    "regclass AND NOT indisprimary"), 5); /* and none of it is there twice */
        apply(&qualified);
        is_what_it_was(&qualified, &before);
}

/* Relays of before may be at work under the other name. */
static void c1_a_table_that_has_two_names_is_refused(void **state)
{
        (void)state;
        search("app");
        db_exec(db, EVENTS("outbox_event"));
        apply(&bare);
        db_exec(db, "INSERT INTO semel.outbox_meta (outbox) VALUES ('\"outbox_event\"')");
        check_says(&qualified, SEMEL_ERR_SCHEMA, "has the table app.outbox_event twice, also under its name of "
                                                 "before, outbox_event: stop");
        apply_says(&qualified, "semel.outbox_meta has this table twice");
        db_exec(db, "DELETE FROM semel.outbox_meta WHERE outbox = '\"outbox_event\"'");
        check_says(&qualified, SEMEL_OK, "");
}

static void c8_a_renamed_table_takes_its_outbox_along_when_told_so(void **state)
{
        (void)state;
        static struct outbox_view before;
        struct outbox_mapping renamed = qualified;
        db_exec(db, EVENTS("app.outbox_event"));
        apply(&qualified);
        take_and_stop(&qualified, &before);
        db_exec(db, "UPDATE semel.relay_member SET lease_until = '-infinity'");
        renamed.renamed_from = "app.outbox_event";
        apply(&renamed); /* it is not: nothing is done */
        db_exec(db, "ALTER TABLE app.outbox_event SET SCHEMA app2");
        db_exec(db, "ALTER TABLE app2.outbox_event RENAME TO \"Out\"");
        renamed.table = "app2.Out";
        check_says(&renamed, SEMEL_ERR_SCHEMA,
                   "the table app2.Out has no slots; run what `semel migrate --for-table app2.Out --preset "
                   "tutorial` prints, with --renamed-from app.outbox_event when that was its name");
        renamed.renamed_from = "app.outbox";
        apply_says(&renamed, "semel.outbox_meta has no \"app\".\"outbox\"");
        renamed.renamed_from = "app.outbox_event";
        apply(&renamed);
        is_what_it_was(&renamed, &before);
        db_exec(db, EVENTS("app.outbox_event"));
        apply_says(&renamed, "there is a table \"app\".\"outbox_event\"");
        /* Another table of that name is another outbox. */
        apply(&qualified);
        check_says(&qualified, SEMEL_OK, "");
        is_what_it_was(&renamed, &before);
}

/* A place names one row in one table: with children there are as many rows of one place as tables. */
static void a_table_that_can_be_no_outbox_is_refused(void **state)
{
        (void)state;
        const struct outbox_mapping unordered = {
                .preset = "tutorial", .table = "app.outbox_event", .topic = "orders", .unordered = true};
        db_exec(db, "CREATE TABLE app.outbox_event (id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_id "
                    "text NOT NULL, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'PENDING', locked_at "
                    "timestamptz, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz, "
                    "attempts integer NOT NULL DEFAULT 0, next_attempt_at timestamptz, last_error text) "
                    "PARTITION BY RANGE (created_at)");
        check_says(&unordered, SEMEL_ERR_SCHEMA, "the table app.outbox_event is partitioned, and ");
        db_exec(db, "ALTER TABLE app.outbox_event RENAME TO parts");
        db_exec(db, "CREATE VIEW app.outbox_event AS SELECT * FROM app.parts");
        check_says(&unordered, SEMEL_ERR_SCHEMA, "is a view, and ");
        db_exec(db, "DROP VIEW app.outbox_event");
        db_exec(db, EVENTS("app.outbox_event"));
        db_exec(db, "CREATE TABLE app.child () INHERITS (app.outbox_event)");
        check_says(&unordered, SEMEL_ERR_SCHEMA, "is inherited from by other tables, and ");
        db_exec(db, "ALTER TABLE app.child NO INHERIT app.outbox_event");
        check_says(&unordered, SEMEL_ERR_SCHEMA, "attempts");
        /* Its name is text in the statements, whoever gave it. */
        db_exec(db, "ALTER SCHEMA app RENAME TO \"a'p\"");
        search("\"a'p\"");
        check_says(&bare, SEMEL_ERR_SCHEMA, "the name of the table a'p.outbox_event has a ' in it");
        db_exec(db, "ALTER SCHEMA \"a'p\" RENAME TO app");
}

/* A child that came after the check: the claim finds a second row at the place. */
static void more_rows_than_asked_for_are_an_error(void **state)
{
        (void)state;
        static struct outbox_view view;
        struct outbox_rows rows = {0};
        semel_error err = {0};
        db_exec(db, EVENTS("app.outbox_event"));
        apply(&qualified);
        struct outbox_session *s = open_mapped(&qualified);
        take_all(s, OUTBOX_TWO_PHASE, &view);
        db_exec(db, "CREATE TABLE app.child () INHERITS (app.outbox_event)");
        db_exec(db, "INSERT INTO app.outbox_event (aggregate_id, payload) VALUES ('7', '{}')");
        db_exec(db, "INSERT INTO app.child (id, semel_id, aggregate_id, payload) VALUES "
                    "(gen_random_uuid(), 2, '7', '{}')");
        int16_t slot = (int16_t)db_int(db, "SELECT min(slot) FROM app.outbox_event");
        const struct outbox_quota quota = {
                .slot = {.slot = slot, .epoch = view.slots[slot].epoch}, .rows_max = 1};
        const struct outbox_fetch in = {
                .mode = OUTBOX_TWO_PHASE, .quotas = &quota, .quota_count = 1, .bytes_max = 1000000};
        assert_int_equal(s->vt->fetch(s, &in, clock_boot_us() + 5 * SECOND, &rows, &err),
                         SEMEL_ERR_CORRUPT);
        print_message("   %s\n", err.text);
        assert_int_equal(rows.n, 0);
        s->vt->close(s);
}

static void names_that_are_no_names_are_refused(void **state)
{
        (void)state;
        static const struct outbox_mapping bad[] = {
                {.preset = "oracle"},
                {.preset = "debezium", .table = "a'b"},
                {.preset = "debezium", .table = "a.b.c"},
                {.preset = "debezium", .table = ".a"},
                {.preset = "debezium", .table = "a$semel$b"},
                {.preset = "debezium", .renamed_from = "a'b"},
                {.preset = "tutorial", .topic = "a'; DROP TABLE x; --"},
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                struct outbox_session *s = NULL;
                semel_error err = {0};
                assert_int_equal(store_postgres_driver.outbox_open(world_url(), &bad[i], "t", &s, &err),
                                 SEMEL_ERR_ARGUMENT);
                print_message("   %s\n", err.text);
        }
}

/* Rule C11: nothing wakes anybody until it is asked for. */
static void c11_o54_listening_needs_the_trigger_and_then_wakes(void **state)
{
        (void)state;
        uint32_t slots = 0;
        semel_error err = {0};
        struct outbox_session *s = open_mapped(NULL);
        assert_int_equal(s->vt->listen(s, 0, &slots, &err), SEMEL_ERR_REFUSED);
        print_message("   %s\n", err.text);
        assert_int_equal(store_postgres_driver.notify(world_url(), true, &err), SEMEL_OK);
        assert_int_equal(store_postgres_driver.notify(world_url(), true, &err), SEMEL_OK);
        assert_int_equal(s->vt->listen(s, 0, &slots, &err), SEMEL_OK); /* from here on */
        assert_int_equal(s->vt->listen(s, 50 * MS, &slots, &err), SEMEL_OK);
        assert_int_equal(slots, 0);
        db_exec(db, "SELECT semel.publish('t', 'k', 'x'::bytea) FROM generate_series(1, 100)");
        assert_int_equal(s->vt->listen(s, 5 * SECOND, &slots, &err), SEMEL_OK);
        assert_int_equal(slots, 1u << db_int(db, "SELECT min(slot) FROM semel.outbox")); /* of one key */
        db_exec(db, "INSERT INTO semel.outbox (topic, key, payload) SELECT 't', 'k' || i, 'x' FROM "
                    "generate_series(1, 5) i");
        assert_int_equal(s->vt->listen(s, 5 * SECOND, &slots, &err), SEMEL_OK);
        assert_int_equal(slots, db_int(db, "SELECT bit_or(1 << slot) FROM semel.outbox WHERE key <> 'k'"));
        /* A trigger that was made before says nothing of slots. */
        db_exec(db, "DROP TRIGGER semel_outbox_notify ON semel.outbox");
        db_exec(db, "CREATE TRIGGER semel_outbox_notify AFTER INSERT ON semel.outbox FOR EACH STATEMENT "
                    "EXECUTE FUNCTION semel.outbox_notify()");
        db_exec(db, "SELECT semel.publish('t', 'k', 'x'::bytea)");
        assert_int_equal(s->vt->listen(s, 5 * SECOND, &slots, &err), SEMEL_OK);
        assert_int_equal(slots, 0xffff);
        assert_int_equal(store_postgres_driver.notify(world_url(), false, &err), SEMEL_OK);
        db_exec(db, "SELECT semel.publish('t', 'k', NULL)");
        (void)s->vt->listen(s, 50 * MS, &slots, &err); /* those of the hundred that came late */
        assert_int_equal(s->vt->listen(s, 50 * MS, &slots, &err), SEMEL_OK);
        assert_int_equal(slots, 0);
        s->vt->close(s);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(the_tutorials_table_is_published_from),
                T(a_table_without_an_order_is_published_by_time_when_told_so),
                T(debeziums_table_is_published_from),
                T(c1_a_table_is_one_outbox_however_it_is_spelled),
                T(c1_semels_own_table_has_one_name),
                T(c1_two_tables_of_one_name_are_two_outboxes),
                T(c8_a_name_of_before_is_moved_with_all_that_it_has),
                T(c1_a_table_that_has_two_names_is_refused),
                T(c8_a_renamed_table_takes_its_outbox_along_when_told_so),
                T(a_table_that_can_be_no_outbox_is_refused),
                T(more_rows_than_asked_for_are_an_error),
                T(names_that_are_no_names_are_refused),
                T(c11_o54_listening_needs_the_trigger_and_then_wakes),
        };
        (void)world_url();
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
