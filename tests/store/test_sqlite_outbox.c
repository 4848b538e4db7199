/* SPDX-License-Identifier: Apache-2.0
 *
 * The outbox of a SQLite file: what is of this store alone.  What all stores promise is in
 * tests/outbox.
 */
#include "fault_vfs.h"
#include "sqlite_outbox_kit.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "store/sqlite/sqlite_store.h"

/* A long history is not counted row by row, each 15 s and while the writers wait. */
static void kept_rows_are_counted_exactly_while_they_are_few(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *s = open_outbox(w);
        struct outbox_stats stats = {0};
        (void)take(s, &relay_a);
        sqlite3 *db = world_db(w);
        db_exec(db, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
                    "INSERT INTO semel_outbox (topic, status, published_at) SELECT 't' || (i % 2), "
                    "'PUBLISHED', i FROM n; INSERT INTO semel_outbox (topic) VALUES ('t0')");
        assert_int_equal(s->vt->stats(s, soon(), &stats, NULL), SEMEL_OK);
        assert_int_equal(stats.n, 3);
        assert_int_equal(stats.count[0].rows, 1);
        assert_int_equal(stats.count[1].rows + stats.count[2].rows, 2000);
        stats.release(stats.driver);
        db_exec(db, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000) "
                    "INSERT INTO semel_outbox (topic, status, published_at) SELECT 't', 'PUBLISHED', i "
                    "FROM n");
        assert_int_equal(s->vt->stats(s, soon(), &stats, NULL), SEMEL_OK);
        assert_int_equal(stats.n, 2);
        assert_int_equal(stats.count[1].state, OUTBOX_PUBLISHED);
        assert_int_equal(stats.count[1].rows, 122000);
        assert_int_equal(stats.count[1].topic.n, 0);
        stats.release(stats.driver);
        (void)sqlite3_close(db);
        s->vt->close(s);
}

/* -- what SQL and C write ----------------------------------------------------------------------- */

static void a_plain_insert_is_an_event(void **state)
{
        struct sqlite_world *w = *state;
        sqlite3 *db = world_db(w);
        db_exec(db, "INSERT INTO semel_outbox (topic, key, payload, headers) "
                    "VALUES ('orders', 'o-7', '{}', '{\"a\": \"1\", \"b\": null}')");
        db_exec(db, "INSERT INTO semel_outbox (topic, payload) VALUES ('orders', x'')");
        db_exec(db, "INSERT INTO semel_outbox (topic, key, \"partition\") VALUES ('orders', '', 3)");
        assert_int_not_equal(sqlite3_exec(db, "INSERT INTO semel_outbox (topic) VALUES ('a b')",
                                          NULL, NULL, NULL),
                             SQLITE_OK);
        (void)sqlite3_close(db);
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 3);
        for (size_t i = 0; i < rows.n; i++) {
                const struct event *ev = &rows.row[i].event;
                int64_t age_us = rows.now_us - rows.row[i].created_us;
                assert_in_range(age_us + 2 * SECOND, SECOND, 30 * SECOND);
                assert_int_equal(ev->id[6] >> 4, 7);
                assert_int_equal(ev->id[8] >> 6, 2);
                if (rows.row[i].id == 1) {
                        assert_true(span_eq(ev->key, span_str("o-7")));
                        assert_true(span_eq(ev->payload, span_str("{}")));
                        assert_int_equal(ev->header_count, 2);
                        assert_true(ev->headers[1].value_is_null);
                        assert_int_equal(ev->partition, EVENT_NO_PARTITION);
                } else if (rows.row[i].id == 2) {
                        assert_true(ev->key_is_null);
                        assert_false(ev->payload_is_null);
                        assert_int_equal(ev->payload.n, 0);
                } else {
                        assert_false(ev->key_is_null);
                        assert_true(ev->payload_is_null);
                        assert_int_equal(ev->partition, 3);
                }
        }
        outbox_rows_release(&rows);
        s->vt->close(s);
}

