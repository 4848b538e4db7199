/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_error: see pg_error.h.
 */
#include "store/postgres/pg_error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct state {
        const char *prefix; /* the first that matches wins */
        enum pg_verdict verdict;
        semel_code code;
        const char *advice; /* NULL: only the server's message */
};

static const struct state states[] = {
        {"22", PG_VERDICT_BLAME, SEMEL_ERR_ARGUMENT, "the database does not take this value"},
        {"54", PG_VERDICT_BLAME, SEMEL_ERR_TOO_LARGE, "a limit of the database is exceeded"},
        {"55P03", PG_VERDICT_LOCKED, SEMEL_ERR_BUSY,
         "the key is locked by another transaction; try again"},
        {"40", PG_VERDICT_AGAIN, SEMEL_ERR_CONFLICT,
         "the database gave up one of two transactions; roll back and retry yours"},
        {"25006", PG_VERDICT_ALL, SEMEL_ERR_STORE_READ_ONLY,
         "the server takes no writes (a standby, or default_transaction_read_only); connect to "
         "the primary"},
        {"25", PG_VERDICT_LATER, SEMEL_ERR_TX_STATE, "the transaction is in the wrong state"},
        {"26000", PG_VERDICT_PLAN, SEMEL_ERR_STORE_DOWN,
         "a pooler lost the prepared statements; set semel_prepare=off in the URL"},
        {"42P05", PG_VERDICT_PLAN, SEMEL_ERR_STORE_DOWN,
         "a pooler mixed up the prepared statements; set semel_prepare=off in the URL"},
        {"0A000", PG_VERDICT_PLAN, SEMEL_ERR_SCHEMA, "the schema changed under a statement"},
        {"53100", PG_VERDICT_ALL, SEMEL_ERR_STORE_FULL,
         "the database's disk is full; free space there"},
        {"53", PG_VERDICT_LATER, SEMEL_ERR_STORE_DOWN,
         "the server is out of memory or connections; give it more or use fewer"},
        {"57", PG_VERDICT_LATER, SEMEL_ERR_STORE_DOWN,
         "the server ended the statement or is shutting down or starting up"},
        {"08", PG_VERDICT_LATER, SEMEL_ERR_STORE_DOWN, "the connection to the database broke"},
        {"42501", PG_VERDICT_ALL, SEMEL_ERR_ACCESS,
         "the role lacks a privilege; run what `semel migrate --grants ROLE` prints"},
        {"42P01", PG_VERDICT_ALL, SEMEL_ERR_SCHEMA,
         "the database has no semel tables; run `semel migrate`"},
        {"3F000", PG_VERDICT_ALL, SEMEL_ERR_SCHEMA,
         "the database has no semel schema; run `semel migrate`"},
        {"42703", PG_VERDICT_ALL, SEMEL_ERR_SCHEMA,
         "the semel tables are of another version; run `semel migrate`"},
        {"3D000", PG_VERDICT_ALL, SEMEL_ERR_ACCESS, "the database does not exist; create it"},
        {"28", PG_VERDICT_ALL, SEMEL_ERR_ACCESS,
         "the server refused the login; check user and password (PGPASSFILE, PGPASSWORD)"},
        {"XX00", PG_VERDICT_BLAME, SEMEL_ERR_CORRUPT, "the database found damaged data"},
        {"58", PG_VERDICT_LATER, SEMEL_ERR_STORE_DOWN, "the server had a system error"},
        {"42", PG_VERDICT_ALL, SEMEL_ERR_INTERNAL, "the server does not take a statement of semel"},
        /* A trigger that raises, a constraint that somebody added, ... */
        {"", PG_VERDICT_BLAME, SEMEL_ERR_STORE_DOWN, "the database refused the statement"},
};

static const struct state *state_of(const char *sqlstate)
{
        const struct state *s = states;
        while (strncmp(s->prefix, sqlstate, strlen(s->prefix)) != 0)
                s++;
        return s;
}

enum pg_verdict pg_error_verdict(const char *sqlstate)
{
        return state_of(sqlstate)->verdict;
}

semel_code pg_error_code(const char *sqlstate)
{
        return state_of(sqlstate)->code;
}

/* The first line, without what is in front of the last "FATAL:  xxxxx: ". */
static int first_line(const char *text)
{
        return (int)strcspn(text, "\r\n");
}

static void keep_state(semel_error *err, const char *sqlstate)
{
        if (err)
                (void)snprintf(err->sqlstate, sizeof err->sqlstate, "%s", sqlstate);
}

semel_code pg_error_from_result(semel_error *err, const PGresult *res)
{
        const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
        const char *message = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
        if (!sqlstate)
                sqlstate = "08006"; /* libpq's own: the connection is gone */
        if (!message)
                message = PQresultErrorMessage(res);
        const struct state *s = state_of(sqlstate);
        err_set(err, s->code, "%s (SQLSTATE %s: %.*s)", s->advice, sqlstate, first_line(message),
                message);
        keep_state(err, sqlstate);
        return s->code;
}

/* In "FATAL:  28P01: password ..." the state, whatever language the rest is in. */
static bool find_state(const char *text, char ret_state[6], const char **ret_message)
{
        static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for (const char *p = strstr(text, ":  "); p; p = strstr(p + 1, ":  ")) {
                if (strspn(p + 3, digits) != 5 || p[8] != ':')
                        continue;
                memcpy(ret_state, p + 3, 5);
                ret_state[5] = '\0';
                *ret_message = p + 10;
                return true;
        }
        return false;
}

semel_code pg_error_from_connection(semel_error *err, const PGconn *conn)
{
        const char *text = PQerrorMessage(conn);
        const char *message = text;
        char sqlstate[6];
        if (!find_state(text, sqlstate, &message))
                return err_set(err, SEMEL_ERR_STORE_DOWN,
                               "the database cannot be reached; start it or check the URL (%.*s)",
                               first_line(text), text);
        const struct state *s = state_of(sqlstate);
        err_set(err, s->code, "%s (SQLSTATE %s: %.*s)", s->advice, sqlstate, first_line(message),
                message);
        keep_state(err, sqlstate);
        return s->code;
}
