/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml_reader: see yaml_reader.h.
 */
#include "conf/yaml_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void yaml_error_at(struct yaml_reader *rd, struct yaml_place at, const char *text)
{
        char line[SETTING_ERROR_BYTES + 512];
        if (rd->errors++ >= YAML_ERRORS_MAX)
                return;
        (void)snprintf(line, sizeof line, "%.200s:%zu:%zu: %s", rd->path, at.line, at.column, text);
        rd->tell(rd->arg, line);
}

struct yaml_place yaml_place_of(const yaml_mark_t *mark)
{
        return (struct yaml_place){mark->line + 1, mark->column + 1};
}

/* The next event; false when the YAML is broken (told). */
bool yaml_next(struct yaml_reader *rd, yaml_event_t *event)
{
        if (rd->broken)
                return false;
        if (yaml_parser_parse(&rd->yaml, event))
                return true;
        rd->broken = true;
        char text[SETTING_ERROR_BYTES];
        (void)snprintf(text, sizeof text, "this is no YAML: %s",
                       rd->yaml.problem ? rd->yaml.problem : "?");
        yaml_error_at(rd, yaml_place_of(&rd->yaml.problem_mark), text);
        return false;
}

/* Read over a value that has no meaning, whatever it contains. */
void yaml_skip(struct yaml_reader *rd, const yaml_event_t *begun)
{
        int depth = begun->type == YAML_MAPPING_START_EVENT ||
                    begun->type == YAML_SEQUENCE_START_EVENT;
        while (depth > 0) {
                yaml_event_t event;
                if (!yaml_next(rd, &event))
                        return;
                if (event.type == YAML_MAPPING_START_EVENT ||
                    event.type == YAML_SEQUENCE_START_EVENT)
                        depth++;
                else if (event.type == YAML_MAPPING_END_EVENT ||
                         event.type == YAML_SEQUENCE_END_EVENT)
                        depth--;
                yaml_event_delete(&event);
        }
}

static bool scalar_text(const yaml_event_t *event, char *out, size_t size)
{
        size_t n = event->data.scalar.length;
        if (n >= size || memchr(event->data.scalar.value, 0, n))
                return false;
        memcpy(out, event->data.scalar.value, n);
        out[n] = 0;
        return true;
}