static void append_belongs_to_the_transaction(void **state)
{
        static const struct event_header headers[] = {
                {.name = {(const uint8_t *)"h", 1}, .value = {(const uint8_t *)"\0\xff", 2}}};
        const struct event ev = {.topic = span_str("orders"),
                                 .key = span_str("k"),
                                 .payload = span_of("a\0b", 3),
                                 .traceparent = span_str("00-ab-cd-01"),
                                 .partition = EVENT_NO_PARTITION,
                                 .headers = headers,
                                 .header_count = 1};
        struct sqlite_world *w = *state;
        char id[EVENT_ID_TEXT_BYTES] = "", text[EVENT_ID_TEXT_BYTES];
        semel_error err = {0};
        sqlite3 *db = world_db(w);
        assert_int_equal(sqlite_outbox_append(db, &ev, id, &err), SEMEL_ERR_TX_STATE);
        db_exec(db, "BEGIN IMMEDIATE");
        assert_int_equal(sqlite_outbox_append(db, &ev, id, &err), SEMEL_OK);
        db_exec(db, "ROLLBACK");
        assert_int_equal(count(w, "1"), 0);
        db_exec(db, "BEGIN IMMEDIATE");
        assert_int_equal(sqlite_outbox_append(db, &ev, id, &err), SEMEL_OK);
        struct event again = ev;
        again.has_id = true;
        assert_true(event_id_parse(id, 36, again.id));
        assert_int_equal(sqlite_outbox_append(db, &again, NULL, &err), SEMEL_ERR_ARGUMENT);
        db_exec(db, "COMMIT");
        (void)sqlite3_close(db);

        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 1);
        const struct event *got = &rows.row[0].event;
        event_id_format(got->id, text);
        assert_string_equal(text, id);
        assert_int_equal(got->id[6] >> 4, 7);
        assert_true(span_eq(got->payload, ev.payload));
        assert_true(span_eq(got->traceparent, ev.traceparent));
        assert_true(span_eq(got->headers[0].value, headers[0].value));
        outbox_rows_release(&rows);
        s->vt->close(s);
}

/* -- order -------------------------------------------------------------------------------------- */

static void c4_rows_come_in_order_of_id_within_a_slot(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 3000, "'k' || (i % 50)");
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        size_t seen = 0;
        while (seen < 3000) {
                struct outbox_rows rows = fetch(s, &o, 20, NULL, 0);
                int64_t last[EVENT_SLOTS] = {0};
                int16_t slot = -1;
                uint32_t closed = 0;
                assert_int_not_equal(rows.n, 0);
                for (size_t i = 0; i < rows.n; i++) {
                        if (rows.row[i].slot != slot) { /* rows of a slot stand together */
                                closed |= slot >= 0 ? UINT32_C(1) << slot : 0;
                                slot = rows.row[i].slot;
                                assert_false(closed >> slot & 1);
                        }
                        assert_true(rows.row[i].id > last[slot]);
                        last[slot] = rows.row[i].id;
                }
                seen += rows.n;
                struct outbox_marked marked = mark_all(s, &o, false, &rows, OUTBOX_DONE);
                assert_int_equal(marked.changed + marked.lost_slots, 0);
        }
        assert_int_equal(count(w, "1"), 0);
        s->vt->close(s);
}

static void c4_o8_a_key_waits_behind_its_row_in_backoff(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 1, "'a'");
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_RETRY).marked, 1);
        insert_rows(w, 2, "CASE i WHEN 1 THEN 'a' ELSE 'b' END");
        rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(rows.n, 1);
        assert_true(span_eq(rows.row[0].event.key, span_str("b")));
        outbox_rows_release(&rows);

        const struct outbox_blocked *blocked = NULL;
        size_t n = 0;
        assert_int_equal(s->vt->blocked(s, ALL_SLOTS, OUTBOX_SKIP, 10, soon(), &blocked, &n, NULL),
                         SEMEL_OK);
        assert_int_equal(n, 1);
        assert_true(span_eq(blocked[0].key, span_str("a")));
        assert_int_equal(blocked[0].id, 1);
        assert_in_range(blocked[0].wait_us, HOUR - 30 * SECOND, HOUR);
        s->vt->close(s);
}

static void c5_a_blocked_key_with_10000_rows_hides_nobody(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 10000, "'stuck'");
        insert_rows(w, 3, "CASE i WHEN 1 THEN NULL ELSE 'k' || i END");
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        const struct span blocked[] = {span_str("other"), span_str("stuck")};
        struct outbox_rows rows = fetch(s, &o, 100, blocked, 2);
        assert_int_equal(rows.n, 3);
        outbox_rows_release(&rows);
        s->vt->close(s);
}

/* -- marks --------------------------------------------------------------------------------------- */

