/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_internal: what the other files of this folder need of a loop.
 */
#ifndef NET_LOOP_INTERNAL_H
#define NET_LOOP_INTERNAL_H

#include <uv.h>

#include "net/loop.h"

uv_loop_t *loop_uv(struct loop *loop);

/* A close callback: frees what handle->data points to (the object that holds the handle). */
void loop_free_handle(uv_handle_t *handle);

#endif
