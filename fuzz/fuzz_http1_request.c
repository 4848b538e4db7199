/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests.  The input: where to cut first, the length of the later pieces, then the bytes.
 */
#include "http1_props.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        if (n >= 2)
                http1_props(span_of(p + 2, n - 2), NULL, p[0] + 1u, p[1] + 1u);
        return 0;
}
