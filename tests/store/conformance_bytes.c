/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_bytes: what goes in comes out, byte for byte; and one operation that cannot be
 * stored fails alone (B4).
 */
#include "conformance_kit.h"

#include <stdio.h>
#include <stdlib.h>

/* Claim and complete id n with this reply, then meet it again in a replay and in a get. */
static void round_trip(struct cf *c, uint64_t n, const struct store_reply *rep)
{
        struct command_claim claim = cf_claim_of(c, cf_id(n), 1, cf_hold);
        struct command_answer held = cf_claim(c, c->a, &claim);
        assert_int_equal(cf_complete(c, c->a, cf_id(n), held.token, claim.attempt, rep),
                         COMMAND_DONE);
        struct command_claim again = cf_claim_of(c, cf_id(n), 1, cf_hold);
        struct store_op op;
        cf_op_claim(&op, &again);
        cf_do(c, c->b, &op);
        cf_ok(&op);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_REPLAY);
        struct store_record got;
        assert_true(cf_get(c, c->b, cf_id(n), &got));
        const struct store_record *both[2] = {&op.out.claim.rec, &got};
        for (int i = 0; i < 2; i++) {
                assert_true(both[i]->has_reply);
                assert_int_equal(both[i]->status, rep->status);
                assert_int_equal(both[i]->flags, rep->flags);
                cf_expect_span("headers", rep->headers, buf_span(&both[i]->headers));
                cf_expect_span("body", rep->body, buf_span(&both[i]->body));
        }
        store_record_release(&got);
        store_op_release(&op);
}

static void h21_h22_status_headers_and_body_come_back_as_they_were(struct cf *c)
{
        /* two values of one name, an empty value, bytes above 127, in this order */
        static const char headers[] = "\1\0\11Set-Thing\0\0\0\1a\0\11Set-Thing\0\0\0\1b"
                                      "\0\14content-type\0\0\0\17application/xml\0\1x\0\0\0\0"
                                      "\0\1y\0\0\0\2\xff\xfe";
        const struct store_reply rep = {.status = 418,
                                        .headers = span_of(headers, sizeof headers - 1),
                                        .body = span_str("<a/>")};
        round_trip(c, 1, &rep);
}

static void every_byte_value_in_headers_and_body(struct cf *c)
{
        uint8_t all[512];
        for (size_t i = 0; i < sizeof all; i++)
                all[i] = (uint8_t)(i * 7);
        const struct store_reply rep = {.status = 200,
                                        .headers = span_of(all, sizeof all),
                                        .body = span_of(all, sizeof all)};
        round_trip(c, 1, &rep);
        const struct store_reply nul = {.status = 200,
                                        .headers = span_of("\0", 1),
                                        .body = span_of("a\0b\0", 4)};
        round_trip(c, 2, &nul);
        const struct store_reply backslash = {.status = 200,
                                              .headers = span_str("\\x41\\000"),
                                              .body = span_str("\\x4142'\"\\\\")};
        round_trip(c, 3, &backslash);
}

static void an_empty_reply_is_a_reply(struct cf *c)
{
        const struct store_reply rep = {.status = 204};
        round_trip(c, 1, &rep);
        const struct store_reply odd = {.status = -1, .flags = 0xffff};
        round_trip(c, 2, &odd);
}

/* H24, H31: the body was too big to keep; the retry is told so and never runs. */
static void h24_h31_a_tombstone_is_replayed_as_one(struct cf *c)
{
        const struct store_reply rep = {.status = 201,
                                        .flags = STORE_REPLY_TOMBSTONE,
                                        .headers = span_str("\1")};
        round_trip(c, 1, &rep);
}

static void h31_bodies_of_every_size_up_to_1_mib(struct cf *c)
{
        static const size_t sizes[] = {1,    199,   200,   2048,        4096,       65535,
                                       8192, 65536, 65537, 1024 * 1023, 1024 * 1024};
        enum { N = sizeof sizes / sizeof sizes[0] };
        uint8_t *body = malloc(1024 * 1024);
        assert_non_null(body);
        for (size_t i = 0; i < 1024 * 1024; i++)
                body[i] = (uint8_t)cf_random(c); /* does not compress */
        for (uint64_t i = 0; i < N; i++) {
                const struct store_reply rep = {.status = 200, .body = span_of(body, sizes[i])};
                round_trip(c, i, &rep);
        }
        free(body);
}

static void headers_of_the_greatest_length(struct cf *c)
{
        uint8_t *headers = malloc(LIMIT_REPLY_HEADERS_BYTES);
        assert_non_null(headers);
        memset(headers, 'h', LIMIT_REPLY_HEADERS_BYTES);
        const struct store_reply rep = {
                .status = 200, .headers = span_of(headers, LIMIT_REPLY_HEADERS_BYTES)};
        round_trip(c, 1, &rep);
        free(headers);
}

