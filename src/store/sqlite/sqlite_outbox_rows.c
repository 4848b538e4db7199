/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_rows: the rows that may go, and the keys that must wait.
 */
#include "store/sqlite/sqlite_outbox.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/limits.h"
#include "json/event_headers.h"
#include "sys/sha256.h"

enum {
        CHUNK_BYTES = 256 * 1024,
        /* A slot whose quota is used up makes the walk go over rows for nothing: with something in
         * hand it ends after so many times the whole quota, and not before so many rows. */
        WALK_FACTOR = 4,
        WALK_ROWS = 4096,
};

/* -- blocked keys -------------------------------------------------------------------------------- */

/* Open addressing over the caller's spans; slots hold index + 1. */
struct blocked_set {
        const struct span *keys;
        uint32_t *table;
        size_t mask;
};

static uint64_t hash(struct span s)
{
        uint64_t h = UINT64_C(14695981039346656037);
        for (size_t i = 0; i < s.n; i++)
                h = (h ^ s.p[i]) * UINT64_C(1099511628211);
        return h ^ h >> 29;
}

static bool set_init(struct blocked_set *set, const struct span *keys, size_t n)
{
        size_t size = 16;
        while (size < 2 * n)
                size *= 2;
        *set = (struct blocked_set){.keys = keys, .mask = size - 1};
        set->table = calloc(size, sizeof *set->table);
        for (size_t i = 0; set->table && i < n; i++) {
                size_t at = hash(keys[i]) & set->mask;
                while (set->table[at])
                        at = (at + 1) & set->mask;
                set->table[at] = (uint32_t)i + 1;
        }
        return set->table != NULL;
}

static bool set_has(const struct blocked_set *set, struct span key)
{
        for (size_t at = hash(key) & set->mask; set->table[at]; at = (at + 1) & set->mask)
                if (span_eq(set->keys[set->table[at] - 1], key))
                        return true;
        return false;
}

/* semel_blocked(key): rows without a key never are (rule C5). */
static void sql_blocked(sqlite3_context *context, int n, sqlite3_value **args)
{
        const struct sqlite_outbox *o = sqlite3_user_data(context);
        bool blocked = false;
        (void)n;
        if (o && o->blocked && sqlite3_value_type(args[0]) != SQLITE_NULL) {
                const void *p = sqlite3_value_text(args[0]);
                blocked = set_has(o->blocked,
                                  span_of(p, p ? (size_t)sqlite3_value_bytes(args[0]) : 0));
        }
        sqlite3_result_int(context, blocked);
}

/* semel_slot(key). */
static void sql_slot(sqlite3_context *context, int n, sqlite3_value **args)
{
        const void *p = sqlite3_value_text(args[0]);
        struct span key = span_of(p, p ? (size_t)sqlite3_value_bytes(args[0]) : 0);
        int slot = outbox_slot_of(&key, 0);
        (void)n;
        if (slot < 0)
                sqlite3_result_error_nomem(context);
        else
                sqlite3_result_int(context, slot);
}

int outbox_functions(sqlite3 *db, struct sqlite_outbox *o)
{
        int rc = sqlite3_create_function(db, "semel_blocked", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, o,
                                         sql_blocked, NULL, NULL);
        return rc != SQLITE_OK ? rc
                               : sqlite3_create_function(db, "semel_slot", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                                         NULL, sql_slot, NULL, NULL);
}

/* -- rows that outlive the statement --------------------------------------------------------------- */

struct chunk {
        struct chunk *next;
        size_t used, size;
        uint8_t bytes[];
};

struct headers_node {
        struct headers_node *next;
        struct event_header_list list;
};

struct box {
        struct chunk *chunks;
        struct headers_node *headers;
        struct outbox_row *row;
        size_t n, cap;
        size_t bytes;
};

static void box_free(void *driver)
{
        struct box *box = driver;
        while (box && box->chunks) {
                struct chunk *next = box->chunks->next;
                free(box->chunks);
                box->chunks = next;
        }
        while (box && box->headers) {
                struct headers_node *next = box->headers->next;
                event_headers_release(&box->headers->list);
                free(box->headers);
                box->headers = next;
        }
        if (box)
                free(box->row);
        free(box);
}

