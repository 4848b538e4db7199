/* SPDX-License-Identifier: Apache-2.0
 *
 * semel_event: what it takes and refuses, and that every failed allocation leaves it whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "api/event_object.h"
#include "base/err.h"
#include "failmalloc.h"

static void an_event_says_what_was_set(void **state)
{
        (void)state;
        char key[] = "order-7";
        semel_event *ev = semel_event_new("orders", NULL);
        const struct event *view = event_object_view(ev);
        assert_true(view->key_is_null && view->payload_is_null && !view->has_id);
        assert_int_equal(view->partition, EVENT_NO_PARTITION);
        assert_int_equal(semel_event_set_key(ev, "another", 7, NULL), SEMEL_OK);
        assert_int_equal(semel_event_set_key(ev, key, 7, NULL), SEMEL_OK);
        key[0] = 'X'; /* copied */
        assert_int_equal(semel_event_set_payload(ev, "a\0b", 3, NULL), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "type", "A", 1, NULL), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "type", NULL, 0, NULL), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "type", "", 0, NULL), SEMEL_OK);
        assert_int_equal(semel_event_set_id(ev, "00112233-4455-6677-8899-aabbccddeeff", NULL),
                         SEMEL_OK);
        assert_int_equal(semel_event_set_partition(ev, 3, NULL), SEMEL_OK);
        assert_int_equal(semel_event_set_traceparent(ev, "00-ab-cd-01", NULL), SEMEL_OK);
        assert_true(span_eq(view->topic, span_str("orders")));
        assert_true(span_eq(view->key, span_str("order-7")) && !view->key_is_null);
        assert_true(span_eq(view->payload, span_of("a\0b", 3)) && !view->payload_is_null);
        assert_int_equal(view->header_count, 3); /* O42: repeats and order */
        assert_true(span_eq(view->headers[0].value, span_str("A")));
        assert_true(view->headers[1].value_is_null && !view->headers[2].value_is_null);
        assert_true(view->has_id && view->id[1] == 0x11 && view->partition == 3);
        assert_true(span_eq(view->traceparent, span_str("00-ab-cd-01")));
        assert_int_equal(semel_event_set_payload(ev, "", 0, NULL), SEMEL_OK);
        assert_false(view->payload_is_null); /* O39: empty is no tombstone */
        assert_int_equal(semel_event_set_payload(ev, NULL, 0, NULL), SEMEL_OK);
        assert_true(view->payload_is_null);
        semel_event_free(ev);
        semel_event_free(NULL);
}

static void a_topic_is_what_kafka_allows(void **state)
{
        (void)state;
        struct semel_error err = {0};
        char text[260];
        static const char *const bad[] = {"", ".", "..", "a b", "a/b", "\xc3\xa4", NULL};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                assert_null(semel_event_new(bad[i], &err));
                assert_int_equal(err.code, SEMEL_ERR_ARGUMENT);
        }
        memset(text, 't', sizeof text);
        text[250] = 0;
        assert_null(semel_event_new(text, NULL));
        text[249] = 0;
        semel_event *ev = semel_event_new(text, NULL);
        assert_non_null(ev);
        semel_event_free(ev);
}

static void what_is_refused_changes_nothing(void **state)
{
        (void)state;
        static char big[LIMIT_EVENT_HEADERS_BYTES + 1];
        semel_event *ev = semel_event_new("t", NULL);
        const struct event before = *event_object_view(ev);
        assert_int_equal(semel_event_set_key(ev, NULL, 0, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_set_key(ev, "a\0b", 3, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_set_key(ev, "\xff", 1, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_set_key(ev, big, LIMIT_EVENT_KEY_BYTES + 1, NULL),
                         SEMEL_ERR_TOO_LARGE);
        assert_int_equal(semel_event_set_payload(ev, big, (size_t)LIMIT_EVENT_PAYLOAD_BYTES + 1,
                                                 NULL), SEMEL_ERR_TOO_LARGE);
        assert_int_equal(semel_event_add_header(ev, "Event-ID", "x", 1, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_add_header(ev, "", "x", 1, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_add_header(ev, "n", NULL, 1, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_add_header(ev, "n", big, sizeof big, NULL),
                         SEMEL_ERR_TOO_LARGE);
        assert_int_equal(semel_event_set_id(ev, "7", NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_set_partition(ev, -1, NULL), SEMEL_ERR_ARGUMENT);
        assert_int_equal(semel_event_set_traceparent(ev, "a\nb", NULL), SEMEL_ERR_ARGUMENT);
        assert_memory_equal(&before, event_object_view(ev), sizeof before);
        for (int i = 0; i < LIMIT_EVENT_HEADERS; i++)
                assert_int_equal(semel_event_add_header(ev, "n", "v", 1, NULL), SEMEL_OK);
        assert_int_equal(semel_event_add_header(ev, "n", "v", 1, NULL), SEMEL_ERR_TOO_LARGE);
        semel_event_free(ev);
}

static semel_code build(void)
{
        struct semel_error err = {0};
        semel_event *ev = semel_event_new("t", &err);
        if (ev && semel_event_set_key(ev, "k", 1, &err) == SEMEL_OK &&
            semel_event_set_payload(ev, "p", 1, &err) == SEMEL_OK &&
            semel_event_add_header(ev, "n", "v", 1, &err) == SEMEL_OK)
                (void)semel_event_set_traceparent(ev, "00", &err);
        semel_event_free(ev);
        return err.code;
}

static void every_allocation_may_fail(void **state)
{
        (void)state;
        failmalloc_arm(0);
        assert_int_equal(build(), SEMEL_OK);
        for (int i = 1; i <= 6; i++) {
                failmalloc_arm(i);
                assert_int_equal(build(), SEMEL_ERR_NO_MEMORY);
        }
        failmalloc_arm(7);
        assert_int_equal(build(), SEMEL_OK);
        failmalloc_arm(0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_event_says_what_was_set),
                cmocka_unit_test(a_topic_is_what_kafka_allows),
                cmocka_unit_test(what_is_refused_changes_nothing),
                cmocka_unit_test(every_allocation_may_fail),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
