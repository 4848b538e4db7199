/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_file: see gateway_file.h.  A recursive walk over libyaml's events; the grammar is
 * small: a mapping of settings, `policy`, a mapping, and `routes`, a list of mappings.
 */
#include "conf/gateway_file.h"

#include <string.h>

#include "conf/yaml_reader.h"

static void policy_entry(struct yaml_reader *rd, void *object, struct yaml_place at, const char *key)
{
        const struct setting *s = setting_find(policy_settings, policy_setting_count, key);
        if (s) {
                yaml_read_setting(rd, s, object);
                return;
        }
        if (*key)
                yaml_unknown(rd, at, key, setting_suggest(policy_settings, policy_setting_count, key));
        yaml_skip_value(rd);
}

static void route_entry(struct yaml_reader *rd, void *object, struct yaml_place at, const char *key)
{
        struct route *route = object;
        const struct setting *s = setting_find(route_settings, route_setting_count, key);
        if (s)
                yaml_read_setting(rd, s, route);
        else
                policy_entry(rd, &route->policy, at, key);
}

static void read_routes(struct yaml_reader *rd, struct gateway_config *config)
{
        if (!yaml_begins(rd, YAML_SEQUENCE_START_EVENT, "routes must be a list: `- path: /orders`"))
                return;
        for (;;) {
                yaml_event_t event;
                if (!yaml_next(rd, &event))
                        return;
                struct yaml_place at = yaml_place_of(&event.start_mark);
                yaml_event_type_t type = event.type;
                if (type != YAML_SEQUENCE_END_EVENT && type != YAML_MAPPING_START_EVENT) {
                        yaml_error_at(rd, at, "a route is a mapping: `- path: /orders`");
                        yaml_skip(rd, &event);
                }
                yaml_event_delete(&event);
                if (type == YAML_SEQUENCE_END_EVENT)
                        return;
                if (type != YAML_MAPPING_START_EVENT)
                        continue;
                if (config->route_count >= CONFIG_ROUTES_MAX) {
                        yaml_error_at(rd, at, "too many routes");
                        return;
                }
                struct route *route = &config->routes[config->route_count++];
                *route = (struct route){.policy = config->policy};
                yaml_read_mapping(rd, route, route_entry);
                if (!route->path[0])
                        yaml_error_at(rd, at, "a route needs a path: `path: /orders`");
        }
}

static void top_entry(struct yaml_reader *rd, void *object, struct yaml_place at, const char *key)
{
        struct gateway_config *config = object;
        const struct setting *s = setting_find(gateway_settings, gateway_setting_count, key);
        if (s) {
                yaml_read_setting(rd, s, config);
        } else if (strcmp(key, "policy") == 0) {
                if (config->route_count > 0)
                        yaml_error_at(rd, at, "policy must come before routes, which begin with it");
                if (yaml_begins(rd, YAML_MAPPING_START_EVENT, "policy must be a mapping"))
                        yaml_read_mapping(rd, &config->policy, policy_entry);
        } else if (strcmp(key, "routes") == 0) {
                read_routes(rd, config);
        } else {
                const char *near = setting_suggest(gateway_settings, gateway_setting_count, key);
                if (!near && setting_find(policy_settings, policy_setting_count, key))
                        yaml_error_at(rd, at, "this setting belongs under `policy:` or into a route");
                else if (*key)
                        yaml_unknown(rd, at, key, near);
                yaml_skip_value(rd);
        }
}

int gateway_file_read(const char *path, struct gateway_config *config,
                      void (*tell)(void *arg, const char *error), void *arg)
{
        char why[SETTING_ERROR_BYTES], line[SETTING_ERROR_BYTES + 512];
        int errors = yaml_file_read(path, config, top_entry,
                                    "the file must be a mapping: `upstream: http://...`", tell, arg);
        if (errors == 0 && config->upstream[0] && !gateway_config_check(config, why)) {
                (void)snprintf(line, sizeof line, "%.200s: %s", path, why);
                tell(arg, line);
                errors++;
        }
        return errors;
}
