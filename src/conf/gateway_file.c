/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_file: see gateway_file.h.  A recursive walk over libyaml's events; the grammar is
 * small: a mapping of settings, `policy`, a mapping, and `routes`, a list of mappings.
 */
#include "conf/gateway_file.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

enum { VALUE_BYTES_MAX = 1024, DEPTH_MAX = 16 };

struct reader {
        const char *path;
        yaml_parser_t yaml;
        void (*tell)(void *arg, const char *error);
        void *arg;
        int errors;
        bool broken; /* the YAML itself: nothing behind it has a meaning */
};

struct place {
        size_t line, column; /* from 1 */
};

static void error_at(struct reader *rd, struct place at, const char *text)
{
        char line[SETTING_ERROR_BYTES + 512];
        if (rd->errors++ >= GATEWAY_FILE_ERRORS_MAX)
                return;
        (void)snprintf(line, sizeof line, "%.200s:%zu:%zu: %s", rd->path, at.line, at.column, text);
        rd->tell(rd->arg, line);
}

static struct place place_of(const yaml_mark_t *mark)
{
        return (struct place){mark->line + 1, mark->column + 1};
}

/* The next event; false when the YAML is broken (told). */
static bool next(struct reader *rd, yaml_event_t *event)
{
        if (rd->broken)
                return false;
        if (yaml_parser_parse(&rd->yaml, event))
                return true;
        rd->broken = true;
        char text[SETTING_ERROR_BYTES];
        (void)snprintf(text, sizeof text, "this is no YAML: %s",
                       rd->yaml.problem ? rd->yaml.problem : "?");
        error_at(rd, place_of(&rd->yaml.problem_mark), text);
        return false;
}

