/* SPDX-License-Identifier: Apache-2.0
 *
 * config: properties of librdkafka: taken, suggested, refused with the reason; secrets stay secret.
 */
#include <stdio.h>

#include "base/err.h"
#include "bus_kit.h"

static semel_code check(const char *name, const char *value, struct semel_error *err)
{
        const struct bus_property p = {name, value};
        struct bus_config config = {.brokers = "127.0.0.1:1", .property = &p, .property_count = 1};
        err_clear(err);
        return bus_config_check(&config, err);
}

static void ordinary_properties_pass(void **state)
{
        (void)state;
        static const char *const good[][2] = {
                {"compression.codec", "lz4"}, {"linger.ms", "5"}, {"security.protocol", "sasl_ssl"},
                {"sasl.mechanism", "PLAIN"}, {"sasl.username", "u"}, {"sasl.password", "p"},
                {"ssl.ca.location", "/etc/ssl/certs"}, {"acks", "all"}, {"acks", "-1"},
                {"enable.auto.commit", "false"}, {"max.poll.interval.ms", "60000"}};
        struct semel_error err = {0};
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
                assert_ok(check(good[i][0], good[i][1], &err));
}

static void a_mistyped_property_is_suggested(void **state)
{
        (void)state;
        struct semel_error err = {0};
        assert_int_equal(check("linger.m", "5", &err), SEMEL_ERR_ARGUMENT);
        assert_non_null(strstr(err.text, "did you mean \"linger.ms\"?"));
        assert_int_equal(check("sasl.pasword", "x", &err), SEMEL_ERR_ARGUMENT);
        assert_non_null(strstr(err.text, "did you mean \"sasl.password\"?"));
        assert_int_equal(check("no.such.thing.at.all", "5", &err), SEMEL_ERR_ARGUMENT);
        assert_non_null(strstr(err.text, "no.such.thing.at.all"));
}

static void c9_properties_that_a_promise_rests_on_are_refused(void **state)
{
        (void)state;
        static const char *const bad[][3] = {
                {"acks", "1", "only the leader has"},
                {"request.required.acks", "0", "only the leader has"},
                {"enable.idempotence", "false", "reorder"},
                {"message.timeout.ms", "30000", "overtaken"},
                {"delivery.timeout.ms", "30000", "overtaken"},
                {"max.in.flight", "5", "overtaken"},
                {"max.in.flight.requests.per.connection", "5", "overtaken"},
                {"retries", "0", "overtaken"},
                {"delivery.report.only.error", "true", "never be reported"},
                {"enable.gapless.guarantee", "true", "end the producer"},
                {"partitioner", "random", "Java"},
                {"enable.auto.commit", "true", "after the database"},
                {"auto.offset.reset", "latest", "skip"},
                {"partition.assignment.strategy", "cooperative-sticky", "eager"},
                {"isolation.level", "read_uncommitted", "aborted"},
                {"group.id", "x", "option"},
                {"transactional.id", "x", "outbox"},
                {"bootstrap.servers", "x", "option"},
                {"test.mock.num.brokers", "1", "keeps nothing"}};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
                struct semel_error err = {0};
                assert_int_equal(check(bad[i][0], bad[i][1], &err), SEMEL_ERR_ARGUMENT);
                if (!strstr(err.text, bad[i][0]) || !strstr(err.text, bad[i][2]))
                        fail_msg("%s: %s", bad[i][0], err.text);
        }
}

static char lines[16384];
static void keep_log(void *arg, int level, const char *line)
{
        size_t n = strlen(lines);
        (void)arg;
        (void)level;
        (void)snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

static void ignore(void *arg, const struct bus_report *r)
{
        (void)arg;
        (void)r;
}

static void secrets_are_in_no_error_and_no_log_line(void **state)
{
        (void)state;
        struct semel_error err = {0};
        static const struct bus_property p[] = {
                {"security.protocol", "sasl_plaintext"}, {"sasl.mechanism", "PLAIN"},
                {"sasl.username", "u"}, {"sasl.password", "hunter2-hunter2"}, {"debug", "all"}};
        struct bus_config config = {.brokers = "hunter2-hunter2.invalid:9", .property = p,
                                    .property_count = 5, .log = keep_log};
        struct bus_producer *producer = NULL;
        assert_ok(bus_producer_open(&config, NULL, 0, ignore, NULL, &producer, &err));
        bool exists;
        int64_t max;
        (void)bus_topic_look(producer, "t", 300 * MS, &exists, &max, &err);
        bus_producer_close(producer);
        assert_non_null(strstr(lines, ".invalid")); /* the log is there, the secret is not */
        assert_null(strstr(lines, "hunter2"));
        assert_int_equal(check("ssl.key.pem", "hunter2", &err), SEMEL_OK);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ordinary_properties_pass),
                cmocka_unit_test(a_mistyped_property_is_suggested),
                cmocka_unit_test(c9_properties_that_a_promise_rests_on_are_refused),
                cmocka_unit_test(secrets_are_in_no_error_and_no_log_line),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
