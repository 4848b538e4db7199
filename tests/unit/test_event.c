/* SPDX-License-Identifier: Apache-2.0
 *
 * Event ids, and the slots of keys: tests/data/slots.txt.
 */
#include "table.h"

#include <stdio.h>

#include "core/event.h"
#include "core/limits.h"
#include "sys/sha256.h"

enum { KIND = 0, TEXT = 1, SLOT = 2 };

/* A row without a key hashes the digits of its id, which are the text of the field. */
static void c1_slot_line(void **state)
{
        const struct row *row = *state;
        uint8_t digest[32];
        char slot[8];
        assert_true(row_is(row, KIND, "key") || row_is(row, KIND, "null"));
        assert_int_equal(sha256_once(row->field[TEXT].p, row->field[TEXT].n, digest), 0);
        (void)snprintf(slot, sizeof slot, "%d", event_slot_of_digest(digest));
        assert_string_equal(slot, row_str(row, SLOT));
}

static void a_topic_has_a_name_that_kafka_takes(void **state)
{
        (void)state;
        char longest[LIMIT_EVENT_TOPIC_BYTES + 1];
        memset(longest, 'a', sizeof longest);
        assert_true(event_topic_is_valid(span_str("Orders.dead_1-x")));
        assert_true(event_topic_is_valid(span_of(longest, LIMIT_EVENT_TOPIC_BYTES)));
        assert_false(event_topic_is_valid(span_of(longest, sizeof longest)));
        static const char *const bad[] = {"", ".", "..", "orders dead", "a/b", "\xc3\xa9", "a\n"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                assert_false(event_topic_is_valid(span_str(bad[i])));
        assert_false(event_topic_is_valid(span_of("a\0b", 3)));
}

static void an_id_is_written_and_read_back(void **state)
{
        (void)state;
        uint8_t id[EVENT_ID_BYTES], back[EVENT_ID_BYTES] = {0};
        char text[EVENT_ID_TEXT_BYTES];
        for (unsigned i = 0; i < sizeof id; i++)
                id[i] = (uint8_t)(i * 0x11);
        event_id_format(id, text);
        assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
        assert_true(event_id_parse(text, strlen(text), back));
        assert_memory_equal(id, back, sizeof id);
        const char *upper = "00112233-4455-6677-8899-AABBCCDDEEFF";
        memset(back, 0, sizeof back);
        assert_true(event_id_parse(upper, strlen(upper), back));
        assert_memory_equal(id, back, sizeof id);
}

static void what_is_no_id_is_refused_and_changes_nothing(void **state)
{
        (void)state;
        static const char *const bad[] = {
                "", "0", "00112233-4455-6677-8899-aabbccddeef", "00112233-4455-6677-8899-aabbccddeeff0",
                "00112233445566778899aabbccddeeff0000", "0011223-34455-6677-8899-aabbccddeeff",
                "0011223g-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899_aabbccddeeff",
                "{0112233-4455-6677-8899-aabbccddeef}",
        };
        uint8_t id[EVENT_ID_BYTES] = {7}, want[EVENT_ID_BYTES] = {7};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                assert_false(event_id_parse(bad[i], strlen(bad[i]), id));
                assert_memory_equal(id, want, sizeof id);
        }
}

int main(void)
{
        const struct CMUnitTest more[] = {
                cmocka_unit_test(a_topic_has_a_name_that_kafka_takes),
                cmocka_unit_test(an_id_is_written_and_read_back),
                cmocka_unit_test(what_is_no_id_is_refused_and_changes_nothing),
        };
        return table_run("slots.txt", c1_slot_line, more, sizeof more / sizeof *more);
}
