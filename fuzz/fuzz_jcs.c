/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON in canonical form: however the bytes are cut, one result; a canonical form is its own canonical
 * form; no number is written as one that reads differently.
 *
 * The input: where to cut first, the length of the later pieces, then the bytes.
 */
#include "fuzz.h"

#include "core/jcs.h"

static enum jcs_result run(struct jcs *j, struct span in, size_t first, size_t step)
{
        jcs_init(j, 1 << 20);
        for (size_t at = 0, n = first; at < in.n; at += n, n = step) {
                n = n < in.n - at ? n : in.n - at;
                (void)jcs_feed(j, span_of(in.p + at, n));
        }
        return jcs_end(j);
}

static void number(struct span in)
{
        char out[JCS_NUMBER_BYTES], again[JCS_NUMBER_BYTES], text[LIMIT_JSON_NUMBER_BYTES + 1];
        size_t n, m;
        bool inexact;
        if (jcs_number(in, out, &n, &inexact) != JCS_OK)
                return;
        need(n <= sizeof out);
        need(jcs_number(span_of(out, n), again, &m, &inexact) == JCS_OK);
        need(n == m && memcmp(out, again, n) == 0 && !inexact);
        memcpy(text, in.p, in.n);
        text[in.n] = 0;
        double v = strtod(text, NULL);
        memcpy(text, out, n);
        text[n] = 0;
        need(strtod(text, NULL) == v);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        if (n < 2)
                return 0;
        struct span in = span_of(p + 2, n - 2);
        struct jcs a, b;
        enum jcs_result ra = run(&a, in, in.n, 1), rb = run(&b, in, p[0] + 1u, p[1] + 1u);
        need(ra == rb && span_eq(buf_span(&a.out), buf_span(&b.out)) && a.inexact == b.inexact);
        jcs_release(&b);
        if (ra == JCS_OK) {
                need(run(&b, buf_span(&a.out), 7, 7) == JCS_OK);
                need(span_eq(buf_span(&a.out), buf_span(&b.out)) && !b.inexact);
                jcs_release(&b);
        }
        jcs_release(&a);
        number(in);
        return 0;
}
