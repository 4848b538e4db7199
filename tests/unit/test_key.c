/* SPDX-License-Identifier: Apache-2.0
 *
 * The syntax of keys: tests/data/keys.txt, and joined keys: tests/data/key_joins.txt.
 */
#include "table.h"

#include <stdlib.h>

#include "core/key.h"

static const char *const results[] = {
        [KEY_OK] = "ok",
        [KEY_EMPTY] = "empty",
        [KEY_TOO_LONG] = "too-long",
        [KEY_BAD_BYTE] = "bad-byte",
        [KEY_UNTERMINATED] = "unterminated",
        [KEY_LIST] = "list",
};

static void key_is(const struct key *key, struct span want)
{
        assert_int_equal(key->n, want.n);
        assert_memory_equal(key->text, want.p, want.n);
        assert_int_equal(key->text[key->n], 0);
}

/* Parse a copy that ends where its memory ends, so that a sanitizer sees one byte too far. */
static enum key_result parse_copy(struct span value, struct key *ret)
{
        uint8_t *copy = malloc(value.n ? value.n : 1);
        assert_non_null(copy);
        if (value.n > 0)
                memcpy(copy, value.p, value.n);
        enum key_result result = key_parse(span_of(copy, value.n), ret);
        free(copy);
        return result;
}

static void key_line(void **state)
{
        const struct row *row = *state;
        struct key untouched, key;
        memset(&untouched, 0xa5, sizeof untouched);
        key = untouched;
        enum key_result result = parse_copy(row->field[0], &key);
        assert_string_equal(results[result], row_str(row, 1));
        if (result == KEY_OK) {
                assert_int_equal(row->n, 3);
                key_is(&key, row->field[2]);
                assert_int_equal(key_check(span_of(key.text, key.n)), KEY_OK);
        } else {
                assert_memory_equal(&key, &untouched, sizeof key);
        }
}

static void h50_every_key_can_be_sent_as_a_string(void **state)
{
        (void)state;
        for (const struct row *row = table_load("keys.txt"); row->name; row++) {
                if (!row_is(row, 1, "ok"))
                        continue;
                uint8_t text[2 * LIMIT_KEY_BYTES + 2];
                size_t n = 0;
                text[n++] = '"';
                for (size_t i = 0; i < row->field[2].n; i++) {
                        uint8_t c = row->field[2].p[i];
                        if (c == '"' || c == '\\')
                                text[n++] = '\\';
                        text[n++] = c;
                }
                text[n++] = '"';
                struct key key;
                assert_int_equal(key_parse(span_of(text, n), &key), KEY_OK);
                key_is(&key, row->field[2]);
        }
}

static void h48_every_prefix_is_answered(void **state)
{
        (void)state;
        for (const struct row *row = table_load("keys.txt"); row->name; row++)
                for (size_t n = 0; n < row->field[0].n && n < 400; n++) {
                        struct key key;
                        if (parse_copy(span_of(row->field[0].p, n), &key) == KEY_OK)
                                assert_in_range(key.n, 1, LIMIT_KEY_BYTES);
                }
}

static void h45_every_byte_in_both_spellings(void **state)
{
        (void)state;
        for (int c = 0; c < 256; c++) {
                const uint8_t bare[3] = {'a', (uint8_t)c, 'b'};
                const uint8_t string[5] = {'"', 'a', (uint8_t)c, 'b', '"'};
                bool printable = c >= 0x20 && c <= 0x7e;
                bool bare_ok = printable && c != ' ' && c != '"' && c != ',' && c != ';' &&
                               c != '\\';
                struct key key;
                assert_int_equal(key_parse(span_of(bare, 3), &key) == KEY_OK, bare_ok);
                assert_int_equal(key_parse(span_of(string, 5), &key) == KEY_OK,
                                 printable && c != '"' && c != '\\');
                assert_int_equal(key_check(span_of(bare, 3)) == KEY_OK, printable);
        }
}

static void h46_check_of_lengths(void **state)
{
        (void)state;
        char text[257];
        memset(text, 'k', sizeof text);
        assert_int_equal(key_check(span_of(text, 0)), KEY_EMPTY);
        assert_int_equal(key_check(span_of(text, 1)), KEY_OK);
        assert_int_equal(key_check(span_of(text, 255)), KEY_OK);
        assert_int_equal(key_check(span_of(text, 256)), KEY_TOO_LONG);
}

static void every_result_has_a_sentence(void **state)
{
        (void)state;
        for (int r = KEY_OK; r <= KEY_LIST; r++) {
                const char *text = key_result_text((enum key_result)r);
                assert_in_range(strlen(text), 10, 200);
                for (int other = 0; other < r; other++)
                        assert_string_not_equal(text, key_result_text((enum key_result)other));
        }
}

static void every_line_of_key_joins(void **state)
{
        (void)state;
        for (const struct row *row = table_load("key_joins.txt"); row->name; row++) {
                struct key untouched, key;
                memset(&untouched, 0xa5, sizeof untouched);
                key = untouched;
                enum key_result result = key_join(row->field + 2, row->n - 2, &key);
                if (!row_is(row, 0, results[result]))
                        fail_msg("%s: %s", row->name, results[result]);
                if (result != KEY_OK) {
                        assert_memory_equal(&key, &untouched, sizeof key);
                        continue;
                }
                key_is(&key, row->field[1]);
                struct key again; /* a joined key may be sent bare */
                assert_int_equal(key_parse(span_of(key.text, key.n), &again), KEY_OK);
                key_is(&again, row->field[1]);
        }
}

/* All lists of up to three parts over a small, nasty alphabet: no two of them join alike. */
static void joining_is_without_ambiguity(void **state)
{
        (void)state;
        static const char *const parts[] = {"a", ":", "%", "a:", ":a", "%3A", "%3a", "::", "a%"};
        enum { N = sizeof parts / sizeof parts[0], LISTS = N + N * N + N * N * N };
        static char keys[LISTS][40];
        size_t n = 0;
        for (size_t count = 1; count <= 3; count++)
                for (size_t i = 0; i < (count == 1 ? N : count == 2 ? N * N : N * N * N); i++) {
                        struct span list[3] = {span_str(parts[i % N]), span_str(parts[i / N % N]),
                                               span_str(parts[i / N / N])};
                        struct key key;
                        assert_int_equal(key_join(list, count, &key), KEY_OK);
                        assert_in_range(key.n, 1, sizeof keys[0] - 1);
                        memcpy(keys[n++], key.text, key.n + 1);
                }
        assert_int_equal(n, LISTS);
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < i; j++)
                        assert_string_not_equal(keys[i], keys[j]);
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(h50_every_key_can_be_sent_as_a_string),
                cmocka_unit_test(h48_every_prefix_is_answered),
                cmocka_unit_test(h45_every_byte_in_both_spellings),
                cmocka_unit_test(h46_check_of_lengths),
                cmocka_unit_test(every_result_has_a_sentence),
                cmocka_unit_test(every_line_of_key_joins),
                cmocka_unit_test(joining_is_without_ambiguity),
        };
        return table_run("keys.txt", key_line, more, sizeof more / sizeof more[0]);
}
