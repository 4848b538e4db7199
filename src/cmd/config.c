/* SPDX-License-Identifier: Apache-2.0
 *
 * config: `semel config check FILE` and `semel config reference`.
 */
#include <string.h>

#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "conf/gateway_file.h"

static void tell(void *arg, const char *error)
{
        (void)arg;
        say_error("%s", error);
}

static int check_run(const struct options *o)
{
        static struct gateway_config config; /* large: routes */
        if (o->positional_count != 1 || o->rest) {
                say_error("config check takes one file: semel config check gateway.yaml");
                return EXIT_CODE_USAGE;
        }
        gateway_config_defaults(&config);
        if (gateway_file_read(o->positional[0], &config, tell, NULL) != 0)
                return EXIT_CODE_USAGE;
        say_note("%s is fine: %zu route%s", o->positional[0], config.route_count,
                 config.route_count == 1 ? "" : "s");
        return EXIT_CODE_DONE;
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

static int reference_run(const struct options *o)
{
        (void)o;
        printf("# Every setting of `semel gateway`, with its default.  In the environment:\n"
               "# SEMEL_ and the name in capitals (the gateway's own settings).\n");
        print_table(gateway_settings, gateway_setting_count, "");
        printf("\n# The policy of every request that no route is for; routes begin with it.\n#policy:\n");
        print_table(policy_settings, policy_setting_count, "  ");
        printf("\n# The first route whose methods and path match decides.  A route may give every\n"
               "# setting of `policy`.\n#routes:\n#  - path: /orders\n");
        print_table(route_settings, route_setting_count, "    ");
        return say_flush();
}

static const enum option_id config_options[] = {OPT_QUIET};

static const struct subcommand subs[] = {
        {.name = "check",
         .usage = "FILE",
         .summary = "say what is wrong with a file, with line and column",
         .text = "Reads the file as `semel gateway --config FILE` would, and starts nothing.\n",
         .examples = "semel config check /etc/semel/gateway.yaml\n",
         .exits = "64  the file has errors\n",
         .options = OPTION_SET(config_options),
         .run = check_run},
        {.name = "reference",
         .usage = "",
         .summary = "print every setting, with its default and what it means",
         .text = "The output is a file that works: every line is a comment with the default.\n",
         .examples = "semel config reference > gateway.yaml\n",
         .options = OPTION_SET(config_options),
         .run = reference_run},
        {.name = NULL},
};

const struct subcommand subcommand_config = {
        .name = "config",
        .usage = "check FILE | reference",
        .summary = "check a configuration file, or print every setting",
        .text = "The settings of `semel gateway`.\n",
        .examples = "semel config reference > gateway.yaml\nsemel config check gateway.yaml\n",
        .subs = subs,
};
