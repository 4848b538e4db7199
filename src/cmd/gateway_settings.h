/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway_settings: the settings of `semel gateway` as the command line gives them.
 */
#ifndef CMD_GATEWAY_SETTINGS_H
#define CMD_GATEWAY_SETTINGS_H

#include "cmd/options.h"
#include "core/gateway_config.h"

/* Defaults, then the file, the environment, the options.  false: said what is wrong. */
bool gateway_settings_read(const struct options *o, struct gateway_config *config);

#endif
