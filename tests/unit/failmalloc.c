/* SPDX-License-Identifier: Apache-2.0
 *
 * failmalloc: see failmalloc.h.
 */
#include "failmalloc.h"

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int fail_at, count;

void failmalloc_arm(int n)
{
        fail_at = n;
        count = 0;
}

int failmalloc_count(void)
{
        return count;
}

static bool fails(void)
{
        return ++count == fail_at;
}

void *__wrap_malloc(size_t n)
{
        return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
        return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
        return fails() ? NULL : __real_realloc(p, n);
}
