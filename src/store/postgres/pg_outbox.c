/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox: sessions, and the rows that may go now; see pg_outbox.h and store/outbox.h.
 *
 * Rows are handed out as they came: their bytes stay in libpq's result until they are released.
 */
#include <stdio.h>
#include <stdlib.h>

#include "json/event_headers.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_outbox.h"
#include "sys/clock.h"

/* Columns of outbox_fetch*.sql. */
enum {
        COL_SLOT,
        COL_ID,
        COL_ATTEMPTS,
        COL_CREATED_AT,
        COL_EVENT_ID,
        COL_TOPIC,
        COL_KEY,
        COL_PAYLOAD,
        COL_HEADERS,
        COL_PARTITION,
        COL_TRACEPARENT,
        COL_PLACE,
        COL_PUBLISHED_AT,
};

enum { SLOT_TOO_LARGE = -1 }; /* outbox_fetch.sql: a row whose bytes did not come */

/* Where a row is large, the next ones are likely to be: so many batches are read by bytes at once. */
enum { EXACT_FETCHES = 16 };

#define CLOCK_FRESH_US (1 * SECOND)

/* What the rows of one fetch point into. */
struct held {
        PGresult *res;
        struct outbox_row *rows;
        struct event_header_list *headers; /* one a row; NULL: no row has any */
        size_t n;
};

static void held_release(void *driver)
{
        struct held *held = driver;
        for (size_t i = 0; held->headers && i < held->n; i++)
                event_headers_release(&held->headers[i]);
        free(held->headers);
        free(held->rows);
        PQclear(held->res);
        free(held);
}

static semel_code decode_headers(struct held *held, int i, semel_error *err)
{
        struct span json = pg_result_bytes(held->res, i, COL_HEADERS);
        if (!held->headers)
                held->headers = calloc(held->n, sizeof *held->headers);
        if (!held->headers)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for headers");
        if (json.n > 0) /* jsonb's own first byte is its version */
                json = span_of(json.p + 1, json.n - 1);
        semel_code code = event_headers_decode(json, &held->headers[i], err);
        if (code == SEMEL_OK) {
                held->rows[i].event.headers = held->headers[i].v;
                held->rows[i].event.header_count = held->headers[i].n;
        }
        return code;
}

static semel_code decode_row(struct held *held, int i, size_t *bytes, semel_error *err)
{
        const PGresult *res = held->res;
        struct outbox_row *row = &held->rows[i];
        struct span id = pg_result_bytes(res, i, COL_EVENT_ID);
        if (id.n != EVENT_ID_BYTES)
                return err_set(err, SEMEL_ERR_CORRUPT, "a row of the outbox has no event id");
        *row = (struct outbox_row){
                .id = pg_result_int(res, i, COL_ID),
                .slot = (int16_t)pg_result_int(res, i, COL_SLOT),
                .attempts = (int32_t)pg_result_int(res, i, COL_ATTEMPTS),
                .created_us = pg_result_time_us(res, i, COL_CREATED_AT),
                .published_us = PQgetisnull(res, i, COL_PUBLISHED_AT)
                                        ? 0
                                        : pg_result_time_us(res, i, COL_PUBLISHED_AT),
                .place = pg_result_int(res, i, COL_PLACE),
                .event = {
                        .topic = pg_result_bytes(res, i, COL_TOPIC),
                        .key = pg_result_bytes(res, i, COL_KEY),
                        .payload = pg_result_bytes(res, i, COL_PAYLOAD),
                        .traceparent = pg_result_bytes(res, i, COL_TRACEPARENT),
                        .key_is_null = PQgetisnull(res, i, COL_KEY),
                        .payload_is_null = PQgetisnull(res, i, COL_PAYLOAD),
                        .has_id = true,
                        .partition = PQgetisnull(res, i, COL_PARTITION)
                                             ? EVENT_NO_PARTITION
                                             : (int32_t)pg_result_int(res, i, COL_PARTITION),
                },
        };
        memcpy(row->event.id, id.p, EVENT_ID_BYTES);
        *bytes += row->event.key.n + row->event.payload.n +
                  (size_t)PQgetlength(res, i, COL_HEADERS);
        return PQgetisnull(res, i, COL_HEADERS) ? SEMEL_OK : decode_headers(held, i, err);
}

struct order {
        bool by_time;
        int place[EVENT_SLOTS]; /* of each slot among the quotas */
};

static int compare_rows(const void *a, const void *b, void *arg)
{
        const struct order *order = arg;
        const struct outbox_row *x = a, *y = b;
        int px = order->place[x->slot], py = order->place[y->slot];
        if (px == py && order->by_time && x->created_us != y->created_us)
                return x->created_us < y->created_us ? -1 : 1;
        return px != py ? px - py : x->id < y->id ? -1 : x->id > y->id;
}

