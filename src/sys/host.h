/* SPDX-License-Identifier: Apache-2.0
 *
 * host: which machine and which boot of it this is.
 */
#ifndef SYS_HOST_H
#define SYS_HOST_H

enum { HOST_NAME_BYTES_MAX = 65, HOST_BOOT_BYTES_MAX = 37 };

/* The host's name without spaces; "?" when it has none. */
void host_name(char *ret /* HOST_NAME_BYTES_MAX */);

/* The kernel's id of this boot; "?" when /proc does not tell. */
void host_boot_id(char *ret /* HOST_BOOT_BYTES_MAX */);

#endif
