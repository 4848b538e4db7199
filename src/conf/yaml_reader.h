/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml_reader: settings of core/setting.h read from libyaml's events, with line and column in each
 * complaint.  Shared by the files of all daemons; a file's own grammar is its reader's business.
 */
#ifndef CONF_YAML_READER_H
#define CONF_YAML_READER_H

#include <yaml.h>

#include "core/property.h"
#include "core/setting.h"

enum { YAML_ERRORS_MAX = 20, YAML_VALUE_BYTES_MAX = 1024 };

struct yaml_reader {
        const char *path;
        yaml_parser_t yaml;
        void (*tell)(void *arg, const char *error);
        void *arg;
        int errors;
        bool broken; /* the YAML itself: nothing behind it has a meaning */
};

struct yaml_place {
        size_t line, column; /* from 1 */
};

typedef void yaml_entry_fn(struct yaml_reader *rd, void *object, struct yaml_place at,
                           const char *key);

/* Read the file: a mapping, whose keys go to `entry`, which reads their values.  Returns the number
 * of errors, each told as "path:line:column: what". */
int yaml_file_read(const char *path, void *object, yaml_entry_fn *entry, const char *must,
                   void (*tell)(void *arg, const char *error), void *arg);

void yaml_error_at(struct yaml_reader *rd, struct yaml_place at, const char *text);
struct yaml_place yaml_place_of(const yaml_mark_t *mark);
/* The next event; false when the YAML is broken (told). */
bool yaml_next(struct yaml_reader *rd, yaml_event_t *event);
/* Read over a value that has no meaning, whatever it contains. */
void yaml_skip(struct yaml_reader *rd, const yaml_event_t *begun);
void yaml_skip_value(struct yaml_reader *rd);
/* The value of a setting: a scalar, or a list where the setting is a set. */
void yaml_read_setting(struct yaml_reader *rd, const struct setting *s, void *object);
void yaml_unknown(struct yaml_reader *rd, struct yaml_place at, const char *key, const char *near);
/* One mapping that has begun: calls `entry` for each key, which reads its value. */
void yaml_read_mapping(struct yaml_reader *rd, void *object, yaml_entry_fn *entry);
/* Read a value that must begin a mapping or a list; false (told) when it is something else. */
bool yaml_begins(struct yaml_reader *rd, yaml_event_type_t type, const char *what);
/* A mapping of librdkafka's properties: `compression.type: lz4`. */
void yaml_read_properties(struct yaml_reader *rd, struct property_list *list);

#endif
