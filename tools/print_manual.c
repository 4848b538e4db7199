/* SPDX-License-Identifier: Apache-2.0
 *
 * print_manual: a manual page of section 1 on stdout, as scdoc reads it, from the tables of
 * subcommands and options that the program itself uses: `semel help` and the manual are one text.
 *
 *     print_manual            semel(1)
 *     print_manual COMMAND    semel-COMMAND(1); a group is one page, with a section for each verb
 *     print_manual --list     the names of all commands
 */
#include <ctype.h>
#include <string.h>

#include "cmd/subcommand.h"

/* One line of text with scdoc's own signs escaped. */
static void put_line(const char *text, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (strchr("\\*_#-|[]<>`+~.'", text[i]))
                        putchar('\\');
                putchar(text[i]);
        }
}

static void put_text(const char *text)
{
        put_line(text, strlen(text));
}

static size_t line_length(const char *text)
{
        return strcspn(text, "\n");
}

/* As it stands, between fences. */
static void put_literal(const char *text)
{
        printf("\n```\n%s%s```\n", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
}

/* Paragraphs are filled; a line that begins with spaces, and its like around it, stays as it is; a
 * line that begins with a dash begins a line. */
static void put_paragraphs(const char *text)
{
        bool fenced = false;
        for (const char *line = text; *line;) {
                size_t n = line_length(line);
                const char *next = line + n + (line[n] == '\n');
                bool literal = n > 0 && line[0] == ' ';
                if (literal != fenced)
                        printf(literal ? "\n```\n" : "```\n\n");
                fenced = literal;
                if (literal)
                        printf("%.*s", (int)n, line);
                else
                        put_line(line, n);
                if (!literal && n > 0 && *next == '-')
                        printf("++");
                putchar('\n');
                line = next;
        }
        if (fenced)
                printf("```\n");
}

static void put_option(enum option_id id)
{
        const struct option_def *def = option_def(id);
        printf("*--");
        put_text(def->name);
        printf("*");
        if (def->alias) {
                printf(", *--");
                put_text(def->alias);
                printf("*");
        }
        if (def->value) {
                printf(" ");
                put_text(def->value);
        }
        printf("\n\t");
        put_text(def->help);
        if (def->fallback) {
                printf(" Default: ");
                put_text(def->fallback);
                printf("\\.");
        }
        printf("\n\n");
}

static void put_options(const struct subcommand *sub)
{
        for (size_t i = 0; i < sub->options.count; i++)
                put_option(sub->options.ids[i]);
        put_option(OPT_HELP);
}

static void put_synopsis(const char *group, const struct subcommand *sub)
{
        printf("*semel %s%s%s* ", group ? group : "", group ? " " : "", sub->name);
        put_text(sub->usage);
        printf("\n");
}

static void put_title(const char *name, const char *summary)
{
        printf("semel%s%s(1) \"semel " SEMEL_VERSION "\" \"The manual of semel\"\n\n# NAME\n\n"
               "semel%s%s - ", name ? "-" : "", name ? name : "", name ? "-" : "", name ? name : "");
        put_text(summary);
        printf("\n\n# SYNOPSIS\n\n");
}

static void put_end(const char *exits, const char *environment, const char *see)
{
        printf("\n# EXIT STATUS\n");
        put_literal(exits);
        printf("\n# ENVIRONMENT\n");
        put_literal(environment);
        printf("\n# SEE ALSO\n\n%s\n", see);
}

static void print_command(const struct subcommand *sub)
{
        put_title(sub->name, sub->summary);
        put_synopsis(NULL, sub);
        printf("\n# DESCRIPTION\n\n");
        put_paragraphs(sub->text);
        printf("\n# OPTIONS\n\n");
        put_options(sub);
        printf("# EXAMPLES\n");
        put_literal(sub->examples);
        put_end(sub->exits ? sub->exits : help_exits, help_environment_of(sub),
                "*semel*(1), *semel*(7)");
}

static void print_group(const struct subcommand *group)
{
        put_title(group->name, group->summary);
        for (const struct subcommand *sub = group->subs; sub->name; sub++) {
                put_synopsis(group->name, sub);
                printf("\n");
        }
        printf("# DESCRIPTION\n\n");
        put_paragraphs(group->text);
        put_literal(group->examples);
        for (const struct subcommand *sub = group->subs; sub->name; sub++) {
                printf("\n# SEMEL ");
                for (const char *s = group->name; *s; s++)
                        putchar(toupper((unsigned char)*s));
                putchar(' ');
                for (const char *s = sub->name; *s; s++)
                        putchar(toupper((unsigned char)*s));
                printf("\n\n*semel %s %s*: ", group->name, sub->name);
                put_text(sub->summary);
                printf("\\.\n\n");
                put_paragraphs(sub->text);
                printf("\n");
                put_options(sub);
                put_literal(sub->examples);
                if (sub->exits) {
                        printf("\nExit status:\n");
                        put_literal(sub->exits);
                }
        }
        put_end(help_exits, help_environment, "*semel*(1), *semel*(7)");
}

static void print_program(void)
{
        put_title(NULL, "makes retries safe: a command that carries a key runs once");
        printf("*semel* COMMAND [OPTIONS] [ARGUMENTS]\n\n*semel help* [COMMAND [VERB]]\n\n# COMMANDS\n\n");
        for (size_t i = 0; subcommands[i]; i++) {
                printf("*semel-%s*(1)\n\t", subcommands[i]->name);
                put_text(subcommands[i]->summary);
                printf("\n\n");
        }
        printf("Durations are written 250ms, 3s, 5m, 24h, 7d; sizes 64KiB, 10MiB\\.  Options stand "
               "before or after arguments, up to \\-\\-\\.\n");
        put_end(help_exits, help_environment, "*semel*(7)");
}

int main(int argc, char **argv)
{
        const char *name = argc > 1 ? argv[1] : NULL;
        bool list = name && strcmp(name, "--list") == 0, found = !name || list;
        if (!name)
                print_program();
        for (size_t i = 0; name && subcommands[i]; i++) {
                const struct subcommand *sub = subcommands[i];
                if (list)
                        puts(sub->name);
                else if (strcmp(name, sub->name) == 0) {
                        found = true;
                        sub->subs ? print_group(sub) : print_command(sub);
                }
        }
        if (!found)
                fprintf(stderr, "print_manual: there is no command %s\n", name);
        return found && fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
