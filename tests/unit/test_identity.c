/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids and fingerprints with the real hash: tests/data/fingerprints.txt.
 */
#include "table.h"

#include "core/identity.h"
#include "sys/sha256.h"

enum { SECRET = 1, DIGEST = 2, FIELDS = 3 };

static void id_of(const struct row *row, const struct hash_sink *sink, uint8_t *ret)
{
        enum command_mode mode;
        struct command_id id;
        assert_int_equal(row->n, FIELDS + 4);
        assert_true(mode_parse(row_str(row, FIELDS), &mode));
        identity_id(sink, mode, row->field[FIELDS + 1], row->field[FIELDS + 2],
                    row->field[FIELDS + 3], &id);
        memcpy(ret, id.b, sizeof id.b);
}

/* The body in pieces of `piece` bytes. */
static void fingerprint_of(const struct row *row, const struct hash_sink *sink, size_t piece,
                           uint8_t *ret)
{
        struct fingerprint fp;
        struct command_fingerprint out;
        fingerprint_begin(&fp, sink);
        for (size_t i = FIELDS; i + 1 < row->n; i++)
                fingerprint_field(&fp, row->field[i]);
        struct span body = row->field[row->n - 1];
        for (size_t at = 0; at < body.n; at += piece)
                fingerprint_body(&fp, span_of(body.p + at,
                                              body.n - at < piece ? body.n - at : piece));
        fingerprint_end(&fp, &out);
        memcpy(ret, out.b, sizeof out.b);
}

static void digest_line(void **state)
{
        const struct row *row = *state;
        uint8_t want[HASH_BYTES], got[HASH_BYTES];
        row_hex(row, DIGEST, want, sizeof want);
        struct sha256 *h = sha256_new(row->field[SECRET].p, row->field[SECRET].n);
        assert_non_null(h);
        if (row_is(row, 0, "id")) {
                id_of(row, sha256_sink(h), got);
                assert_memory_equal(got, want, sizeof want);
        } else {
                assert_true(row_is(row, 0, "fp"));
                static const size_t pieces[] = {SIZE_MAX / 2, 1, 7, 4096};
                for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
                        fingerprint_of(row, sha256_sink(h), pieces[i], got);
                        assert_memory_equal(got, want, sizeof want);
                }
        }
        sha256_free(h);
}

static void h55_no_two_lines_have_one_digest(void **state)
{
        (void)state;
        const struct row *rows = table_load("fingerprints.txt");
        for (const struct row *a = rows; a->name; a++)
                for (const struct row *b = rows; b < a; b++)
                        if (strcmp(row_str(a, DIGEST), row_str(b, DIGEST)) == 0)
                                fail_msg("%s and %s", a->name, b->name);
}

static void a8_modes_have_names(void **state)
{
        (void)state;
        for (int i = 0; i < COMMAND_MODES; i++) {
                enum command_mode mode;
                assert_true(mode_parse(mode_name((enum command_mode)i), &mode));
                assert_int_equal(mode, i);
        }
        enum command_mode mode = MODE_TX;
        assert_false(mode_parse("", &mode));
        assert_false(mode_parse("RUN", &mode));
        assert_int_equal(mode, MODE_TX);
        assert_string_equal(mode_name((enum command_mode)9), "?");
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(h55_no_two_lines_have_one_digest),
                cmocka_unit_test(a8_modes_have_names),
        };
        return table_run("fingerprints.txt", digest_line, more, sizeof more / sizeof more[0]);
}