static void a_mark_may_be_issued_again(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        static const enum outbox_verdict verdicts[] = {OUTBOX_DONE, OUTBOX_RETRY, OUTBOX_BURY,
                                                       OUTBOX_UNTRIED};
        for (size_t v = 0; v < 4; v++) {
                for (int keep = 0; keep < 2; keep++) {
                        struct outbox_marked marked;
                        sqlite3 *db = world_db(w);
                        db_exec(db, "DELETE FROM semel_outbox");
                        (void)sqlite3_close(db);
                        insert_rows(w, 5, "'k' || i");
                        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
                        assert_int_equal(rows.n, 5);
                        for (int again = 0; again < 2; again++) {
                                assert_int_equal(mark_rows(s, &o, keep, &rows, verdicts[v], &marked,
                                                           NULL),
                                                 SEMEL_OK);
                                bool nothing_to_do = again && verdicts[v] != OUTBOX_UNTRIED;
                                assert_int_equal(marked.marked, nothing_to_do ? 0 : 5);
                                assert_int_equal(marked.changed, 0);
                        }
                        outbox_rows_release(&rows);
                }
        }
        s->vt->close(s);
}

static void a_row_that_an_operator_changed_is_reported(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 2, "'k'");
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        sqlite3 *db = world_db(w);
        db_exec(db, "UPDATE semel_outbox SET attempts = 5 WHERE id = 2");
        (void)sqlite3_close(db);
        struct outbox_marked marked = mark_all(s, &o, false, &rows, OUTBOX_DONE);
        assert_int_equal(marked.marked, 1);
        assert_int_equal(marked.changed, 1);
        assert_int_equal(count(w, "id = 2"), 1);
        s->vt->close(s);
}

/* -- one owner ------------------------------------------------------------------------------------ */

static void c1_a_second_relay_waits_for_the_first(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *a = open_outbox(w), *b = open_outbox(w);
        insert_rows(w, 10, "'k' || i");
        struct owner of_a = take(a, &relay_a), of_b = take(b, &relay_b);
        assert_int_equal(of_a.n, EVENT_SLOTS);
        assert_int_equal(of_b.n, 0);
        assert_false(of_b.view.slots[3].free);
        assert_string_equal(of_b.view.slots[3].owner, relay_a.info);
        assert_int_equal(of_b.view.members, 1);
        struct outbox_rows rows = fetch(a, &of_a, 10, NULL, 0);

        assert_int_equal(a->vt->leave(a, &relay_a, 0, soon(), NULL), SEMEL_OK);
        assert_int_equal(b->vt->beat(b, &relay_b, LEASE_US, soon(), &of_b.view, NULL), SEMEL_OK);
        assert_true(of_b.view.slots[3].free);
        of_b = take(b, &relay_b);
        assert_int_equal(of_b.n, EVENT_SLOTS);
        /* The old owner's late mark. */
        struct outbox_marked marked = mark_all(a, &of_a, false, &rows, OUTBOX_DONE);
        assert_int_equal(marked.marked + marked.changed, 0);
        assert_int_equal(marked.lost_slots, EVENT_SLOTS);
        assert_int_equal(marked.lost_mask, ALL_SLOTS);
        assert_int_equal(count(w, "status = 'PENDING'"), 10);
        a->vt->close(a);
        b->vt->close(b);
}

static void c2_slots_can_be_given_and_taken_one_by_one(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *a = open_outbox(w), *b = open_outbox(w);
        struct owner of_a = take(a, &relay_a), before = of_a;
        assert_int_equal(a->vt->give(a, &relay_a, 0x00ff, 0, soon(), NULL), SEMEL_OK);
        assert_int_equal(a->vt->beat(a, &relay_a, LEASE_US, soon(), &of_a.view, NULL), SEMEL_OK);
        look(&of_a);
        assert_int_equal(of_a.n, 8);
        assert_true(of_a.view.slots[0].free);
        assert_int_equal(take(b, &relay_b).n, 0); /* the lock is one */
        of_a = take(a, &relay_a);
        assert_int_equal(of_a.n, EVENT_SLOTS);
        assert_int_equal(of_a.view.slots[0].epoch, before.view.slots[0].epoch + 1);
        assert_int_equal(of_a.view.slots[9].epoch, before.view.slots[9].epoch);
        assert_int_equal(a->vt->give(a, &relay_a, ALL_SLOTS, 0, soon(), NULL), SEMEL_OK);
        assert_int_equal(take(b, &relay_b).n, EVENT_SLOTS);
        a->vt->close(a);
        b->vt->close(b);
}

