/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: see utf8.h.
 */
#include "base/utf8.h"

#include <string.h>

size_t utf8_char(struct span s)
{
        uint8_t c = s.p[0], low = 0x80, high = 0xbf;
        size_t n;
        if (c < 0x80)
                return 1;
        if (c < 0xc2 || c > 0xf4)
                return 0;
        n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (c == 0xe0)
                low = 0xa0;
        else if (c == 0xed)
                high = 0x9f;
        else if (c == 0xf0)
                low = 0x90;
        else if (c == 0xf4)
                high = 0x8f;
        if (s.n < n || s.p[1] < low || s.p[1] > high)
                return 0;
        for (size_t i = 2; i < n; i++)
                if (s.p[i] < 0x80 || s.p[i] > 0xbf)
                        return 0;
        return n;
}

size_t utf8_copy(char *out, size_t max, struct span s)
{
        size_t at = 0;
        while (s.n > 0) {
                size_t n = s.p[0] ? utf8_char(s) : 0;
                if (at + (n ? n : 1) >= max)
                        break;
                if (n)
                        memcpy(out + at, s.p, n);
                else
                        out[at] = '?';
                n = n ? n : 1;
                at += n;
                s = span_of(s.p + n, s.n - n);
        }
        out[at] = '\0';
        return at;
}

bool utf8_valid(struct span s)
{
        while (s.n > 0) {
                size_t n = utf8_char(s);
                if (n == 0)
                        return false;
                s = span_of(s.p + n, s.n - n);
        }
        return true;
}
