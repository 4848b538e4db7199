/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon_settings: the settings of a daemon from its defaults, the file, the environment and the
 * options, in this order; each of them speaks of the same names (core/setting.h).
 */
#ifndef CMD_DAEMON_SETTINGS_H
#define CMD_DAEMON_SETTINGS_H

#include "cmd/options.h"
#include "core/property.h"
#include "core/setting.h"

/* An option that is a setting by another spelling; a flag stands for "true". */
struct option_setting {
        enum option_id option;
        const char *setting;
};

struct daemon_settings {
        const struct setting *table;
        size_t count;
        const struct option_setting *options;
        size_t option_count;
};

/* One setting from text; false: said what is wrong with what `from` gave. */
bool setting_set_or_say(const struct setting *s, void *object, const char *value, const char *from);

enum { SETTING_VARIABLE_BYTES = 64 };

/* What SEMEL_<NAME> holds, or NULL; ret_name receives the variable's name. */
const char *setting_environment(const struct setting *s, char ret_name[SETTING_VARIABLE_BYTES]);

/* The same as daemon_settings_read() without the file: SEMEL_<NAME>, then the options.  kafka NULL: there are no properties. */
bool daemon_settings_override(const struct daemon_settings *ds, const struct options *o, void *object,
                              struct property_list *kafka);

/* Into `object`, which has its defaults.  --config, SEMEL_<NAME>, then the options; for librdkafka's
 * properties `kafka:`, SEMEL_KAFKA ("name=value;name=value"), --kafka.
 * false: said what is wrong. */
bool daemon_settings_read(const struct daemon_settings *ds, const struct options *o, void *object,
                          struct property_list *kafka);

#endif