/* The kernel gives a dead process's lock up: nothing is waited for. */
static void c1_a_killed_relay_is_followed_at_once(void **state)
{
        struct sqlite_world *w = *state;
        int ready[2];
        char c;
        insert_rows(w, 10, "'k' || i");
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                struct outbox_session *s = open_outbox(w);
                struct owner o = take(s, &relay_a);
                struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
                if (rows.n != 10 || write(ready[1], "x", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        assert_int_equal(read(ready[0], &c, 1), 1);
        struct outbox_session *s = open_outbox(w);
        assert_int_equal(take(s, &relay_b).n, 0);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_int_equal(take(s, &relay_b).n, 0); /* stopped is not dead */
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        struct owner o = take(s, &relay_b);
        assert_int_equal(o.n, EVENT_SLOTS);
        assert_int_equal(o.view.slots[0].epoch, 2);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_DONE).marked, 10);
        s->vt->close(s);
        (void)close(ready[0]);
        (void)close(ready[1]);
}

static void other_modes_are_refused_with_a_sentence(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *s = open_outbox(w);
        struct outbox_view view;
        semel_error err = {0};
        assert_int_equal(s->vt->check(s, OUTBOX_OWNED, soon(), &view, &err), SEMEL_OK);
        assert_int_equal(view.mode, OUTBOX_OWNED);
        for (int mode = OUTBOX_OWNED + 1; mode < OUTBOX_MODES; mode++) {
                assert_int_equal(s->vt->check(s, (enum outbox_mode)mode, soon(), &view, &err),
                                 SEMEL_ERR_ARGUMENT);
                assert_non_null(strstr(err.text, "PostgreSQL"));
        }
        s->vt->close(s);
}

/* -- waiting ------------------------------------------------------------------------------------------ */

static void *insert_one(void *arg)
{
        insert_rows(arg, 1, "'k'");
        return NULL;
}

static void listen_wakes_when_somebody_commits(void **state)
{
        struct sqlite_world *w = *state;
        struct outbox_session *s = open_outbox(w);
        uint32_t slots = 0;
        pthread_t thread;
        assert_int_equal(s->vt->listen(s, SECOND, &slots, NULL), SEMEL_OK);
        assert_true(slots != 0); /* what was there before is not known to be seen */
        assert_int_equal(s->vt->listen(s, 50 * MS, &slots, NULL), SEMEL_OK);
        assert_int_equal(slots, 0);
        int64_t began_us = clock_boot_us();
        assert_int_equal(pthread_create(&thread, NULL, insert_one, w), 0);
        assert_int_equal(s->vt->listen(s, 10 * SECOND, &slots, NULL), SEMEL_OK);
        assert_true(slots != 0);
        assert_in_range(clock_boot_us() - began_us, 0, 5 * SECOND);
        (void)pthread_join(thread, NULL);
        /* Between two calls, too. */
        insert_rows(w, 1, "'k'");
        assert_int_equal(s->vt->listen(s, 10 * SECOND, &slots, NULL), SEMEL_OK);
        assert_true(slots != 0);
        s->vt->close(s);
}

/* -- other people's locks, full disks ------------------------------------------------------------------ */

static void b9_a_writer_that_holds_the_file_is_waited_for_until_the_deadline(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 3, "'k' || i");
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        sqlite3 *db = world_db(w);
        db_exec(db, "BEGIN IMMEDIATE");
        const struct outbox_mark mark = {.id = rows.row[0].id, .slot = rows.row[0].slot};
        struct outbox_marked marked;
        semel_error err = {0};
        int64_t began_us = clock_boot_us();
        assert_int_equal(s->vt->mark(s, OUTBOX_OWNED, false, o.slots, o.n, &mark, 1,
                                     clock_boot_us() + 300 * MS, &marked, &err),
                         SEMEL_ERR_BUSY);
        assert_in_range(clock_boot_us() - began_us, 250 * MS, 5 * SECOND);
        struct outbox_rows again = fetch(s, &o, 10, NULL, 0); /* reading waits for nobody */
        assert_int_equal(again.n, 3);
        outbox_rows_release(&again);
        db_exec(db, "ROLLBACK");
        (void)sqlite3_close(db);
        assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_DONE).marked, 3);
        s->vt->close(s);
}

