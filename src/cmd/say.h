/* SPDX-License-Identifier: Apache-2.0
 *
 * say: what the program tells people on stderr, and its exit codes.
 */
#ifndef CMD_SAY_H
#define CMD_SAY_H

#include <stdbool.h>

#include <semel/error.h>

#include "base/span.h"

/* The numbers are documented; scripts depend on them. */
enum exit_code {
        EXIT_CODE_DONE = 0,
        EXIT_CODE_USAGE = 64,
        EXIT_CODE_REJECTED = 65,
        EXIT_CODE_DOWN = 69,
        EXIT_CODE_IN_FLIGHT = 75,
        EXIT_CODE_UNKNOWN = 76,
        EXIT_CODE_CANNOT_EXECUTE = 126, /* as a shell's */
        EXIT_CODE_NOT_FOUND = 127,
        EXIT_CODE_SIGNAL = 128, /* plus the signal's number */
};

/* One line on stderr, with the program's name before it, in one write. */
void say_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same, but not under --quiet. */
void say_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void say_quiet(bool quiet);
/* say_note() of one line: what daemons say. */
void say_line(const char *line);

/* Say the error's sentence; returns the exit code that belongs to it. */
int say_failure(const semel_error *err);

/* Flush stdout: the exit code of a command that printed, 0 unless that failed. */
int say_flush(void);

/* Bytes from outside, safe for a terminal: control bytes as \xNN.  Cut at ret_max - 1. */
const char *text_printable(struct span text, char *ret, size_t ret_max); /* returns ret */

#endif
