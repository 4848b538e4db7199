/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_config: see gateway_config.h.
 */
#include "core/gateway_config.h"

#include <stdio.h>

#include "core/limits.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MIB (INT64_C(1024) * 1024)

/* -- the gateway's own ------------------------------------------------------------------ */

#define AT(field) offsetof(struct gateway_config, field)
const struct setting gateway_settings[] = {
        {.name = "listen", .type = SETTING_TEXT, .offset = AT(listen), .max = CONFIG_TEXT_BYTES,
         .fallback = ":8080",
         .text = "Where clients connect: HOST:PORT, :PORT, [IPv6]:PORT or unix:/path."},
        {.name = "upstream", .type = SETTING_TEXT, .offset = AT(upstream), .max = CONFIG_TEXT_BYTES,
         .fallback = "",
         .text = "The service behind: http://HOST:PORT or unix:/path.  Must be given."},
        {.name = "db", .type = SETTING_TEXT, .offset = AT(db), .max = CONFIG_URL_BYTES,
         .fallback = "", .secret = true,
         .text = "The store: sqlite:PATH or postgres://...; empty is SQLite in the state "
                 "directory.  A password belongs into PGPASSFILE or the environment."},
        {.name = "workers", .type = SETTING_INT, .offset = AT(workers), .min = 1, .max = 64,
         .fallback = "1", .text = "Threads, each with an event loop and connections of its own."},
        {.name = "admin", .type = SETTING_TEXT, .offset = AT(admin), .max = CONFIG_TEXT_BYTES,
         .fallback = "",
         .text = "Where /healthz, /readyz and /metrics are served; off unless given.  An address "
                 "that other machines reach needs admin_token_file."},
        {.name = "admin_token_file", .type = SETTING_TEXT, .offset = AT(admin_token_file),
         .max = CONFIG_TEXT_BYTES, .fallback = "",
         .text = "A file with the bearer token of the admin listener."},
        {.name = "fingerprint_secret_file", .type = SETTING_TEXT,
         .offset = AT(fingerprint_secret_file), .max = CONFIG_TEXT_BYTES, .fallback = "",
         .text = "A file with a secret: fingerprints become HMAC-SHA-256, so that the store is no "
                 "oracle for requests that can be guessed.  Changing it makes old keys mismatch."},
        {.name = "log", .type = SETTING_CHOICE, .offset = AT(log_format),
         .choices = {"text", "json", "none"}, .fallback = "text",
         .text = "The access log on standard output, one line a request."},
        {.name = "connections_max", .type = SETTING_INT, .offset = AT(connections_max), .min = 1,
         .max = 1000000, .fallback = "20000",
         .text = "Client connections of all workers; past it new ones are closed at once."},
        {.name = "buffered_bytes_max", .type = SETTING_SIZE, .offset = AT(buffered_bytes_max),
         .min = MIB, .max = 1024 * 1024 * MIB, .fallback = "256MiB",
         .text = "Request and reply bodies held in memory by all workers; past it 503."},
        {.name = "waiters_max", .type = SETTING_INT, .offset = AT(waiters_max), .min = 0,
         .max = 1000000, .fallback = "10000",
         .text = "Requests that wait for a running duplicate (Prefer: wait); past it 409 at once."},
        {.name = "idle_timeout", .type = SETTING_DURATION, .offset = AT(idle_timeout_us),
         .min = SECOND, .max = 86400 * SECOND, .fallback = "60s",
         .text = "How long a client connection may be idle between requests."},
        {.name = "head_timeout", .type = SETTING_DURATION, .offset = AT(head_timeout_us),
         .min = SECOND, .max = 3600 * SECOND, .fallback = "10s",
         .text = "How long a request's head may take from its first byte."},
        {.name = "body_timeout", .type = SETTING_DURATION, .offset = AT(body_timeout_us),
         .min = SECOND, .max = 3600 * SECOND, .fallback = "30s",
         .text = "How long a client may send, or take, no byte of a body."},
        {.name = "connect_timeout", .type = SETTING_DURATION, .offset = AT(connect_timeout_us),
         .min = 10 * MS, .max = 300 * SECOND, .fallback = "3s",
         .text = "How long connecting to the upstream may take, name lookup and all its addresses included."},
        {.name = "upstream_connections_max", .type = SETTING_INT,
         .offset = AT(upstream_connections_max), .min = 1, .max = 1000000, .fallback = "4096",
         .text = "Connections to the upstream of one worker; past it requests wait their turn."},
        {.name = "upstream_waiting_max", .type = SETTING_INT, .offset = AT(upstream_waiting_max),
         .min = 0, .max = 1000000, .fallback = "10000",
         .text = "Requests of one worker that wait for a connection to the upstream; past it 503."},
        {.name = "drain_delay", .type = SETTING_DURATION, .offset = AT(drain_delay_us), .min = 0,
         .max = 300 * SECOND, .fallback = "0",
         .text = "After SIGTERM: how long new connections are still taken while /readyz fails."},
        {.name = "shutdown_deadline", .type = SETTING_DURATION, .offset = AT(shutdown_deadline_us),
         .min = 0, .max = 3600 * SECOND, .fallback = "25s",
         .text = "After SIGTERM: when whatever still runs is left UNKNOWN and the process exits."},
};
const size_t gateway_setting_count = COUNT(gateway_settings);
#undef AT

