/* SPDX-License-Identifier: Apache-2.0
 *
 * sha256: see sha256.h.
 *
 * A sink cannot report failure, so all memory is taken in sha256_new(): a context that was
 * initialised once is reset without allocation.  That is also why HMAC is put together here from
 * the plain hash (RFC 2104, twelve lines): OpenSSL's own copies a context at each reset.
 */
#include "sys/sha256.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 };

struct sha256 {
        struct hash_sink sink;
        EVP_MD_CTX *ctx;
        bool keyed;
        size_t pending_n;             /* small pieces are gathered: a call of OpenSSL costs as much
                                       * as a block */
        uint8_t pending[2 * BLOCK_BYTES];
        uint8_t inner[BLOCK_BYTES]; /* key ^ ipad */
        uint8_t outer[BLOCK_BYTES]; /* key ^ opad */
};

/* SHA-256 itself, looked up once in a process: looking it up takes longer than hashing a key.
 * Lives as long as the process.  NULL: no memory, and the next caller tries again. */
static const EVP_MD *algorithm(void)
{
        static EVP_MD *_Atomic shared;
        EVP_MD *md = atomic_load_explicit(&shared, memory_order_acquire);
        if (md)
                return md;
        EVP_MD *fetched = EVP_MD_fetch(NULL, "SHA256", NULL);
        if (!fetched || atomic_compare_exchange_strong(&shared, &md, fetched))
                return fetched;
        EVP_MD_free(fetched); /* another thread was first */
        return md;
}

static void begin(void *arg)
{
        struct sha256 *h = arg;
        h->pending_n = 0;
        int ok = EVP_DigestInit_ex(h->ctx, NULL, NULL);
        assert(ok == 1);
        if (h->keyed)
                ok = EVP_DigestUpdate(h->ctx, h->inner, sizeof h->inner);
        assert(ok == 1);
        (void)ok;
}

static void flush(struct sha256 *h)
{
        int ok = EVP_DigestUpdate(h->ctx, h->pending, h->pending_n);
        assert(ok == 1);
        (void)ok;
        h->pending_n = 0;
}

static void update(void *arg, const void *p, size_t n)
{
        struct sha256 *h = arg;
        if (n > sizeof h->pending - h->pending_n)
                flush(h);
        if (n <= sizeof h->pending) {
                if (n > 0)
                        memcpy(h->pending + h->pending_n, p, n);
                h->pending_n += n;
                return;
        }
        int ok = EVP_DigestUpdate(h->ctx, p, n);
        assert(ok == 1);
        (void)ok;
}

static void finish(void *arg, uint8_t *ret_32)
{
        struct sha256 *h = arg;
        uint8_t out[HASH_BYTES];
        flush(h);
        int ok = EVP_DigestFinal_ex(h->ctx, out, NULL);
        if (h->keyed)
                ok = ok == 1 && EVP_DigestInit_ex(h->ctx, NULL, NULL) == 1 &&
                     EVP_DigestUpdate(h->ctx, h->outer, sizeof h->outer) == 1 &&
                     EVP_DigestUpdate(h->ctx, out, sizeof out) == 1 &&
                     EVP_DigestFinal_ex(h->ctx, out, NULL) == 1;
        assert(ok == 1);
        (void)ok;
        memcpy(ret_32, out, sizeof out);
}

static bool set_secret(struct sha256 *h, const void *secret, size_t n)
{
        uint8_t key[BLOCK_BYTES] = {0};
        if (n > sizeof key) {
                if (sha256_once(secret, n, key) != 0)
                        return false;
        } else {
                memcpy(key, secret, n);
        }
        for (size_t i = 0; i < sizeof key; i++) {
                h->inner[i] = key[i] ^ 0x36;
                h->outer[i] = key[i] ^ 0x5c;
        }
        h->keyed = true;
        OPENSSL_cleanse(key, sizeof key);
        return true;
}

struct sha256 *sha256_new(const void *secret, size_t n)
{
        struct sha256 *h = calloc(1, sizeof *h);
        if (!h)
                return NULL;
        h->sink = (struct hash_sink){begin, update, finish, h};
        const EVP_MD *md = algorithm();
        h->ctx = EVP_MD_CTX_new();
        if (!md || !h->ctx || EVP_DigestInit_ex(h->ctx, md, NULL) != 1 ||
            (n > 0 && !set_secret(h, secret, n))) {
                sha256_free(h);
                return NULL;
        }
        return h;
}

void sha256_free(struct sha256 *h)
{
        if (!h)
                return;
        EVP_MD_CTX_free(h->ctx);
        OPENSSL_cleanse(h, sizeof *h);
        free(h);
}

const struct hash_sink *sha256_sink(struct sha256 *h)
{
        return &h->sink;
}

int sha256_once(const void *p, size_t n, uint8_t *ret_32)
{
        const EVP_MD *md = algorithm();
        return md && EVP_Digest(p, n, ret_32, NULL, md, NULL) == 1 ? 0 : -1;
}
