/* SPDX-License-Identifier: Apache-2.0
 *
 * options: the program's option parser, and the other small parsers of the program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/err.h"
#include "cmd/exit_set.h"
#include "cmd/holder.h"
#include "cmd/json_out.h"
#include "cmd/options.h"
#include "cmd/run_output.h"

static const enum option_id ids[] = {OPT_DB,     OPT_LEASE,  OPT_WAIT, OPT_ON_UNKNOWN,
                                     OPT_STATUS, OPT_JSON,   OPT_KEY,  OPT_OUTPUT_MAX};
static const struct option_set set = {ids, sizeof ids / sizeof ids[0]};

enum { WORDS_MAX = 16 };

/* Parse a command line written with spaces. */
static semel_code parse(const char *line, struct options *o, struct semel_error *err)
{
        static char text[512], *words[WORDS_MAX];
        size_t n = 0;
        assert_true(strlen(line) < sizeof text);
        memcpy(text, line, strlen(line) + 1);
        char *state;
        for (char *word = strtok_r(text, " ", &state); word; word = strtok_r(NULL, " ", &state))
                words[n++] = word;
        words[n] = NULL;
        *err = (struct semel_error){0};
        return options_parse(set, words, n, o, err);
}

static void options_stand_before_or_after(void **state)
{
        (void)state;
        struct options o;
        struct semel_error err;
        assert_int_equal(parse("--json k --db sqlite:x --wait=3s -- cmd --db no", &o, &err), SEMEL_OK);
        assert_true(option_flag(&o, OPT_JSON));
        assert_string_equal(option_text(&o, OPT_DB), "sqlite:x");
        assert_int_equal(option_number(&o, OPT_WAIT), 3000);
        assert_int_equal(o.positional_count, 1);
        assert_string_equal(o.positional[0], "k");
        assert_int_equal(o.rest_count, 3);
        assert_string_equal(o.rest[0], "cmd");
        assert_null(o.rest[3]);
}

static void store_is_db_and_the_last_one_wins(void **state)
{
        (void)state;
        struct options o;
        struct semel_error err;
        assert_int_equal(parse("--db a --store b", &o, &err), SEMEL_OK);
        assert_string_equal(option_text(&o, OPT_DB), "b");
        assert_int_equal(parse("--db= k", &o, &err), SEMEL_OK);
        assert_string_equal(option_text(&o, OPT_DB), "");
}

static void defaults_are_parsed_from_what_the_help_shows(void **state)
{
        (void)state;
        struct options o;
        struct semel_error err;
        assert_int_equal(parse("k", &o, &err), SEMEL_OK);
        assert_int_equal(option_number(&o, OPT_LEASE), 60000);
        assert_int_equal(option_number(&o, OPT_OUTPUT_MAX), 1048576);
        assert_int_equal(option_number(&o, OPT_ON_UNKNOWN), 0);
        assert_false(option_flag(&o, OPT_LEASE));
        assert_null(option_text(&o, OPT_DB));

        /* every default of the table is inside its own bounds */
        enum option_id all[OPTION_COUNT];
        for (int i = 0; i < OPTION_COUNT; i++)
                all[i] = (enum option_id)i;
        char *none[] = {NULL};
        assert_int_equal(options_parse((struct option_set){all, OPTION_COUNT}, none, 0, &o, &err),
                         SEMEL_OK);
}

/* A wrong line, and what its message has to say. */
static const struct wrong {
        const char *line, *says;
} wrongs[] = {
        {"--lease 5", "needs a unit"},
        {"--lease 5x", "unknown unit"},
        {"--lease 999ms", "out of range"},
        {"--lease 25h", "out of range"},
        {"--lease", "needs a value: --lease TIME"},
        {"--db --json", "needs a value"},
        {"--json=yes", "takes no value"},
        {"--leese 5s", "did you mean --lease?"},
        {"--sotre x", "did you mean --store?"},
        {"--on-unknow retry", "did you mean --on-unknown?"},
        {"--stuck", "no option --stuck here"}, /* exists, but not in this set */
        {"--qqqqqq", "--help shows them all"},
        {"-x", "no short options"},
        {"--on-unknown maybe", "hold or retry, not \"maybe\""},
        {"--status abc", "needs a number"},
        {"--status 1000", "out of range"},
        {"--output-max 1MB", "unknown unit"},
        {"--output-max 1GiB", "out of range"},
        {"a b c d e", "too many arguments at \"e\""},
};

static void errors_say_what_to_write(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
                struct options o;
                struct semel_error err;
                if (parse(wrongs[i].line, &o, &err) != SEMEL_ERR_ARGUMENT ||
                    !strstr(err.text, wrongs[i].says))
                        fail_msg("\"%s\" said: %s", wrongs[i].line, err.text);
        }
}

static void the_command_is_found_behind_options(void **state)
{
        (void)state;
        char *a[] = {(char *)"--db", (char *)"keys", (char *)"--json", (char *)"keys", NULL};
        assert_int_equal(options_first_word(a, 4, 0), 3);
        char *b[] = {(char *)"--db=x", (char *)"--what", (char *)"run", NULL};
        assert_int_equal(options_first_word(b, 3, 0), 2);
        char *c[] = {(char *)"--json", (char *)"--", (char *)"run", NULL};
        assert_int_equal(options_first_word(c, 3, 0), 3);
}

