/* SPDX-License-Identifier: Apache-2.0
 *
 * table: input tables of tests/data, one case a line; tests/data/README.md has the format.
 * Every line becomes a test of its own, named by its first field.
 */
#ifndef TESTS_TABLE_H
#define TESTS_TABLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/span.h"

enum { TABLE_FIELDS_MAX = 64 };

struct row {
        char *name;
        int line;
        size_t n;                             /* fields behind the name */
        struct span field[TABLE_FIELDS_MAX];  /* decoded; each has a NUL behind it */
};

/* Field i as a C string. */
const char *row_str(const struct row *row, size_t i);
bool row_is(const struct row *row, size_t i, const char *s);
/* Field i as 2n hexadecimal digits of n bytes. */
void row_hex(const struct row *row, size_t i, uint8_t *ret, size_t n);

/* Run `test` on each row of tests/data/`file` (its state is a const struct row *), then the
 * `n` tests of `more`.  For main() to return. */
int table_run(const char *file, CMUnitTestFunction test, const struct CMUnitTest *more, size_t n);

/* The rows themselves, for tests that compare them with each other; ends with name NULL. */
const struct row *table_load(const char *file);

#endif
