/* SPDX-License-Identifier: Apache-2.0
 *
 * router: method and path -> handler, and what all handlers need checked first: the id, the
 * JSON object, the key (header, else the body's idempotency_key).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "shop.h"

typedef semel_reply *(*handler)(struct shop *shop, struct request *req);

enum { ID_NONE, ID_NEEDED, ID_OR_BODY };

static const struct {
        const char *method;
        const char *collection;
        int id;
        const char *verb; /* what follows the id, or NULL */
        bool has_body;
        bool is_command; /* writes: honours a key */
        handler fn;
} routes[] = {
        {"POST", "/api/v1/sellers", ID_NONE, NULL, true, true, seller_create},
        {"GET", "/api/v1/sellers", ID_NONE, NULL, false, false, seller_list},
        {"GET", "/api/v1/sellers", ID_NEEDED, NULL, false, false, seller_get},
        {"PUT", "/api/v1/sellers", ID_OR_BODY, NULL, true, true, seller_update},
        {"DELETE", "/api/v1/sellers", ID_NEEDED, NULL, false, true, seller_delete},
        {"POST", "/api/v1/products", ID_NONE, NULL, true, true, product_create},
        {"GET", "/api/v1/products", ID_NONE, NULL, false, false, product_list},
        {"GET", "/api/v1/products", ID_NEEDED, NULL, false, false, product_get},
        {"PUT", "/api/v1/products", ID_OR_BODY, NULL, true, true, product_update},
        {"DELETE", "/api/v1/products", ID_NEEDED, NULL, false, true, product_delete},
        {"POST", "/api/v1/orders", ID_NONE, NULL, true, true, order_create},
        {"GET", "/api/v1/orders", ID_NONE, NULL, false, false, order_list},
        {"GET", "/api/v1/orders", ID_NEEDED, NULL, false, false, order_get},
        {"POST", "/api/v1/orders", ID_NEEDED, "confirm", true, true, order_confirm},
};
enum { ROUTES = sizeof routes / sizeof routes[0] };

/* What follows a collection's name in a path. */
struct rest {
        char id[UUID_TEXT_BYTES + 1]; /* "": none; longer ones are no ids and end up too long here */
        const char *verb;             /* NULL: none */
};

/* Does the path name this collection? */
static bool path_is(const char *path, const char *collection, struct rest *ret)
{
        size_t n = strlen(collection), id_n;
        if (strncmp(path, collection, n) != 0 || (path[n] != '\0' && path[n] != '/'))
                return false;
        path += path[n] == '/' ? n + 1 : n;
        id_n = strcspn(path, "/");
        snprintf(ret->id, sizeof ret->id, "%.*s", (int)id_n, path);
        ret->verb = path[id_n] == '/' ? path + id_n + 1 : NULL;
        return true;
}

static bool route_is(int i, const struct rest *rest)
{
        const char *verb = routes[i].verb ? routes[i].verb : "", *got = rest->verb ? rest->verb : "";
        bool has_id = rest->id[0] != '\0';
        return strcmp(verb, got) == 0 && !(routes[i].id == ID_NONE && has_id) &&
               !(routes[i].id == ID_NEEDED && !has_id);
}

/* The route, or NULL: *ret_bad is the 404 or 405 then. */
static int route_find(const struct request *req, struct rest *ret, semel_reply **ret_bad)
{
        char allow[64] = "";
        const char *method = strcmp(req->method, "HEAD") == 0 ? "GET" : req->method;

        for (int i = 0; i < ROUTES; i++) {
                if (!path_is(req->path, routes[i].collection, ret) || !route_is(i, ret))
                        continue;
                if (strcmp(routes[i].method, method) == 0)
                        return i;
                snprintf(allow + strlen(allow), sizeof allow - strlen(allow), "%s%s",
                         allow[0] ? ", " : "", routes[i].method);
        }
        if (!allow[0]) {
                *ret_bad = problem_new(PROBLEM_NOT_FOUND, NULL,
                                       "There are /api/v1/sellers, /api/v1/products and /api/v1/orders.");
        } else {
                *ret_bad = problem_new(PROBLEM_METHOD, NULL, "It does %s.", allow);
                if (*ret_bad)
                        reply_header(*ret_bad, "Allow", allow);
        }
        return -1;
}

