/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon_file: see daemon_file.h.
 */
#include "conf/daemon_file.h"

#include <string.h>

#include "conf/yaml_reader.h"

struct target {
        const struct setting *table;
        size_t n;
        void *object;
        struct property_list *kafka;
};

static void entry(struct yaml_reader *rd, void *arg, struct yaml_place at, const char *key)
{
        struct target *t = arg;
        const struct setting *s = setting_find(t->table, t->n, key);
        if (s) {
                yaml_read_setting(rd, s, t->object);
        } else if (t->kafka && strcmp(key, "kafka") == 0) {
                yaml_read_properties(rd, t->kafka);
        } else {
                if (*key)
                        yaml_unknown(rd, at, key, setting_suggest(t->table, t->n, key));
                yaml_skip_value(rd);
        }
}

int daemon_file_read(const char *path, const struct setting *table, size_t n, void *object,
                     struct property_list *kafka, void (*tell)(void *arg, const char *error),
                     void *arg)
{
        struct target target = {table, n, object, kafka};
        return yaml_file_read(path, &target, entry,
                              "the file must be a mapping: `brokers: kafka:9092`", tell, arg);
}
