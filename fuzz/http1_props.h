/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_props: what must hold for any bytes that an HTTP/1.1 peer sends: the events do not depend on
 * how the bytes are cut; parse(write(parse(x))) = parse(x); what was written is written the same again.
 */
#ifndef FUZZ_HTTP1_PROPS_H
#define FUZZ_HTTP1_PROPS_H

#include "fuzz.h"

#include "http1_dump.h"

static inline void http1_props(struct span in, const char *methods, size_t first, size_t step)
{
        struct buf a, b;
        buf_init(&a, 1 << 20);
        buf_init(&b, 1 << 20);
        http1_dump(in, methods, in.n, 1, &a);
        http1_dump(in, methods, first, step, &b);
        need(span_eq(buf_span(&a), buf_span(&b)));

        struct buf copy, copy_again;
        buf_init(&copy, 1 << 20);
        buf_init(&copy_again, 1 << 20);
        buf_clear(&a);
        buf_clear(&b);
        http1_copy(in, methods, HTTP1_AS_READ, &copy);
        http1_dump_meaning(in, methods, HTTP1_AS_READ, &a);
        http1_dump_meaning(buf_span(&copy), methods, HTTP1_AS_WRITTEN, &b);
        need(span_eq(buf_span(&a), buf_span(&b)));
        http1_copy(buf_span(&copy), methods, HTTP1_AS_WRITTEN, &copy_again);
        need(span_eq(buf_span(&copy), buf_span(&copy_again)));
        buf_release(&a);
        buf_release(&b);
        buf_release(&copy);
        buf_release(&copy_again);
}

#endif
