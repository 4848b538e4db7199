/* SPDX-License-Identifier: Apache-2.0
 *
 * config: `semel config check FILE` and `semel config reference`.
 */
#include <string.h>

#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "conf/daemon_file.h"
#include "conf/gateway_file.h"
#include "core/consume_settings.h"
#include "core/relay_config.h"

static void tell(void *arg, const char *error)
{
        (void)arg;
        say_error("%s", error);
}

enum daemon { GATEWAY, RELAY, CONSUME, DAEMONS };
static const char *const daemon_names[DAEMONS] = {"gateway", "relay", "consume"};

/* `config VERB [DAEMON] ...`: whose settings; the gateway's when nobody is named. */
static enum daemon daemon_of(const struct options *o, size_t *ret_at)
{
        *ret_at = 0;
        for (int i = 0; o->positional_count > 0 && i < DAEMONS; i++) {
                if (strcmp(o->positional[0], daemon_names[i]) == 0) {
                        *ret_at = 1;
                        return (enum daemon)i;
                }
        }
        return GATEWAY;
}

static int check_gateway(const char *file)
{
        static struct gateway_config config; /* large: routes */
        gateway_config_defaults(&config);
        if (gateway_file_read(file, &config, tell, NULL) != 0)
                return EXIT_CODE_USAGE;
        say_note("%s is fine: %zu route%s", file, config.route_count,
                 config.route_count == 1 ? "" : "s");
        return EXIT_CODE_DONE;
}

/* What else must be given may come from the environment or the command line: only a file that names
 * the brokers is looked at as a whole. */
static int check_relay(const char *file)
{
        static struct relay_config config; /* large: properties */
        char why[SETTING_ERROR_BYTES];
        relay_config_defaults(&config);
        if (daemon_file_read(file, relay_settings, relay_setting_count, &config, &config.kafka, tell,
                             NULL) != 0)
                return EXIT_CODE_USAGE;
        if (config.brokers[0] && !relay_config_check(&config, why)) {
                say_error("%s: %s", file, why);
                return EXIT_CODE_USAGE;
        }
        say_note("%s is fine", file);
        return EXIT_CODE_DONE;
}

static int check_consume(const char *file)
{
        static struct consume_setup setup; /* large: properties */
        char why[SETTING_ERROR_BYTES];
        consume_setup_defaults(&setup);
        if (daemon_file_read(file, consume_settings, consume_setting_count, &setup, &setup.kafka, tell,
                             NULL) != 0)
                return EXIT_CODE_USAGE;
        if (setup.brokers[0] && !consume_setup_check(&setup, why)) {
                say_error("%s: %s", file, why);
                return EXIT_CODE_USAGE;
        }
        say_note("%s is fine", file);
        return EXIT_CODE_DONE;
}

static int check_run(const struct options *o)
{
        static int (*const check[DAEMONS])(const char *) = {check_gateway, check_relay, check_consume};
        size_t at;
        enum daemon daemon = daemon_of(o, &at);
        if (o->positional_count != at + 1 || o->rest) {
                say_error("config check takes one file: semel config check gateway.yaml, or semel "
                          "config check relay relay.yaml");
                return EXIT_CODE_USAGE;
        }
        return check[daemon](o->positional[at]);
}

/* As comments and a line that may be copied: the reference is a file that works. */
static void print_table(const struct setting *table, size_t n, const char *indent)
{
        for (size_t i = 0; i < n; i++) {
                const struct setting *s = &table[i];
                const char *text = s->text;
                printf("\n");
                while (*text) { /* wrapped at 90 columns */
                        size_t len = strlen(text);
                        if (len > 88) {
                                len = 88;
                                while (len > 0 && text[len] != ' ')
                                        len--;
                        }
                        printf("%s# %.*s\n", indent, (int)len, text);
                        text += len;
                        text += strspn(text, " ");
                }
                if (s->choices[0]) {
                        printf("%s# One%s of:", indent, s->type == SETTING_SET ? " or more" : "");
                        for (int c = 0; c < SETTING_CHOICES_MAX && s->choices[c]; c++)
                                printf(" %s", s->choices[c]);
                        printf("\n");
                }
                if (s->type == SETTING_SET)
                        printf("%s#%s: [%s]\n", indent, s->name, s->fallback ? s->fallback : "");
                else if (s->type == SETTING_TEXT)
                        printf("%s#%s: \"%s\"\n", indent, s->name, s->fallback ? s->fallback : "");
                else
                        printf("%s#%s: %s\n", indent, s->name, s->fallback ? s->fallback : "");
        }
}

/* A daemon whose settings are one table. */
static int reference_of(const char *name, const struct setting *table, size_t n)
{
        printf("# Every setting of `semel %s`, with its default.  In the environment: SEMEL_ and the\n"
               "# name in capitals.\n", name);
        print_table(table, n, "");
        printf("\n# Properties of librdkafka, by their own names (TLS, SASL, compression ...).  In the\n"
               "# environment: SEMEL_KAFKA, as name=value;name=value.\n#kafka:\n"
               "#  compression.type: lz4\n");
        return say_flush();
}

static int reference_gateway(void)
{
        printf("# Every setting of `semel gateway`, with its default.  In the environment: SEMEL_ and the\n"
               "# name in capitals; a policy that is given there counts for every route.\n");
        print_table(gateway_settings, gateway_setting_count, "");
        printf("\n# The policy of every request that no route is for; routes begin with it.\n#policy:\n");
        print_table(policy_settings, policy_setting_count, "  ");
        printf("\n# The first route whose methods and path match decides.  A route may give every\n"
               "# setting of `policy`.\n#routes:\n#  - path: /orders\n");
        print_table(route_settings, route_setting_count, "    ");
        return say_flush();
}

static int reference_run(const struct options *o)
{
        size_t at;
        enum daemon daemon = daemon_of(o, &at);
        if (o->positional_count != at || o->rest) {
                say_error("config reference takes the name of a daemon: gateway (the default), relay or "
                          "consume");
                return EXIT_CODE_USAGE;
        }
        if (daemon == RELAY)
                return reference_of("relay", relay_settings, relay_setting_count);
        if (daemon == CONSUME)
                return reference_of("consume", consume_settings, consume_setting_count);
        return reference_gateway();
}

static const enum option_id config_options[] = {OPT_QUIET};

static const struct subcommand subs[] = {
        {.name = "check",
         .usage = "[gateway|relay|consume] FILE",
         .summary = "say what is wrong with a file, with line and column",
         .text = "Reads the file as `semel gateway --config FILE` (or the relay, or the consumer) would,\n"
                 "and starts nothing.\n",
         .examples = "semel config check /etc/semel/gateway.yaml\n"
                     "semel config check relay /etc/semel/relay.yaml\n",
         .exits = "64  the file has errors\n",
         .options = OPTION_SET(config_options),
         .run = check_run},
        {.name = "reference",
         .usage = "[gateway|relay|consume]",
         .summary = "print every setting, with its default and what it means",
         .text = "The output is a file that works: every line is a comment with the default.\n",
         .examples = "semel config reference > gateway.yaml\nsemel config reference relay > relay.yaml\n",
         .options = OPTION_SET(config_options),
         .run = reference_run},
        {.name = NULL},
};

const struct subcommand subcommand_config = {
        .name = "config",
        .usage = "check [gateway|relay|consume] FILE | reference [gateway|relay|consume]",
        .summary = "check a configuration file, or print every setting",
        .text = "The settings of `semel gateway`, `semel relay` and `semel consume`.\n",
        .examples = "semel config reference > gateway.yaml\nsemel config check gateway.yaml\n",
        .subs = subs,
};
