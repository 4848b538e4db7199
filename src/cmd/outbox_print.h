/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_print: an outbox for people and for programs.
 */
#ifndef CMD_OUTBOX_PRINT_H
#define CMD_OUTBOX_PRINT_H

#include <stdio.h>

#include "api/registry.h" /* the store's interfaces */

struct outbox_status {
        struct outbox_view view;
        struct outbox_stats stats;
        const struct outbox_blocked *blocked;
        size_t blocked_count;
        bool blocked_more; /* than these */
};

void outbox_print_status(FILE *out, const struct outbox_status *st);
/* One object a line: {"kind": "outbox"}, then "count", "blocked", "slot". */
void outbox_print_status_json(FILE *out, const struct outbox_status *st);

void outbox_print_dead_header(FILE *out);
void outbox_print_dead(FILE *out, const struct outbox_listed *row);
void outbox_print_dead_json(FILE *out, const struct outbox_listed *row);

#endif
