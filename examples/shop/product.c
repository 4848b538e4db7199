/* SPDX-License-Identifier: Apache-2.0
 *
 * product: {"id", "name", "price_minor_units", "currency", "seller_id", "created_at",
 * "updated_at"}.  Built as seller.c is.
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

struct product {
        char id[UUID_TEXT_BYTES];
        const char *name;
        char price[24];
        const char *currency;
        char seller_id[UUID_TEXT_BYTES];
};

static json_t *product_json(const char *const *cells)
{
        return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:o}", "id", cells[0], "name", cells[1],
                         "price_minor_units", cell_int(cells[2]), "currency", cells[3],
                         "seller_id", cells[4], "created_at", cell_time(cells[5]), "updated_at",
                         cell_time(cells[6]));
}

static void product_on_row(void *arg, const char *const *cells)
{
        *(json_t **)arg = product_json(cells);
}

/* Insert or update: the same parameters, the same refusals.  *ret_json is the row, or NULL. */
static semel_effect product_write(const struct product *p, enum db_statement stmt,
                                  struct db_conn *conn, semel_reply *reply, json_t **ret_json)
{
        char at[24];
        json_t *json = NULL;
        enum db_result result;

        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, stmt,
                        (const char *[]){p->id, p->name, p->price, p->currency, p->seller_id, at},
                        product_on_row, &json, NULL);
        if (result == DB_OK) {
                *ret_json = json;
                return SEMEL_EFFECT_DONE;
        }
        json_decref(json);
        if (result == DB_REFERENCE) {
                problem_fill(reply, PROBLEM_NO_SUCH_SELLER, NULL, "No seller has the id %s.",
                             p->seller_id);
                return SEMEL_EFFECT_FAILED;
        }
        return answer_db(result, conn->why, reply);
}

static semel_effect product_insert(void *arg, struct db_conn *conn, semel_reply *reply)
{
        struct product *p = arg;
        json_t *json = NULL;
        char location[64];
        semel_effect effect;

        if (!uuid_make(p->id))
                return answer_db(DB_FAILED, "no random bytes", reply);
        effect = product_write(p, PRODUCT_INSERT, conn, reply, &json);
        if (effect != SEMEL_EFFECT_DONE)
                return effect;
        reply_json(reply, 201, "application/json", json);
        snprintf(location, sizeof location, "/api/v1/products/%s", p->id);
        reply_header(reply, "Location", location);
        return SEMEL_EFFECT_DONE;
}

static semel_effect product_change(void *arg, struct db_conn *conn, semel_reply *reply)
{
        const struct product *p = arg;
        json_t *json = NULL;
        semel_effect effect = product_write(p, PRODUCT_UPDATE, conn, reply, &json);

        if (effect != SEMEL_EFFECT_DONE)
                return effect;
        if (!json)
                return answer_missing("product", p->id, reply);
        reply_json(reply, 200, "application/json", json);
        return SEMEL_EFFECT_DONE;
}

static semel_effect product_remove(void *arg, struct db_conn *conn, semel_reply *reply)
{
        const struct product *p = arg;
        int n = 0;
        enum db_result result = db_run(conn, PRODUCT_DELETE, (const char *[]){p->id}, NULL, NULL,
                                       &n);
        return answer_removed(result, conn->why, n, "product", p->id, reply);
}

static semel_reply *product_parse(const struct request *req, struct product *ret)
{
        struct fields f = fields_of(req->body);
        ret->name = field_text(&f, "name", NAME_BYTES_MAX);
        snprintf(ret->price, sizeof ret->price, "%lld",
                 (long long)field_price(&f, "price_minor_units"));
        ret->currency = field_currency(&f, "currency");
        field_uuid(&f, "seller_id", ret->seller_id);
        fields_end(&f);
        return f.errors ? fields_problem(&f) : NULL;
}

semel_reply *product_create(struct shop *shop, struct request *req)
{
        struct product p = {.id = ""};
        semel_reply *bad = product_parse(req, &p);
        return bad ? bad : with_idempotency(shop, req, product_insert, &p);
}

semel_reply *product_update(struct shop *shop, struct request *req)
{
        struct product p = {.id = ""};
        semel_reply *bad = product_parse(req, &p);
        memcpy(p.id, req->id, sizeof p.id);
        return bad ? bad : with_idempotency(shop, req, product_change, &p);
}

semel_reply *product_delete(struct shop *shop, struct request *req)
{
        struct product p = {.id = ""};
        memcpy(p.id, req->id, sizeof p.id);
        return with_idempotency(shop, req, product_remove, &p);
}

semel_reply *product_get(struct shop *shop, struct request *req)
{
        return get_reply(shop, req, PRODUCT_GET, product_json);
}

semel_reply *product_list(struct shop *shop, struct request *req)
{
        return list_reply(shop, req, PRODUCT_LIST, "products", product_json);
}
