/* SPDX-License-Identifier: Apache-2.0
 *
 * db: the shop's own tables, on SQLite or PostgreSQL.
 *
 *     struct db_conn *conn = db_take(db, why);
 *     if (db_run(conn, SELLER_INSERT, params, on_row, arg, &n) == DB_OK) ...
 *     db_give(conn);
 *
 * A small pool of connections with prepared statements; a connection belongs to one thread between
 * take and give.  All parameters and cells are text; both databases convert them to the
 * column's type.  Nothing is ever pasted into SQL.
 */
#ifndef SHOP_DB_H
#define SHOP_DB_H

#include <stdbool.h>
#include <stdint.h>

#include <semel/event.h>
#include <semel/run.h>

enum { DB_WHY_BYTES = 256, DB_PARAMS_MAX = 7, DB_COLUMNS_MAX = 8 };

/* The texts, with their parameters, are in db.c. */
enum db_statement {
        SELLER_INSERT, SELLER_UPDATE, SELLER_DELETE, SELLER_GET, SELLER_LIST,
        PRODUCT_INSERT, PRODUCT_UPDATE, PRODUCT_DELETE, PRODUCT_GET, PRODUCT_LIST,
        ORDER_INSERT, ORDER_GET, ORDER_LIST,
        ORDER_CONFIRM_NEW,     /* of a new order */
        ORDER_TAKE,            /* for this request_id, to be charged */
        ORDER_GIVE_BACK,       /* it was not charged */
        ORDER_CONFIRM_CHARGED, /* of one that this request_id has taken */
        NAIVE_FIND, NAIVE_STORE,
        DB_STATEMENTS
};

enum db_result {
        DB_OK,
        DB_REFERENCE, /* refused by the foreign key between product and seller; nothing happened */
        DB_BUSY,      /* another writer kept the database longer than the wait; nothing happened */
        DB_FAILED,    /* nothing happened; conn->why says why */
        DB_UNKNOWN    /* the answer was lost: it may have happened */
};

struct db;

/* Head of each driver's connection. */
struct db_conn {
        struct db *db;
        struct db_conn *next; /* in the pool's list of idle ones */
        bool in_transaction;    /* between a driver's begin and its end */
        char why[DB_WHY_BYTES]; /* after anything but DB_OK */
};

/* One row; cells are borrowed, NULL is SQL's NULL. */
typedef void (*db_row_fn)(void *arg, const char *const *cells);

/* A command on a connection: does its writes, fills the reply, says what it did. */
typedef semel_effect (*db_command_fn)(void *arg, struct db_conn *conn, semel_reply *reply);

/* A driver.  The texts of `why` are DB_WHY_BYTES long. */
struct db_driver {
        int conns_max;
        bool (*open)(struct db *db, char *why); /* makes the shop's tables */
        void (*close)(struct db *db);
        struct db_conn *(*connect)(struct db *db, char *why);
        void (*disconnect)(struct db_conn *conn);
        bool (*alive)(struct db_conn *conn); /* without a round trip */
        enum db_result (*run)(struct db_conn *conn, enum db_statement stmt,
                              const char *const *params, db_row_fn fn, void *arg, int *ret_n);
        /* A transaction for run_once; on SQLite it waits up to wait_ms for the writer. */
        enum db_result (*begin)(struct db_conn *conn, int64_t wait_ms);
        enum db_result (*commit)(struct db_conn *conn);
        void (*rollback)(struct db_conn *conn);
        /* semel_pg_run() or semel_sqlite_run() inside that transaction. */
        semel_outcome (*run_once)(struct db_conn *conn, const semel_command *cmd,
                                  db_command_fn fn, void *arg, semel_reply **ret_reply,
                                  semel_error *err);
        /* semel_pg_outbox_append() or semel_sqlite_outbox_append(), inside a transaction. */
        enum db_result (*append)(struct db_conn *conn, const semel_event *ev, semel_error *err);
};

extern const struct db_driver db_sqlite, db_postgres;
extern const char *const db_statement_sql[DB_STATEMENTS];
extern const int db_statement_params[DB_STATEMENTS];

/* Open the database that a store URL names ("sqlite:PATH", "postgres://..."). */
struct db *db_open(const char *store_url, char *why);
void db_close(struct db *db);
const struct db_driver *db_driver(const struct db *db);
const char *db_url(const struct db *db);
void *db_private(const struct db *db); /* the driver's own */
void db_set_private(struct db *db, void *p);

/* Take a connection; waits a bounded time for one.  NULL: `why` says why, nothing happened. */
struct db_conn *db_take(struct db *db, char *why);
/* Give it back; a broken one is closed. */
void db_give(struct db_conn *conn);
/* Close one that is not to be trusted any more. */
void db_drop(struct db_conn *conn);

/* Run one prepared statement.  fn may be NULL.  ret_n (may be NULL): rows returned or changed. */
enum db_result db_run(struct db_conn *conn, enum db_statement stmt, const char *const *params,
                      db_row_fn fn, void *arg, int *ret_n);

#endif
