/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 and HMAC-SHA-256: tests/data/sha256.txt.
 */
#include "table.h"

#include "sys/sha256.h"

enum { SECRET = 0, DIGEST = 1, MESSAGE = 2 };

static void sha256_line(void **state)
{
        const struct row *row = *state;
        struct span secret = row->field[SECRET], message = row->field[MESSAGE];
        uint8_t want[HASH_BYTES], got[HASH_BYTES];
        row_hex(row, DIGEST, want, sizeof want);
        struct sha256 *h = sha256_new(secret.p, secret.n);
        assert_non_null(h);
        const struct hash_sink *sink = sha256_sink(h);
        for (size_t cut = 0; cut <= message.n && cut < 130; cut++) { /* reused each time */
                sink->begin(sink->arg);
                sink->update(sink->arg, message.p, cut);
                sink->update(sink->arg, message.p + cut, message.n - cut);
                sink->finish(sink->arg, got);
                assert_memory_equal(got, want, sizeof want);
                if (message.n > 100000)
                        break;
        }
        sink->begin(sink->arg); /* begun and left: the next begin forgets it */
        sink->update(sink->arg, "x", 1);
        sink->begin(sink->arg);
        sink->update(sink->arg, message.p, message.n);
        sink->finish(sink->arg, got);
        assert_memory_equal(got, want, sizeof want);
        sha256_free(h);
        if (secret.n == 0) {
                assert_int_equal(sha256_once(message.p, message.n, got), 0);
                assert_memory_equal(got, want, sizeof want);
        }
}

static void two_hashes_at_once_do_not_mix(void **state)
{
        (void)state;
        struct sha256 *a = sha256_new(NULL, 0), *b = sha256_new("k", 1);
        assert_true(a && b);
        const struct hash_sink *sa = sha256_sink(a), *sb = sha256_sink(b);
        uint8_t once[HASH_BYTES], out[HASH_BYTES];
        sa->begin(sa->arg);
        sb->begin(sb->arg);
        sa->update(sa->arg, "ab", 2);
        sb->update(sb->arg, "zz", 2);
        sa->update(sa->arg, "c", 1);
        sa->finish(sa->arg, out);
        assert_int_equal(sha256_once("abc", 3, once), 0);
        assert_memory_equal(out, once, sizeof out);
        sha256_free(a);
        sha256_free(b);
        sha256_free(NULL);
}

int main(void)
{
        const struct CMUnitTest more[] = {cmocka_unit_test(two_hashes_at_once_do_not_mix)};
        return table_run("sha256.txt", sha256_line, more, 1);
}
