/* SPDX-License-Identifier: Apache-2.0
 *
 * hot: see hot.h.
 */
#include "app/hot.h"

#include <pthread.h>
#include <stdlib.h>

enum {
        BUCKETS = 16 * 1024, /* a second of requests, mostly alone in theirs */
        ENTRIES_MAX = 16384,
        REPLY_BYTES_MAX = 64 * 1024,        /* larger replies are the store's */
        BYTES_MAX = 32 * 1024 * 1024,       /* all kept replies */
};

struct entry {
        struct command_id id;
        struct command_fingerprint fp;
        struct command_attempt attempt;
        bool finished;
        int64_t since_us, until_us;
        int status;
        bool tombstone;
        struct span headers, body; /* in one allocation behind this struct's */
        uint8_t *bytes;
        size_t byte_count;
        struct entry *chain;
        struct entry *older, *newer; /* all, by age */
};

struct hot {
        pthread_mutex_t lock;
        struct entry *buckets[BUCKETS];
        struct entry *oldest, *newest;
        size_t count, bytes;
        struct hot_inbox *inboxes;
};

struct hot *hot_new(void)
{
        struct hot *hot = calloc(1, sizeof *hot);
        if (hot)
                (void)pthread_mutex_init(&hot->lock, NULL);
        return hot;
}

static struct entry **bucket_of(struct hot *hot, const struct command_id *id)
{
        size_t h = (size_t)id->b[0] << 8 | id->b[1]; /* ids are digests */
        return &hot->buckets[h % BUCKETS];
}

static struct entry *find(struct hot *hot, const struct command_id *id)
{
        struct entry *e = *bucket_of(hot, id);
        while (e && !command_id_eq(&e->id, id))
                e = e->chain;
        return e;
}

static void drop(struct hot *hot, struct entry *e)
{
        struct entry **at = bucket_of(hot, &e->id);
        while (*at != e)
                at = &(*at)->chain;
        *at = e->chain;
        *(e->older ? &e->older->newer : &hot->oldest) = e->newer;
        *(e->newer ? &e->newer->older : &hot->newest) = e->older;
        hot->count--;
        hot->bytes -= e->byte_count;
        free(e->bytes);
        free(e);
}

/* A few that say nothing any more, with each new one: what is looked up stays in the CPU's caches. */
static void drop_stale(struct hot *hot, int64_t now_us)
{
        enum { A_FEW = 4 };
        for (int i = 0; i < A_FEW && hot->oldest && now_us >= hot->oldest->until_us; i++)
                drop(hot, hot->oldest);
}

/* The oldest go. */
static void make_room(struct hot *hot, size_t bytes)
{
        while (hot->oldest && (hot->count >= ENTRIES_MAX || hot->bytes + bytes > BYTES_MAX))
                drop(hot, hot->oldest);
}

static struct entry *insert(struct hot *hot, const struct command_id *id)
{
        struct entry *e = calloc(1, sizeof *e);
        if (!e)
                return NULL; /* then the store is asked */
        e->id = *id;
        struct entry **bucket = bucket_of(hot, id);
        e->chain = *bucket;
        *bucket = e;
        e->older = hot->newest;
        *(e->older ? &e->older->newer : &hot->oldest) = e;
        hot->newest = e;
        hot->count++;
        return e;
}

void hot_free(struct hot *hot)
{
        if (!hot)
                return;
        while (hot->oldest)
                drop(hot, hot->oldest);
        (void)pthread_mutex_destroy(&hot->lock);
        free(hot);
}

static enum hot_answer answer(const struct entry *e, int64_t now_us, int64_t *ret_held_us,
                              int64_t *ret_left_us, struct hot_reply *ret_reply)
{
        if (!e->finished) {
                *ret_held_us = now_us - e->since_us;
                *ret_left_us = e->until_us - now_us;
                return HOT_RUNNING;
        }
        if (buf_append_span(&ret_reply->headers, e->headers) != BUF_OK ||
            buf_append_span(&ret_reply->body, e->body) != BUF_OK) {
                buf_clear(&ret_reply->headers);
                buf_clear(&ret_reply->body);
                return HOT_ABSENT;
        }
        ret_reply->status = e->status;
        ret_reply->tombstone = e->tombstone;
        return HOT_FINISHED;
}

enum hot_answer hot_find(struct hot *hot, const struct command_id *id,
                         const struct command_fingerprint *fp, int64_t now_us,
                         int64_t *ret_held_us, int64_t *ret_left_us, struct hot_reply *ret_reply)
{
        enum hot_answer found = HOT_ABSENT;
        pthread_mutex_lock(&hot->lock);
        struct entry *e = find(hot, id);
        if (e && now_us >= e->until_us) {
                drop(hot, e);
                e = NULL;
        }
        if (e && memcmp(e->fp.b, fp->b, sizeof fp->b) == 0)
                found = answer(e, now_us, ret_held_us, ret_left_us, ret_reply);
        pthread_mutex_unlock(&hot->lock);
        return found;
}

