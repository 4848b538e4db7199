/* SPDX-License-Identifier: Apache-2.0
 *
 * fields: see fields.h.
 */
#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "problem.h"

#define PRICE_MAX INT64_C(9007199254740991) /* what every JSON reader keeps exactly: 2^53 - 1 */

struct fields fields_of(json_t *object)
{
        return (struct fields){.object = object, .seen = json_object()};
}

static void complain(struct fields *f, const char *name, const char *what)
{
        if (!f->errors)
                f->errors = json_array();
        json_array_append_new(f->errors, json_pack("{s:s, s:s}", "field", name, "detail", what));
}

static json_t *member(struct fields *f, const char *name)
{
        json_object_set_new(f->seen, name, json_true());
        return json_object_get(f->object, name);
}

const char *field_text(struct fields *f, const char *name, size_t bytes_max)
{
        json_t *v = member(f, name);
        const char *s = json_string_value(v);
        char what[64];
        if (s && s[strspn(s, " \t\r\n")] != '\0' && json_string_length(v) <= bytes_max)
                return s;
        snprintf(what, sizeof what, "must be a string of 1 to %zu bytes, not blank", bytes_max);
        complain(f, name, v ? what : "is missing");
        return "";
}

const char *field_currency(struct fields *f, const char *name)
{
        json_t *v = member(f, name);
        const char *s = json_string_value(v);
        if (s && strlen(s) == 3 && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3)
                return s;
        complain(f, name, v ? "must be three capital letters, such as EUR (ISO 4217)"
                            : "is missing");
        return "";
}

int64_t field_price(struct fields *f, const char *name)
{
        json_t *v = member(f, name);
        if (json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= PRICE_MAX)
                return json_integer_value(v);
        complain(f, name, v ? "must be a whole number of minor units (cents), 1 to 2^53 - 1"
                            : "is missing");
        return 0;
}

void field_uuid(struct fields *f, const char *name, char ret[UUID_TEXT_BYTES])
{
        json_t *v = member(f, name);
        ret[0] = '\0';
        if (!json_is_string(v) || !uuid_parse(json_string_value(v), ret))
                complain(f, name, v ? "must be a UUID" : "is missing");
}

void fields_end(struct fields *f)
{
        const char *name;
        json_t *v;
        json_object_foreach(f->object, name, v)
                if (!json_object_get(f->seen, name))
                        complain(f, name, "is not known here");
        json_decref(f->seen);
        f->seen = NULL;
}

semel_reply *fields_problem(struct fields *f)
{
        json_t *errors = f->errors;
        f->errors = NULL;
        return problem_new(PROBLEM_VALIDATION, json_pack("{s:o}", "errors", errors),
                           "%zu field(s) to correct: see errors.", json_array_size(errors));
}

json_t *cell_int(const char *cell)
{
        return json_integer(strtoll(cell, NULL, 10));
}

json_t *cell_time(const char *cell_us)
{
        long long us = strtoll(cell_us, NULL, 10);
        time_t s = (time_t)(us / 1000000);
        char text[40], day[24];
        struct tm tm;
        gmtime_r(&s, &tm);
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(text, sizeof text, "%s.%06dZ", day, (int)(us % 1000000));
        return json_string(text);
}
