/* SPDX-License-Identifier: Apache-2.0
 *
 * relay_world_internal: what the world's database and broker share.
 */
#ifndef RELAY_WORLD_INTERNAL_H
#define RELAY_WORLD_INTERNAL_H

#include "core/limits.h"
#include "relay_world.h"
#include "sys/clock.h"

void world_db_register(void);
/* With the lock held. */
struct world_row *world_find(int64_t id);
void world_settled(struct world_row *row); /* it is marked, or was surely not written */
void world_broken(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