static void big_and_small_replies_in_one_batch(struct cf *c)
{
        enum { N = 24, BIG = 256 * 1024 };
        uint8_t *body = malloc(BIG);
        assert_non_null(body);
        memset(body, 0, BIG);
        struct store_op *ops = cf_ops_new(N);
        for (size_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                struct command_answer held = cf_claim(c, c->a, &claim);
                cf_op_write(&ops[i], COMMAND_COMPLETE, cf_id(i), held.token, claim.attempt);
                ops[i].in.write.reply.body = span_of(body, i % 3 == 0 ? BIG : i);
        }
        for (size_t i = 0; i < N; i++)
                cf_submit(c, c->a, &ops[i]);
        cf_finish(c);
        for (size_t i = 0; i < N; i++) {
                cf_ok(&ops[i]);
                struct store_record rec;
                assert_true(cf_get(c, c->b, cf_id(i), &rec));
                cf_expect_span("body", span_of(body, i % 3 == 0 ? BIG : i), buf_span(&rec.body));
                store_record_release(&rec);
        }
        cf_ops_free(ops, N);
        free(body);
}

/* -- labels ----------------------------------------------------------------------------------- */

static void label_round_trip(struct cf *c, uint64_t n, const struct store_label *label)
{
        struct command_claim claim = cf_claim_of(c, cf_id(n), 1, cf_hold);
        struct store_op op;
        cf_op_claim(&op, &claim);
        op.in.claim.label = *label;
        cf_do(c, c->a, &op);
        cf_ok(&op);
        assert_int_equal(op.out.claim.answer.outcome, COMMAND_RUN);
        store_op_release(&op);
        struct store_record rec;
        assert_true(cf_get(c, c->b, cf_id(n), &rec));
        assert_int_equal(rec.mode, label->mode);
        cf_expect_span("scope", label->scope, rec.scope);
        cf_expect_span("operation", label->operation, rec.operation);
        cf_expect_span("key", label->key, rec.key);
        cf_expect_span("holder", label->holder, rec.holder);
        store_record_release(&rec);
}

/* H45, H46: text is never code, and never too long for an index. */
static void h45_h46_hostile_texts_come_back_as_they_were(struct cf *c)
{
        static const char *const texts[] = {
                "'; DROP TABLE semel.command; --",
                "' OR '1'='1",
                "\"; DELETE FROM semel_command; --",
                "$1 $2 ?1 :a @b",
                "%s%n%x %d %%",
                "\\",
                "\\'; SELECT 1; --",
                "{1,2,NULL}",
                "NULL",
                "a,b\"c\"{}\\\\",
                "\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87 \xe9\x8d\xb5 \xf0\x9f\x94\x91", /* UTF-8 */
                "\xff\xfe\x80 not utf-8 \xc0\xaf",
                "\xed\xa0\x80 a surrogate",
                " leading and trailing ",
                "tab\tnewline\r\nend",
                "",
        };
        enum { N = sizeof texts / sizeof texts[0] };
        for (uint64_t i = 0; i < N; i++) {
                struct span s = span_str(texts[i]);
                const struct store_label label = {(enum command_mode)(i % COMMAND_MODES), s, s, s,
                                                  s};
                label_round_trip(c, i, &label);
        }
}

static void h46_labels_of_the_greatest_length(struct cf *c)
{
        uint8_t noise[LIMIT_KEY_BYTES];
        for (size_t i = 0; i < sizeof noise; i++)
                noise[i] = (uint8_t)cf_random(c);
        struct span s = span_of(noise, sizeof noise);
        const struct store_label label = {MODE_GATEWAY, s, s, s, s};
        label_round_trip(c, 1, &label);
        memset(noise, 0, sizeof noise);
        label_round_trip(c, 2, &label);
}

/* Each holder's label replaces the one before: `keys show` tells who holds it now. */
static void the_label_is_that_of_the_current_holder(struct cf *c)
{
        struct command_claim claim = cf_claim_of(c, cf_id(1), 1, cf_retry);
        (void)cf_claim(c, c->a, &claim);
        cf_advance(c, CF_LEASE_US + SECOND);
        struct command_claim next = cf_claim_of(c, cf_id(1), 1, cf_retry);
        struct store_op op;
        cf_op_claim(&op, &next);
        op.in.claim.label.holder = span_str("host-b pid 2");
        cf_do(c, c->b, &op);
        cf_ok(&op);
        store_op_release(&op);
        struct store_record rec;
        assert_true(cf_get(c, c->a, cf_id(1), &rec));
        cf_expect_span("holder", span_str("host-b pid 2"), rec.holder);
        store_record_release(&rec);
}