void hot_running(struct hot *hot, const struct command_id *id,
                 const struct command_fingerprint *fp, const struct command_attempt *attempt,
                 int64_t now_us, int64_t deadline_us)
{
        pthread_mutex_lock(&hot->lock);
        struct entry *e = find(hot, id);
        if (e)
                drop(hot, e); /* what came before this claim is over */
        drop_stale(hot, now_us);
        make_room(hot, 0);
        e = insert(hot, id);
        if (e) {
                e->fp = *fp;
                e->attempt = *attempt;
                e->since_us = now_us;
                e->until_us = deadline_us;
        }
        pthread_mutex_unlock(&hot->lock);
}

/* -- waiting ------------------------------------------------------------------------------ */

static void tell(struct hot *hot, const struct command_id *id)
{
        for (struct hot_inbox *in = hot->inboxes; in; in = in->next) {
                if (in->waiting == 0)
                        continue;
                if (in->count < HOT_INBOX_MAX)
                        in->ids[in->count++] = *id;
                else
                        in->overflow = true;
                in->wake(in->arg);
        }
}

static void keep_reply(struct entry *e, int status, bool tombstone, struct span headers,
                       struct span body)
{
        e->bytes = malloc(headers.n + body.n + 1);
        if (!e->bytes) {
                e->until_us = 0;
                return;
        }
        if (headers.n > 0)
                memcpy(e->bytes, headers.p, headers.n);
        if (body.n > 0)
                memcpy(e->bytes + headers.n, body.p, body.n);
        e->headers = span_of(e->bytes, headers.n);
        e->body = span_of(e->bytes + headers.n, body.n);
        e->byte_count = headers.n + body.n;
        e->status = status;
        e->tombstone = tombstone;
        e->finished = true;
}

void hot_finished(struct hot *hot, const struct command_id *id,
                  const struct command_fingerprint *fp, const struct command_attempt *attempt,
                  int64_t until_us, int status, bool tombstone, struct span headers,
                  struct span body)
{
        pthread_mutex_lock(&hot->lock);
        struct entry *e = find(hot, id);
        /* Somebody else's claim of this key is none of ours to end. */
        bool ours = !e || command_attempt_eq(&e->attempt, attempt);
        if (e && ours)
                drop(hot, e);
        if (ours && headers.n + body.n <= REPLY_BYTES_MAX) {
                make_room(hot, headers.n + body.n);
                e = insert(hot, id);
                if (e) {
                        e->fp = *fp;
                        e->attempt = *attempt;
                        e->until_us = until_us;
                        keep_reply(e, status, tombstone, headers, body);
                        hot->bytes += e->byte_count;
                }
        }
        tell(hot, id);
        pthread_mutex_unlock(&hot->lock);
}

void hot_ended(struct hot *hot, const struct command_id *id,
               const struct command_attempt *attempt)
{
        pthread_mutex_lock(&hot->lock);
        struct entry *e = find(hot, id);
        if (e && command_attempt_eq(&e->attempt, attempt))
                drop(hot, e);
        tell(hot, id);
        pthread_mutex_unlock(&hot->lock);
}

void hot_listen(struct hot *hot, struct hot_inbox *inbox)
{
        pthread_mutex_lock(&hot->lock);
        inbox->next = hot->inboxes;
        hot->inboxes = inbox;
        pthread_mutex_unlock(&hot->lock);
}

void hot_unlisten(struct hot *hot, struct hot_inbox *inbox)
{
        pthread_mutex_lock(&hot->lock);
        struct hot_inbox **at = &hot->inboxes;
        while (*at && *at != inbox)
                at = &(*at)->next;
        if (*at)
                *at = inbox->next;
        pthread_mutex_unlock(&hot->lock);
}

void hot_inbox_waiting(struct hot *hot, struct hot_inbox *inbox, int delta)
{
        pthread_mutex_lock(&hot->lock);
        inbox->waiting = (size_t)((int64_t)inbox->waiting + delta);
        pthread_mutex_unlock(&hot->lock);
}

int hot_inbox_take(struct hot *hot, struct hot_inbox *inbox, struct command_id *ids)
{
        pthread_mutex_lock(&hot->lock);
        int n = inbox->overflow ? -1 : (int)inbox->count;
        memcpy(ids, inbox->ids, inbox->count * sizeof ids[0]);
        inbox->count = 0;
        inbox->overflow = false;
        pthread_mutex_unlock(&hot->lock);
        return n;
}