/* A copy; false: no memory. */
static bool box_copy(struct box *box, struct span from, struct span *ret)
{
        struct chunk *chunk = box->chunks;
        if (from.n == 0) {
                *ret = span_of(NULL, 0);
                return true;
        }
        if (!chunk || chunk->size - chunk->used < from.n) {
                size_t size = from.n > CHUNK_BYTES ? from.n : CHUNK_BYTES;
                chunk = malloc(sizeof *chunk + size);
                if (!chunk)
                        return false;
                *chunk = (struct chunk){.next = box->chunks, .size = size};
                box->chunks = chunk;
        }
        uint8_t *to = chunk->bytes + chunk->used;
        memcpy(to, from.p, from.n);
        chunk->used += from.n;
        box->bytes += from.n;
        *ret = span_of(to, from.n);
        return true;
}

static struct outbox_row *box_row(struct box *box)
{
        if (box->n == box->cap) {
                size_t cap = box->cap ? 2 * box->cap : 64;
                struct outbox_row *row = realloc(box->row, cap * sizeof *row);
                if (!row)
                        return NULL;
                box->row = row;
                box->cap = cap;
        }
        return &box->row[box->n];
}

static bool box_headers(struct box *box, struct span json, struct event *ev)
{
        if (json.n == 0)
                return true;
        struct headers_node *node = calloc(1, sizeof *node);
        if (!node || event_headers_decode(json, &node->list, NULL) != SEMEL_OK) {
                free(node);
                return false;
        }
        node->next = box->headers;
        box->headers = node;
        box->bytes += json.n;
        ev->headers = node->list.v;
        ev->header_count = node->list.n;
        return true;
}

/* -- fetch -------------------------------------------------------------------------------------------- */

int outbox_slot_of(const struct span *key, int64_t id)
{
        uint8_t digest[32];
        char digits[24];
        int n = key ? 0 : snprintf(digits, sizeof digits, "%lld", (long long)id);
        struct span s = key ? *key : span_of(digits, (size_t)n);
        return sha256_once(s.p ? (const void *)s.p : "", s.n, digest) == 0
                       ? event_slot_of_digest(digest)
                       : -1;
}

void outbox_event_id(struct span text, uint8_t ret[EVENT_ID_BYTES])
{
        uint8_t digest[32] = {0};
        if (event_id_parse((const char *)text.p, text.n, ret))
                return;
        (void)sha256_once(text.p ? (const void *)text.p : "", text.n, digest);
        memcpy(ret, digest, EVENT_ID_BYTES);
}

/* The columns of outbox_fetch.sql. */
enum { COL_ID, COL_ATTEMPTS, COL_CREATED, COL_EVENT_ID, COL_TOPIC, COL_KEY, COL_TRACEPARENT,
       COL_PARTITION, COL_HEADERS, COL_PAYLOAD };

struct walk {
        int8_t quota_of[EVENT_SLOTS]; /* -1: not asked for */
        int64_t left[EVENT_SLOTS];    /* by quota */
        int64_t total;
};

static void walk_init(struct walk *w, const struct outbox_fetch *in)
{
        memset(w, 0, sizeof *w);
        memset(w->quota_of, -1, sizeof w->quota_of);
        for (size_t i = 0; i < in->quota_count && i < EVENT_SLOTS; i++) {
                int slot = in->quotas[i].slot.slot;
                if (slot < 0 || slot >= EVENT_SLOTS)
                        continue;
                w->quota_of[slot] = (int8_t)i;
                w->left[i] = in->quotas[i].rows_max;
        }
        w->total = (int64_t)outbox_fetch_rows_max(in);
}

