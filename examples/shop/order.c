/* SPDX-License-Identifier: Apache-2.0
 *
 * order: {"id", "customer_id", "total_kopecks", "status", "request_id", "created_at",
 * "updated_at"}.
 *
 *     new --confirm--> confirmed                        --charge event (the default)
 *     new --confirm--> charging --charged--> confirmed  --charge direct
 *                         \--refused--> new
 *
 * A confirmation has a request_id, which its client makes once and sends with each retry; it is
 * the idempotency key where no other is given.
 *
 *   event   the status and the event OrderConfirmed commit together, or neither does.  The relay
 *           publishes what was committed; whoever consumes it charges, with the key event_id:billing.
 *   direct  the order is taken for this request_id, then the provider is called with the key
 *           order_id:charge:request_id, then the order is confirmed.  No transaction is open
 *           during the call.  Whoever retries with the same request_id goes on where it stopped;
 *           another request_id is refused, for it would be another charge.
 *
 * Each change of the status is one conditional UPDATE; the count of its rows is the answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <semel/event.h>

#include "answer.h"
#include "charge.h"
#include "fields.h"
#include "idempotent.h"
#include "list.h"
#include "problem.h"
#include "shop.h"

enum { REQUEST_ID_BYTES_MAX = 128, WRITE_WAIT_MS = 5000 };

struct order {
        char id[UUID_TEXT_BYTES];
        const char *customer_id;
        char total[24];
        const char *request_id;
        struct shop *shop;
};

static json_t *order_json(const char *const *cells)
{
        return json_pack("{s:s, s:s, s:o, s:s, s:s?, s:o, s:o}", "id", cells[0], "customer_id",
                         cells[1], "total_kopecks", cell_int(cells[2]), "status", cells[3],
                         "request_id", cells[4], "created_at", cell_time(cells[5]), "updated_at",
                         cell_time(cells[6]));
}

static void order_on_row(void *arg, const char *const *cells)
{
        json_decref(*(json_t **)arg);
        *(json_t **)arg = order_json(cells);
}

static const char *text_of(const json_t *order, const char *member)
{
        const char *s = json_string_value(json_object_get(order, member));
        return s ? s : "";
}

/* -- create ------------------------------------------------------------------------------ */

static semel_effect order_insert(void *arg, struct db_conn *conn, semel_reply *reply)
{
        struct order *o = arg;
        char at[24], location[64];
        json_t *json = NULL;
        enum db_result result;

        if (!uuid_make(o->id))
                return answer_db(DB_FAILED, "no random bytes", reply);
        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, ORDER_INSERT, (const char *[]){o->id, o->customer_id, o->total, at},
                        order_on_row, &json, NULL);
        if (result != DB_OK) {
                json_decref(json);
                return answer_db(result, conn->why, reply);
        }
        reply_json(reply, 201, "application/json", json);
        snprintf(location, sizeof location, "/api/v1/orders/%s", o->id);
        reply_header(reply, "Location", location);
        return SEMEL_EFFECT_DONE;
}

semel_reply *order_create(struct shop *shop, struct request *req)
{
        struct order o = {.shop = shop};
        struct fields f = fields_of(req->body);
        o.customer_id = field_text(&f, "customer_id", NAME_BYTES_MAX);
        snprintf(o.total, sizeof o.total, "%lld", (long long)field_price(&f, "total_kopecks"));
        fields_end(&f);
        return f.errors ? fields_problem(&f) : with_idempotency(shop, req, order_insert, &o);
}

/* -- confirm ------------------------------------------------------------------------------- */

/* Leave OrderConfirmed in the outbox, in the transaction that is open. */
static enum db_result leave_event(struct db_conn *conn, const json_t *order)
{
        char id[UUID_TEXT_BYTES], *payload = NULL;
        const char *order_id = text_of(order, "id");
        semel_error *err = semel_error_new();
        semel_event *ev = semel_event_new("orders", err);
        enum db_result result = DB_FAILED;
        json_t *data = NULL;

