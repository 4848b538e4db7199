/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of statuses, written down a second time, and the fields that travel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "core/http_header.h"
#include "core/gateway_config.h"

static struct gateway_config config;
#define policy_default config.policy

static void h65_every_status_has_its_class(void **state)
{
        (void)state;
        for (int status = 200; status < 1000; status++) {
                enum policy_class want = CLASS_STORED;
                if (status == 401 || status == 403 || status == 407 || status == 408 ||
                    status == 421 || status == 425 || status == 429)
                        want = CLASS_RELEASED;
                else if (status > 501)
                        want = CLASS_UNKNOWN;
                if (policy_classify(&policy_default, status, span_str("")) != want)
                        fail_msg("status %d", status);
        }
}

static void the_settings_of_a_route_change_it(void **state)
{
        (void)state;
        struct policy p = policy_default;
        p.refused = REFUSED_NONE;
        assert_int_equal(policy_classify(&p, 429, span_str("")), CLASS_STORED);
        p.trust_503 = true;
        assert_int_equal(policy_classify(&p, 503, span_str("")), CLASS_UNKNOWN);
        p.refused = REFUSED_DEFAULT;
        assert_int_equal(policy_classify(&p, 503, span_str("")), CLASS_RELEASED);
        assert_int_equal(policy_classify(&p, 504, span_str("")), CLASS_UNKNOWN);
        assert_int_equal(policy_classify(&p, 409, span_str("")), CLASS_STORED);
        p.dedupes = UPSTREAM_IDEMPOTENT;
        assert_int_equal(policy_classify(&p, 409, span_str("")), CLASS_WAIT);
}

static void the_upstream_may_say_it_itself(void **state)
{
        (void)state;
        const struct policy *p = &policy_default;
        assert_int_equal(policy_classify(p, 503, span_str("executed")), CLASS_STORED);
        assert_int_equal(policy_classify(p, 201, span_str("not-executed")), CLASS_RELEASED);
        assert_int_equal(policy_classify(p, 200, span_str("unknown")), CLASS_UNKNOWN);
        assert_int_equal(policy_classify(p, 200, span_str("Executed?")), CLASS_STORED);
}

static void h51_safe_methods_are_never_claimed(void **state)
{
        (void)state;
        static const char *const never[] = {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "post",
                                            "POSTX", ""};
        for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
                assert_int_equal(policy_method(span_str(never[i])), 0);
        assert_int_equal(policy_method(span_str("POST")), METHOD_POST);
        assert_int_equal(policy_default.methods, METHOD_POST | METHOD_PATCH);
}

