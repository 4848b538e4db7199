/* SPDX-License-Identifier: Apache-2.0
 *
 * open_store: the store that --db, SEMEL_DB or the default names.
 */
#ifndef CMD_OPEN_STORE_H
#define CMD_OPEN_STORE_H

#include <semel/store.h>

#include "cmd/options.h"
#include "sys/files.h"

enum { STORE_URL_BYTES_MAX = FILES_PATH_BYTES_MAX + 32 };

/* Make every driver known. */
void stores_register(void);

/* Make the drivers known and find the URL.  The default is a SQLite file in the state
 * directory, which is made, and said on stderr. */
semel_code store_url(const struct options *o, const char **ret_url,
                     char *space /* STORE_URL_BYTES_MAX */, semel_error *err);

/* A daemon's: --db, else what its settings say, else as above. */
semel_code daemon_store_url(const struct options *o, const char *setting, const char **ret_url,
                            char *space /* STORE_URL_BYTES_MAX */, semel_error *err);

semel_code store_open(const struct options *o, semel_store **ret_st, semel_error *err);

#endif
