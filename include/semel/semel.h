/* SPDX-License-Identifier: Apache-2.0
 *
 * semel/semel.h: everything of libsemel itself.  The database libraries have their own
 * headers: semel/sqlite.h, semel/postgres.h.
 *
 *     static semel_effect create(void *arg, semel_claim *claim, semel_reply *reply) { ... }
 *
 *     semel_command *cmd = semel_command_new(key, strlen(key), err);
 *     semel_command_set_request(cmd, body, body_len, err);
 *     switch (semel_run(st, cmd, create, &req, &reply, err)) {
 *     case SEMEL_RAN: case SEMEL_REPLAYED: send(reply); break;
 *     case SEMEL_IN_FLIGHT: send_409(); break;
 *     case SEMEL_MISMATCH: send_422(); break;
 *     ...
 */
#ifndef SEMEL_SEMEL_H
#define SEMEL_SEMEL_H

#include <semel/command.h>
#include <semel/error.h>
#include <semel/event.h>
#include <semel/key.h>
#include <semel/keys.h>
#include <semel/reply.h>
#include <semel/run.h>
#include <semel/store.h>

#endif
