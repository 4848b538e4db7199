/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: the store of one process, for tests and for trying things out.  Nothing survives
 * the process.
 */
#ifndef STORE_MEMORY_H
#define STORE_MEMORY_H

#include "store/store.h"

extern const struct store_driver store_memory_driver;

#endif