        if (!ev || !uuid_make(id))
                goto out;
        data = json_pack("{s:s, s:s, s:s, s:s, s:O}", "id", id, "type", "OrderConfirmed",
                         "order_id", order_id, "customer_id", text_of(order, "customer_id"),
                         "total_kopecks", json_object_get(order, "total_kopecks"));
        payload = data ? json_dumps(data, JSON_COMPACT) : NULL;
        if (payload && semel_event_set_id(ev, id, err) == SEMEL_OK &&
            semel_event_set_key(ev, order_id, strlen(order_id), err) == SEMEL_OK &&
            semel_event_set_payload(ev, payload, strlen(payload), err) == SEMEL_OK)
                result = db_driver(conn->db)->append(conn, ev, err);
out:
        if (result != DB_OK)
                snprintf(conn->why, sizeof conn->why, "%s",
                         err && semel_error_code(err) ? semel_error_text(err) : "no memory");
        free(payload);
        json_decref(data);
        semel_event_free(ev);
        semel_error_free(err);
        return result;
}

/* The UPDATE changed nothing: why? */
static semel_effect confirm_refused(const struct order *o, struct db_conn *conn,
                                    semel_reply *reply)
{
        json_t *json = NULL;
        enum db_result result = db_run(conn, ORDER_GET, (const char *[]){o->id}, order_on_row,
                                       &json, NULL);
        if (result != DB_OK) {
                json_decref(json);
                return answer_db(result, conn->why, reply);
        }
        if (!json)
                return answer_missing("order", o->id, reply);
        if (strcmp(text_of(json, "request_id"), o->request_id) == 0 &&
            strcmp(text_of(json, "status"), "confirmed") == 0) { /* it was this very request */
                reply_json(reply, 200, "application/json", json);
                return SEMEL_EFFECT_DONE;
        }
        problem_fill(reply, PROBLEM_ORDER_STATUS, json_pack("{s:s}", "order_status",
                                                            text_of(json, "status")),
                     "The order is not new; another request is confirming it, or has done so.");
        json_decref(json);
        return SEMEL_EFFECT_FAILED;
}

static semel_effect confirm_write(const struct order *o, struct db_conn *conn, semel_reply *reply)
{
        bool direct = o->shop->opt->charge == CHARGE_DIRECT;
        char at[24];
        json_t *json = NULL;
        enum db_result result;

        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, direct ? ORDER_CONFIRM_CHARGED : ORDER_CONFIRM_NEW,
                        (const char *[]){o->id, o->request_id, at}, order_on_row, &json, NULL);
        if (result == DB_OK && !json)
                return confirm_refused(o, conn, reply);
        if (result == DB_OK && !direct)
                result = leave_event(conn, json);
        if (result != DB_OK) {
                json_decref(json);
                return answer_db(result, conn->why, reply);
        }
        reply_json(reply, 200, "application/json", json);
        return SEMEL_EFFECT_DONE;
}

/* The order and its event need a transaction; in mode transaction there is one. */
static semel_effect order_confirmed(void *arg, struct db_conn *conn, semel_reply *reply)
{
        const struct db_driver *driver = db_driver(conn->db);
        const struct order *o = arg;
        semel_effect effect;
        enum db_result result;

        if (conn->in_transaction)
                return confirm_write(o, conn, reply);
        result = driver->begin(conn, WRITE_WAIT_MS);
        if (result != DB_OK)
                return answer_db(result, conn->why, reply);
        effect = confirm_write(o, conn, reply);
        if (effect != SEMEL_EFFECT_DONE) {
                driver->rollback(conn);
                return effect;
        }
        result = driver->commit(conn);
        return result == DB_OK ? SEMEL_EFFECT_DONE : answer_db(result, conn->why, reply);
}

/* -- charge directly ------------------------------------------------------------------------ */

