/* SPDX-License-Identifier: Apache-2.0
 *
 * worker: one thread of the gateway: its loop, listener, upstream pool and store.
 */
#ifndef APP_WORKER_H
#define APP_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "app/access_log.h"
#include "app/hot.h"
#include "app/metrics.h"
#include "app/store_probe.h"
#include "base/spares.h"
#include "core/gateway_config.h"
#include "net/http_server.h"
#include "net/upstream.h"
#include "sys/sha256.h"

/* What all workers share. */
struct gateway {
        const struct gateway_config *config;
        const char *store_url;
        /* of the settings, as far as there are descriptors for them; the second one of each worker */
        int64_t connections_max, upstream_connections_max;
        char holder[256];
        uint8_t fingerprint_secret[256];
        size_t fingerprint_secret_n;
        struct hot *hot;
        struct access_log *log;
        struct metrics metrics;
        atomic_int_fast64_t buffered_bytes; /* bodies in memory, of all workers */
        atomic_int_fast64_t waiters;
        atomic_bool draining;
};

struct request;
struct reading;

enum { WAIT_BUCKETS = 1024 };

struct worker {
        struct gateway *gw;
        pthread_t thread;
        struct loop *loop;
        struct deadline_list *deadlines;
        struct http_server *server;
        struct upstream *up;
        struct store *st;
        struct loop_store *ls;
        struct store_probe probe;
        struct sha256 *hash; /* of ids */
        uint8_t random[256]; /* for attempts; what is left of it */
        size_t random_left;
        struct hot_inbox inbox; /* ids whose waiters here are to look again */
        struct request *requests; /* all that live */
        struct request *waiting[WAIT_BUCKETS]; /* those that wait for a duplicate, by id */
        size_t request_count;
        struct spares spare_requests, spare_readings; /* memory for the next ones */
        uint64_t next_request_id;
        int number;
        bool started;
        enum { WORKER_RUNNING, WORKER_DRAINING, WORKER_CUTTING, WORKER_LAST, WORKER_ENDED } phase;
        struct timer *phase_timer;
        int64_t deadline_us; /* while draining */
        atomic_uint_fast64_t beats; /* see worker_beat() */
        atomic_int_fast64_t drain_until_us; /* from the main thread; 0: not yet */
        atomic_bool ended, cut;             /* for the main thread */
        atomic_int_fast64_t connections;    /* the same */
};

/* Made in the main thread; errors are told before any thread runs.
 * port  0: what the settings say; else the port that the first worker got. */
semel_code worker_new(struct gateway *gw, int number, uint16_t port, struct worker **ret_worker,
                      semel_error *err);
semel_code worker_start(struct worker *w, semel_error *err);
uint16_t worker_port(const struct worker *w);

/* From the main thread: begin to drain now; everything is over at deadline_us. */
void worker_drain(struct worker *w, int64_t deadline_us);
/* From the main thread: a number that has risen at the next call, if the worker's loop turns. */
uint64_t worker_beat(struct worker *w);
/* From the main thread: did the store answer, when it was asked last? */
bool worker_store_ok(struct worker *w);
/* Wait for the thread.  NULL is fine. */
void worker_join(struct worker *w);
/* Free what is not running.  NULL is fine. */
void worker_free(struct worker *w);

/* From requests: one less lives. */
void worker_request_ended(struct worker *w);

#endif
