/* SPDX-License-Identifier: Apache-2.0
 *
 * subcommand: what `semel` can do, as data: name, one line, options, text, run.
 */
#ifndef CMD_SUBCOMMAND_H
#define CMD_SUBCOMMAND_H

#include <stdio.h>

#include "cmd/options.h"

struct subcommand {
        const char *name;
        const char *usage;   /* behind "semel NAME" */
        const char *summary; /* one line */
        const char *text;    /* what it promises, for people who read it once */
        const char *examples;
        const char *exits;   /* exit codes beyond the common ones, or NULL */
        struct option_set options;
        int (*run)(const struct options *o); /* the process's exit code */
        const struct subcommand *subs; /* a group: ends with a NULL name */
};

extern const struct subcommand subcommand_migrate;
extern const struct subcommand subcommand_keys;
extern const struct subcommand subcommand_run;
extern const struct subcommand subcommand_gateway;
extern const struct subcommand subcommand_consume;
extern const struct subcommand subcommand_inbox;
extern const struct subcommand subcommand_config;
extern const struct subcommand subcommand_call;
extern const struct subcommand subcommand_outbox;
/* Only where SEMEL_KAFKA is defined: */
extern const struct subcommand subcommand_dev_broker;
extern const struct subcommand subcommand_relay;

#define OPTION_SET(array) {(array), sizeof(array) / sizeof((array)[0])}

/* commands.c: all of them, in the order of the help; ends with NULL. */
extern const struct subcommand *const subcommands[];

/* help.c: the program's help, and a subcommand's; and what all subcommands share. */
void help_program(FILE *out);
void help_subcommand(FILE *out, const char *group, const struct subcommand *sub);
extern const char help_exits[];
extern const char help_environment[];
const char *help_environment_of(const struct subcommand *sub);

#endif