/* -- a route's policy ---------------------------------------------------------------------- */

#define AT(field) offsetof(struct policy, field)
const struct setting policy_settings[] = {
        {.name = "claim_methods", .type = SETTING_SET, .offset = AT(methods), .reloadable = true,
         .choices = {"POST", "PATCH", "PUT", "DELETE"}, .fallback = "POST, PATCH",
         .text = "Methods whose requests are claimed by their key; other methods pass through."},
        {.name = "missing_key", .type = SETTING_CHOICE, .offset = AT(missing_key),
         .choices = {"pass", "reject"}, .fallback = "pass", .reloadable = true,
         .text = "A claimed method without a key: pass it through untouched, or answer 400."},
        {.name = "on_unknown", .type = SETTING_CHOICE, .offset = AT(on_unknown),
         .choices = {"hold", "retry"}, .fallback = "hold", .reloadable = true,
         .text = "When nobody can know whether a request ran: hold the key until an operator "
                 "decides (at most once), or let the next retry run it (at least once)."},
        {.name = "upstream", .type = SETTING_CHOICE, .offset = AT(dedupes),
         .choices = {"plain", "idempotent"}, .fallback = "plain", .reloadable = true,
         .text = "idempotent: the upstream itself dedupes on the forwarded Idempotency-Key, so "
                 "running again is safe (exactly once).  On the command line --idempotent; not in the "
                 "environment, where SEMEL_UPSTREAM is the URL."},
        {.name = "refused", .type = SETTING_CHOICE, .offset = AT(refused),
         .choices = {"default", "none"}, .fallback = "default", .reloadable = true,
         .text = "Statuses that mean \"refused before it ran\" and free the key: 401 403 407 408 421 "
                 "425 429, or none."},
        {.name = "trust_503", .type = SETTING_BOOL, .offset = AT(trust_503), .fallback = "false",
         .reloadable = true, .text = "This upstream's own 503 means \"not started\"."},
        {.name = "store_down", .type = SETTING_CHOICE, .offset = AT(store_down),
         .choices = {"closed", "open"}, .fallback = "closed", .reloadable = true,
         .text = "When the store is down: answer 503, or pass the request through unprotected "
                 "(logged and counted)."},
        {.name = "principal", .type = SETTING_CHOICE, .offset = AT(principal),
         .choices = {"authorization", "header", "none"}, .fallback = "authorization",
         .reloadable = true,
         .text = "Whose key it is: a hash of the Authorization field, of principal_header, or one "
                 "scope for all.  Tokens that rotate need the header form."},
        {.name = "principal_header", .type = SETTING_TEXT, .offset = AT(principal_header),
         .max = POLICY_HEADER_NAME_BYTES, .fallback = "", .reloadable = true,
         .text = "The field for `principal: header`; it must be set by something you trust."},
        {.name = "anonymous", .type = SETTING_CHOICE, .offset = AT(anonymous),
         .choices = {"allow", "reject"}, .fallback = "allow", .reloadable = true,
         .text = "Requests without a principal share one scope, or are answered 400."},
        {.name = "fingerprint", .type = SETTING_CHOICE, .offset = AT(fingerprint),
         .choices = {"raw", "json", "multipart"}, .fallback = "raw", .reloadable = true,
         .text = "What makes two requests the same: the body's bytes, its canonical JSON (RFC "
                 "8785), or its multipart parts without the boundary."},
        {.name = "fingerprint_host", .type = SETTING_BOOL, .offset = AT(fingerprint_host),
         .fallback = "true", .reloadable = true, .text = "Whether the Host belongs to it."},
        {.name = "fingerprint_query", .type = SETTING_BOOL, .offset = AT(fingerprint_query),
         .fallback = "true", .reloadable = true, .text = "Whether the query belongs to it."},
        {.name = "lease", .type = SETTING_DURATION, .offset = AT(lease_us), .min = MS,
         .max = 86400 * SECOND, .fallback = "60s", .reloadable = true,
         .text = "How long a claim is trusted; longer than upstream_timeout."},
        {.name = "upstream_timeout", .type = SETTING_DURATION, .offset = AT(upstream_timeout_us),
         .min = MS, .max = 86400 * SECOND, .fallback = "30s", .reloadable = true,
         .text = "How long the upstream may take to answer; where pieces are passed on as they come, from one "
                 "to the next.  Time in which the client is waited for does not count."},
        {.name = "retention", .type = SETTING_DURATION, .offset = AT(retention_us),
         .min = MS, .max = 3650 * 86400 * SECOND, .fallback = "24h",
         .reloadable = true, .text = "How long a reply is kept and replayed."},
        {.name = "wait_max", .type = SETTING_DURATION, .offset = AT(wait_max_us), .min = 0,
         .max = 300 * SECOND, .fallback = "30s", .reloadable = true,
         .text = "The longest `Prefer: wait=N` that is honoured."},
        {.name = "request_body_max", .type = SETTING_SIZE, .offset = AT(request_body_max),
         .min = 0, .max = 1024 * MIB, .fallback = "10MiB", .reloadable = true,
         .text = "Largest body of a request with a key; past it 413, before anything is claimed."},
        {.name = "reply_body_max", .type = SETTING_SIZE, .offset = AT(reply_body_max), .min = 0,
         .max = 64 * MIB, .fallback = "1MiB", .reloadable = true,
         .text = "Largest reply body that is kept; a larger one is streamed, and a retry learns "
                 "that it ran."},
        {.name = "store_body", .type = SETTING_BOOL, .offset = AT(store_body), .fallback = "true",
         .reloadable = true, .text = "false keeps no reply body at all (secrets shown once)."},
        {.name = "store_key", .type = SETTING_CHOICE, .offset = AT(key_text),
         .choices = {"text", "digest"}, .fallback = "text", .reloadable = true,
         .text = "Keep the key's text for `semel keys show`, or only its digest."},
};
const size_t policy_setting_count = COUNT(policy_settings);
#undef AT

