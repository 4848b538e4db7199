/* SPDX-License-Identifier: Apache-2.0
 *
 * setting: see setting.h.
 */
#include "core/setting.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"

const struct setting *setting_find(const struct setting *table, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(table[i].name, name) == 0)
                        return &table[i];
        return NULL;
}

const char *setting_suggest(const struct setting *table, size_t n, const char *name)
{
        enum { NAMES_MAX = 64 };
        const char *names[NAMES_MAX];
        size_t count = n < NAMES_MAX ? n : NAMES_MAX;
        for (size_t i = 0; i < count; i++)
                names[i] = table[i].name;
        return suggest(name, names, count);
}

static void *at(const struct setting *s, void *object)
{
        return (char *)object + s->offset;
}

static bool refuse(char *why, const char *must, const char *value)
{
        (void)snprintf(why, SETTING_ERROR_BYTES, "must be %.160s, not \"%.60s\"", must, value);
        return false;
}

/* "a, b or c" */
static void choices_text(const struct setting *s, char *out, size_t size)
{
        size_t n = 0;
        out[0] = 0;
        for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i]; i++) {
                bool last = i + 1 == SETTING_CHOICES_MAX || !s->choices[i + 1];
                const char *between = i == 0 ? "" : last ? " or " : ", ";
                int more = snprintf(out + n, size - n, "%s%s", between, s->choices[i]);
                n += more > 0 && (size_t)more < size - n ? (size_t)more : 0;
        }
}

static int choice_index(const struct setting *s, const char *name, size_t len)
{
        for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i]; i++)
                if (strlen(s->choices[i]) == len && memcmp(s->choices[i], name, len) == 0)
                        return i;
        return -1;
}

/* A duration or size that reads back as itself. */
static void number_format(enum setting_type type, int64_t v, char *out, size_t size)
{
        static const struct {
                const char *name;
                int64_t factor;
        } durations[] = {{"h", 3600000000}, {"m", 60000000}, {"s", 1000000}, {"ms", 1000}},
          sizes[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
        for (int i = 0; i < 4 && v != 0; i++) {
                int64_t factor = type == SETTING_SIZE ? sizes[i].factor : durations[i].factor;
                const char *name = type == SETTING_SIZE ? sizes[i].name : durations[i].name;
                if (type != SETTING_INT && v % factor == 0) {
                        (void)snprintf(out, size, "%lld%s", (long long)(v / factor), name);
                        return;
                }
        }
        (void)snprintf(out, size, "%lld", (long long)v);
}

static bool parse_number(const struct setting *s, const char *value, int64_t *ret)
{
        enum units_result result;
        if (s->type == SETTING_DURATION) {
                int64_t ms;
                result = duration_parse_ms(value, &ms);
                return result == UNITS_OK && !__builtin_mul_overflow(ms, 1000, ret);
        }
        if (s->type == SETTING_SIZE)
                return size_parse_bytes(value, ret) == UNITS_OK;
        int64_t v = 0;
        if (!*value)
                return false;
        for (const char *p = value; *p; p++)
                if (*p < '0' || *p > '9' || __builtin_mul_overflow(v, 10, &v) ||
                    __builtin_add_overflow(v, *p - '0', &v))
                        return false;
        *ret = v;
        return true;
}

static bool set_number(const struct setting *s, void *object, const char *value, char *why)
{
        int64_t v;
        if (!parse_number(s, value, &v) || v < s->min || v > s->max) {
                char min[32], max[32], must[96];
                number_format(s->type, s->min, min, sizeof min);
                number_format(s->type, s->max, max, sizeof max);
                (void)snprintf(must, sizeof must, "%s to %s", min, max);
                return refuse(why, must, value);
        }
        *(int64_t *)at(s, object) = v;
        return true;
}

static bool set_set(const struct setting *s, void *object, const char *value, char *why)
{
        unsigned set = 0;
        const char *p = value;
        while (*(p += strspn(p, ", \t"))) {
                size_t len = strcspn(p, ", \t");
                int i = choice_index(s, p, len);
                if (i < 0) {
                        char must[160];
                        choices_text(s, must, sizeof must);
                        return refuse(why, must, value);
                }
                set |= 1u << i;
                p += len;
        }
        *(unsigned *)at(s, object) = set;
        return true;
}

bool setting_set(const struct setting *s, void *object, const char *value,
                 char why[SETTING_ERROR_BYTES])
{
        char must[160];
        switch (s->type) {
        case SETTING_BOOL:
                if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
                        return refuse(why, "true or false", value);
                *(bool *)at(s, object) = value[0] == 't';
                return true;
        case SETTING_INT:
        case SETTING_DURATION:
        case SETTING_SIZE:
                return set_number(s, object, value, why);
        case SETTING_TEXT:
                if ((int64_t)strlen(value) > s->max) {
                        (void)snprintf(must, sizeof must, "at most %lld bytes", (long long)s->max);
                        return refuse(why, must, s->secret ? "(secret)" : value);
                }
                memcpy(at(s, object), value, strlen(value) + 1);
                return true;
        case SETTING_CHOICE: {
                int i = choice_index(s, value, strlen(value));
                choices_text(s, must, sizeof must);
                if (i < 0)
                        return refuse(why, must, value);
                *(int *)at(s, object) = i;
                return true;
        }
        case SETTING_SET:
                return set_set(s, object, value, why);
        }
        return refuse(why, "of a known type", value);
}

void setting_defaults(const struct setting *table, size_t n, void *object)
{
        char why[SETTING_ERROR_BYTES];
        for (size_t i = 0; i < n; i++) {
                bool ok = !table[i].fallback ||
                          setting_set(&table[i], object, table[i].fallback, why);
                assert(ok);
                (void)ok;
        }
}

static void set_format(const struct setting *s, unsigned set, char *out, size_t size)
{
        size_t n = 0;
        out[0] = 0;
        for (int i = 0; i < SETTING_CHOICES_MAX && s->choices[i]; i++) {
                if (!(set & (1u << i)))
                        continue;
                int more = snprintf(out + n, size - n, "%s%s", n ? ", " : "", s->choices[i]);
                n += more > 0 && (size_t)more < size - n ? (size_t)more : 0;
        }
}

void setting_format(const struct setting *s, const void *object, char *out, size_t size)
{
        const void *value = (const char *)object + s->offset;
        if (s->secret) {
                (void)snprintf(out, size, "***");
                return;
        }
        switch (s->type) {
        case SETTING_BOOL:
                (void)snprintf(out, size, "%s", *(const bool *)value ? "true" : "false");
                break;
        case SETTING_INT:
        case SETTING_DURATION:
        case SETTING_SIZE:
                number_format(s->type, *(const int64_t *)value, out, size);
                break;
        case SETTING_TEXT:
                (void)snprintf(out, size, "%s", (const char *)value);
                break;
        case SETTING_CHOICE:
                (void)snprintf(out, size, "%s", s->choices[*(const int *)value]);
                break;
        case SETTING_SET:
                set_format(s, *(const unsigned *)value, out, size);
                break;
        }
}
