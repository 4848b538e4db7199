/* SPDX-License-Identifier: Apache-2.0
 *
 * access_log: see access_log.h.
 */
#include "app/access_log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

enum { PENDING_BYTES_MAX = 4 * 1024 * 1024, PATH_BYTES_SHOWN = 200, LAST_WORDS_MS = 1000 };

struct access_log {
        pthread_mutex_t lock;
        pthread_cond_t more;
        pthread_t thread;
        struct buf pending, writing;
        struct metrics *metrics;
        int fd;
        bool json, stopping;
};

/* Write it all, or give up when the program ends and nobody takes it. */
static void write_all(struct access_log *log)
{
        size_t at = 0;
        while (at < log->writing.n) {
                ssize_t n = write(log->fd, log->writing.p + at, log->writing.n - at);
                if (n > 0) {
                        at += (size_t)n;
                        continue;
                }
                if (n < 0 && errno != EINTR && errno != EAGAIN)
                        return; /* closed: lines are lost, requests are not */
                pthread_mutex_lock(&log->lock);
                bool stopping = log->stopping;
                pthread_mutex_unlock(&log->lock);
                struct pollfd p = {.fd = log->fd, .events = POLLOUT};
                if (poll(&p, 1, LAST_WORDS_MS) == 0 && stopping)
                        return;
        }
}

static void *run(void *arg)
{
        struct access_log *log = arg;
        for (;;) {
                pthread_mutex_lock(&log->lock);
                while (log->pending.n == 0 && !log->stopping)
                        pthread_cond_wait(&log->more, &log->lock);
                struct buf empty = log->writing;
                log->writing = log->pending;
                log->pending = empty;
                buf_clear(&log->pending);
                bool over = log->writing.n == 0;
                pthread_mutex_unlock(&log->lock);
                if (over)
                        return NULL;
                write_all(log);
                buf_clear(&log->writing);
        }
}

struct access_log *access_log_new(int fd, bool json, struct metrics *m, semel_error *err)
{
        struct access_log *log = calloc(1, sizeof *log);
        if (!log) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the access log");
                return NULL;
        }
        log->fd = fd;
        log->json = json;
        log->metrics = m;
        buf_init(&log->pending, PENDING_BYTES_MAX);
        buf_init(&log->writing, PENDING_BYTES_MAX);
        (void)pthread_mutex_init(&log->lock, NULL);
        (void)pthread_cond_init(&log->more, NULL);
        int rc = pthread_create(&log->thread, NULL, run, log);
        if (rc != 0) {
                free(log);
                (void)err_set_errno(err, SEMEL_ERR_INTERNAL, rc, "no thread for the access log");
                return NULL;
        }
        return log;
}

void access_log_free(struct access_log *log)
{
        if (!log)
                return;
        pthread_mutex_lock(&log->lock);
        log->stopping = true;
        (void)pthread_cond_signal(&log->more);
        pthread_mutex_unlock(&log->lock);
        (void)pthread_join(log->thread, NULL);
        buf_release(&log->pending);
        buf_release(&log->writing);
        (void)pthread_cond_destroy(&log->more);
        (void)pthread_mutex_destroy(&log->lock);
        free(log);
}

/* What came from outside: printable ASCII stays, the rest is %XX, so that no line or JSON string can
 * be made to end (H45). */
static void clean(struct span s, char *out, size_t size)
{
        static const char hex[] = "0123456789ABCDEF";
        size_t n = 0;
        for (size_t i = 0; i < s.n && n + 4 < size; i++) {
                uint8_t c = s.p[i];
                if (c > 0x20 && c < 0x7f && c != '"' && c != '\\') {
                        out[n++] = (char)c;
                        continue;
                }
                out[n++] = '%';
                out[n++] = hex[c >> 4];
                out[n++] = hex[c & 15];
        }
        out[n] = 0;
}

static void key_text(const uint8_t *id, char out[17])
{
        if (!id) {
                (void)snprintf(out, 17, "-");
                return;
        }
        for (int i = 0; i < 8; i++)
                (void)snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static int format(struct access_log *log, const struct access_line *l, char *out, size_t size)
{
        char method[32], path[PATH_BYTES_SHOWN + 8], key[17], when[40];
        struct tm tm;
        time_t s = (time_t)(l->wall_us / 1000000);
        clean(l->method, method, sizeof method);
        clean(l->path, path, sizeof path);
        key_text(l->key_id, key);
        (void)gmtime_r(&s, &tm);
        size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
        (void)snprintf(when + n, sizeof when - n, ".%03dZ", (int)(l->wall_us / 1000 % 1000));
        double total_ms = (double)l->total_us / 1e3;
        double upstream_ms = l->upstream_us < 0 ? -1.0 : (double)l->upstream_us / 1e3;
        if (log->json)
                return snprintf(out, size,
                                "{\"time\":\"%s\",\"id\":\"%d-%llu\",\"peer\":\"%s\",\"method\":\"%s\","
                                "\"path\":\"%s\",\"route\":\"%s\",\"status\":%d,\"outcome\":\"%s\","
                                "\"key\":\"%s\",\"total_ms\":%.3f,\"upstream_ms\":%.3f,"
                                "\"request_bytes\":%llu,\"reply_bytes\":%llu}\n",
                                when, l->worker, (unsigned long long)l->request_id, l->peer, method,
                                path, l->route, l->status, outcome_name(l->outcome), key, total_ms,
                                upstream_ms, (unsigned long long)l->request_bytes,
                                (unsigned long long)l->reply_bytes);
        return snprintf(out, size, "%s %d-%llu %s %s %s %d %s key=%s %.1fms upstream=%.1fms %llu/%lluB\n",
                        when, l->worker, (unsigned long long)l->request_id, l->peer, method, path,
                        l->status, outcome_name(l->outcome), key, total_ms, upstream_ms,
                        (unsigned long long)l->request_bytes, (unsigned long long)l->reply_bytes);
}

void access_log_write(struct access_log *log, const struct access_line *line)
{
        char text[1024];
        if (!log)
                return;
        int n = format(log, line, text, sizeof text);
        if (n <= 0 || (size_t)n >= sizeof text)
                return;
        pthread_mutex_lock(&log->lock);
        bool was_empty = log->pending.n == 0;
        bool kept = buf_append(&log->pending, text, (size_t)n) == BUF_OK;
        if (kept && was_empty)
                (void)pthread_cond_signal(&log->more);
        pthread_mutex_unlock(&log->lock);
        if (!kept)
                metrics_count(log->metrics, COUNTER_LOG_DROPPED);
}
