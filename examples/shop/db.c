/* SPDX-License-Identifier: Apache-2.0
 *
 * db: the statements, and the pool of connections.  See db.h.
 */
#include "db.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SELLER "id, name, created_us, updated_us"
#define PRODUCT "id, name, price_minor_units, currency, seller_id, created_us, updated_us"
#define ORDER "id, customer_id, total_kopecks, status, request_id, created_us, updated_us"

/* One text for both databases. */
const char *const db_statement_sql[DB_STATEMENTS] = {
        [SELLER_INSERT] = "INSERT INTO shop_seller (" SELLER ") VALUES ($1, $2, $3, $3)"
                          " RETURNING " SELLER,
        [SELLER_UPDATE] = "UPDATE shop_seller SET name = $2, updated_us = $3 WHERE id = $1"
                          " RETURNING " SELLER,
        [SELLER_DELETE] = "DELETE FROM shop_seller WHERE id = $1",
        [SELLER_GET] = "SELECT " SELLER " FROM shop_seller WHERE id = $1",
        [SELLER_LIST] = "SELECT " SELLER " FROM shop_seller WHERE id > $1 ORDER BY id LIMIT $2",
        [PRODUCT_INSERT] = "INSERT INTO shop_product (" PRODUCT ")"
                           " VALUES ($1, $2, $3, $4, $5, $6, $6) RETURNING " PRODUCT,
        [PRODUCT_UPDATE] = "UPDATE shop_product SET name = $2, price_minor_units = $3,"
                           " currency = $4, seller_id = $5, updated_us = $6 WHERE id = $1"
                           " RETURNING " PRODUCT,
        [PRODUCT_DELETE] = "DELETE FROM shop_product WHERE id = $1",
        [PRODUCT_GET] = "SELECT " PRODUCT " FROM shop_product WHERE id = $1",
        [PRODUCT_LIST] = "SELECT " PRODUCT " FROM shop_product WHERE id > $1 ORDER BY id LIMIT $2",
        [ORDER_INSERT] = "INSERT INTO shop_order (" ORDER ")"
                         " VALUES ($1, $2, $3, 'new', NULL, $4, $4) RETURNING " ORDER,
        [ORDER_GET] = "SELECT " ORDER " FROM shop_order WHERE id = $1",
        [ORDER_LIST] = "SELECT " ORDER " FROM shop_order WHERE id > $1 ORDER BY id LIMIT $2",
        [ORDER_CONFIRM_NEW] = "UPDATE shop_order SET status = 'confirmed', request_id = $2,"
                              " updated_us = $3 WHERE id = $1 AND status = 'new' RETURNING " ORDER,
        [ORDER_TAKE] = "UPDATE shop_order SET status = 'charging', request_id = $2,"
                       " updated_us = $3 WHERE id = $1 AND (status = 'new'"
                       " OR (status = 'charging' AND request_id = $2)) RETURNING " ORDER,
        [ORDER_GIVE_BACK] = "UPDATE shop_order SET status = 'new', request_id = NULL,"
                            " updated_us = $3 WHERE id = $1 AND status = 'charging'"
                            " AND request_id = $2 RETURNING " ORDER,
        [ORDER_CONFIRM_CHARGED] = "UPDATE shop_order SET status = 'confirmed', updated_us = $3"
                                  " WHERE id = $1 AND status = 'charging' AND request_id = $2"
                                  " RETURNING " ORDER,
        [NAIVE_FIND] = "SELECT request, response, status_code FROM shop_idempotency WHERE key = $1",
        [NAIVE_STORE] = ("INSERT INTO shop_idempotency (key, request, response, status_code)"
                         " VALUES ($1, $2, $3, $4) ON CONFLICT (key) DO NOTHING"),
};

const int db_statement_params[DB_STATEMENTS] = {
        [SELLER_INSERT] = 3, [SELLER_UPDATE] = 3, [SELLER_DELETE] = 1, [SELLER_GET] = 1,
        [SELLER_LIST] = 2, [PRODUCT_INSERT] = 6, [PRODUCT_UPDATE] = 6, [PRODUCT_DELETE] = 1,
        [PRODUCT_GET] = 1, [PRODUCT_LIST] = 2, [ORDER_INSERT] = 4,
        [ORDER_GET] = 1, [ORDER_LIST] = 2, [ORDER_CONFIRM_NEW] = 3, [ORDER_TAKE] = 3,
        [ORDER_GIVE_BACK] = 3, [ORDER_CONFIRM_CHARGED] = 3, [NAIVE_FIND] = 1, [NAIVE_STORE] = 4,
};

