/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of statuses, written down a second time, and the fields that travel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "core/http_header.h"
#include "core/policy.h"

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
        p.refused_none = true;
        assert_int_equal(policy_classify(&p, 429, span_str("")), CLASS_STORED);
        p.trust_503 = true;
        assert_int_equal(policy_classify(&p, 503, span_str("")), CLASS_UNKNOWN);
        p.refused_none = false;
        assert_int_equal(policy_classify(&p, 503, span_str("")), CLASS_RELEASED);
        assert_int_equal(policy_classify(&p, 504, span_str("")), CLASS_UNKNOWN);
        assert_int_equal(policy_classify(&p, 409, span_str("")), CLASS_STORED);
        p.idempotent = true;
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
                cmocka_unit_test(hop_by_hop_fields_and_those_that_connection_names),
                cmocka_unit_test(h23_what_speaks_to_one_caller_is_not_stored),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