static bool add_row(struct box *box, sqlite3_stmt *stmt, int slot)
{
        struct outbox_row *row = box_row(box);
        if (!row)
                return false;
        *row = (struct outbox_row){.id = sqlite3_column_int64(stmt, COL_ID),
                                   .slot = (int16_t)slot,
                                   .attempts = sqlite3_column_int(stmt, COL_ATTEMPTS),
                                   .created_us = sqlite3_column_int64(stmt, COL_CREATED)};
        struct event *ev = &row->event;
        ev->has_id = true;
        ev->key_is_null = sqlite3_column_type(stmt, COL_KEY) == SQLITE_NULL;
        ev->payload_is_null = sqlite3_column_type(stmt, COL_PAYLOAD) == SQLITE_NULL;
        ev->partition = sqlite3_column_type(stmt, COL_PARTITION) == SQLITE_NULL
                                ? EVENT_NO_PARTITION
                                : sqlite3_column_int(stmt, COL_PARTITION);
        outbox_event_id(column_span(stmt, COL_EVENT_ID), ev->id);
        if (!box_copy(box, column_span(stmt, COL_TOPIC), &ev->topic) ||
            !box_copy(box, column_span(stmt, COL_KEY), &ev->key) ||
            !box_copy(box, column_span(stmt, COL_TRACEPARENT), &ev->traceparent) ||
            !box_copy(box, column_span(stmt, COL_PAYLOAD), &ev->payload) ||
            !box_headers(box, column_span(stmt, COL_HEADERS), ev))
                return false;
        box->n++;
        return true;
}

/* SQLITE_DONE, SQLITE_NOMEM, or an extended code. */
static int walk_rows(sqlite3_stmt *stmt, struct walk *w, size_t bytes_max, struct box *box)
{
        int64_t seen = 0;
        int rc;
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                struct span key = column_span(stmt, COL_KEY);
                bool has_key = sqlite3_column_type(stmt, COL_KEY) != SQLITE_NULL;
                int slot = outbox_slot_of(has_key ? &key : NULL,
                                          sqlite3_column_int64(stmt, COL_ID));
                if (slot < 0)
                        return SQLITE_NOMEM;
                int quota = w->quota_of[slot];
                if (quota >= 0 && w->left[quota] > 0) {
                        if (!add_row(box, stmt, slot))
                                return SQLITE_NOMEM;
                        w->left[quota]--;
                }
                seen++;
                if ((int64_t)box->n >= w->total || (box->n > 0 && box->bytes >= bytes_max) ||
                    (box->n > 0 && seen >= WALK_ROWS && seen >= WALK_FACTOR * w->total))
                        return SQLITE_DONE;
        }
        return rc;
}

/* Rows of one slot together, in the order of the quotas. */
static bool group_by_quota(struct box *box, const struct walk *w)
{
        size_t start[EVENT_SLOTS + 1] = {0};
        struct outbox_row *sorted = malloc(box->cap * sizeof *sorted);
        if (!sorted)
                return false;
        for (size_t i = 0; i < box->n; i++)
                start[w->quota_of[box->row[i].slot] + 1]++;
        for (size_t i = 1; i <= EVENT_SLOTS; i++)
                start[i] += start[i - 1];
        for (size_t i = 0; i < box->n; i++)
                sorted[start[w->quota_of[box->row[i].slot]]++] = box->row[i];
        free(box->row);
        box->row = sorted;
        return true;
}

static semel_code fetch_rows(struct sqlite_outbox *o, const struct outbox_fetch *in,
                             struct box *box, semel_error *err)
{
        struct walk w;
        walk_init(&w, in);
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_FETCH);
        if (!stmt)
                return outbox_error(o, err);
        (void)sqlite3_bind_int64(stmt, 1, o->ses.now.wall_us);
        int rc = w.total > 0 ? walk_rows(stmt, &w, in->bytes_max, box) : SQLITE_DONE;
        semel_code code = SEMEL_OK;
        if (rc == SQLITE_NOMEM || (box->n > 0 && in->quota_count > 1 && !group_by_quota(box, &w)))
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a batch of the outbox");
        else if (rc != SQLITE_DONE)
                code = outbox_error(o, err);
        (void)sqlite3_reset(stmt);
        return code;
}

