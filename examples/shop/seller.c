/* SPDX-License-Identifier: Apache-2.0
 *
 * seller: {"id", "name", "created_at", "updated_at"}.
 *
 * Each operation that writes is two functions: one reads and validates the request, one is the
 * command, which with_idempotency() runs once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "fields.h"
#include "idempotent.h"
#include "list.h"
#include "problem.h"
#include "shop.h"

struct seller {
        char id[UUID_TEXT_BYTES];
        const char *name;
};

static json_t *seller_json(const char *const *cells)
{
        return json_pack("{s:s, s:s, s:o, s:o}", "id", cells[0], "name", cells[1], "created_at",
                         cell_time(cells[2]), "updated_at", cell_time(cells[3]));
}

static void seller_on_row(void *arg, const char *const *cells)
{
        *(json_t **)arg = seller_json(cells);
}

static semel_effect seller_insert(void *arg, struct db_conn *conn, semel_reply *reply)
{
        struct seller *s = arg;
        char at[24], location[64];
        json_t *json = NULL;
        enum db_result result;

        if (!uuid_make(s->id))
                return answer_db(DB_FAILED, "no random bytes", reply);
        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, SELLER_INSERT, (const char *[]){s->id, s->name, at}, seller_on_row,
                        &json, NULL);
        if (result != DB_OK) {
                json_decref(json);
                return answer_db(result, conn->why, reply);
        }
        reply_json(reply, 201, "application/json", json);
        snprintf(location, sizeof location, "/api/v1/sellers/%s", s->id);
        reply_header(reply, "Location", location);
        return SEMEL_EFFECT_DONE;
}

static semel_effect seller_change(void *arg, struct db_conn *conn, semel_reply *reply)
{
        const struct seller *s = arg;
        char at[24];
        json_t *json = NULL;
        enum db_result result;

        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, SELLER_UPDATE, (const char *[]){s->id, s->name, at}, seller_on_row,
                        &json, NULL);
        if (result != DB_OK) {
                json_decref(json);
                return answer_db(result, conn->why, reply);
        }
        if (!json)
                return answer_missing("seller", s->id, reply);
        reply_json(reply, 200, "application/json", json);
        return SEMEL_EFFECT_DONE;
}

static semel_effect seller_remove(void *arg, struct db_conn *conn, semel_reply *reply)
{
        const struct seller *s = arg;
        int n = 0;
        enum db_result result = db_run(conn, SELLER_DELETE, (const char *[]){s->id}, NULL, NULL,
                                       &n);

        if (result == DB_REFERENCE) {
                problem_fill(reply, PROBLEM_SELLER_IN_USE, NULL, "Delete its products first.");
                return SEMEL_EFFECT_FAILED;
        }
        return answer_removed(result, conn->why, n, "seller", s->id, reply);
}

static semel_reply *seller_parse(const struct request *req, struct seller *ret)
{
        struct fields f = fields_of(req->body);
        ret->name = field_text(&f, "name", NAME_BYTES_MAX);
        fields_end(&f);
        return f.errors ? fields_problem(&f) : NULL;
}

semel_reply *seller_create(struct shop *shop, struct request *req)
{
        struct seller s = {.id = ""};
        semel_reply *bad = seller_parse(req, &s);
        return bad ? bad : with_idempotency(shop, req, seller_insert, &s);
}

semel_reply *seller_update(struct shop *shop, struct request *req)
{
        struct seller s = {.id = ""};
        semel_reply *bad = seller_parse(req, &s);
        memcpy(s.id, req->id, sizeof s.id);
        return bad ? bad : with_idempotency(shop, req, seller_change, &s);
}

semel_reply *seller_delete(struct shop *shop, struct request *req)
{
        struct seller s = {.id = ""};
        memcpy(s.id, req->id, sizeof s.id);
        return with_idempotency(shop, req, seller_remove, &s);
}

semel_reply *seller_get(struct shop *shop, struct request *req)
{
        return get_reply(shop, req, SELLER_GET, seller_json);
}

semel_reply *seller_list(struct shop *shop, struct request *req)
{
        return list_reply(shop, req, SELLER_LIST, "sellers", seller_json);
}