static void exit_sets(void **state)
{
        (void)state;
        struct exit_set s;
        assert_true(exit_set_parse("3,75,100-110", &s));
        assert_true(exit_set_has(&s, 3) && exit_set_has(&s, 75) && exit_set_has(&s, 110));
        assert_false(exit_set_has(&s, 0) || exit_set_has(&s, 111) || exit_set_has(&s, 99));
        assert_true(exit_set_parse("any-failure", &s));
        assert_true(exit_set_has(&s, 1) && exit_set_has(&s, 255));
        assert_false(exit_set_has(&s, 0) || exit_set_has(&s, 256) || exit_set_has(&s, -1));
        static const char *const bad[] = {"", ",", "3,", "256", "5-3", "3-", "-3", "a", "3 4", "1-999"};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
                assert_false(exit_set_parse(bad[i], &s));
}

static void holders(void **state)
{
        (void)state;
        struct holder h;
        holder_parse("host=web-3 pid=4711 boot=6a lock=/a b/c", &h);
        assert_string_equal(h.host, "web-3");
        assert_string_equal(h.pid, "4711");
        assert_string_equal(h.boot, "6a");
        assert_string_equal(h.lock, "/a b/c");
        assert_int_equal(holder_look(&h), HOLDER_ELSEWHERE);
        holder_parse("pid=1", &h);
        assert_string_equal(h.host, "");
        assert_int_equal(holder_look(&h), HOLDER_NO_LOCK);
        holder_parse("", &h);
        assert_string_equal(h.lock, "");

        char label[LIMIT_HOLDER_BYTES + 1], path[LIMIT_HOLDER_BYTES + 1];
        assert_true(holder_format("/nowhere/at/all", label));
        holder_parse(label, &h);
        assert_string_equal(h.lock, "/nowhere/at/all");
        assert_int_equal(holder_look(&h), HOLDER_GONE);
        memset(path, 'p', sizeof path);
        path[sizeof path - 1] = 0;
        assert_false(holder_format(path, label));
}

static void run_output_keeps_the_order(void **state)
{
        (void)state;
        struct run_output out;
        run_output_init(&out, 64);
        run_output_add(&out, RUN_STDOUT, span_str("one "));
        run_output_add(&out, RUN_STDOUT, span_str("two"));
        run_output_add(&out, RUN_STDERR, span_of("\0!", 2));
        run_output_add(&out, RUN_STDOUT, span_of(NULL, 0));
        run_output_add(&out, RUN_STDOUT, span_str("three"));

        struct run_cursor cur = {buf_span(&out.body)};
        enum run_stream stream;
        struct span piece;
        assert_int_equal(run_output_next(&cur, &stream, &piece), 1);
        assert_true(stream == RUN_STDOUT && span_eq(piece, span_str("one two")));
        assert_int_equal(run_output_next(&cur, &stream, &piece), 1);
        assert_true(stream == RUN_STDERR && span_eq(piece, span_of("\0!", 2)));
        assert_int_equal(run_output_next(&cur, &stream, &piece), 1);
        assert_true(stream == RUN_STDOUT && span_eq(piece, span_str("three")));
        assert_int_equal(run_output_next(&cur, &stream, &piece), 0);

        /* cut anywhere, it never reads beyond its end */
        for (size_t n = 1; n < out.body.n; n++) {
                cur = (struct run_cursor){span_of(out.body.p, n)};
                int more;
                while ((more = run_output_next(&cur, &stream, &piece)) == 1)
                        ;
                assert_true(more == 0 || more == -1);
        }
        run_output_add(&out, RUN_STDOUT, span_of("0123456789012345678901234567890123456789", 40));
        assert_true(out.too_big);
        assert_int_equal(out.body.n, 0);
        run_output_release(&out);
}

static void json_is_valid_whatever_the_bytes(void **state)
{
        (void)state;
        char line[256];
        FILE *f = fmemopen(line, sizeof line, "w");
        struct json_out js;
        json_begin(&js, f);
        json_text(&js, "t", "a\"\\\n\x7f\xff\xc3\xa4\xed\xa0\x80");
        json_hex(&js, "h", (const unsigned char *)"\x01\xfe", 2);
        json_time_us(&js, "at", INT64_C(1717243200000000));
        json_time_us(&js, "never", 0);
        json_pairs_begin(&js, "p");
        json_pair(&js, "a", 1, "", 0);
        json_pairs_end(&js);
        json_bool(&js, "b", true);
        json_end(&js);
        assert_int_equal(fclose(f), 0);
        assert_string_equal(line,
                            "{\"t\": \"a\\\"\\\\\\u000a\\u007f\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd\", "
                            "\"h\": \"01fe\", \"at\": \"2024-06-01T12:00:00Z\", \"never\": null, "
                            "\"p\": [[\"a\", \"\"]], \"b\": true}\n");
}

static void hex_is_exact(void **state)
{
        (void)state;
        unsigned char b[2];
        assert_true(hex_parse("0aFf", b, 2));
        assert_true(b[0] == 0x0a && b[1] == 0xff);
        assert_false(hex_parse("0aF", b, 2));
        assert_false(hex_parse("0aFff", b, 2));
        assert_false(hex_parse("0aFg", b, 2));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(options_stand_before_or_after),
                cmocka_unit_test(store_is_db_and_the_last_one_wins),
                cmocka_unit_test(defaults_are_parsed_from_what_the_help_shows),
                cmocka_unit_test(errors_say_what_to_write),
                cmocka_unit_test(the_command_is_found_behind_options),
                cmocka_unit_test(exit_sets),
                cmocka_unit_test(holders),
                cmocka_unit_test(run_output_keeps_the_order),
                cmocka_unit_test(json_is_valid_whatever_the_bytes),
                cmocka_unit_test(hex_is_exact),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