semel_code sqlite_outbox_fetch(struct outbox_session *s, const struct outbox_fetch *in,
                               int64_t deadline_us, struct outbox_rows *ret_rows, semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        struct blocked_set set = {0};
        struct box *box = NULL;
        semel_code code = SEMEL_OK;
        if (in->mode != OUTBOX_OWNED)
                return err_set(err, SEMEL_ERR_ARGUMENT, "on SQLite the relay has the mode owned alone");
        code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        box = calloc(1, sizeof *box);
        if (!box || (in->blocked_count > 0 && !set_init(&set, in->blocked, in->blocked_count))) {
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a batch of the outbox");
                goto out;
        }
        code = outbox_begin_read(o, err);
        if (code != SEMEL_OK)
                goto out;
        o->blocked = set.table ? &set : NULL;
        code = fetch_rows(o, in, box, err);
        o->blocked = NULL;
        if (outbox_is_mapped(&o->mapping))
                o->schema_cookie = outbox_schema_cookie(o);
        outbox_end_read(o);
        if (code == SEMEL_OK) {
                *ret_rows = (struct outbox_rows){.row = box->row,
                                                 .n = box->n,
                                                 .bytes = box->bytes,
                                                 /* as created_at: on the wall clock */
                                                 .now_us = o->ses.now.wall_us + o->ses.mark.lag_us,
                                                 .driver = box,
                                                 .release = box_free};
                box = NULL;
        }
out:
        free(set.table);
        box_free(box);
        return code;
}

/* -- blocked ----------------------------------------------------------------------------------------- */

/* Columns: id, dead, wait, key, slot.  Keys are kept as offsets until all are there. */
static int read_blocked(struct sqlite_outbox *o, sqlite3_stmt *stmt, size_t max, size_t *ret_n)
{
        size_t n = 0;
        int rc = SQLITE_DONE;
        while (n < max && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                struct span key = column_span(stmt, 3);
                int64_t wait_us = sqlite3_column_int64(stmt, 2);
                o->blocked_rows[n] = (struct outbox_blocked){
                        .slot = (int16_t)sqlite3_column_int(stmt, 4),
                        .id = sqlite3_column_int64(stmt, 0),
                        .dead = sqlite3_column_int(stmt, 1) != 0,
                        .wait_us = wait_us > 0 ? wait_us : 0,
                        .key = {(const uint8_t *)(uintptr_t)o->blocked_keys.n, key.n}};
                if (buf_append_span(&o->blocked_keys, key) != BUF_OK)
                        return SQLITE_NOMEM;
                n++;
        }
        for (size_t i = 0; i < n; i++) {
                struct span *key = &o->blocked_rows[i].key;
                key->p = o->blocked_keys.p + (uintptr_t)key->p;
        }
        *ret_n = n;
        return rc == SQLITE_ROW ? SQLITE_DONE : rc;
}

semel_code sqlite_outbox_blocked(struct outbox_session *s, uint32_t slot_mask,
                                 enum outbox_on_dead on_dead, size_t max, int64_t deadline_us,
                                 const struct outbox_blocked **ret, size_t *ret_n,
                                 semel_error *err)
{
        struct sqlite_outbox *o = outbox_of(s);
        size_t n = 0;
        semel_code code = outbox_ready(o, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        free(o->blocked_rows);
        buf_clear(&o->blocked_keys);
        o->blocked_rows = calloc(max ? max : 1, sizeof *o->blocked_rows);
        if (!o->blocked_rows)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the blocked keys");
        code = outbox_begin_read(o, err);
        if (code != SEMEL_OK)
                return code;
        sqlite3_stmt *stmt = outbox_stmt(o, OUTBOX_SQL_BLOCKED);
        int rc = SQLITE_ERROR;
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, o->ses.now.wall_us);
                (void)sqlite3_bind_int(stmt, 2, on_dead == OUTBOX_BLOCK);
                (void)sqlite3_bind_int64(stmt, 3, slot_mask);
                (void)sqlite3_bind_int64(stmt, 4, (int64_t)max);
                rc = read_blocked(o, stmt, max, &n);
        }
        if (rc == SQLITE_NOMEM)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the blocked keys");
        else if (rc != SQLITE_DONE)
                code = outbox_error(o, err);
        if (stmt)
                (void)sqlite3_reset(stmt);
        outbox_end_read(o);
        if (code != SEMEL_OK)
                return code;
        *ret = o->blocked_rows;
        *ret_n = n;
        return SEMEL_OK;
}
