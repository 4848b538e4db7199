/* SPDX-License-Identifier: Apache-2.0
 *
 * random: bytes from the kernel.
 */
#ifndef SYS_RANDOM_H
#define SYS_RANDOM_H

#include <stddef.h>

/* Fill p with n unpredictable bytes (n up to 256).  Returns 0, or -1 with errno. */
int random_bytes(void *p, size_t n);

#endif
