/* SPDX-License-Identifier: Apache-2.0
 *
 * pointer: one value out of JSON text, by a JSON pointer (RFC 6901).
 */
#ifndef JSON_POINTER_H
#define JSON_POINTER_H

#include "base/buf.h"

/* Is it a pointer: "" or "/a/0/b", with ~0 for ~ and ~1 for /? */
bool json_pointer_is_valid(const char *pointer);

/* Append the value there: a string's own bytes, an integer in decimal.  0, or -1: it is no JSON, there is
 * nothing there, or something that is neither; nothing is appended then. */
int json_pointer_text(struct span json, const char *pointer, struct buf *out);

#endif
