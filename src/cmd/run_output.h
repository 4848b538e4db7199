/* SPDX-License-Identifier: Apache-2.0
 *
 * run_output: what a command wrote, as the body of a kept reply: stdout and stderr in the
 * order in which they came.
 *
 *     frame: 'o' or 'e', length as u32 big-endian, bytes
 *
 * A reply whose body is this says so in its Content-Type; any other body (one that an
 * operator gave) is plain stdout.
 */
#ifndef CMD_RUN_OUTPUT_H
#define CMD_RUN_OUTPUT_H

#include <semel/reply.h>

#include "base/buf.h"

#define RUN_OUTPUT_TYPE "application/x-semel-run-output"

enum run_stream { RUN_STDOUT = 'o', RUN_STDERR = 'e' };

struct run_output {
        struct buf body;
        size_t frame_at; /* where the last frame begins */
        bool too_big;    /* nothing is kept any more */
};

void run_output_init(struct run_output *out, size_t bytes_max);
void run_output_release(struct run_output *out);

/* Append; beyond the maximum (or without memory) everything is dropped and too_big set. */
void run_output_add(struct run_output *out, enum run_stream stream, struct span bytes);

struct run_cursor {
        struct span rest;
};

/* Is this reply's body such output?  *ret_bytes: how many bytes the command (or whoever made
 * the reply) wrote. */
bool run_output_view(const semel_reply *rep, size_t *ret_bytes);

/* 1: a piece; 0: the end; -1: the bytes are corrupt. */
int run_output_next(struct run_cursor *cur, enum run_stream *ret_stream, struct span *ret_bytes);

#endif
