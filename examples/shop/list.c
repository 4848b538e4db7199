/* SPDX-License-Identifier: Apache-2.0
 *
 * list: see list.h.
 */
#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "problem.h"

enum { LIST_DEFAULT = 100 };

struct rows {
        row_json_fn fn;
        json_t *array;
};

static void rows_on_row(void *arg, const char *const *cells)
{
        struct rows *rows = arg;
        json_array_append_new(rows->array, rows->fn(cells));
}

/* Run a SELECT.  NULL: *ret_bad is the reply. */
static json_t *select_rows(struct shop *shop, enum db_statement stmt, const char *const *params,
                           row_json_fn fn, semel_reply **ret_bad)
{
        char why[DB_WHY_BYTES];
        struct rows rows = {fn, json_array()};
        struct db_conn *conn = db_take(shop->db, why);
        enum db_result result = DB_FAILED;
        if (conn) {
                result = db_run(conn, stmt, params, rows_on_row, &rows, NULL);
                snprintf(why, sizeof why, "%s", conn->why);
                db_give(conn);
        }
        if (result == DB_OK)
                return rows.array;
        json_decref(rows.array);
        *ret_bad = semel_reply_new();
        if (*ret_bad)
                answer_store_down(*ret_bad, why);
        return NULL;
}

semel_reply *get_reply(struct shop *shop, struct request *req, enum db_statement stmt,
                       row_json_fn fn)
{
        semel_reply *rep = NULL;
        json_t *rows = select_rows(shop, stmt, (const char *[]){req->id}, fn, &rep);
        if (!rows)
                return rep;
        if (json_array_size(rows) == 0) {
                rep = problem_new(PROBLEM_NOT_FOUND, NULL, "Nothing has the id %s.", req->id);
        } else {
                rep = semel_reply_new();
                if (rep)
                        reply_json(rep, 200, "application/json",
                                   json_incref(json_array_get(rows, 0)));
        }
        json_decref(rows);
        return rep;
}

semel_reply *list_reply(struct shop *shop, struct request *req, enum db_statement stmt,
                        const char *name, row_json_fn fn)
{
        char after[UUID_TEXT_BYTES] = "00000000-0000-0000-0000-000000000000", limit_text[16];
        char next[128], *end = NULL;
        long limit = req->limit ? strtol(req->limit, &end, 10) : LIST_DEFAULT;
        semel_reply *rep = NULL;
        json_t *rows;
        size_t n;

        if ((req->limit && (end == req->limit || *end)) || limit < 1 || limit > LIST_MAX)
                return problem_new(PROBLEM_VALIDATION, NULL, "limit must be 1 to %d.", LIST_MAX);
        if (req->after && !uuid_parse(req->after, after))
                return problem_new(PROBLEM_VALIDATION, NULL, "after must be a UUID.");
        snprintf(limit_text, sizeof limit_text, "%ld", limit);
        rows = select_rows(shop, stmt, (const char *[]){after, limit_text}, fn, &rep);
        if (!rows)
                return rep;
        rep = semel_reply_new();
        if (!rep) {
                json_decref(rows);
                return NULL;
        }
        n = json_array_size(rows);
        if (n == (size_t)limit)
                snprintf(next, sizeof next, "/api/v1/%s?limit=%ld&after=%s", name, limit,
                         json_string_value(json_object_get(json_array_get(rows, n - 1), "id")));
        reply_json(rep, 200, "application/json",
                   json_pack("{s:o, s:s?}", name, rows, "next",
                             n == (size_t)limit ? next : NULL));
        return rep;
}
