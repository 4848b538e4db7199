/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_config: every setting of `semel gateway`, as tables of core/setting.h.
 *
 * Two tables: the gateway's own, and the policy of a route.  A route begins with the policy that
 * `policy:` gives, and changes what it names.
 */
#ifndef CORE_GATEWAY_CONFIG_H
#define CORE_GATEWAY_CONFIG_H

#include "core/policy.h"
#include "core/setting.h"

enum {
        CONFIG_TEXT_BYTES = 255,
        CONFIG_URL_BYTES = 1023,
        CONFIG_ROUTES_MAX = 256, /* looked through in order for each request */
        CONFIG_PATH_BYTES = 255,
};

struct route {
        char name[64];
        unsigned methods; /* METHOD_*: which requests it is for; 0: every method */
        char path[CONFIG_PATH_BYTES + 1];
        struct policy policy;
};

struct gateway_config {
        char listen[CONFIG_TEXT_BYTES + 1];
        char upstream[CONFIG_TEXT_BYTES + 1];
        char db[CONFIG_URL_BYTES + 1];
        char admin[CONFIG_TEXT_BYTES + 1];
        char admin_token_file[CONFIG_TEXT_BYTES + 1];
        char fingerprint_secret_file[CONFIG_TEXT_BYTES + 1];
        int log_format; /* LOG_* */
        int64_t workers;
        int64_t connections_max, buffered_bytes_max, waiters_max;
        int64_t idle_timeout_us, head_timeout_us, body_timeout_us;
        int64_t connect_timeout_us;
        int64_t upstream_connections_max, upstream_waiting_max;
        int64_t drain_delay_us, shutdown_deadline_us;
        struct policy policy; /* of requests that no route is for */
        struct route routes[CONFIG_ROUTES_MAX];
        size_t route_count;
};

enum { LOG_TEXT, LOG_JSON, LOG_NONE };

extern const struct setting gateway_settings[];
extern const size_t gateway_setting_count;
/* Of struct policy. */
extern const struct setting policy_settings[];
extern const size_t policy_setting_count;
/* Of struct route: name, methods, path. */
extern const struct setting route_settings[];
extern const size_t route_setting_count;

void gateway_config_defaults(struct gateway_config *config);

/* The policy for a request: the first route whose methods and path match, else config->policy.
 * ret_route, when not NULL, receives the route or NULL.
 * path  path and query as sent; the query is not looked at.  A pattern is a path in which
 *       `*` is one whole segment and `**` at the end is any rest, or none:
 *           /orders        /orders/{*}/cancel        /api/{**}
 *       Nothing is decoded or normalised: what the upstream sees is what is matched (a route that
 *       protects must not be evaded by %2F or `..`, which match only as they are written). */
const struct policy *gateway_config_match(const struct gateway_config *config,
                                          struct span method, struct span path,
                                          const struct route **ret_route);

/* Do these belong together?  false: `why` says what does not. */
bool gateway_config_check(const struct gateway_config *config, char why[SETTING_ERROR_BYTES]);

/* Does a path match a pattern? */
bool path_matches(const char *pattern, struct span path);

#endif
