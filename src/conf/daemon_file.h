/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon_file: the YAML file of a daemon whose settings are one table: a mapping of them, and
 * `kafka:`, a mapping of librdkafka's properties.
 */
#ifndef CONF_DAEMON_FILE_H
#define CONF_DAEMON_FILE_H

#include "core/property.h"
#include "core/setting.h"

/* Into `object`, whose entries have their defaults.  kafka NULL: the file may not have it.
 * Returns the number of errors, each told as "path:line:column: what". */
int daemon_file_read(const char *path, const struct setting *table, size_t n, void *object,
                     struct property_list *kafka, void (*tell)(void *arg, const char *error),
                     void *arg);

#endif
