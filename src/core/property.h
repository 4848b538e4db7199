/* SPDX-License-Identifier: Apache-2.0
 *
 * property: librdkafka's properties as users give them: NAME=VALUE, as many as they like.  What a
 * name means, and whether it may be changed, the bus knows.
 */
#ifndef CORE_PROPERTY_H
#define CORE_PROPERTY_H

#include "core/setting.h"

enum { PROPERTY_NAME_BYTES = 63, PROPERTY_VALUE_BYTES = 1023, PROPERTIES_MAX = 64 };

struct property {
        char name[PROPERTY_NAME_BYTES + 1];
        char value[PROPERTY_VALUE_BYTES + 1]; /* may be a password: never printed */
};

struct property_list {
        struct property property[PROPERTIES_MAX];
        size_t n;
};

/* Add, or replace the value that this name had.  false: `why`, without the value. */
bool property_set(struct property_list *list, const char *name, const char *value,
                  char why[SETTING_ERROR_BYTES]);
/* "NAME=VALUE" */
bool property_parse(struct property_list *list, const char *text, char why[SETTING_ERROR_BYTES]);
/* Several, with ';' or new lines between: as an environment variable holds them. */
bool property_parse_all(struct property_list *list, const char *text,
                        char why[SETTING_ERROR_BYTES]);

#endif
