/* SPDX-License-Identifier: Apache-2.0
 *
 * open_store: see open_store.h.
 */
#include "cmd/open_store.h"

#include <semel/postgres.h>
#include <semel/sqlite.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "cmd/say.h"

void stores_register(void)
{
        semel_sqlite_register();
        semel_postgres_register();
}

/* A script's variable was empty: not the default, which is another store than it means. */
static semel_code no_url(semel_error *err)
{
        return err_set(err, SEMEL_ERR_URL,
                       "--db is empty; a store URL begins with memory:, sqlite:PATH or postgres://");
}

semel_code store_url(const struct options *o, const char **ret_url, char *space, semel_error *err)
{
        stores_register();
        const char *url = option_text(o, OPT_DB);
        if (url && !*url)
                return no_url(err);
        if (!url)
                url = getenv("SEMEL_DB");
        if (url && *url) {
                if (strncmp(url, "memory:", 7) == 0)
                        say_note("memory: forgets everything when this process ends: for a first "
                                 "look only");
                *ret_url = url;
                return SEMEL_OK;
        }
        char dir[FILES_PATH_BYTES_MAX];
        if (state_dir(dir) != 0)
                return err_set_errno(err, SEMEL_ERR_ARGUMENT, errno,
                                     "no place for the default store: give --db URL, or set HOME");
        if (dir_make(dir) != 0)
                return err_set_errno(err, SEMEL_ERR_STORE_DOWN, errno,
                                     "cannot make the state directory %.300s: give --db URL, or make "
                                     "it writable",
                                     dir);
        (void)snprintf(space, STORE_URL_BYTES_MAX, "sqlite:%s/semel.db", dir);
        say_note("store %s (the default; --db URL or SEMEL_DB choose another)", space);
        *ret_url = space;
        return SEMEL_OK;
}

semel_code daemon_store_url(const struct options *o, const char *setting, const char **ret_url,
                            char *space, semel_error *err)
{
        if (!*setting || option_text(o, OPT_DB))
                return store_url(o, ret_url, space, err);
        stores_register();
        *ret_url = setting;
        return SEMEL_OK;
}

semel_code store_open(const struct options *o, semel_store **ret_st, semel_error *err)
{
        char space[STORE_URL_BYTES_MAX];
        const char *url = NULL;
        semel_code code = store_url(o, &url, space, err);
        return code == SEMEL_OK ? semel_store_open(url, ret_st, err) : code;
}
