/* SPDX-License-Identifier: Apache-2.0
 *
 * uuid: ids of sellers and products (RFC 9562, version 7: they sort by time, so new rows of an
 * index land side by side and a list by id is a list by age).
 */
#ifndef SHOP_UUID_H
#define SHOP_UUID_H

#include <stdbool.h>
#include <stdint.h>

enum { UUID_TEXT_BYTES = 37 };

/* Microseconds since 1970, by this host's clock: for people, nothing is decided by it. */
int64_t now_us(void);

/* A new id.  false when the kernel gives no random bytes. */
bool uuid_make(char ret[UUID_TEXT_BYTES]);

/* Is it a UUID?  ret gets the lower-case form; it may be `text` itself. */
bool uuid_parse(const char *text, char ret[UUID_TEXT_BYTES]);

#endif
