/* SPDX-License-Identifier: Apache-2.0
 *
 * identity: see identity.h.  The bytes framed here are stored as digests for years: any
 * change of the framing needs a new version tag.
 */
#include "core/identity.h"

static const char *const mode_names[COMMAND_MODES] = {
        [MODE_GATEWAY] = "gateway",
        [MODE_RUN] = "run",
        [MODE_TX] = "tx",
        [MODE_CALL] = "call",
};

const char *mode_name(enum command_mode mode)
{
        return (unsigned)mode < COMMAND_MODES ? mode_names[mode] : "?";
}

bool mode_parse(const char *name, enum command_mode *ret_mode)
{
        for (int i = 0; i < COMMAND_MODES; i++)
                if (strcmp(name, mode_names[i]) == 0) {
                        *ret_mode = (enum command_mode)i;
                        return true;
                }
        return false;
}

static void put_u64(const struct hash_sink *sink, uint64_t v)
{
        uint8_t be[8];
        for (int i = 0; i < 8; i++)
                be[i] = (uint8_t)(v >> (56 - 8 * i));
        sink->update(sink->arg, be, sizeof be);
}

static void put_bytes(const struct hash_sink *sink, struct span s)
{
        if (s.n > 0)
                sink->update(sink->arg, s.p, s.n);
}

static void put_field(const struct hash_sink *sink, struct span field)
{
        put_u64(sink, field.n);
        put_bytes(sink, field);
}

void identity_id(const struct hash_sink *sink, enum command_mode mode, struct span scope,
                 struct span principal, struct span key, struct command_id *ret_id)
{
        struct command_id id;
        sink->begin(sink->arg);
        put_field(sink, span_str("semel-id-1"));
        put_field(sink, span_str(mode_name(mode)));
        put_field(sink, scope);
        put_field(sink, principal);
        put_field(sink, key);
        sink->finish(sink->arg, id.b);
        *ret_id = id;
}

void fingerprint_begin(struct fingerprint *fp, const struct hash_sink *sink)
{
        *fp = (struct fingerprint){.sink = sink};
        sink->begin(sink->arg);
        put_field(sink, span_str("semel-fp-1"));
}

void fingerprint_field(struct fingerprint *fp, struct span field)
{
        put_field(fp->sink, field);
}

void fingerprint_body(struct fingerprint *fp, struct span piece)
{
        put_bytes(fp->sink, piece);
        fp->body_bytes += piece.n;
}

void fingerprint_end(struct fingerprint *fp, struct command_fingerprint *ret)
{
        struct command_fingerprint out;
        put_u64(fp->sink, fp->body_bytes);
        fp->sink->finish(fp->sink->arg, out.b);
        *ret = out;
}
