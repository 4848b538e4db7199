/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_file: the YAML file of `semel gateway`, read by libyaml's events into the tables of
 * core/gateway_config.h.
 *
 *     listen: ":8080"
 *     upstream: http://127.0.0.1:9000
 *     policy:                    # for every request that no route is for
 *       on_unknown: hold
 *     routes:                    # the first that matches decides
 *       - name: charges
 *         methods: [POST]
 *         path: /charges/{*}
 *         upstream: idempotent
 *
 * Every error has the line and column where the wrong thing stands; all of them are told, up to
 * YAML_ERRORS_MAX.
 */
#ifndef CONF_GATEWAY_FILE_H
#define CONF_GATEWAY_FILE_H

#include <stdio.h>

#include "core/gateway_config.h"

/* Read `path` into `config`, which has its defaults already.  tell gets each error as
 * "FILE:LINE:COLUMN: what is wrong".  Returns the number of errors; the config is usable when it
 * is 0. */
int gateway_file_read(const char *path, struct gateway_config *config,
                      void (*tell)(void *arg, const char *error), void *arg);

#endif