/* The plan gives the right order nearly always; the promise must not hang on a plan. */
static void sort_rows(const struct outbox_fetch *in, bool by_time, struct outbox_row *rows, size_t n)
{
        struct order order = {.by_time = by_time};
        for (size_t i = 0; i < in->quota_count; i++)
                order.place[in->quotas[i].slot.slot] = (int)i;
        for (size_t i = 1; i < n; i++) {
                if (compare_rows(&rows[i - 1], &rows[i], &order) > 0) {
                        qsort_r(rows, n, sizeof *rows, compare_rows, &order);
                        return;
                }
        }
}

/* Takes the result. */
static semel_code decode(const struct outbox_fetch *in, const struct pg_outbox *ob, PGresult *res,
                         struct outbox_rows *ret_rows, semel_error *err)
{
        int n = PQntuples(res);
        size_t bytes = 0;
        if (n == 0) {
                PQclear(res);
                *ret_rows = (struct outbox_rows){0};
                return SEMEL_OK;
        }
        semel_code code = outbox_fetch_check(in, (size_t)n, err);
        struct held *held = code == SEMEL_OK ? calloc(1, sizeof *held) : NULL;
        if (code != SEMEL_OK || !held) {
                PQclear(res);
                return code != SEMEL_OK ? code
                                        : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a batch");
        }
        *held = (struct held){.res = res, .n = (size_t)n, .rows = calloc((size_t)n, sizeof *held->rows)};
        if (!held->rows)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a batch");
        for (int i = 0; i < n && code == SEMEL_OK; i++) {
                int64_t slot = pg_result_int(res, i, COL_SLOT);
                code = slot >= 0 && slot < EVENT_SLOTS
                               ? decode_row(held, i, &bytes, err)
                               : err_set(err, SEMEL_ERR_CORRUPT, "a row of the outbox is in slot "
                                         "%lld; there are %d", (long long)slot, EVENT_SLOTS);
        }
        if (code != SEMEL_OK) {
                held_release(held);
                return code;
        }
        sort_rows(in, ob->unordered, held->rows, held->n);
        *ret_rows = (struct outbox_rows){
                .row = held->rows,
                .n = held->n,
                .bytes = bytes,
                .now_us = clock_boot_us() + ob->clock_ahead_us,
                .driver = held,
                .release = held_release,
        };
        return SEMEL_OK;
}

static void fetch_params(const struct outbox_fetch *in, size_t bytes_max, struct params *p)
{
        bool claims = in->mode == OUTBOX_TWO_PHASE;
        pg_params_clear(p, claims ? 6 : 5);
        pg_params_array(p, 0, PG_INT2);
        pg_params_array(p, 1, PG_INT4);
        pg_params_array(p, 2, PG_TEXT);
        pg_params_scalar(p, 3, PG_INT8);
        pg_params_scalar(p, 4, PG_INT8);
        if (claims)
                pg_params_array(p, 5, PG_INT8);
        for (size_t i = 0; i < in->quota_count; i++) {
                pg_params_int(p, 0, in->quotas[i].slot.slot);
                pg_params_int(p, 1, in->quotas[i].rows_max);
                if (claims)
                        pg_params_int(p, 5, in->quotas[i].slot.epoch);
        }
        for (size_t i = 0; i < in->blocked_count; i++)
                pg_params_bytea(p, 2, in->blocked[i]);
        pg_params_int(p, 3, (int64_t)bytes_max);
        pg_params_int(p, 4, (int64_t)outbox_fetch_rows_max(in));
}

/* One statement; in mode single BEGIN is in front of it; once a second the calendar is asked for. */
static semel_code run_fetch(struct pg_outbox *ob, const struct outbox_fetch *in,
                            enum outbox_query query, size_t bytes_max, int64_t deadline_us,
                            PGresult **ret, semel_error *err)
{
        struct pg_step steps[3];
        PGresult *res[3] = {NULL, NULL, NULL};
        size_t n = 0, rows, clock;
        fetch_params(in, bytes_max, &ob->params[0]);
        if (in->mode == OUTBOX_SINGLE)
                steps[n++] = (struct pg_step){.query = OQ_BEGIN};
        rows = n;
        steps[n++] = (struct pg_step){.query = query, .params = &ob->params[0]};
        clock = n;
        if (ob->clock_us == 0 || clock_boot_us() - ob->clock_us > CLOCK_FRESH_US)
                steps[n++] = (struct pg_step){.query = OQ_CLOCK};
        semel_code code = pg_outbox_run(ob, steps, n, query == OQ_FETCH_CLAIM, deadline_us, res, err);
        if (code == SEMEL_OK && clock < n) {
                ob->clock_us = clock_boot_us();
                ob->clock_ahead_us = pg_result_time_us(res[clock], 0, 0) - ob->clock_us;
        }
        for (size_t i = 0; i < n; i++)
                if (i != rows)
                        PQclear(res[i]);
        *ret = res[rows];
        return code;
}

