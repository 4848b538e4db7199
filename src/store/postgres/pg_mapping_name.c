/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_mapping_name: which outbox a table is (rule C1).
 *
 * An outbox is a name in semel.relay_slot and its like.  It is the table's schema and name, never the
 * spelling: one table of two names would have two owners of each slot, and two tables of one name, which a
 * search_path finds, would share one set of slots.  It was the spelling once: names of then are moved by
 * what `semel migrate --for-table` prints.
 */
#include "sql_postgres.h"
#include "store/postgres/pg_outbox.h"

enum { WHAT_SAME = 1 }; /* outbox_names.sql; else: no table has that name */

semel_code pg_mapping_refuse(const char *table, const char *kind, semel_error *err)
{
        if (!*kind)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the name of the table %s has a ' in it: an outbox needs another name",
                               table);
        return err_set(err, SEMEL_ERR_SCHEMA,
                       "the table %s is %s, and the relay finds rows again by their place, which names one "
                       "row only in an ordinary table that no other inherits from: let events be written to "
                       "such a table", table, kind);
}

/* A name as people spell it: without the quotation marks around it and around its dot. */
static void spell(const char *name, char *ret, size_t n)
{
        size_t at = 0;
        for (const char *p = name; *p && at + 1 < n; p++) {
                if (*p != '"')
                        ret[at++] = *p;
                else if (p[1] == '"') /* one of its own, doubled */
                        ret[at++] = *p++;
        }
        ret[at] = 0;
}

semel_code pg_mapping_names_check(const struct pg_outbox *ob, const PGresult *names, bool has_slots,
                                  semel_error *err)
{
        char before[200];
        const char *preset = ob->wanted.preset, *unordered = ob->wanted.unordered ? " --unordered" : "";
        if (PQntuples(names) == 0)
                return SEMEL_OK;
        spell(PQgetvalue(names, 0, 0), before, sizeof before);
        bool same = pg_result_int(names, 0, 1) == WHAT_SAME;
        if (same && has_slots)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "semel.outbox_meta has the table %s twice, also under its name of before, "
                               "%s: stop the relays of both, and delete the rows of that name from "
                               "semel.outbox_meta, semel.relay_slot and semel.relay_member",
                               ob->shown, before);
        if (same)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the slots of the table %s have its name of before, %s: stop all relays and "
                               "run what `semel migrate --for-table %s --preset %s%s --renamed-from %s` "
                               "prints", ob->shown, before, ob->shown, preset, unordered, before);
        if (!has_slots)
                return err_set(err, SEMEL_ERR_SCHEMA,
                               "the table %s has no slots; run what `semel migrate --for-table %s --preset "
                               "%s%s` prints, with --renamed-from %s when that was its name: no table has "
                               "it any more", ob->shown, ob->shown, preset, unordered, before);
        return SEMEL_OK;
}

int pg_mapping_print_name(const char *table, const char *before, struct buf *out)
{
        int rc = BUF_OK;
        for (const char *p = sql_postgres_mapping_name; *p && rc == BUF_OK; p++) {
                if (p[0] == '$' && (p[1] == '1' || p[1] == '2'))
                        rc = buf_append_str(out, *++p == '1' ? table : before);
                else
                        rc = buf_append_byte(out, (uint8_t)*p);
        }
        return rc;
}
