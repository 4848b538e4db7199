/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_mapping: see pg_outbox.h.
 */
#include <stdlib.h>

#include "store/postgres/pg_outbox.h"

semel_code pg_mapping_check(const struct outbox_mapping *mapping, semel_error *err)
{
        if ((mapping->preset && strcmp(mapping->preset, "semel") != 0) || mapping->table)
                return err_set(err, SEMEL_ERR_ARGUMENT, "only the preset semel is known here");
        return SEMEL_OK;
}

semel_code pg_mapping_load(struct pg_outbox *ob, int64_t deadline_us, semel_error *err)
{
        semel_code code = pg_outbox_connect(ob, deadline_us, err);
        if (code == SEMEL_OK)
                ob->mapped = true;
        return code;
}

void pg_mapping_release(struct pg_outbox *ob)
{
        for (int i = 0; i < OUTBOX_QUERIES; i++)
                free(ob->sql[i]);
        free((void *)(uintptr_t)ob->wanted.preset);
        free((void *)(uintptr_t)ob->wanted.table);
        free((void *)(uintptr_t)ob->wanted.topic);
}