static bool has_large_row(const PGresult *res)
{
        for (int i = 0; i < PQntuples(res); i++)
                if (pg_result_int(res, i, COL_SLOT) == SLOT_TOO_LARGE)
                        return true;
        return false;
}

/* Small rows cannot exceed the batch's bytes together, so nobody has to add them up. */
static semel_code fetch_quickly(struct pg_outbox *ob, const struct outbox_fetch *in,
                                size_t bytes_max, int64_t deadline_us, PGresult **ret,
                                semel_error *err)
{
        PGresult *res = NULL;
        if (ob->exact_left == 0) {
                size_t rows = outbox_fetch_rows_max(in);
                semel_code code = run_fetch(ob, in, OQ_FETCH, bytes_max / (rows ? rows : 1),
                                            deadline_us, &res, err);
                if (code != SEMEL_OK || !has_large_row(res)) {
                        *ret = res;
                        return code;
                }
                PQclear(res);
                ob->exact_left = EXACT_FETCHES;
        }
        ob->exact_left--;
        return run_fetch(ob, in, OQ_FETCH_BYTES, bytes_max, deadline_us, ret, err);
}

static semel_code pg_fetch(struct outbox_session *s, const struct outbox_fetch *in,
                           int64_t deadline_us, struct outbox_rows *ret_rows, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        size_t bytes_max = in->bytes_max > 0 ? in->bytes_max : 1;
        PGresult *res = NULL;
        if (ob->in_tx)
                s->vt->abandon(s);
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        if (in->mode == OUTBOX_SINGLE) {
                code = run_fetch(ob, in, OQ_FETCH_LOCKED, bytes_max, deadline_us, &res, err);
                ob->in_tx = code == SEMEL_OK;
                if (code != SEMEL_OK)
                        s->vt->abandon(s);
        } else if (in->mode == OUTBOX_TWO_PHASE) {
                code = run_fetch(ob, in, OQ_FETCH_CLAIM, bytes_max, deadline_us, &res, err);
        } else {
                code = fetch_quickly(ob, in, bytes_max, deadline_us, &res, err);
        }
        if (code == SEMEL_OK)
                code = decode(in, ob, res, ret_rows, err);
        if (ob->in_tx && (code != SEMEL_OK || ret_rows->n == 0))
                s->vt->abandon(s); /* nothing is marked: no transaction is left open */
        return code;
}

/* A failed statement of an explicit transaction leaves it failed and open. */
static void pg_abandon(struct outbox_session *s)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        if (!ob->pg || PQtransactionStatus(ob->pg) == PQTRANS_IDLE) {
                ob->in_tx = false;
                return;
        }
        const struct pg_step step = {.query = OQ_ROLLBACK};
        PGresult *res = NULL;
        ob->in_tx = true; /* no settings in front of it */
        semel_code code = pg_outbox_run(ob, &step, 1, false, clock_boot_us() + SECOND, &res, NULL);
        PQclear(res);
        ob->in_tx = false;
        if (code != SEMEL_OK)
                pg_outbox_drop(ob);
}

static semel_code pg_blocked(struct outbox_session *s, uint32_t slot_mask,
                             enum outbox_on_dead on_dead, size_t max, int64_t deadline_us,
                             const struct outbox_blocked **ret, size_t *ret_n, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct params *p = &ob->params[0];
        PGresult *res = NULL;
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_clear(p, 3);
        pg_params_array(p, 0, PG_INT2);
        pg_params_scalar(p, 1, PG_BOOL);
        pg_params_scalar(p, 2, PG_INT8);
        for (int slot = 0; slot < EVENT_SLOTS; slot++) {
                if (slot_mask & 1u << slot)
                        pg_params_int(p, 0, slot);
        }
        pg_params_int(p, 1, on_dead == OUTBOX_BLOCK);
        pg_params_int(p, 2, (int64_t)max);
        code = pg_outbox_one(ob, OQ_BLOCKED, p, false, deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        size_t n = (size_t)PQntuples(res);
        struct outbox_blocked *all = calloc(n ? n : 1, sizeof *all);
        if (!all) {
                PQclear(res);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for blocked keys");
        }
        for (int i = 0; i < (int)n; i++)
                all[i] = (struct outbox_blocked){
                        .slot = (int16_t)pg_result_int(res, i, 0),
                        .id = pg_result_int(res, i, 1),
                        .dead = pg_result_bool(res, i, 2),
                        .wait_us = pg_result_int(res, i, 3),
                        .key = pg_result_bytes(res, i, 4),
                };
        PQclear(ob->blocked_res);
        free(ob->blocked);
        ob->blocked_res = res;
        ob->blocked = all;
        *ret = all;
        *ret_n = n;
        return SEMEL_OK;
}

/* -- sessions --------------------------------------------------------------------------------- */

static void pg_close(struct outbox_session *s)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        if (!ob)
                return;
        pg_outbox_drop(ob);
        pg_mapping_release(ob);
        PQclear(ob->blocked_res);
        free(ob->blocked);
        for (size_t i = 0; i < sizeof ob->params / sizeof *ob->params; i++)
                pg_params_release(&ob->params[i]);
        pg_config_release(&ob->config);
        free(ob);
}

