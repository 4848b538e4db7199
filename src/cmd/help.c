/* SPDX-License-Identifier: Apache-2.0
 *
 * help: prints the tables of subcommands and options for people.
 */
#include <string.h>

#include "cmd/subcommand.h"

enum { WIDTH = 88, OPTION_INDENT = 26, USAGE_INDENT = 9 };

/* Print words, wrapped at WIDTH, continuing at `indent`; the cursor stands at `column`. */
static void print_wrapped(FILE *out, const char *text, size_t indent, size_t column)
{
        while (*text) {
                size_t n = strcspn(text, " ");
                if (column > indent && column + 1 + n > WIDTH) {
                        fprintf(out, "\n%*s", (int)indent, "");
                        column = indent;
                } else if (column > indent) {
                        fputc(' ', out);
                        column++;
                }
                fwrite(text, 1, n, out);
                column += n;
                text += n + strspn(text + n, " ");
        }
        fputc('\n', out);
}

static void print_option(FILE *out, enum option_id id)
{
        const struct option_def *def = option_def(id);
        char left[64];
        int n = snprintf(left, sizeof left, "  --%s%s%s%s%s", def->name, def->alias ? ", --" : "",
                         def->alias ? def->alias : "", def->value ? " " : "",
                         def->value ? def->value : "");
        char right[320];
        (void)snprintf(right, sizeof right, "%s%s%s%s", def->help,
                       def->fallback ? " (default " : "", def->fallback ? def->fallback : "",
                       def->fallback ? ")" : "");
        if (n < 0)
                return;
        if ((size_t)n + 2 > OPTION_INDENT)
                fprintf(out, "%s\n%*s", left, OPTION_INDENT, "");
        else
                fprintf(out, "%-*s", OPTION_INDENT, left);
        print_wrapped(out, right, OPTION_INDENT, OPTION_INDENT);
}

static void print_block(FILE *out, const char *title, const char *text)
{
        fprintf(out, "\n%s\n", title);
        for (const char *line = text; *line;) {
                size_t n = strcspn(line, "\n");
                fprintf(out, "%s%.*s\n", n ? "  " : "", (int)n, line);
                line += n + (line[n] == '\n');
        }
}

const char help_exits[] =
        "0   done\n"
        "64  usage: the command line is wrong, and stderr says how\n"
        "65  rejected: the key was used for something else, or the row does not allow it\n"
        "69  the store is down or refuses; nothing was done\n"
        "75  in flight: try again later\n"
        "76  nobody knows whether it happened: `semel keys resolve`\n";

#define ENVIRONMENT_PG \
        "PGPASSFILE, PG*  as for every program of PostgreSQL; keep passwords out of URLs\n"

const char help_environment[] =
        "SEMEL_DB         the store's URL, when --db is not given\n"
        "SEMEL_STATE_DIR  where the default store and the lock files are; else /var/lib/semel\n"
        "                 for root, $XDG_STATE_HOME/semel or ~/.local/state/semel for others\n"
        ENVIRONMENT_PG;

const char *help_environment_of(const struct subcommand *sub)
{
        for (size_t i = 0; i < sub->options.count; i++)
                if (sub->options.ids[i] == OPT_CALL_DB) /* no store but the one that it names */
                        return ENVIRONMENT_PG;
        return help_environment;
}

void help_program(FILE *out)
{
        const struct subcommand *const *commands = subcommands;
        fputs("semel: makes retries safe.  A command that carries a key runs once.\n\n"
              "Usage: semel COMMAND [OPTIONS] [ARGUMENTS]\n\nCommands\n", out);
        for (size_t i = 0; commands[i]; i++) {
                if (!commands[i]->subs)
                        fprintf(out, "  %-16s %s\n", commands[i]->name, commands[i]->summary);
                for (const struct subcommand *sub = commands[i]->subs; sub && sub->name; sub++)
                        fprintf(out, "  %s %-*s %s\n", commands[i]->name,
                                (int)(15 - strlen(commands[i]->name)), sub->name, sub->summary);
        }
        fprintf(out, "  %-16s %s\n", "help [COMMAND]", "what a command does, its options, examples");
        print_block(out, "Examples",
                    "semel run daily-report-2024-06-01 -- ./report.sh\n"
                    "semel keys list --stuck\n"
                    "semel keys show daily-report-2024-06-01\n"
                    "semel migrate --db postgres://owner@db/shop\n");
        print_block(out, "Exit codes", help_exits);
        print_block(out, "Environment", help_environment);
        fputs("\nDurations are written 250ms, 3s, 5m, 24h, 7d; sizes 64KiB, 10MiB.  Options stand "
              "before or\nafter arguments, up to `--`.\n", out);
}

static void help_group(FILE *out, const struct subcommand *group)
{
        fprintf(out, "semel %s: %s\n\nUsage: semel %s COMMAND [OPTIONS] [KEY]\n\nCommands\n",
                group->name, group->summary, group->name);
        for (const struct subcommand *sub = group->subs; sub->name; sub++)
                fprintf(out, "  %-10s %s\n", sub->name, sub->summary);
        fputc('\n', out);
        fputs(group->text, out);
        print_block(out, "Examples", group->examples);
        fprintf(out, "\n`semel help %s COMMAND` says more.\n", group->name);
}

void help_subcommand(FILE *out, const char *group, const struct subcommand *sub)
{
        if (sub->subs) {
                help_group(out, sub);
                return;
        }
        const char *space = group ? " " : "";
        if (!group)
                group = "";
        fprintf(out, "semel %s%s%s: %s\n\n", group, space, sub->name, sub->summary);
        int column = fprintf(out, "Usage: semel %s%s%s", group, space, sub->name);
        print_wrapped(out, sub->usage, USAGE_INDENT, (size_t)column);
        fputc('\n', out);
        fputs(sub->text, out);
        fputs("\nOptions\n", out);
        for (size_t i = 0; i < sub->options.count; i++)
                print_option(out, sub->options.ids[i]);
        print_option(out, OPT_HELP);
        print_block(out, "Examples", sub->examples);
        print_block(out, "Exit codes", sub->exits ? sub->exits : help_exits);
        print_block(out, "Environment", help_environment_of(sub));
}