/* One statement on a connection of its own; *ret_json the order, or NULL. */
static enum db_result order_statement(struct shop *shop, enum db_statement stmt,
                                      const struct order *o, json_t **ret_json, char *why)
{
        struct db_conn *conn = db_take(shop->db, why);
        enum db_result result;
        char at[24];
        if (!conn)
                return DB_FAILED;
        snprintf(at, sizeof at, "%lld", (long long)now_us());
        result = db_run(conn, stmt, (const char *[]){o->id, o->request_id, at}, order_on_row,
                        ret_json, NULL);
        snprintf(why, DB_WHY_BYTES, "%s", conn->why);
        db_give(conn);
        return result;
}

/* order_id:charge:request_id, the same for the same confirmation. */
static enum charge_result charge_order(struct shop *shop, const struct order *o,
                                       const json_t *order, char *why)
{
        char key[SEMEL_KEY_BYTES_MAX + 1];
        const char *const parts[] = {o->id, "charge", o->request_id};
        snprintf(why, CHARGE_WHY_BYTES, "the request_id is too long for a key");
        if (semel_key_join(parts, 3, key, NULL) != SEMEL_OK)
                return CHARGE_REFUSED;
        return charge(shop->opt->pay_url, key, o->id, text_of(order, "customer_id"),
                      json_integer_value(json_object_get(order, "total_kopecks")),
                      shop->opt->charge_ms, why);
}

/* Take the order for this request and charge it.  NULL: charged, or it is not ours to charge (the
 * confirmation will say why); else the reply. */
static semel_reply *charge_directly(struct shop *shop, const struct order *o)
{
        char why[DB_WHY_BYTES] = "";
        json_t *json = NULL, *ignored = NULL;
        semel_reply *rep = NULL;
        enum db_result result = order_statement(shop, ORDER_TAKE, o, &json, why);

        if (result != DB_OK) {
                rep = semel_reply_new();
                if (rep)
                        (void)answer_db(result, why, rep);
        } else if (json) {
                switch (charge_order(shop, o, json, why)) {
                case CHARGE_DONE:
                        break;
                case CHARGE_REFUSED: /* nothing was charged: it may be confirmed anew */
                        rep = problem_new(PROBLEM_CHARGE_REFUSED, NULL, "%s", why);
                        (void)order_statement(shop, ORDER_GIVE_BACK, o, &ignored, why); /* takes `why` */
                        break;
                case CHARGE_UNKNOWN:
                        rep = problem_new(PROBLEM_CHARGE_UNKNOWN, NULL,
                                          "Send the same request_id again. (%s)", why);
                        if (rep)
                                reply_header(rep, "Idempotency-Outcome", "unknown");
                        break;
                }
        }
        json_decref(json);
        json_decref(ignored);
        return rep;
}

semel_reply *order_confirm(struct shop *shop, struct request *req)
{
        struct order o = {.shop = shop};
        struct fields f = fields_of(req->body);
        semel_reply *rep = NULL;

        o.request_id = field_text(&f, "request_id", REQUEST_ID_BYTES_MAX);
        fields_end(&f);
        if (f.errors)
                return fields_problem(&f);
        memcpy(o.id, req->id, sizeof o.id);
        if (!req->has_key &&
            semel_key_join((const char *[]){o.id, "confirm", o.request_id}, 3, req->key, NULL) ==
                    SEMEL_OK)
                req->has_key = true;
        if (shop->opt->charge == CHARGE_DIRECT)
                rep = charge_directly(shop, &o);
        return rep ? rep : with_idempotency(shop, req, order_confirmed, &o);
}

semel_reply *order_get(struct shop *shop, struct request *req)
{
        return get_reply(shop, req, ORDER_GET, order_json);
}

semel_reply *order_list(struct shop *shop, struct request *req)
{
        return list_reply(shop, req, ORDER_LIST, "orders", order_json);
}
