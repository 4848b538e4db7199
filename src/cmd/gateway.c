/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: `semel gateway`: settings from defaults, file, environment and options, in this order.
 */
#include "app/gateway.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd/daemon_settings.h"
#include "cmd/gateway_settings.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "conf/gateway_file.h"

static void tell(void *arg, const char *error)
{
        (void)arg;
        say_error("%s", error);
}

/* Options that are settings by another spelling. */
static const struct option_setting option_settings[] = {
        {OPT_LISTEN, "listen"},
        {OPT_UPSTREAM, "upstream"},
        {OPT_WORKERS, "workers"},
        {OPT_ADMIN, "admin"},
        {OPT_ADMIN_TOKEN_FILE, "admin_token_file"},
        {OPT_LOG, "log"},
        {OPT_DRAIN_DELAY, "drain_delay"},
        {OPT_SHUTDOWN_DEADLINE, "shutdown_deadline"},
}, option_policies[] = {
        {OPT_LEASE, "lease"},
        {OPT_RETENTION, "retention"},
        {OPT_ON_UNKNOWN, "on_unknown"},
        {OPT_UPSTREAM_TIMEOUT, "upstream_timeout"},
};

/* A policy that was given outside the file counts for every route. */
static bool set_policies(struct gateway_config *config, const struct setting *s, const char *value,
                         const char *from)
{
        if (!setting_set_or_say(s, &config->policy, value, from))
                return false;
        for (size_t i = 0; i < config->route_count; i++)
                if (!setting_set_or_say(s, &config->routes[i].policy, value, from))
                        return false;
        return true;
}

/* All but `upstream`: SEMEL_UPSTREAM is the service's URL. */
static bool policies_from_environment(struct gateway_config *config)
{
        char name[SETTING_VARIABLE_BYTES];
        for (size_t i = 0; i < policy_setting_count; i++) {
                const struct setting *s = &policy_settings[i];
                const char *value = setting_environment(s, name);
                if (value && !setting_find(gateway_settings, gateway_setting_count, s->name) &&
                    !set_policies(config, s, value, name))
                        return false;
        }
        return true;
}

static bool policies_from_options(const struct options *o, struct gateway_config *config)
{
        char from[64];
        for (size_t i = 0; i < sizeof option_policies / sizeof option_policies[0]; i++) {
                const struct option_value *v = &o->value[option_policies[i].option];
                (void)snprintf(from, sizeof from, "--%s",
                               option_def(option_policies[i].option)->name);
                if (v->given && !set_policies(config,
                                              setting_find(policy_settings, policy_setting_count,
                                                           option_policies[i].setting),
                                              v->text, from))
                        return false;
        }
        if (option_flag(o, OPT_IDEMPOTENT))
                return set_policies(config,
                                    setting_find(policy_settings, policy_setting_count, "upstream"),
                                    "idempotent", "--idempotent");
        return true;
}

bool gateway_settings_read(const struct options *o, struct gateway_config *config)
{
        const struct daemon_settings settings = {
                gateway_settings, gateway_setting_count, option_settings,
                sizeof option_settings / sizeof option_settings[0]};
        char why[SETTING_ERROR_BYTES];
        gateway_config_defaults(config);
        const char *file = option_text(o, OPT_CONFIG);
        if (file && gateway_file_read(file, config, tell, NULL) != 0)
                return false;
        if (!daemon_settings_override(&settings, o, config, NULL) ||
            !policies_from_environment(config) || !policies_from_options(o, config))
                return false;
        if (gateway_config_check(config, why))
                return true;
        say_error("%s", why);
        return false;
}

static int gateway_run_command(const struct options *o)
{
        static struct gateway_config config; /* large: routes */
        struct semel_error err = {0};
        char space[STORE_URL_BYTES_MAX];
        const char *url;
        if (o->positional_count > 0 || o->rest) {
                say_error("gateway takes options only: semel gateway --upstream http://127.0.0.1:9000");
                return EXIT_CODE_USAGE;
        }
        if (!gateway_settings_read(o, &config))
                return EXIT_CODE_USAGE;
        if (daemon_store_url(o, config.db, &url, space, &err) != SEMEL_OK)
                return say_failure(&err);
        int rc = gateway_run(&config, url, say_line, &err);
        if (err.code != SEMEL_OK)
                say_error("%s", err.text);
        return rc;
}

static const enum option_id gateway_options[] = {
        OPT_UPSTREAM, OPT_LISTEN, OPT_DB, OPT_CONFIG, OPT_WORKERS, OPT_ON_UNKNOWN, OPT_IDEMPOTENT,
        OPT_LEASE, OPT_UPSTREAM_TIMEOUT, OPT_RETENTION, OPT_ADMIN, OPT_ADMIN_TOKEN_FILE, OPT_LOG,
        OPT_DRAIN_DELAY, OPT_SHUTDOWN_DEADLINE, OPT_QUIET};

const struct subcommand subcommand_gateway = {
        .name = "gateway",
        .usage = "--upstream URL [--listen ADDRESS] [--db URL] [--config FILE]",
        .summary = "a reverse proxy that honours Idempotency-Key, in front of any service",
        .text = "A POST or PATCH with an Idempotency-Key reaches the service once: a retry gets the\n"
                "same reply, byte for byte; a retry while it runs gets 409 (or waits, with `Prefer:\n"
                "wait=N`); another request under the same key gets 422.  When nobody can know whether\n"
                "it ran, the key is held as UNKNOWN until an operator decides (semel keys).  Requests\n"
                "without a key pass through untouched.\n"
                "\n"
                "At most once by itself; exactly once when the service dedupes on the forwarded key\n"
                "(--idempotent).  Every setting is in `semel config reference`, and may be given as\n"
                "SEMEL_<NAME> in the environment; a policy that is given there, or as an option, counts\n"
                "for every route.  SEMEL_UPSTREAM is the URL, not the policy of that name, which is\n"
                "--idempotent.  Routes are the file's alone.\n",
        .examples = "semel gateway --listen :8080 --upstream http://127.0.0.1:9000\n"
                    "semel gateway --upstream unix:/run/app.sock --db postgres://gw@db/semel\n"
                    "semel gateway --config /etc/semel/gateway.yaml --admin 127.0.0.1:9901\n",
        .exits = "75  the shutdown deadline cut something off: its keys become UNKNOWN\n",
        .options = OPTION_SET(gateway_options),
        .run = gateway_run_command,
};
