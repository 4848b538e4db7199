/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_kit: see sqlite_outbox_kit.h.
 */
#include "sqlite_outbox_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "store/sqlite/sqlite_store.h"

const struct outbox_member relay_a = {.id = {1}, .info = "host=a pid=1"};
const struct outbox_member relay_b = {.id = {2}, .info = "host=b pid=2"};

int outbox_setup(void **state)
{
        static struct sqlite_world w;
        world_init(&w);
        w.env.clock = &sys_clock_host;
        world_close(world_open(&w));
        *state = &w;
        return 0;
}

int outbox_teardown(void **state)
{
        world_release(*state);
        return 0;
}

int64_t soon(void)
{
        return clock_boot_us() + 10 * SECOND;
}

struct outbox_session *open_mapped(struct sqlite_world *w, const struct outbox_mapping *m)
{
        semel_error err = {0};
        struct outbox_session *s = NULL;
        if (store_sqlite_driver.outbox_open(w->url, m, "test", &s, &err) != SEMEL_OK)
                fail_msg("open: %s", err.text);
        return s;
}

struct outbox_session *open_outbox(struct sqlite_world *w)
{
        return open_mapped(w, NULL);
}


void look(struct owner *o)
{
        o->n = 0;
        for (int i = 0; i < EVENT_SLOTS; i++)
                if (o->view.slots[i].mine)
                        o->slots[o->n++] = (struct outbox_slot){(int16_t)i, o->view.slots[i].epoch};
}

struct owner take(struct outbox_session *s, const struct outbox_member *me)
{
        semel_error err = {0};
        struct owner o;
        if (s->vt->take(s, me, OUTBOX_OWNED, ALL_SLOTS, LEASE_US, soon(), &o.view, &err) != SEMEL_OK)
                fail_msg("take: %s", err.text);
        look(&o);
        return o;
}

struct outbox_rows fetch(struct outbox_session *s, const struct owner *o, int rows_max,
                                const struct span *blocked, size_t blocked_count)
{
        struct outbox_quota quotas[EVENT_SLOTS];
        struct outbox_rows rows = {0};
        semel_error err = {0};
        for (size_t i = 0; i < o->n; i++)
                quotas[i] = (struct outbox_quota){o->slots[i], rows_max};
        const struct outbox_fetch in = {.mode = OUTBOX_OWNED,
                                        .quotas = quotas,
                                        .quota_count = o->n,
                                        .blocked = blocked,
                                        .blocked_count = blocked_count,
                                        .bytes_max = LIMIT_OUTBOX_BATCH_BYTES};
        if (s->vt->fetch(s, &in, soon(), &rows, &err) != SEMEL_OK)
                fail_msg("fetch: %s", err.text);
        return rows;
}

/* Mark all of them alike. */
semel_code mark_rows(struct outbox_session *s, const struct owner *o, bool keep,
                            const struct outbox_rows *rows, enum outbox_verdict verdict,
                            struct outbox_marked *ret, semel_error *err)
{
        struct outbox_mark *marks = calloc(rows->n + 1, sizeof *marks);
        for (size_t i = 0; i < rows->n; i++)
                marks[i] = (struct outbox_mark){.id = rows->row[i].id,
                                                .slot = rows->row[i].slot,
                                                .attempts = rows->row[i].attempts,
                                                .event_id = rows->row[i].event.id,
                                                .verdict = verdict,
                                                .retry_after_us = HOUR,
                                                .reason = "the broker said no"};
        semel_code code = s->vt->mark(s, OUTBOX_OWNED, keep, o->slots, o->n, marks, rows->n, soon(),
                                      ret, err);
        free(marks);
        return code;
}

struct outbox_marked mark_all(struct outbox_session *s, const struct owner *o, bool keep,
                                     struct outbox_rows *rows, enum outbox_verdict verdict)
{
        struct outbox_marked marked = {0};
        semel_error err = {0};
        if (mark_rows(s, o, keep, rows, verdict, &marked, &err) != SEMEL_OK)
                fail_msg("mark: %s", err.text);
        outbox_rows_release(rows);
        return marked;
}

void insert_rows(struct sqlite_world *w, int n, const char *key)
{
        sqlite3 *db = world_db(w);
        char *sql = sqlite3_mprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                                    "WHERE i < %d) INSERT INTO semel_outbox (topic, key, payload) "
                                    "SELECT 'orders', %s, 'payload ' || i FROM n",
                                    n, key);
        db_exec(db, sql);
        sqlite3_free(sql);
        (void)sqlite3_close(db);
}

int64_t count(struct sqlite_world *w, const char *where)
{
        sqlite3 *db = world_db(w);
        char *sql = sqlite3_mprintf("SELECT count(*) FROM semel_outbox WHERE %s", where);
        int64_t n = db_int64(db, sql);
        sqlite3_free(sql);
        (void)sqlite3_close(db);
        return n;
}
