/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_server: what every connection of ours, whoever opens it, asks of its server.
 */
#include <string.h>

#include "store/postgres/pg_row.h"
#include "store/postgres/pg_store.h"

void pg_ignore_notice(void *arg, const PGresult *res)
{
        (void)arg;
        (void)res;
}

semel_code pg_server_check(const PGconn *pg, const struct pg_config *config, const PGresult *check,
                           bool *ret_direct, semel_error *err)
{
        const char *setting = !pg_result_bool(check, 0, 0)   ? "fsync"
                              : !pg_result_bool(check, 0, 1) ? "full_page_writes"
                                                          : NULL;
        if (setting)
                return err_set(err, SEMEL_ERR_UNSAFE,
                               "the server runs with %s=off: a crash would lose what it has "
                               "acknowledged; set it on", setting);
        if (pg_result_bool(check, 0, 2))
                return err_set(err, SEMEL_ERR_STORE_READ_ONLY,
                               "the server takes no writes (a standby, or "
                               "default_transaction_read_only); connect to the primary");
        /* A pooler makes up its own process ids. */
        *ret_direct = config->prepare == 1 ||
                      (config->prepare == -1 && pg_result_int(check, 0, 3) == PQbackendPID(pg));
        return SEMEL_OK;
}

semel_code pg_server_check_text(const PGconn *pg, semel_error *err)
{
        const char *encoding = PQparameterStatus(pg, "server_encoding");
        /* SQL_ASCII is none: it keeps the bytes as they come. */
        if (!encoding || strcmp(encoding, "UTF8") == 0 || strcmp(encoding, "SQL_ASCII") == 0)
                return SEMEL_OK;
        return err_set(err, SEMEL_ERR_UNSAFE,
                       "the database's encoding is %s, which cannot hold the text of every event; use a database "
                       "made with ENCODING 'UTF8'", encoding);
}
