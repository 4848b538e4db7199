/* SPDX-License-Identifier: Apache-2.0
 *
 * setting: configuration as a table.
 *
 * One entry per setting: its name, type, where its value lives, bounds, default, and the text
 * that explains it.  The file reader, the flags, the environment, `semel config reference` and
 * the checks all come from the same entry, so that none can say something else.
 *
 * Pure: text in, value or sentence out.  Positions in the file are the reader's business.
 */
#ifndef CORE_SETTING_H
#define CORE_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum setting_type {
        SETTING_BOOL,     /* bool:     true | false */
        SETTING_INT,      /* int64_t:  a whole number */
        SETTING_DURATION, /* int64_t, microseconds: 250ms 3s 5m 24h */
        SETTING_SIZE,     /* int64_t, bytes: 64KiB 10MiB */
        SETTING_TEXT,     /* char[max + 1] */
        SETTING_CHOICE,   /* int: index into choices */
        SETTING_SET,      /* unsigned: bit i for choices[i]; given as a list */
};

enum { SETTING_CHOICES_MAX = 8, SETTING_ERROR_BYTES = 256 };

struct setting {
        const char *name;
        enum setting_type type;
        size_t offset;   /* of the value in the object */
        int64_t min, max; /* numbers, durations in us, sizes; TEXT: longest length in bytes */
        const char *choices[SETTING_CHOICES_MAX];
        const char *fallback; /* the default, as it would be written; NULL: must be given */
        const char *text;     /* one or two sentences */
        bool reloadable;
        bool secret;          /* never printed */
};

/* The entry of that name, or NULL. */
const struct setting *setting_find(const struct setting *table, size_t n, const char *name);

/* The nearest name when there is none such, or NULL: "did you mean". */
const char *setting_suggest(const struct setting *table, size_t n, const char *name);

/* Give every entry its default.  Asserts that each default parses. */
void setting_defaults(const struct setting *table, size_t n, void *object);

/* Parse one value into the object.  false: `why` says what is wrong and what would be right, as
 * a sentence without its subject: "must be 1ms to 24h, not \"2d\"".  A SET is given as one
 * text of names with commas or spaces between. */
bool setting_set(const struct setting *s, void *object, const char *value,
                 char why[SETTING_ERROR_BYTES]);

/* The value as it would be written, for reference and dumps; "***" when it is secret. */
void setting_format(const struct setting *s, const void *object, char *out, size_t size);

#endif
