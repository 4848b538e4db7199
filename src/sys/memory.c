/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: see memory.h.
 */
#include "sys/memory.h"

#include <limits.h>
#include <malloc.h>

void memory_keep_freed(size_t bytes)
{
#ifdef __GLIBC__
        int n = bytes < INT_MAX ? (int)bytes : INT_MAX;
        (void)mallopt(M_TRIM_THRESHOLD, n);
        (void)mallopt(M_MMAP_THRESHOLD, n);
#else
        (void)bytes;
#endif
}