#define AT(field) offsetof(struct route, field)
const struct setting route_settings[] = {
        {.name = "name", .type = SETTING_TEXT, .offset = AT(name), .max = 63, .fallback = "",
         .text = "What logs and metrics call it."},
        {.name = "methods", .type = SETTING_SET, .offset = AT(methods),
         .choices = {"POST", "PATCH", "PUT", "DELETE"}, .fallback = "",
         .text = "Which requests the route is for; without it every method."},
        {.name = "path", .type = SETTING_TEXT, .offset = AT(path), .max = CONFIG_PATH_BYTES,
         .text = "A path; `*` is one segment, `**` at the end any rest.  Matched as sent, without "
                 "decoding."},
};
const size_t route_setting_count = COUNT(route_settings);
#undef AT

void gateway_config_defaults(struct gateway_config *config)
{
        *config = (struct gateway_config){0};
        setting_defaults(gateway_settings, gateway_setting_count, config);
        setting_defaults(policy_settings, policy_setting_count, &config->policy);
}

/* -- routes ----------------------------------------------------------------------------------- */

bool path_matches(const char *pattern, struct span path)
{
        const uint8_t *query = path.n > 0 ? memchr(path.p, '?', path.n) : NULL; /* CONNECT has none */
        const char *p = (const char *)path.p, *end = p + (query ? (size_t)(query - path.p) : path.n);
        const char *pat = pattern;
        for (;;) {
                if (strcmp(pat, "**") == 0)
                        return true;
                if (*pat == '*') {
                        const char *from = p;
                        while (p < end && *p != '/')
                                p++;
                        if (p == from)
                                return false; /* a segment is not empty */
                        pat++;
                } else if (*pat == 0) {
                        return p == end;
                } else if (strcmp(pat, "/**") == 0 && p == end) {
                        return true; /* or none */
                } else {
                        if (p == end || *p != *pat)
                                return false;
                        p++;
                        pat++;
                }
        }
}

const struct policy *gateway_config_match(const struct gateway_config *config,
                                          struct span method, struct span path,
                                          const struct route **ret_route)
{
        unsigned bit = policy_method(method);
        const struct route *found = NULL;
        for (size_t i = 0; i < config->route_count && !found; i++) {
                const struct route *r = &config->routes[i];
                if ((r->methods == 0 || (r->methods & bit)) && path_matches(r->path, path))
                        found = r;
        }
        if (ret_route)
                *ret_route = found;
        return found ? &found->policy : &config->policy;
}

static bool check_policy(const struct policy *p, const char *name, char *why)
{
        if (p->upstream_timeout_us >= p->lease_us) {
                (void)snprintf(why, SETTING_ERROR_BYTES,
                               "%s: upstream_timeout must be shorter than lease: a claim that ends "
                               "before its request is no protection",
                               name);
                return false;
        }
        if (p->principal == PRINCIPAL_HEADER && !p->principal_header[0]) {
                (void)snprintf(why, SETTING_ERROR_BYTES,
                               "%s: `principal: header` needs principal_header", name);
                return false;
        }
        return true;
}

bool gateway_config_check(const struct gateway_config *config, char why[SETTING_ERROR_BYTES])
{
        if (!config->upstream[0]) {
                (void)snprintf(why, SETTING_ERROR_BYTES,
                               "upstream must be given: http://HOST:PORT or unix:/path");
                return false;
        }
        if (config->drain_delay_us > config->shutdown_deadline_us) {
                (void)snprintf(why, SETTING_ERROR_BYTES,
                               "drain_delay must not be longer than shutdown_deadline");
                return false;
        }
        if (!check_policy(&config->policy, "policy", why))
                return false;
        for (size_t i = 0; i < config->route_count; i++) {
                const struct route *r = &config->routes[i];
                if (r->path[0] != '/') {
                        (void)snprintf(why, SETTING_ERROR_BYTES, "route %zu: path must begin with /",
                                       i + 1);
                        return false;
                }
                if (!check_policy(&r->policy, r->name[0] ? r->name : r->path, why))
                        return false;
        }
        return true;
}