static void routes_match_as_they_are_written(void **state)
{
        (void)state;
        static const struct {
                const char *pattern, *path;
                bool matches;
        } rows[] = {
                {"/orders", "/orders", true},
                {"/orders", "/orders?x=/y", true},
                {"/orders", "/orders/", false},
                {"/orders", "/orders2", false},
                {"/orders", "/%6Frders", false},
                {"/orders/*", "/orders/7", true},
                {"/orders/*", "/orders/", false},
                {"/orders/*", "/orders/7/8", false},
                {"/orders/*/cancel", "/orders/7/cancel", true},
                {"/orders/*/cancel", "/orders/../cancel", true},
                {"/api/**", "/api", true},
                {"/api/**", "/api/", true},
                {"/api/**", "/api/a/b?c", true},
                {"/api/**", "/apiary", false},
                {"/**", "/", true},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                if (path_matches(rows[i].pattern, span_str(rows[i].path)) != rows[i].matches)
                        fail_msg("%s on %s", rows[i].pattern, rows[i].path);
}

static void the_first_route_that_matches_decides(void **state)
{
        (void)state;
        const struct route *route;
        gateway_config_defaults(&config);
        config.route_count = 2;
        config.routes[0] = (struct route){.methods = METHOD_PUT, .path = "/a/**"};
        config.routes[1] = (struct route){.path = "/a/b"};
        (void)gateway_config_match(&config, span_str("PUT"), span_str("/a/b"), &route);
        assert_ptr_equal(route, &config.routes[0]);
        (void)gateway_config_match(&config, span_str("GET"), span_str("/a/b"), &route);
        assert_ptr_equal(route, &config.routes[1]);
        assert_ptr_equal(gateway_config_match(&config, span_str("GET"), span_str("/c"), &route),
                         &config.policy);
        assert_null(route);
        config.route_count = 0;
}

static void settings_that_do_not_belong_together_are_refused(void **state)
{
        (void)state;
        char why[SETTING_ERROR_BYTES];
        gateway_config_defaults(&config);
        assert_false(gateway_config_check(&config, why)); /* no upstream */
        const struct setting *s = setting_find(gateway_settings, gateway_setting_count, "upstream");
        assert_true(setting_set(s, &config, "http://127.0.0.1:9000", why));
        assert_true(gateway_config_check(&config, why));
        s = setting_find(policy_settings, policy_setting_count, "lease");
        assert_true(setting_set(s, &config.policy, "30s", why));
        assert_false(gateway_config_check(&config, why));
        assert_false(setting_set(s, &config.policy, "30", why)); /* seconds? milliseconds? */
        assert_string_equal(why, "must be 1ms to 24h, not \"30\"");
        assert_string_equal(setting_suggest(policy_settings, policy_setting_count, "leese"), "lease");
        gateway_config_defaults(&config);
}

static void what_is_written_reads_back(void **state)
{
        (void)state;
        char text[CONFIG_URL_BYTES + 1], again[CONFIG_URL_BYTES + 1], why[SETTING_ERROR_BYTES];
        for (size_t i = 0; i < policy_setting_count; i++) {
                const struct setting *s = &policy_settings[i];
                setting_format(s, &config.policy, text, sizeof text);
                assert_true(setting_set(s, &config.policy, text, why));
                setting_format(s, &config.policy, again, sizeof again);
                assert_string_equal(text, again);
        }
}

static struct http_header field(const char *name, const char *value)
{
        return (struct http_header){span_str(name), span_str(value)};
}

static void hop_by_hop_fields_and_those_that_connection_names(void **state)
{
        (void)state;
        const struct http_header hs[] = {field("connection", " close, X-Private ,,"),
                                         field("X-PRIVATE", "1"), field("X-Other", "2")};
        assert_true(header_is_hop_by_hop(hs, 3, span_str("x-private")));
        assert_false(header_is_hop_by_hop(hs, 3, span_str("X-Other")));
        assert_true(header_is_hop_by_hop(hs, 3, span_str("KEEP-ALIVE")));
        assert_true(header_is_hop_by_hop(hs, 0, span_str("Transfer-Encoding")));
        assert_int_equal(header_count(hs, 3, "x-other"), 1);
        assert_null(header_find(hs, 3, "x-othe"));
}

static void h23_what_speaks_to_one_caller_is_not_stored(void **state)
{
        (void)state;
        static const char *const never[] = {"Set-Cookie", "www-authenticate", "Proxy-Authenticate",
                                            "Content-Length", "Connection", "Trailer"};
        static const char *const kept[] = {"Content-Type", "Location", "ETag", "Link",
                                           "Content-Encoding", "Date", "Vary"};
        for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
                assert_false(header_may_be_stored(NULL, 0, span_str(never[i])));
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
                assert_true(header_may_be_stored(NULL, 0, span_str(kept[i])));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(h65_every_status_has_its_class),
                cmocka_unit_test(the_settings_of_a_route_change_it),
                cmocka_unit_test(the_upstream_may_say_it_itself),
                cmocka_unit_test(h51_safe_methods_are_never_claimed),
                cmocka_unit_test(routes_match_as_they_are_written),
                cmocka_unit_test(the_first_route_that_matches_decides),
                cmocka_unit_test(settings_that_do_not_belong_together_are_refused),
                cmocka_unit_test(what_is_written_reads_back),
                cmocka_unit_test(hop_by_hop_fields_and_those_that_connection_names),
                cmocka_unit_test(h23_what_speaks_to_one_caller_is_not_stored),
        };
        gateway_config_defaults(&config);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
