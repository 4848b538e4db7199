/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on PostgreSQL, twice: with prepared statements and session settings, as
 * on a direct connection, and without, as through a pooler.  The server's clock cannot be
 * moved: rows are made older instead.
 */
#include "conformance.h"

#include <stdio.h>

#include "postgres_world.h"

struct target {
        const char *parameters;
        PGconn *pg;
};

static PGconn *db(struct target *t)
{
        if (!t->pg)
                t->pg = db_open();
        return t->pg;
}

static struct store *target_open(void *arg)
{
        return world_open(world_url_with(((struct target *)arg)->parameters));
}

static void target_reset(void *arg)
{
        db_exec(db(arg), "TRUNCATE semel.command, semel.audit");
}

static void target_advance(void *arg, int64_t us)
{
        db_exec(db(arg),
                "UPDATE semel.command SET lease_until = lease_until - i, "
                "claimed_at = claimed_at - i, request_until = request_until - i, "
                "expire_at = expire_at - i FROM (SELECT %lld * interval '1 microsecond') AS u(i)",
                (long long)us);
}

static void to_hex(struct span s, char *out)
{
        for (size_t i = 0; i < s.n; i++)
                (void)snprintf(out + 2 * i, 3, "%02x", s.p[i]);
}

static int target_audit_count(void *arg, const struct command_id *id, struct span reason,
                              struct span who)
{
        char hex[2 * COMMAND_ID_BYTES + 1];
        PGconn *pg = db(arg);
        char *quoted_reason = PQescapeLiteral(pg, (const char *)reason.p, reason.n);
        char *quoted_who = PQescapeLiteral(pg, (const char *)who.p, who.n);
        to_hex(span_of(id->b, sizeof id->b), hex);
        int n = (int)db_int(pg,
                            "SELECT count(*) FROM semel.audit WHERE command_id = '\\x%s' AND "
                            "reason = %s AND who = %s", hex, quoted_reason, quoted_who);
        PQfreemem(quoted_reason);
        PQfreemem(quoted_who);
        return n;
}

int main(int argc, char **argv)
{
        struct target direct = {"semel_prepare=on", NULL};
        struct target pooled = {"semel_prepare=off&semel_connections=2", NULL};
        const struct conformance_target like = {.open = target_open,
                                                .reset = target_reset,
                                                .advance = target_advance,
                                                .ages_rows = true,
                                                .slack_us = 10 * SECOND,
                                                .durable = true,
                                                .audit_count = target_audit_count};
        struct conformance_target targets[2] = {like, like};
        targets[0].name = "postgres";
        targets[0].arg = &direct;
        targets[1].name = "postgres_pooled";
        targets[1].arg = &pooled;
        world_fresh();
        int rc = conformance_main(targets, 2, argc, argv);
        PQfinish(direct.pg);
        PQfinish(pooled.pg);
        return rc;
}
