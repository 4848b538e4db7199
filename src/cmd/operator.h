/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: who decides, and the times that people write.
 */
#ifndef CMD_OPERATOR_H
#define CMD_OPERATOR_H

#include "cmd/options.h"
#include "core/limits.h"
#include "sys/host.h"

/* --who, or user@host (sudo's user, since that is the person). */
const char *operator_name(const struct options *o, char *space /* LIMIT_HOLDER_BYTES + 1 */);

/* "2024-06-01T12:00:00Z", with an offset such as +02:00, a date alone (midnight UTC), or a duration
 * for so long ago.  false: none of these. */
bool when_parse(const char *text, int64_t now_us, int64_t *ret_us);

#endif