/* Read over a value that has no meaning, whatever it contains. */
static void skip(struct reader *rd, const yaml_event_t *begun)
{
        int depth = begun->type == YAML_MAPPING_START_EVENT ||
                    begun->type == YAML_SEQUENCE_START_EVENT;
        while (depth > 0) {
                yaml_event_t event;
                if (!next(rd, &event))
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
static bool list_text(struct reader *rd, char *out, size_t size)
{
        size_t n = 0;
        bool ok = true;
        out[0] = 0;
        for (;;) {
                yaml_event_t event;
                if (!next(rd, &event))
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
                        skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (end)
                        return ok;
        }
}

/* The value of a setting: a scalar, or a list where the setting is a set. */
static void read_setting(struct reader *rd, const struct setting *s, void *object)
{
        yaml_event_t event;
        char value[VALUE_BYTES_MAX], why[SETTING_ERROR_BYTES], text[SETTING_ERROR_BYTES + 64];
        bool ok = false;
        if (!next(rd, &event))
                return;
        struct place at = place_of(&event.start_mark);
        if (event.type == YAML_SCALAR_EVENT)
                ok = scalar_text(&event, value, sizeof value);
        else if (event.type == YAML_SEQUENCE_START_EVENT && s->type == SETTING_SET)
                ok = list_text(rd, value, sizeof value);
        else
                skip(rd, &event);
        yaml_event_delete(&event);
        if (rd->broken)
                return;
        if (!ok) {
                (void)snprintf(text, sizeof text, "%s must be %s", s->name,
                               s->type == SETTING_SET ? "a list of names" : "one value");
                error_at(rd, at, text);
        } else if (!setting_set(s, object, value, why)) {
                (void)snprintf(text, sizeof text, "%s %s", s->name, why);
                error_at(rd, at, text);
        }
}

static void unknown(struct reader *rd, struct place at, const char *key, const char *near)
{
        char text[SETTING_ERROR_BYTES];
        if (near)
                (void)snprintf(text, sizeof text,
                               "there is no setting \"%.60s\"; did you mean \"%s\"?", key, near);
        else
                (void)snprintf(text, sizeof text,
                               "there is no setting \"%.60s\"; `semel config reference` lists them",
                               key);
        error_at(rd, at, text);
}

/* One mapping: calls `entry` for each key, which reads its value. */
static void read_mapping(struct reader *rd, void *object,
                         void (*entry)(struct reader *rd, void *object, struct place at,
                                       const char *key))
{
        char seen[64][64];
        size_t seen_n = 0;
        for (;;) {
                yaml_event_t event;
                char key[64] = "";
                if (!next(rd, &event))
                        return;
                bool end = event.type == YAML_MAPPING_END_EVENT;
                struct place at = place_of(&event.start_mark);
                bool named = event.type == YAML_SCALAR_EVENT && scalar_text(&event, key, sizeof key);
                if (!end && !named) {
                        error_at(rd, at, "a setting's name is expected here");
                        skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (end)
                        return;
                for (size_t i = 0; i < seen_n && named; i++)
                        if (strcmp(seen[i], key) == 0)
                                error_at(rd, at, "this setting was given before");
                if (named && seen_n < 64)
                        memcpy(seen[seen_n++], key, sizeof key);
                entry(rd, object, at, named ? key : "");
        }
}

static void skip_value(struct reader *rd)
{
        yaml_event_t event;
        if (!next(rd, &event))
                return;
        skip(rd, &event);
        yaml_event_delete(&event);
}

/* Read a value that must begin a mapping or a list; false (told) when it is something else. */
static bool begins(struct reader *rd, yaml_event_type_t type, const char *what)
{
        yaml_event_t event;
        if (!next(rd, &event))
                return false;
        bool ok = event.type == type;
        if (!ok) {
                error_at(rd, place_of(&event.start_mark), what);
                skip(rd, &event);
        }
        yaml_event_delete(&event);
        return ok;
}

static void policy_entry(struct reader *rd, void *object, struct place at, const char *key)
{
        const struct setting *s = setting_find(policy_settings, policy_setting_count, key);
        if (s) {
                read_setting(rd, s, object);
                return;
        }
        if (*key)
                unknown(rd, at, key, setting_suggest(policy_settings, policy_setting_count, key));
        skip_value(rd);
}

static void route_entry(struct reader *rd, void *object, struct place at, const char *key)
{
        struct route *route = object;
        const struct setting *s = setting_find(route_settings, route_setting_count, key);
        if (s)
                read_setting(rd, s, route);
        else
                policy_entry(rd, &route->policy, at, key);
}

static void read_routes(struct reader *rd, struct gateway_config *config)
{
        if (!begins(rd, YAML_SEQUENCE_START_EVENT, "routes must be a list: `- path: /orders`"))
                return;
        for (;;) {
                yaml_event_t event;
                if (!next(rd, &event))
                        return;
                struct place at = place_of(&event.start_mark);
                yaml_event_type_t type = event.type;
                if (type != YAML_SEQUENCE_END_EVENT && type != YAML_MAPPING_START_EVENT) {
                        error_at(rd, at, "a route is a mapping: `- path: /orders`");
                        skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (type == YAML_SEQUENCE_END_EVENT)
                        return;
                if (type != YAML_MAPPING_START_EVENT)
                        continue;
                if (config->route_count >= CONFIG_ROUTES_MAX) {
                        error_at(rd, at, "too many routes");
                        return;
                }
                struct route *route = &config->routes[config->route_count++];
                *route = (struct route){.policy = config->policy};
                read_mapping(rd, route, route_entry);
                if (!route->path[0])
                        error_at(rd, at, "a route needs a path: `path: /orders`");
        }
}

static void top_entry(struct reader *rd, void *object, struct place at, const char *key)
{
        struct gateway_config *config = object;
        const struct setting *s = setting_find(gateway_settings, gateway_setting_count, key);
        if (s) {
                read_setting(rd, s, config);
        } else if (strcmp(key, "policy") == 0) {
                if (config->route_count > 0)
                        error_at(rd, at, "policy must come before routes, which begin with it");
                if (begins(rd, YAML_MAPPING_START_EVENT, "policy must be a mapping"))
                        read_mapping(rd, &config->policy, policy_entry);
        } else if (strcmp(key, "routes") == 0) {
                read_routes(rd, config);
        } else {
                const char *near = setting_suggest(gateway_settings, gateway_setting_count, key);
                if (!near && setting_find(policy_settings, policy_setting_count, key))
                        error_at(rd, at, "this setting belongs under `policy:` or into a route");
                else if (*key)
                        unknown(rd, at, key, near);
                skip_value(rd);
        }
}

static void read_document(struct reader *rd, struct gateway_config *config)
{
        yaml_event_t event;
        while (next(rd, &event)) {
                yaml_event_type_t type = event.type;
                struct place at = place_of(&event.start_mark);
                if (type == YAML_ALIAS_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                    type == YAML_SCALAR_EVENT) {
                        error_at(rd, at, "the file must be a mapping: `upstream: http://...`");
                        skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (type == YAML_MAPPING_START_EVENT)
                        read_mapping(rd, config, top_entry);
                if (type == YAML_STREAM_END_EVENT)
                        return;
        }
}

int gateway_file_read(const char *path, struct gateway_config *config,
                      void (*tell)(void *arg, const char *error), void *arg)
{
        struct reader rd = {.path = path, .tell = tell, .arg = arg};
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
        read_document(&rd, config);
        yaml_parser_delete(&rd.yaml);
        (void)fclose(file);

        char why[SETTING_ERROR_BYTES];
        if (rd.errors == 0 && config->upstream[0] && !gateway_config_check(config, why)) {
                (void)snprintf(line, sizeof line, "%.200s: %s", path, why);
                tell(arg, line);
                rd.errors++;
        }
        return rd.errors;
}
