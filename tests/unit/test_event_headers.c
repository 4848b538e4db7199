/* SPDX-License-Identifier: Apache-2.0
 *
 * event_headers: both forms, repeats, order, bytes, and text that is no such JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "json/event_headers.h"

/* What was read, in one line: name=value;name=~; with ~ for null. */
static const char *shown(const char *json)
{
        static char line[4096];
        struct event_header_list list = {0};
        size_t at = 0;
        assert_int_equal(event_headers_decode(span_str(json), &list, NULL), SEMEL_OK);
        line[0] = 0;
        for (size_t i = 0; i < list.n; i++) {
                const struct event_header *h = &list.v[i];
                at += (size_t)snprintf(line + at, sizeof line - at, "%.*s=%.*s;", (int)h->name.n,
                                       (const char *)h->name.p,
                                       h->value_is_null ? 1 : (int)h->value.n,
                                       h->value_is_null ? "~" : (const char *)h->value.p);
        }
        event_headers_release(&list);
        event_headers_release(&list);
        return line;
}

static void o42_both_forms_keep_order_and_repeats(void **state)
{
        (void)state;
        assert_string_equal(shown(""), "");
        assert_string_equal(shown("{}"), "");
        assert_string_equal(shown("null"), "");
        assert_string_equal(shown("{\"b\":\"1\",\"a\":\"\",\"c\":null}"), "b=1;a=;c=~;");
        assert_string_equal(shown("[[\"a\",\"1\"],[\"a\",\"2\"],[\"b\",null],[\"c\"]]"),
                            "a=1;a=2;b=~;c=~;");
        assert_string_equal(shown("{\"a\":{\"base64\":\"aGk=\"},\"b\":{\"base64\":\"\"}}"),
                            "a=hi;b=;");
        assert_string_equal(shown("[{\"a\":\"1\"},[\"a\",{\"base64\":\"aGkh\"}]]"), "a=1;a=hi!;");
}

static void what_is_not_text_becomes_its_json(void **state)
{
        (void)state;
        assert_string_equal(shown("{\"n\":7,\"t\":true,\"o\":{\"x\":[1]},\"bad\":{\"base64\":\"*\"}}"),
                            "n=7;t=true;o={\"x\":[1]};bad={\"base64\":\"*\"};");
}

static void what_is_no_such_json_is_kept_whole(void **state)
{
        (void)state;
        assert_string_equal(shown("nonsense"), "headers=nonsense;");
        assert_string_equal(shown("7"), "headers=7;");
        assert_string_equal(shown("[1,2]"), "headers=[1,2];");
        assert_string_equal(shown("{\"a\":"), "headers={\"a\":;");
        char many[4096] = "[";
        size_t at = 1;
        for (int i = 0; i < 65; i++)
                at += (size_t)snprintf(many + at, sizeof many - at, "[\"h\",\"%d\"]%s", i,
                                       i < 64 ? "," : "]");
        assert_memory_equal(shown(many), "headers=[[\"h\",\"0\"]", 18);
}

static void o42_any_bytes_go_and_come_back(void **state)
{
        static const struct event_header in[] = {
                {.name = {(const uint8_t *)"a", 1}, .value = {(const uint8_t *)"text \"q\"", 8}},
                {.name = {(const uint8_t *)"a", 1}, .value = {(const uint8_t *)"\0\xff\x80", 3}},
                {.name = {(const uint8_t *)"b", 1}, .value = {(const uint8_t *)"x\0y", 3}},
                {.name = {(const uint8_t *)"n", 1}, .value_is_null = true},
                {.name = {(const uint8_t *)"", 0}, .value = {NULL, 0}},
        };
        struct event_header_list out = {0};
        struct buf text;
        (void)state;
        buf_init(&text, 4096);
        assert_int_equal(event_headers_encode(in, 5, &text, NULL), SEMEL_OK);
        assert_string_equal(buf_cstr(&text),
                            "[[\"a\",\"text \\\"q\\\"\"],[\"a\",{\"base64\":\"AP+A\"}],"
                            "[\"b\",{\"base64\":\"eAB5\"}],[\"n\",null],[\"\",\"\"]]");
        assert_int_equal(event_headers_decode(buf_span(&text), &out, NULL), SEMEL_OK);
        assert_int_equal(out.n, 5);
        for (size_t i = 0; i < out.n; i++) {
                assert_true(span_eq(out.v[i].name, in[i].name));
                assert_true(span_eq(out.v[i].value, in[i].value));
                assert_int_equal(out.v[i].value_is_null, in[i].value_is_null);
        }
        event_headers_release(&out);
        buf_clear(&text);
        assert_int_equal(event_headers_encode(NULL, 0, &text, NULL), SEMEL_OK);
        assert_int_equal(text.n, 0);
        const struct event_header bad = {.name = {(const uint8_t *)"\xff", 1}};
        assert_int_equal(event_headers_encode(&bad, 1, &text, NULL), SEMEL_ERR_ARGUMENT);
        buf_release(&text);
        buf_init(&text, 4);
        assert_int_equal(event_headers_encode(in, 1, &text, NULL), SEMEL_ERR_TOO_LARGE);
        assert_int_equal(text.n, 0);
        buf_release(&text);
}

static void any_name_is_written_and_costs_no_other(void **state)
{
        static const struct event_header in[] = {
                {.name = {(const uint8_t *)"\xe4\xc3\xa4", 3}, .value = {(const uint8_t *)"1", 1}},
                {.name = {(const uint8_t *)"a\0b", 3}, .value = {(const uint8_t *)"2", 1}},
                {.name = {(const uint8_t *)"tenant", 6}, .value = {(const uint8_t *)"3", 1}},
                {.name = {NULL, 0}, .value_is_null = true},
        };
        struct buf text;
        (void)state;
        buf_init(&text, 4096);
        assert_int_equal(event_headers_encode_any(in, 4, &text, NULL), SEMEL_OK);
        assert_string_equal(buf_cstr(&text), "[[\"?\xc3\xa4\",\"1\"],[\"a?b\",\"2\"],[\"tenant\",\"3\"],"
                                             "[\"\",null]]");
        buf_release(&text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(o42_both_forms_keep_order_and_repeats),
                cmocka_unit_test(what_is_not_text_becomes_its_json),
                cmocka_unit_test(what_is_no_such_json_is_kept_whole),
                cmocka_unit_test(o42_any_bytes_go_and_come_back),
                cmocka_unit_test(any_name_is_written_and_costs_no_other),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
