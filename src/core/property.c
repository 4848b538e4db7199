/* SPDX-License-Identifier: Apache-2.0
 *
 * property: see property.h.
 */
#include "core/property.h"

#include <stdio.h>
#include <string.h>

static bool refuse(char *why, const char *text)
{
        (void)snprintf(why, SETTING_ERROR_BYTES, "%s", text);
        return false;
}

static bool set(struct property_list *list, const char *name, size_t name_n, const char *value,
                size_t value_n, char *why)
{
        if (name_n == 0 || name_n > PROPERTY_NAME_BYTES)
                return refuse(why, "must be NAME=VALUE with librdkafka's name of a property, such as "
                                   "compression.type=lz4");
        if (value_n > PROPERTY_VALUE_BYTES) {
                (void)snprintf(why, SETTING_ERROR_BYTES, "has a value of more than %d bytes for %.*s",
                               PROPERTY_VALUE_BYTES, (int)name_n, name);
                return false;
        }
        size_t i = 0;
        while (i < list->n && (strlen(list->property[i].name) != name_n ||
                               memcmp(list->property[i].name, name, name_n) != 0))
                i++;
        if (i == PROPERTIES_MAX)
                return refuse(why, "is given for too many properties");
        struct property *p = &list->property[i];
        memcpy(p->name, name, name_n);
        p->name[name_n] = 0;
        memcpy(p->value, value, value_n);
        p->value[value_n] = 0;
        if (i == list->n)
                list->n++;
        return true;
}

bool property_set(struct property_list *list, const char *name, const char *value,
                  char why[SETTING_ERROR_BYTES])
{
        return set(list, name, strlen(name), value, strlen(value), why);
}

static bool parse(struct property_list *list, const char *text, size_t n, char *why)
{
        const char *equals = memchr(text, '=', n);
        if (!equals)
                return set(list, "", 0, "", 0, why);
        size_t name_n = (size_t)(equals - text);
        return set(list, text, name_n, equals + 1, n - name_n - 1, why);
}

bool property_parse(struct property_list *list, const char *text, char why[SETTING_ERROR_BYTES])
{
        return parse(list, text, strlen(text), why);
}

bool property_parse_all(struct property_list *list, const char *text,
                        char why[SETTING_ERROR_BYTES])
{
        for (;;) {
                text += strspn(text, "; \n");
                size_t n = strcspn(text, ";\n");
                if (n == 0)
                        return true;
                if (!parse(list, text, n, why))
                        return false;
                text += n;
        }
}
