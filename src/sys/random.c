/* SPDX-License-Identifier: Apache-2.0
 *
 * random: see random.h.
 */
#include "sys/random.h"

#include <errno.h>
#include <sys/random.h>

int random_bytes(void *p, size_t n)
{
        for (;;) {
                ssize_t got = getrandom(p, n, 0);
                if (got == (ssize_t)n)
                        return 0;
                if (got < 0 && errno != EINTR)
                        return -1;
        }
}