static const struct outbox_vt pg_outbox_vt = {
        .name = "postgres",
        .check = pg_outbox_check,
        .beat = pg_outbox_beat,
        .take = pg_outbox_take,
        .give = pg_outbox_give,
        .leave = pg_outbox_leave,
        .fetch = pg_fetch,
        .mark = pg_outbox_mark,
        .abandon = pg_abandon,
        .blocked = pg_blocked,
        .recover = pg_outbox_recover,
        .unstick = pg_outbox_unstick,
        .prune = pg_outbox_prune,
        .listen = pg_outbox_listen,
        .reap = pg_outbox_reap,
        .stats = pg_outbox_stats,
        .list = pg_outbox_list,
        .retry = pg_outbox_retry,
        .discard = pg_outbox_discard,
        .republish = pg_outbox_republish,
        .close = pg_close,
};

/* The name that pg_stat_activity shows. */
static int rename_application(struct pg_config *config, const char *name)
{
        for (int i = 0; config->keywords[i]; i++) {
                if (strcmp(config->keywords[i], "application_name") == 0) {
                        char *copy = strdup(name);
                        if (!copy)
                                return -1;
                        free(config->values[i]);
                        config->values[i] = copy;
                }
        }
        return 0;
}

/* A renewal comes each third of the lease, so that as little as two thirds may be left when a relay
 * stops: by then the server has ended its transaction (rule C6).  A wait for a lock is shorter than the
 * time that a renewal has. */
static void set_timeouts(struct pg_outbox *ob, int64_t lease_us)
{
        if (lease_us <= 0)
                lease_us = PG_OUTBOX_LEASE_US;
        int64_t lock_us = lease_us / 4 < PG_OUTBOX_LOCK_US ? lease_us / 4 : PG_OUTBOX_LOCK_US;
        (void)snprintf(ob->lock_timeout, sizeof ob->lock_timeout, "%lldms", (long long)(lock_us / MS));
        (void)snprintf(ob->idle_timeout, sizeof ob->idle_timeout, "%lldms",
                       (long long)(lease_us * 3 / 5 / MS));
}

static char *copy_text(const char *text, bool *failed)
{
        char *copy = text ? strdup(text) : NULL;
        *failed |= text && !copy;
        return copy;
}

semel_code pg_outbox_open(const char *url, const struct outbox_mapping *mapping, const char *name,
                          struct outbox_session **ret, semel_error *err)
{
        static const struct outbox_mapping semel = {.preset = "semel"};
        bool failed = false;
        if (!mapping)
                mapping = &semel;
        semel_code code = pg_mapping_check(mapping, err);
        if (code != SEMEL_OK)
                return code;
        struct pg_outbox *ob = calloc(1, sizeof *ob);
        if (!ob)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an outbox session");
        ob->session.vt = &pg_outbox_vt;
        set_timeouts(ob, mapping->lease_us);
        for (size_t i = 0; i < sizeof ob->params / sizeof *ob->params; i++)
                pg_params_init(&ob->params[i]);
        code = pg_config_parse(url, &ob->config, err);
        ob->wanted = (struct outbox_mapping){
                .preset = copy_text(mapping->preset ? mapping->preset : "semel", &failed),
                .table = copy_text(mapping->table, &failed),
                .topic = copy_text(mapping->topic, &failed),
                .unordered = mapping->unordered,
        };
        if (code == SEMEL_OK && (failed || rename_application(&ob->config, name) < 0))
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an outbox session");
        if (code != SEMEL_OK) {
                pg_close(&ob->session);
                return code;
        }
        *ret = &ob->session;
        return SEMEL_OK;
}
