/* SPDX-License-Identifier: Apache-2.0
 *
 * naive: what one writes by hand: the claim and the completion as two statements, each its own
 * transaction, prepared, on a connection per caller.  The rows carry the same columns as semel's.
 */
#ifndef BENCH_NAIVE_H
#define BENCH_NAIVE_H

#include <stdbool.h>
#include <stddef.h>

struct naive;

/* Make the table.  Ends the process when it cannot: this is a bench. */
void naive_prepare(const char *url);

struct naive *naive_open(const char *url);
void naive_close(struct naive *naive); /* NULL is fine */

/* One claim and one completion.  false: one of them failed. */
bool naive_command(struct naive *naive, const char *key, const void *body, size_t n);

#endif
