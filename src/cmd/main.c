/* SPDX-License-Identifier: Apache-2.0
 *
 * main: finds the subcommand, parses its options, runs it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/suggest.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"

/* A program started without stdin, stdout or stderr would give their numbers to the next file
 * that it opens, and messages would land in a database. */
static int open_standard_fds(void)
{
        for (;;) {
                int fd = open("/dev/null", O_RDWR);
                if (fd < 0)
                        return -1;
                if (fd > 2)
                        return close(fd);
        }
}

static const struct subcommand *find_command(const char *name)
{
        for (size_t i = 0; subcommands[i]; i++)
                if (strcmp(subcommands[i]->name, name) == 0)
                        return subcommands[i];
        return NULL;
}

static const struct subcommand *find_sub(const struct subcommand *group, const char *name)
{
        for (const struct subcommand *sub = group->subs; sub->name; sub++)
                if (strcmp(sub->name, name) == 0)
                        return sub;
        return NULL;
}

static int unknown_command(const struct subcommand *group, const char *name)
{
        const char *names[16] = {NULL};
        size_t n = 0;
        if (group)
                for (const struct subcommand *sub = group->subs; sub->name; sub++)
                        names[n++] = sub->name;
        else
                for (; subcommands[n]; n++)
                        names[n] = subcommands[n]->name;
        const char *near = suggest(name, names, n);
        const char *space = group ? " " : "", *prefix = group ? group->name : "";
        if (near)
                say_error("there is no command \"%s%s%.32s\"; did you mean `semel %s%s%s`?", prefix,
                          space, name, prefix, space, near);
        else
                say_error("there is no command \"%s%s%.32s\"; `semel help` lists them", prefix,
                          space, name);
        return EXIT_CODE_USAGE;
}

/* `semel help [COMMAND [SUB]]` */
static int run_help(char **words, size_t n)
{
        size_t at = options_first_word(words, n, 0);
        if (at == n) {
                help_program(stdout);
                return say_flush();
        }
        const struct subcommand *command = find_command(words[at]), *sub = NULL;
        if (!command)
                return unknown_command(NULL, words[at]);
        size_t next = options_first_word(words, n, at + 1);
        if (command->subs && next < n) {
                sub = find_sub(command, words[next]);
                if (!sub)
                        return unknown_command(command, words[next]);
        }
        help_subcommand(stdout, sub ? command->name : NULL, sub ? sub : command);
        return say_flush();
}

/* args[0..n) without the words that named the command. */
static int run_command(const struct subcommand *group, const struct subcommand *command,
                       char **args, size_t n)
{
        struct semel_error err = {0};
        struct options o;
        if (options_parse(command->options, args, n, &o, &err) != SEMEL_OK) {
                say_error("%s", err.text);
                return EXIT_CODE_USAGE;
        }
        if (option_flag(&o, OPT_HELP)) {
                help_subcommand(stdout, group ? group->name : NULL, command);
                return say_flush();
        }
        if (option_flag(&o, OPT_VERSION)) {
                puts("semel " SEMEL_VERSION);
                return say_flush();
        }
        say_quiet(option_flag(&o, OPT_QUIET));
        return command->run(&o);
}

static void remove_word(char **args, size_t *n, size_t at)
{
        memmove(args + at, args + at + 1, (*n - at) * sizeof *args); /* with the last NULL */
        --*n;
}

/* No command: `semel`, `semel --help`, `semel --version`, or options that lead nowhere. */
static int run_bare(char **args, size_t n)
{
        struct semel_error err = {0};
        struct options o;
        if (options_parse((struct option_set){NULL, 0}, args, n, &o, &err) != SEMEL_OK) {
                say_error("%s", err.text);
                return EXIT_CODE_USAGE;
        }
        if (option_flag(&o, OPT_VERSION)) {
                puts("semel " SEMEL_VERSION);
                return say_flush();
        }
        help_program(option_flag(&o, OPT_HELP) ? stdout : stderr);
        return option_flag(&o, OPT_HELP) ? say_flush() : EXIT_CODE_USAGE;
}

int main(int argc, char **argv)
{
        if (open_standard_fds() != 0)
                return EXIT_CODE_USAGE;
        char **args = argv + (argc > 0);
        size_t n = argc > 0 ? (size_t)argc - 1 : 0;

        size_t at = options_first_word(args, n, 0);
        if (at == n)
                return run_bare(args, n);
        const char *name = args[at];
        remove_word(args, &n, at);
        if (strcmp(name, "help") == 0)
                return run_help(args, n);
        const struct subcommand *command = find_command(name), *group = NULL;
        if (!command)
                return unknown_command(NULL, name);
        if (command->subs) {
                group = command;
                at = options_first_word(args, n, 0);
                if (at == n) {
                        bool asked = n > 0 && (strcmp(args[0], "--help") == 0 ||
                                               strcmp(args[0], "-h") == 0);
                        help_subcommand(asked ? stdout : stderr, NULL, group);
                        return asked ? say_flush() : EXIT_CODE_USAGE;
                }
                command = find_sub(group, args[at]);
                if (!command)
                        return unknown_command(group, args[at]);
                remove_word(args, &n, at);
        }
        return run_command(group, command, args, n);
}
