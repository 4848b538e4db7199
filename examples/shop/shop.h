/* SPDX-License-Identifier: Apache-2.0
 *
 * shop: the parts of the example service, and what they share.
 *
 *     ../http       bytes <-> struct http_request, semel_reply (libmicrohttpd); the end
 *     router.c      method and path -> the function below
 *     seller.c      what a seller is, and its five operations
 *     product.c     the same for a product
 *     order.c       an order, its confirmation and the event that leaves with it
 *     ../charge     the payment provider, called directly
 *     idempotent.c  with_idempotency(): the one wrapper around every command
 *     answer.c      what semel said -> status code
 *     db*.c         the shop's own tables, on SQLite or PostgreSQL
 *
 * A handler gets a request and returns a semel_reply that the caller frees: the same type holds a
 * fresh answer, a kept one and a problem, so http.c has one way of sending.  NULL = no memory.
 */
#ifndef SHOP_SHOP_H
#define SHOP_SHOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <semel/semel.h>

#include "db.h"
#include "http.h"
#include "uuid.h"

enum {
        LIST_MAX = 1000,    /* rows of one page */
        NAME_BYTES_MAX = 255,
        OPERATION_BYTES_MAX = 128,
};

enum shop_mode { MODE_RESERVE, MODE_TRANSACTION, MODE_NAIVE };
enum shop_charge { CHARGE_EVENT, CHARGE_DIRECT };

struct options {
        const char *listen;
        const char *store_url;
        enum shop_mode mode;
        enum shop_charge charge;
        const char *pay_url; /* of the provider's charges; charge direct */
        int64_t lease_ms;
        int64_t work_ms;
        int64_t wait_ms;
        int64_t charge_ms;
        int64_t drain_delay_ms, shutdown_ms;
        bool crash_after_effect;
};

struct shop {
        const struct options *opt;
        semel_store *store; /* the keys; only mode reserve goes through it */
        struct db *db;      /* the business tables, in the same database */
};

struct request {
        const char *method;
        const char *path;
        bool is_json; /* what its Content-Type says */
        char operation[OPERATION_BYTES_MAX]; /* "PUT /api/v1/sellers/ID": part of the fingerprint */
        char id[UUID_TEXT_BYTES];            /* from the path; "" for a collection */
        bool has_key;
        char key[SEMEL_KEY_BYTES_MAX + 1];
        const char *principal; /* the Authorization header, or "": whose key it is */
        const char *limit, *after; /* of a list; NULL when absent */
        json_t *body;          /* an object without idempotency_key, or NULL */
};

/* router.c: an http_handler; arg is the shop. */
semel_reply *shop_handle(void *arg, const struct http_request *in);

/* seller.c, product.c, order.c: validated here, then handed to with_idempotency(). */
semel_reply *seller_create(struct shop *shop, struct request *req);
semel_reply *seller_update(struct shop *shop, struct request *req);
semel_reply *seller_delete(struct shop *shop, struct request *req);
semel_reply *seller_list(struct shop *shop, struct request *req);
semel_reply *seller_get(struct shop *shop, struct request *req);
semel_reply *product_create(struct shop *shop, struct request *req);
semel_reply *product_update(struct shop *shop, struct request *req);
semel_reply *product_delete(struct shop *shop, struct request *req);
semel_reply *product_list(struct shop *shop, struct request *req);
semel_reply *product_get(struct shop *shop, struct request *req);
semel_reply *order_create(struct shop *shop, struct request *req);
semel_reply *order_confirm(struct shop *shop, struct request *req);
semel_reply *order_list(struct shop *shop, struct request *req);
semel_reply *order_get(struct shop *shop, struct request *req);

#endif