/* Four processes append as fast as they can; the relay takes everything out, and nobody is told BUSY. */
static void b9_appending_processes_and_the_relay_share_the_file(void **state)
{
        enum { WRITERS = 4, EACH = 150 };
        struct sqlite_world *w = *state;
        pid_t pid[WRITERS];
        for (int p = 0; p < WRITERS; p++) {
                pid[p] = fork();
                if (pid[p] != 0)
                        continue;
                sqlite3 *db = world_db(w);
                (void)sqlite3_busy_timeout(db, 20000);
                for (int i = 0; i < EACH; i++)
                        db_exec(db, "BEGIN IMMEDIATE; INSERT INTO semel_outbox (topic, key, payload) "
                                    "VALUES ('t', 'k' || abs(random() % 7), 'x'); COMMIT");
                (void)sqlite3_close(db);
                _exit(0);
        }
        struct outbox_session *s = open_outbox(w);
        struct owner o = take(s, &relay_a);
        size_t got = 0;
        for (int64_t until_us = clock_boot_us() + 60 * SECOND;
             got < WRITERS * EACH && clock_boot_us() < until_us;) {
                struct outbox_rows rows = fetch(s, &o, 100, NULL, 0);
                got += rows.n;
                assert_int_equal(mark_all(s, &o, false, &rows, OUTBOX_DONE).changed, 0);
        }
        for (int p = 0; p < WRITERS; p++) {
                int status = -1;
                assert_int_equal(waitpid(pid[p], &status, 0), pid[p]);
                assert_int_equal(status, 0);
        }
        assert_int_equal(got, WRITERS * EACH);
        s->vt->close(s);
}

static struct outbox_session *open_faulty(struct sqlite_world *w)
{
        const struct sqlite_hooks hooks = {.vfs = FAULT_VFS};
        semel_error err = {0};
        struct outbox_session *s = NULL;
        fault_vfs_register();
        fault_clear();
        if (sqlite_outbox_open_with(w->url, NULL, &hooks, &s, &err) != SEMEL_OK)
                fail_msg("open: %s", err.text);
        return s;
}

/* B9: SQLite rolls the whole transaction back by itself, and nothing of the rest lands one by one. */
static void b9_a_full_disk_changes_nothing(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 3000, "'k' || (i % 100)");
        struct outbox_session *s = open_faulty(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 1000, NULL, 0);
        struct outbox_marked marked;
        semel_error err = {0};
        assert_int_equal(rows.n, 3000);
        fault.write_code = SQLITE_FULL;
        fault.writes = 1000000;
        assert_int_equal(mark_rows(s, &o, true, &rows, OUTBOX_DONE, &marked, &err),
                         SEMEL_ERR_STORE_FULL);
        assert_int_not_equal(fault.seen, 0);
        fault_clear();
        assert_int_equal(count(w, "status = 'PENDING'"), 3000);
        /* The same session goes on when there is room again. */
        assert_int_equal(mark_all(s, &o, true, &rows, OUTBOX_DONE).marked, 3000);
        assert_int_equal(count(w, "status = 'PUBLISHED'"), 3000);
        s->vt->close(s);
}

/* Nobody knows what a COMMIT left whose fsync failed: said, and the mark issued again settles it. */
static void a7_a_commit_without_an_answer_is_unknown(void **state)
{
        struct sqlite_world *w = *state;
        insert_rows(w, 3, "'k' || i");
        struct outbox_session *s = open_faulty(w);
        struct owner o = take(s, &relay_a);
        struct outbox_rows rows = fetch(s, &o, 10, NULL, 0);
        struct outbox_marked marked;
        semel_error err = {0};
        fault.syncs = 1;
        assert_int_equal(mark_rows(s, &o, false, &rows, OUTBOX_DONE, &marked, &err),
                         SEMEL_ERR_UNKNOWN);
        assert_int_equal(fault.seen, 1);
        marked = mark_all(s, &o, false, &rows, OUTBOX_DONE);
        assert_int_equal(marked.changed + marked.lost_slots, 0);
        assert_int_equal(count(w, "1"), 0);
        s->vt->close(s);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, outbox_setup, outbox_teardown)
        const struct CMUnitTest tests[] = {
                TEST(kept_rows_are_counted_exactly_while_they_are_few),
                TEST(a_plain_insert_is_an_event),
                TEST(append_belongs_to_the_transaction),
                TEST(c4_rows_come_in_order_of_id_within_a_slot),
                TEST(c4_o8_a_key_waits_behind_its_row_in_backoff),
                TEST(c5_a_blocked_key_with_10000_rows_hides_nobody),
                TEST(a_mark_may_be_issued_again),
                TEST(a_row_that_an_operator_changed_is_reported),
                TEST(c1_a_second_relay_waits_for_the_first),
                TEST(c2_slots_can_be_given_and_taken_one_by_one),
                TEST(c1_a_killed_relay_is_followed_at_once),
                TEST(other_modes_are_refused_with_a_sentence),
                TEST(listen_wakes_when_somebody_commits),
                TEST(b9_a_writer_that_holds_the_file_is_waited_for_until_the_deadline),
                TEST(b9_appending_processes_and_the_relay_share_the_file),
                TEST(b9_a_full_disk_changes_nothing),
                TEST(a7_a_commit_without_an_answer_is_unknown),
        };
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
