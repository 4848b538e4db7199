/* SPDX-License-Identifier: Apache-2.0
 *
 * failmalloc: the n-th allocation of a program fails, once.  The program is linked with
 * --wrap for malloc, calloc and realloc (tests/unit/meson.build).
 */
#ifndef TESTS_FAILMALLOC_H
#define TESTS_FAILMALLOC_H

/* Fail the n-th allocation from now, counted from 1; 0: none. */
void failmalloc_arm(int n);

/* Allocations since it was armed. */
int failmalloc_count(void);

#endif