/* [POST, PUT] or a block list: as one text with commas. */
static bool list_text(struct yaml_reader *rd, char *out, size_t size)
{
        size_t n = 0;
        bool ok = true;
        out[0] = 0;
        for (;;) {
                yaml_event_t event;
                if (!yaml_next(rd, &event))
                        return false;
                bool end = event.type == YAML_SEQUENCE_END_EVENT;
                if (!end && event.type == YAML_SCALAR_EVENT &&
                    n + event.data.scalar.length + 2 < size) {
                        if (n > 0)
                                out[n++] = ',';
                        ok &= scalar_text(&event, out + n, size - n);
                        n += event.data.scalar.length;
                } else if (!end) {
                        ok = false;
                        yaml_skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (end)
                        return ok;
        }
}

/* The value of a setting: a scalar, or a list where the setting is a set. */
void yaml_read_setting(struct yaml_reader *rd, const struct setting *s, void *object)
{
        yaml_event_t event;
        char value[YAML_VALUE_BYTES_MAX], why[SETTING_ERROR_BYTES], text[SETTING_ERROR_BYTES + 64];
        bool ok = false;
        if (!yaml_next(rd, &event))
                return;
        struct yaml_place at = yaml_place_of(&event.start_mark);
        if (event.type == YAML_SCALAR_EVENT)
                ok = scalar_text(&event, value, sizeof value);
        else if (event.type == YAML_SEQUENCE_START_EVENT && s->type == SETTING_SET)
                ok = list_text(rd, value, sizeof value);
        else
                yaml_skip(rd, &event);
        yaml_event_delete(&event);
        if (rd->broken)
                return;
        if (!ok) {
                (void)snprintf(text, sizeof text, "%s must be %s", s->name,
                               s->type == SETTING_SET ? "a list of names" : "one value");
                yaml_error_at(rd, at, text);
        } else if (!setting_set(s, object, value, why)) {
                (void)snprintf(text, sizeof text, "%s %s", s->name, why);
                yaml_error_at(rd, at, text);
        }
}

void yaml_unknown(struct yaml_reader *rd, struct yaml_place at, const char *key, const char *near)
{
        char text[SETTING_ERROR_BYTES];
        if (near)
                (void)snprintf(text, sizeof text,
                               "there is no setting \"%.60s\"; did you mean \"%s\"?", key, near);
        else
                (void)snprintf(text, sizeof text,
                               "there is no setting \"%.60s\"; `semel config reference` lists them",
                               key);
        yaml_error_at(rd, at, text);
}

/* One mapping: calls `entry` for each key, which reads its value. */
void yaml_read_mapping(struct yaml_reader *rd, void *object,
                         yaml_entry_fn *entry)
{
        char seen[64][64];
        size_t seen_n = 0;
        for (;;) {
                yaml_event_t event;
                char key[64] = "";
                if (!yaml_next(rd, &event))
                        return;
                bool end = event.type == YAML_MAPPING_END_EVENT;
                struct yaml_place at = yaml_place_of(&event.start_mark);
                bool named = event.type == YAML_SCALAR_EVENT && scalar_text(&event, key, sizeof key);
                if (!end && !named) {
                        yaml_error_at(rd, at, "a setting's name is expected here");
                        yaml_skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (end)
                        return;
                for (size_t i = 0; i < seen_n && named; i++)
                        if (strcmp(seen[i], key) == 0)
                                yaml_error_at(rd, at, "this setting was given before");
                if (named && seen_n < 64)
                        memcpy(seen[seen_n++], key, sizeof key);
                entry(rd, object, at, named ? key : "");
        }
}

void yaml_skip_value(struct yaml_reader *rd)
{
        yaml_event_t event;
        if (!yaml_next(rd, &event))
                return;
        yaml_skip(rd, &event);
        yaml_event_delete(&event);
}

/* Read a value that must begin a mapping or a list; false (told) when it is something else. */
bool yaml_begins(struct yaml_reader *rd, yaml_event_type_t type, const char *what)
{
        yaml_event_t event;
        if (!yaml_next(rd, &event))
                return false;
        bool ok = event.type == type;
        if (!ok) {
                yaml_error_at(rd, yaml_place_of(&event.start_mark), what);
                yaml_skip(rd, &event);
        }
        yaml_event_delete(&event);
        return ok;
}

static void property_entry(struct yaml_reader *rd, void *object, struct yaml_place at,
                           const char *key)
{
        yaml_event_t event;
        char value[YAML_VALUE_BYTES_MAX], why[SETTING_ERROR_BYTES];
        if (!yaml_next(rd, &event))
                return;
        bool ok = event.type == YAML_SCALAR_EVENT && scalar_text(&event, value, sizeof value);
        if (event.type != YAML_SCALAR_EVENT)
                yaml_skip(rd, &event);
        yaml_event_delete(&event);
        if (!ok)
                yaml_error_at(rd, at, "a property of librdkafka has one value");
        else if (*key && !property_set(object, key, value, why))
                yaml_error_at(rd, at, why);
}

void yaml_read_properties(struct yaml_reader *rd, struct property_list *list)
{
        if (yaml_begins(rd, YAML_MAPPING_START_EVENT,
                        "kafka must be a mapping: `compression.type: lz4`"))
                yaml_read_mapping(rd, list, property_entry);
}

static void read_document(struct yaml_reader *rd, void *object, yaml_entry_fn *entry,
                          const char *must)
{
        yaml_event_t event;
        while (yaml_next(rd, &event)) {
                yaml_event_type_t type = event.type;
                struct yaml_place at = yaml_place_of(&event.start_mark);
                if (type == YAML_ALIAS_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                    type == YAML_SCALAR_EVENT) {
                        yaml_error_at(rd, at, must);
                        yaml_skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (type == YAML_MAPPING_START_EVENT)
                        yaml_read_mapping(rd, object, entry);
                if (type == YAML_STREAM_END_EVENT)
                        return;
        }
}

int yaml_file_read(const char *path, void *object, yaml_entry_fn *entry, const char *must,
                   void (*tell)(void *arg, const char *error), void *arg)
{
        struct yaml_reader rd = {.path = path, .tell = tell, .arg = arg};
        char line[SETTING_ERROR_BYTES + 512];
        FILE *file = fopen(path, "re");
        if (!file || !yaml_parser_initialize(&rd.yaml)) {
                (void)snprintf(line, sizeof line, "%.200s: %s", path,
                               file ? "no memory" : strerrordesc_np(errno));
                tell(arg, line);
                if (file)
                        (void)fclose(file);
                return 1;
        }
        yaml_parser_set_input_file(&rd.yaml, file);
        yaml_parser_set_encoding(&rd.yaml, YAML_UTF8_ENCODING);
        read_document(&rd, object, entry, must);
        yaml_parser_delete(&rd.yaml);
        (void)fclose(file);
        return rd.errors;
}