enum { TAKE_WAIT_S = 5 }; /* for a free connection; then 503 rather than a queue without end */

struct db {
        const struct db_driver *driver;
        void *priv;
        pthread_mutex_t lock;
        pthread_cond_t given;
        struct db_conn *idle;
        int open; /* connections that exist, idle ones included */
        char url[];
};

struct db *db_open(const char *store_url, char *why)
{
        size_t n = strlen(store_url) + 1;
        const struct db_driver *driver = NULL;
        struct db *db;

        if (strncmp(store_url, "sqlite:", 7) == 0)
                driver = &db_sqlite;
        else if (strncmp(store_url, "postgres://", 11) == 0 ||
                 strncmp(store_url, "postgresql://", 13) == 0)
                driver = &db_postgres;
        if (!driver) {
                snprintf(why, DB_WHY_BYTES, "the shop keeps its products beside the keys: give "
                                            "--store sqlite:PATH or --store postgres://...");
                return NULL;
        }
        db = calloc(1, sizeof *db + n);
        if (!db) {
                snprintf(why, DB_WHY_BYTES, "no memory");
                return NULL;
        }
        memcpy(db->url, store_url, n);
        db->driver = driver;
        pthread_mutex_init(&db->lock, NULL);
        pthread_cond_init(&db->given, NULL);
        if (!driver->open(db, why)) {
                db_close(db);
                return NULL;
        }
        return db;
}

void db_close(struct db *db)
{
        if (!db)
                return;
        while (db->idle) {
                struct db_conn *conn = db->idle;
                db->idle = conn->next;
                db->driver->disconnect(conn);
        }
        db->driver->close(db);
        pthread_cond_destroy(&db->given);
        pthread_mutex_destroy(&db->lock);
        free(db);
}

const struct db_driver *db_driver(const struct db *db)
{
        return db->driver;
}

const char *db_url(const struct db *db)
{
        return db->url;
}

void *db_private(const struct db *db)
{
        return db->priv;
}

void db_set_private(struct db *db, void *p)
{
        db->priv = p;
}

/* An idle connection, or the right to open one (*ret_conn NULL).  false: none came free in time. */
static bool pool_take(struct db *db, struct db_conn **ret_conn)
{
        struct timespec until;
        bool got = true;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += TAKE_WAIT_S;
        pthread_mutex_lock(&db->lock);
        while (got && !db->idle && db->open == db->driver->conns_max)
                got = pthread_cond_clockwait(&db->given, &db->lock, CLOCK_MONOTONIC, &until) == 0;
        if (got) {
                *ret_conn = db->idle;
                if (db->idle)
                        db->idle = db->idle->next;
                else
                        db->open++;
        }
        pthread_mutex_unlock(&db->lock);
        return got;
}

static void pool_forget(struct db *db)
{
        pthread_mutex_lock(&db->lock);
        db->open--;
        pthread_cond_signal(&db->given);
        pthread_mutex_unlock(&db->lock);
}

struct db_conn *db_take(struct db *db, char *why)
{
        struct db_conn *conn = NULL;
        if (!pool_take(db, &conn)) {
                snprintf(why, DB_WHY_BYTES, "all %d database connections are busy",
                         db->driver->conns_max);
                return NULL;
        }
        /* A server that was restarted has closed our idle connections: see it now, before a
         * statement is sent of which nobody could say whether it ran. */
        if (conn && !db->driver->alive(conn)) {
                db->driver->disconnect(conn);
                conn = NULL;
        }
        if (!conn)
                conn = db->driver->connect(db, why);
        if (!conn) {
                pool_forget(db);
                return NULL;
        }
        conn->next = NULL;
        conn->why[0] = '\0';
        return conn;
}

void db_give(struct db_conn *conn)
{
        struct db *db = conn->db;
        if (!db->driver->alive(conn)) {
                db_drop(conn);
                return;
        }
        pthread_mutex_lock(&db->lock);
        conn->next = db->idle;
        db->idle = conn;
        pthread_cond_signal(&db->given);
        pthread_mutex_unlock(&db->lock);
}

void db_drop(struct db_conn *conn)
{
        struct db *db = conn->db;
        db->driver->disconnect(conn);
        pool_forget(db);
}

enum db_result db_run(struct db_conn *conn, enum db_statement stmt, const char *const *params,
                      db_row_fn fn, void *arg, int *ret_n)
{
        int n = 0;
        enum db_result result = conn->db->driver->run(conn, stmt, params, fn, arg, &n);
        if (result == DB_OK && ret_n)
                *ret_n = n;
        return result;
}
