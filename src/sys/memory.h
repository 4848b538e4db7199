/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: what the process does with memory that was freed.
 */
#ifndef SYS_MEMORY_H
#define SYS_MEMORY_H

#include <stddef.h>

/* Keep up to about `bytes` of freed memory for each thread that allocates, and map nothing apart that is
 * smaller: for a program whose batches come and go, which otherwise gives each batch's memory back to the
 * kernel and gets it page by page again (measured: a fifth of the relay's CPU).  To be called before
 * threads are started.  Where the C library has no such settings nothing happens. */
void memory_keep_freed(size_t bytes);

#endif
