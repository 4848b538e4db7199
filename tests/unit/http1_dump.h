/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_dump: what the parser says about some bytes, as one line of text: for tables, and to compare
 * one way of cutting the bytes with another.
 *
 *     POST /a 1.1 host=h length=5 keep {X: y} "hello" end
 *     200 1.1 chunked keep [OK] "..." !bad-chunk
 *
 * `Host: h` is not shown.  A body is shown in one piece.  After all bytes the peer closes: "!truncated"
 * when that was in the middle of something, nothing when it was between messages.
 */
#ifndef TESTS_HTTP1_DUMP_H
#define TESTS_HTTP1_DUMP_H

#include "base/buf.h"
#include "core/http1_parse.h"

/* Feed `in` in pieces: `first` bytes, then `step` bytes at a time.  methods: of the requests that
 * the replies answer, separated by commas; NULL: these are requests. */
void http1_dump(struct span in, const char *methods, size_t first, size_t step, struct buf *out);

/* What was written may be longer than what was read: `X:y` becomes `X: y`, and a header that frames
 * is added.  So a head of the largest size is written as one that is larger. */
enum http1_limits { HTTP1_AS_READ, HTTP1_AS_WRITTEN };

/* The same for what a message means: without the headers that frame, and only as far as messages
 * are complete. */
void http1_dump_meaning(struct span in, const char *methods, enum http1_limits limits,
                        struct buf *out);

/* Parse, and write every complete message again. */
void http1_copy(struct span in, const char *methods, enum http1_limits limits, struct buf *out);

#endif
