/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_print: rows for people and for programs.
 */
#ifndef CMD_KEYS_PRINT_H
#define CMD_KEYS_PRINT_H

#include <stdio.h>

#include <semel/keys.h>

#include "cmd/holder.h"

void keys_print_header(FILE *out);
void keys_print_line(FILE *out, const semel_key_row *row);
void keys_print_json(FILE *out, const semel_key_row *row);

/* Everything, and what to do next. */
void keys_print_full(FILE *out, const semel_key_row *row);

/* What --attempt takes: the attempt and the token, since one late message may acquire a key twice
 * with one attempt; and whether the row was shown too early for a "not executed" (A5b).  "HEX:TOKEN",
 * "HEX:TOKEN:early" */
enum { SHOWN_ATTEMPT_BYTES_MAX = 2 * SEMEL_ATTEMPT_BYTES + 32 };
void keys_shown_attempt(const semel_key_row *row, char *ret /* SHOWN_ATTEMPT_BYTES_MAX */);
/* Do two such texts name one acquisition?  *ret_early: the first one was shown early. */
bool keys_same_attempt(const char *shown, const char *now, bool *ret_early);

/* "UNKNOWN", ... */
const char *keys_state_name(semel_key_state state);

/* Is the row one that nobody but an operator (or a retry) moves on? */
bool keys_is_stuck(const semel_key_row *row);

#endif
