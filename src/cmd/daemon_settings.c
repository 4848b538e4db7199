/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon_settings: see daemon_settings.h.
 */
#include "cmd/daemon_settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/say.h"
#include "conf/daemon_file.h"

static void tell(void *arg, const char *error)
{
        (void)arg;
        say_error("%s", error);
}

bool setting_set_or_say(const struct setting *s, void *object, const char *value, const char *from)
{
        char why[SETTING_ERROR_BYTES];
        if (setting_set(s, object, value, why))
                return true;
        say_error("%s %s", from, why);
        return false;
}

const char *setting_environment(const struct setting *s, char ret_name[SETTING_VARIABLE_BYTES])
{
        static const char prefix[] = "SEMEL_";
        size_t at = sizeof prefix - 1;
        memcpy(ret_name, prefix, at);
        for (const char *p = s->name; *p && at < SETTING_VARIABLE_BYTES - 1; p++)
                ret_name[at++] = (char)toupper((unsigned char)*p);
        ret_name[at] = 0;
        return getenv(ret_name);
}

static bool from_environment(const struct daemon_settings *ds, void *object,
                             struct property_list *kafka)
{
        char why[SETTING_ERROR_BYTES], name[SETTING_VARIABLE_BYTES];
        for (size_t i = 0; i < ds->count; i++) {
                const char *value = setting_environment(&ds->table[i], name);
                if (value && !setting_set_or_say(&ds->table[i], object, value, name))
                        return false;
        }
        const char *properties = kafka ? getenv("SEMEL_KAFKA") : NULL;
        if (!properties || property_parse_all(kafka, properties, why))
                return true;
        say_error("SEMEL_KAFKA %s", why);
        return false;
}

static bool from_options(const struct daemon_settings *ds, const struct options *o, void *object,
                         struct property_list *kafka)
{
        char from[64], why[SETTING_ERROR_BYTES];
        for (size_t i = 0; i < ds->option_count; i++) {
                const struct option_def *def = option_def(ds->options[i].option);
                const struct option_value *v = &o->value[ds->options[i].option];
                (void)snprintf(from, sizeof from, "--%s", def->name);
                const struct setting *setting = setting_find(ds->table, ds->count,
                                                             ds->options[i].setting);
                const char *text = def->kind == OPTION_FLAG ? "true" : v->text;
                if (v->given && !setting_set_or_say(setting, object, text, from))
                        return false;
        }
        for (size_t i = 0; i < o->many_count && kafka; i++)
                if (o->many_id[i] == OPT_KAFKA && !property_parse(kafka, o->many[i], why)) {
                        say_error("--kafka %s", why);
                        return false;
                }
        return true;
}

bool daemon_settings_override(const struct daemon_settings *ds, const struct options *o, void *object,
                              struct property_list *kafka)
{
        return from_environment(ds, object, kafka) && from_options(ds, o, object, kafka);
}

bool daemon_settings_read(const struct daemon_settings *ds, const struct options *o, void *object,
                          struct property_list *kafka)
{
        const char *file = option_text(o, OPT_CONFIG);
        if (file && daemon_file_read(file, ds->table, ds->count, object, kafka, tell, NULL) != 0)
                return false;
        return daemon_settings_override(ds, o, object, kafka);
}
