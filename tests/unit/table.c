/* SPDX-License-Identifier: Apache-2.0
 *
 * table: see table.h.  Memory is taken for the life of the process, and stays reachable so that
 * no leak checker calls it a leak.
 */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

static void die(const char *file, int line, const char *what)
{
        fprintf(stderr, "tests/data/%s:%d: %s\n", file, line, what);
        exit(1);
}

static void *need(void *p)
{
        if (!p)
                abort();
        return p;
}

/* Decode one escape behind a backslash into `out` (NULL: only count); returns its length. */
static size_t decode_escape(const char **at, const char *end, uint8_t *out, const char **wrong)
{
        static const char from[] = "\\tnr0s", to[] = "\\\t\n\r\0 ";
        const char *s = *at;
        if (s == end) {
                *wrong = "a backslash at the end";
                return 0;
        }
        if (*s == 'e') {
                *at = s + 1;
                return 0;
        }
        unsigned v;
        if (*s == 'x' && end - s >= 3 && sscanf(s + 1, "%2x", &v) == 1) {
                if (out)
                        *out = (uint8_t)v;
                *at = s + 3;
                return 1;
        }
        size_t count;
        char c;
        int used = 0;
        if (*s == '[' && sscanf(s, "[%zu*%c]%n", &count, &c, &used) == 2 && used > 0) {
                if (out)
                        memset(out, c, count);
                *at = s + used;
                return count;
        }
        const char *found = memchr(from, *s, sizeof from - 1);
        if (!found) {
                *wrong = "an escape that does not exist";
                return 0;
        }
        if (out)
                *out = (uint8_t)to[found - from];
        *at = s + 1;
        return 1;
}

static size_t decode(const char *s, const char *end, uint8_t *out, const char **wrong)
{
        size_t n = 0;
        while (s < end && !*wrong) {
                if (*s != '\\') {
                        if (out)
                                out[n] = (uint8_t)*s;
                        s++;
                        n++;
                        continue;
                }
                s++;
                n += decode_escape(&s, end, out ? out + n : NULL, wrong);
        }
        return n;
}

static void parse_line(const char *file, int line, char *text, struct row *row)
{
        row->line = line;
        bool first = true;
        for (char *s = text;; first = false) {
                char *end = s + strcspn(s, "\t");
                const char *wrong = NULL;
                size_t n = decode(s, end, NULL, &wrong);
                if (wrong)
                        die(file, line, wrong);
                uint8_t *p = need(malloc(n + 1));
                (void)decode(s, end, p, &wrong);
                p[n] = 0;
                if (first)
                        row->name = (char *)p;
                else if (row->n == TABLE_FIELDS_MAX)
                        die(file, line, "too many fields");
                else
                        row->field[row->n++] = span_of(p, n);
                if (*end == 0)
                        return;
                s = end + 1;
        }
}

static struct {
        const char *file;
        struct row *rows;
} loaded[8];

static const struct row *remember(const char *file, struct row *rows)
{
        for (size_t i = 0; i < sizeof loaded / sizeof loaded[0]; i++)
                if (!loaded[i].file) {
                        loaded[i].file = file;
                        loaded[i].rows = rows;
                        return rows;
                }
        die(file, 0, "too many tables in one test");
        return NULL;
}

const struct row *table_load(const char *file)
{
        for (size_t i = 0; i < sizeof loaded / sizeof loaded[0] && loaded[i].file; i++)
                if (strcmp(loaded[i].file, file) == 0)
                        return loaded[i].rows;
        const char *dir = getenv("SEMEL_TEST_DATA");
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", dir ? dir : TEST_DATA_DIR, file);
        FILE *f = fopen(path, "re");
        if (!f)
                die(file, 0, "cannot be opened");
        struct row *rows = NULL;
        size_t n = 0, cap = 0;
        char *text = NULL;
        size_t text_cap = 0;
        int line = 0;
        for (;;) {
                if (n == cap) {
                        cap = cap ? 2 * cap : 64;
                        rows = need(realloc(rows, cap * sizeof *rows));
                }
                memset(&rows[n], 0, sizeof rows[n]);
                ssize_t got = getline(&text, &text_cap, f);
                if (got < 0)
                        break;
                line++;
                if (got > 0 && text[got - 1] == '\n')
                        text[got - 1] = 0;
                if (text[0] != 0 && text[0] != '#')
                        parse_line(file, line, text, &rows[n++]);
        }
        free(text);
        (void)fclose(f);
        if (n == 0)
                die(file, line, "holds no case");
        return remember(file, rows);
}

const char *row_str(const struct row *row, size_t i)
{
        if (i >= row->n)
                fail_msg("line %d: field %zu is missing", row->line, i + 1);
        return (const char *)row->field[i].p;
}

bool row_is(const struct row *row, size_t i, const char *s)
{
        return strcmp(row_str(row, i), s) == 0;
}

void row_hex(const struct row *row, size_t i, uint8_t *ret, size_t n)
{
        const char *s = row_str(row, i);
        assert_int_equal(strlen(s), 2 * n);
        for (size_t j = 0; j < n; j++) {
                unsigned v;
                assert_int_equal(sscanf(s + 2 * j, "%2x", &v), 1);
                ret[j] = (uint8_t)v;
        }
}

int table_run(const char *file, CMUnitTestFunction test, const struct CMUnitTest *more, size_t n)
{
        const struct row *rows = table_load(file);
        size_t count = 0;
        while (rows[count].name)
                count++;
        struct CMUnitTest *tests = need(calloc(count + n, sizeof *tests));
        for (size_t i = 0; i < count; i++)
                tests[i] = (struct CMUnitTest){.name = rows[i].name,
                                               .test_func = test,
                                               .initial_state = (void *)(uintptr_t)&rows[i]};
        if (n > 0)
                memcpy(tests + count, more, n * sizeof *tests);
        int rc = _cmocka_run_group_tests(file, tests, count + n, NULL, NULL);
        free(tests);
        return rc;
}
