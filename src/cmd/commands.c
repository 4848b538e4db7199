/* SPDX-License-Identifier: Apache-2.0
 *
 * commands: the list of subcommands, in the order in which help and manual show them.
 */
#include "cmd/subcommand.h"

const struct subcommand *const subcommands[] = {
        &subcommand_gateway,
        &subcommand_run,
        &subcommand_call,
#ifdef SEMEL_KAFKA
        &subcommand_relay,
        &subcommand_consume,
#endif
        &subcommand_keys,
        &subcommand_outbox,
        &subcommand_inbox,
        &subcommand_migrate,
        &subcommand_config,
#ifdef SEMEL_KAFKA
        &subcommand_dev_broker,
#endif
        NULL,
};