/* The body as an object in req->body. */
static semel_reply *body_parse(struct request *req, const char *body, size_t n)
{
        json_error_t e;
        if (!req->is_json && n > 0)
                return problem_new(PROBLEM_MEDIA_TYPE, NULL,
                                   "Send the header Content-Type: application/json.");
        req->body = json_loadb(body ? body : "", n, JSON_REJECT_DUPLICATES, &e);
        if (!req->body)
                return problem_new(PROBLEM_BAD_JSON, NULL, "Line %d, column %d: %s.", e.line,
                                   e.column, n == 0 ? "the body is empty" : e.text);
        if (!json_is_object(req->body))
                return problem_new(PROBLEM_BAD_JSON, NULL, "It must be an object.");
        return NULL;
}

/* The key of the header, else of the body.  Both have the same syntax; header wins.  Whichever it
 * is, idempotency_key is no part of what is asked for. */
static semel_reply *key_parse(struct request *req, const char *header)
{
        json_t *in_body = json_object_get(req->body, "idempotency_key");
        const char *text = header ? header : json_string_value(in_body);
        semel_reply *bad = NULL;
        semel_error *err;

        if (!header && in_body && !text)
                return problem_new(PROBLEM_KEY_MALFORMED, NULL,
                                   "idempotency_key must be a string.");
        if (!text)
                return NULL;
        err = semel_error_new();
        if (!err)
                return problem_new(PROBLEM_INTERNAL, NULL, "No memory.");
        if (semel_key_parse(text, strlen(text), req->key, err) == SEMEL_OK)
                req->has_key = true;
        else
                bad = problem_new(PROBLEM_KEY_MALFORMED, NULL, "%s", semel_error_text(err));
        semel_error_free(err);
        json_object_del(req->body, "idempotency_key");
        return bad;
}

/* The id of the path, else the body's member `id`. */
static semel_reply *id_parse(struct request *req, const char *id)
{
        const char *in_body = json_string_value(json_object_get(req->body, "id"));
        char other[UUID_TEXT_BYTES];

        if (!id && !in_body)
                return problem_new(PROBLEM_VALIDATION, NULL, "Give the id in the path.");
        if (!uuid_parse(id ? id : in_body, req->id))
                return problem_new(PROBLEM_NOT_FOUND, NULL, "An id is a UUID.");
        if (in_body && (!uuid_parse(in_body, other) || strcmp(other, req->id) != 0))
                return problem_new(PROBLEM_VALIDATION, NULL,
                                   "The id of the body is not the one of the path.");
        json_object_del(req->body, "id");
        return NULL;
}

static semel_reply *route(struct shop *shop, struct request *req, const struct http_request *in)
{
        struct rest rest;
        semel_reply *rep = NULL;
        int i = route_find(req, &rest, &rep);

        if (i < 0)
                return rep;
        if (routes[i].has_body)
                rep = body_parse(req, in->body, in->body_n);
        if (!rep && routes[i].is_command)
                rep = key_parse(req, in->key);
        if (!rep && routes[i].id != ID_NONE)
                rep = id_parse(req, rest.id[0] ? rest.id : NULL);
        if (!rep) {
                snprintf(req->operation, sizeof req->operation, "%s %s%s%s%s%s", req->method,
                         routes[i].collection, req->id[0] ? "/" : "", req->id,
                         routes[i].verb ? "/" : "", routes[i].verb ? routes[i].verb : "");
                rep = routes[i].fn(shop, req);
        }
        json_decref(req->body);
        req->body = NULL;
        return rep;
}

semel_reply *shop_handle(void *arg, const struct http_request *in)
{
        struct request req = {.method = in->method, .path = in->path};

        switch (in->flaw) {
        case HTTP_FINE:
                break;
        case HTTP_NO_MEMORY:
                return problem_new(PROBLEM_INTERNAL, NULL, "No memory for the body.");
        case HTTP_TOO_LARGE:
                return problem_new(PROBLEM_TOO_LARGE, NULL, "At most %d bytes.",
                                   HTTP_BODY_BYTES_MAX);
        case HTTP_TWO_KEYS:
                return problem_new(PROBLEM_KEY_MALFORMED, NULL,
                                   "Two Idempotency-Key lines that differ: which one is it?");
        case HTTP_KEY_IN_CONNECTION:
                return problem_new(PROBLEM_KEY_MALFORMED, NULL,
                                   "Connection names Idempotency-Key: a proxy would drop it.");
        }
        req.is_json = http_is_json(in);
        req.principal = in->authorization;
        req.limit = http_query(in, "limit");
        req.after = http_query(in, "after");
        return route(arg, &req, in);
}
