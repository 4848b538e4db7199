/* SPDX-License-Identifier: Apache-2.0
 *
 * access_log: one line a request, written by a thread of its own, so that a pipe that nobody
 * reads never stops a loop.  Bounded: lines that do not fit are dropped and counted.
 *
 * Keys appear as digests; no header, body, query or principal appears at all.
 */
#ifndef APP_ACCESS_LOG_H
#define APP_ACCESS_LOG_H

#include <semel/error.h>

#include "app/metrics.h"
#include "base/span.h"

struct access_log;

struct access_line {
        int64_t wall_us; /* when the head came */
        const char *peer;
        struct span method, path; /* the path without its query */
        int status;               /* 0: no reply was sent */
        enum outcome outcome;
        uint64_t request_id;
        int worker;
        const uint8_t *key_id; /* 32 bytes, or NULL: no key */
        const char *route;
        int64_t total_us, upstream_us; /* upstream_us < 0: it was not asked */
        uint64_t request_bytes, reply_bytes;
};

/* json: as JSON lines; else as text.  fd stays the caller's. */
struct access_log *access_log_new(int fd, bool json, struct metrics *m, semel_error *err);
/* Writes what is left (for at most a second) and frees.  NULL is fine. */
void access_log_free(struct access_log *log);
/* Any thread; never blocks.  NULL log: does nothing. */
void access_log_write(struct access_log *log, const struct access_line *line);

#endif
