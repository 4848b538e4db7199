/* SPDX-License-Identifier: Apache-2.0
 *
 * naive: see naive.h.
 */
#include "naive.h"

#include <libpq-fe.h>
#include <openssl/sha.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct naive {
        PGconn *pg;
        sqlite3 *lite;
        sqlite3_stmt *claim, *complete;
};

static void die(const char *what, const char *why)
{
        fprintf(stderr, "naive: %s: %s\n", what, why);
        exit(1);
}

static bool is_postgres(const char *url)
{
        return strncmp(url, "postgres", 8) == 0;
}

/* -- PostgreSQL ---------------------------------------------------------------------- */

static const char pg_table[] =
        "CREATE TABLE IF NOT EXISTS naive (id bytea PRIMARY KEY, state smallint NOT NULL,"
        " token bigint NOT NULL, attempt bytea NOT NULL, fingerprint bytea NOT NULL,"
        " on_unknown smallint NOT NULL, lease_until timestamptz NOT NULL,"
        " expire_at timestamptz NOT NULL, created_at timestamptz NOT NULL, mode smallint NOT NULL,"
        " scope bytea NOT NULL, operation bytea NOT NULL, key bytea NOT NULL, holder bytea NOT NULL,"
        " status int, headers bytea, body bytea) WITH (fillfactor = 50);"
        "CREATE INDEX IF NOT EXISTS naive_created_at ON naive (created_at)";

static const char pg_claim[] =
        "INSERT INTO naive (id, state, token, attempt, fingerprint, on_unknown, lease_until,"
        " expire_at, created_at, mode, scope, operation, key, holder)"
        " VALUES ($1, 1, 1, $2, $1, 0, clock_timestamp() + interval '60 s',"
        " clock_timestamp() + interval '1 day', clock_timestamp(), 1, '', 'POST /bench', $3,"
        " 'host=bench pid=1') ON CONFLICT DO NOTHING";

static const char pg_complete[] =
        "UPDATE naive SET state = 2, expire_at = clock_timestamp() + interval '1 day',"
        " status = 201, headers = 'Content-Type: application/json', body = $3"
        " WHERE id = $1 AND token = 1 AND attempt = $2 AND state = 1";

static PGconn *pg_connect(const char *url)
{
        PGconn *conn = PQconnectdb(url);
        if (PQstatus(conn) != CONNECTION_OK)
                die("connect", PQerrorMessage(conn));
        return conn;
}

static void pg_must(PGconn *conn, PGresult *res, const char *what)
{
        if (PQresultStatus(res) != PGRES_COMMAND_OK)
                die(what, PQerrorMessage(conn));
        PQclear(res);
}

static bool pg_write(PGconn *conn, const char *name, const void *const values[3],
                     const int lengths[3])
{
        static const int formats[3] = {1, 1, 1};
        PGresult *res = PQexecPrepared(conn, name, 3, (const char *const *)values, lengths, formats, 0);
        bool ok = strcmp(PQcmdTuples(res), "1") == 0;
        PQclear(res);
        return ok;
}

/* -- SQLite ------------------------------------------------------------------------------ */

static const char lite_setup[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE IF NOT EXISTS naive (id BLOB PRIMARY KEY, state INTEGER NOT NULL,"
        " token INTEGER NOT NULL, attempt BLOB NOT NULL, fingerprint BLOB NOT NULL,"
        " lease_until INTEGER NOT NULL, expire_at INTEGER NOT NULL, created_at INTEGER NOT NULL,"
        " operation BLOB NOT NULL, key BLOB NOT NULL, status INTEGER, headers BLOB, body BLOB)"
        " WITHOUT ROWID;"
        "CREATE INDEX IF NOT EXISTS naive_created_at ON naive (created_at)";

static const char lite_claim[] =
        "INSERT INTO naive (id, state, token, attempt, fingerprint, lease_until, expire_at,"
        " created_at, operation, key) VALUES (?1, 1, 1, ?2, ?1, 0, 0, 0, 'POST /bench', ?3)"
        " ON CONFLICT DO NOTHING";

static const char lite_complete[] =
        "UPDATE naive SET state = 2, status = 201, headers = 'Content-Type: application/json',"
        " body = ?3 WHERE id = ?1 AND token = 1 AND attempt = ?2 AND state = 1";

static sqlite3 *lite_open(const char *url)
{
        sqlite3 *db;
        if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK)
                die("open", sqlite3_errmsg(db));
        sqlite3_busy_timeout(db, 60000);
        if (sqlite3_exec(db, lite_setup, NULL, NULL, NULL) != SQLITE_OK)
                die("setup", sqlite3_errmsg(db));
        return db;
}

static bool lite_write(sqlite3 *db, sqlite3_stmt *stmt, const void *const values[3],
                       const int lengths[3])
{
        for (int i = 0; i < 3; i++)
                sqlite3_bind_blob(stmt, i + 1, values[i], lengths[i], SQLITE_STATIC);
        int rc = sqlite3_step(stmt);
        sqlite3_reset(stmt);
        return rc == SQLITE_DONE && sqlite3_changes(db) == 1;
}

/* -- both ---------------------------------------------------------------------------------- */

void naive_prepare(const char *url)
{
        if (is_postgres(url)) {
                PGconn *conn = pg_connect(url);
                pg_must(conn, PQexec(conn, pg_table), "table");
                PQfinish(conn);
        } else {
                sqlite3_close(lite_open(url));
        }
}

struct naive *naive_open(const char *url)
{
        struct naive *n = calloc(1, sizeof *n);
        if (!n)
                die("open", "no memory");
        if (is_postgres(url)) {
                n->pg = pg_connect(url);
                pg_must(n->pg, PQprepare(n->pg, "claim", pg_claim, 0, NULL), "prepare");
                pg_must(n->pg, PQprepare(n->pg, "complete", pg_complete, 0, NULL), "prepare");
                return n;
        }
        n->lite = lite_open(url);
        if (sqlite3_prepare_v2(n->lite, lite_claim, -1, &n->claim, NULL) != SQLITE_OK ||
            sqlite3_prepare_v2(n->lite, lite_complete, -1, &n->complete, NULL) != SQLITE_OK)
                die("prepare", sqlite3_errmsg(n->lite));
        return n;
}

void naive_close(struct naive *n)
{
        if (!n)
                return;
        if (n->pg)
                PQfinish(n->pg);
        sqlite3_finalize(n->claim);
        sqlite3_finalize(n->complete);
        sqlite3_close(n->lite);
        free(n);
}

bool naive_command(struct naive *n, const char *key, const void *body, size_t len)
{
        unsigned char id[SHA256_DIGEST_LENGTH];
        (void)SHA256((const unsigned char *)key, strlen(key), id);
        const void *const claim[3] = {id, id, key};
        const int claim_len[3] = {sizeof id, 16, (int)strlen(key)};
        const void *const complete[3] = {id, id, body};
        const int complete_len[3] = {sizeof id, 16, (int)len};
        if (n->pg)
                return pg_write(n->pg, "claim", claim, claim_len) &&
                       pg_write(n->pg, "complete", complete, complete_len);
        return lite_write(n->lite, n->claim, claim, claim_len) &&
               lite_write(n->lite, n->complete, complete, complete_len);
}
