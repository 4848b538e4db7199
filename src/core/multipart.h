/* SPDX-License-Identifier: Apache-2.0
 *
 * multipart: a multipart body (RFC 2046) as its parts, without the boundary, which every HTTP
 * library draws anew for each request: a retry of the same upload is then the same request (H57).
 *
 * Each part gives, in this order: its header lines as they came (name, file name and type are in
 * them), their length, its content, its length; and behind all parts their number.  The lengths are
 * 64 bits, big-endian, and stand behind what they measure, because it is streamed; read from the
 * end, no two lists of parts give the same bytes.
 *
 * Strict: text before the first or behind the last boundary, the boundary anywhere else than between
 * parts, or anything else that receivers could read differently, makes the body malformed, and the
 * caller compares its bytes.
 */
#ifndef CORE_MULTIPART_H
#define CORE_MULTIPART_H

#include "base/span.h"
#include "core/limits.h"

enum { MULTIPART_BOUNDARY_BYTES = 70 }; /* RFC 2046, 5.1.1 */

/* The boundary of a Content-Type `multipart/...; boundary=...`, as a part of the value (without
 * quotes).  false: not multipart, or no boundary that can be used. */
bool multipart_boundary(struct span content_type, struct span *ret_boundary);

struct multipart {
        void (*out)(void *arg, struct span piece); /* gets the framed parts */
        void *arg;

        /* its own */
        bool failed;
        int state;
        uint8_t delimiter[4 + MULTIPART_BOUNDARY_BYTES]; /* CR LF -- boundary */
        size_t delimiter_n;
        size_t matched; /* bytes of the delimiter that were just read */
        size_t dashed;  /* the same of the delimiter without its CR LF, wherever it stands */
        uint8_t fallback[2 + MULTIPART_BOUNDARY_BYTES]; /* Knuth, Morris, Pratt, for `dashed` */
        uint64_t parts, head_bytes, content_bytes;
};

/* boundary: 1 .. MULTIPART_BOUNDARY_BYTES bytes, copied. */
void multipart_init(struct multipart *mp, struct span boundary,
                    void (*out)(void *arg, struct span piece), void *arg);

/* false: malformed, from here on for ever; what went out has no meaning. */
bool multipart_feed(struct multipart *mp, struct span piece);

/* The body is over.  true: it was whole. */
bool multipart_end(struct multipart *mp);

#endif