/* -- one bad operation ------------------------------------------------------------------------ */

/* B4: in the middle of a batch, one reply that no store keeps. */
static void b4_one_bad_operation_fails_alone(struct cf *c)
{
        enum { N = 60, BAD = 31 };
        uint8_t *headers = malloc(LIMIT_REPLY_HEADERS_BYTES + 1);
        assert_non_null(headers);
        memset(headers, 'h', LIMIT_REPLY_HEADERS_BYTES + 1);
        struct store_op *ops = cf_ops_new(N);
        for (size_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                struct command_answer held = cf_claim(c, c->a, &claim);
                cf_op_write(&ops[i], COMMAND_COMPLETE, cf_id(i), held.token, claim.attempt);
        }
        ops[BAD].in.write.reply.headers = span_of(headers, LIMIT_REPLY_HEADERS_BYTES + 1);
        for (size_t i = 0; i < N; i++)
                cf_submit(c, c->a, &ops[i]);
        cf_finish(c);
        for (size_t i = 0; i < N; i++) {
                if (i == BAD) {
                        assert_int_equal(ops[i].err.code, SEMEL_ERR_TOO_LARGE);
                        cf_expect_state(c, cf_id(i), COMMAND_IN_FLIGHT); /* nothing happened */
                        continue;
                }
                cf_ok(&ops[i]);
                assert_int_equal(ops[i].out.write.outcome, COMMAND_DONE);
                cf_expect_state(c, cf_id(i), COMMAND_COMPLETED);
        }
        /* its holder can still say what became of it */
        assert_int_equal(cf_write(c, c->a, COMMAND_MARK_UNKNOWN, cf_id(BAD),
                                  ops[BAD].in.write.write.token, ops[BAD].in.write.write.attempt)
                                 .outcome,
                         COMMAND_DONE);
        cf_ops_free(ops, N);
        free(headers);
}

static void b4_a_label_that_is_too_long_fails_alone(struct cf *c)
{
        enum { N = 20, BAD = 7 };
        uint8_t text[LIMIT_SCOPE_BYTES + LIMIT_OPERATION_BYTES + LIMIT_KEY_BYTES +
                     LIMIT_HOLDER_BYTES + 1];
        memset(text, 'x', sizeof text);
        struct store_op *ops = cf_ops_new(N);
        for (size_t i = 0; i < N; i++) {
                struct command_claim claim = cf_claim_of(c, cf_id(i), 1, cf_hold);
                cf_op_claim(&ops[i], &claim);
        }
        ops[BAD].in.claim.label =
                (struct store_label){.mode = MODE_RUN, .operation = span_of(text, sizeof text)};
        for (size_t i = 0; i < N; i++)
                cf_submit(c, c->a, &ops[i]);
        cf_finish(c);
        for (size_t i = 0; i < N; i++) {
                if (i == BAD) {
                        assert_int_equal(ops[i].err.code, SEMEL_ERR_TOO_LARGE);
                        assert_false(cf_row_exists(c, cf_id(i)));
                        continue;
                }
                cf_ok(&ops[i]);
                assert_int_equal(ops[i].out.claim.answer.outcome, COMMAND_RUN);
        }
        cf_ops_free(ops, N);
}

const struct cf_test cf_tests_bytes[] = {
        {"h21_h22_status_headers_and_body_come_back_as_they_were",
         h21_h22_status_headers_and_body_come_back_as_they_were},
        {"every_byte_value_in_headers_and_body", every_byte_value_in_headers_and_body},
        {"an_empty_reply_is_a_reply", an_empty_reply_is_a_reply},
        {"h24_h31_a_tombstone_is_replayed_as_one", h24_h31_a_tombstone_is_replayed_as_one},
        {"h31_bodies_of_every_size_up_to_1_mib", h31_bodies_of_every_size_up_to_1_mib},
        {"headers_of_the_greatest_length", headers_of_the_greatest_length},
        {"big_and_small_replies_in_one_batch", big_and_small_replies_in_one_batch},
        {"h45_h46_hostile_texts_come_back_as_they_were",
         h45_h46_hostile_texts_come_back_as_they_were},
        {"h46_labels_of_the_greatest_length", h46_labels_of_the_greatest_length},
        {"the_label_is_that_of_the_current_holder", the_label_is_that_of_the_current_holder},
        {"b4_one_bad_operation_fails_alone", b4_one_bad_operation_fails_alone},
        {"b4_a_label_that_is_too_long_fails_alone", b4_a_label_that_is_too_long_fails_alone},
        {NULL, NULL}};
