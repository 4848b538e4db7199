/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream_conn: one connection to the upstream.
 *
 *     CONNECTING ---> BUSY <---> IDLE
 *           \           \          \
 *            +-----------+----------+---> CLOSED
 */
#ifndef NET_UPSTREAM_CONN_H
#define NET_UPSTREAM_CONN_H

#include "core/http1_write.h"
#include "net/message_buffers.h"
#include "net/sock.h"
#include "net/upstream.h"

enum { UPSTREAM_ADDRESSES_MAX = 8 };
#define UPSTREAM_NAME_KEPT_US (5 * INT64_C(1000000))
#define UPSTREAM_AVOID_US (10 * INT64_C(1000000))
#define UPSTREAM_IDLE_US (2 * INT64_C(1000000))

/* A slot of the addresses; it keeps its address as long as the name has it. */
struct upstream_address {
        struct sockaddr_storage at;
        bool known;               /* by the last lookup */
        int64_t avoided_until_us; /* it took no connection: others come first */
};

enum upstream_conn_state { UP_CONNECTING, UP_BUSY, UP_IDLE, UP_CLOSED };

struct upstream_conn {
        struct sock sock;
        struct upstream *up;
        struct upstream_conn *prev, *next; /* among the idle ones */
        struct upstream_conn *prev_all, *next_all;
        struct upstream_conn *next_unresolved;
        enum upstream_conn_state state;
        struct upstream_call *call;
        struct message_buffers *bufs; /* of one reply; an idle connection has none */
        struct deadline deadline;
        uv_connect_t connect;
        struct http1_writer writer;
        struct buf out;
        struct buf held; /* of the reply, while it is paused */
        bool in_event, paused, replied;
        int64_t connect_until_us;
        size_t address;  /* that is tried now: a slot */
        unsigned tried;  /* slots, as bits; 0: the name is not looked up yet */
        int64_t idle_us; /* how long it may be kept */
        uint64_t kept_turn; /* of the loop, when it became idle */
};

struct upstream {
        struct loop *loop;
        struct deadline_list *deadlines;
        struct upstream_config config;
        struct soon dispatch;
        struct upstream_conn *idle; /* the newest first */
        struct upstream_conn *all;
        size_t conn_count;
        struct upstream_call *first_waiting, *last_waiting;
        size_t waiting_count;
        struct upstream_call *turned_away; /* no room to wait: told in the next turn */
        bool freeing;

        /* where it is */
        bool numeric, looking_up;
        uv_getaddrinfo_t lookup;
        int64_t looked_up_us;
        struct upstream_address addresses[UPSTREAM_ADDRESSES_MAX];
        size_t next_address;
        struct upstream_conn *unresolved;
};

/* The pool, for connections. */
void upstream_resolve(struct upstream *up, struct upstream_conn *conn);
/* Connect to the next address that was not tried.  false: there is none. */
bool upstream_try_next(struct upstream *up, struct upstream_conn *conn);
size_t upstream_untried(const struct upstream *up, const struct upstream_conn *conn);
void upstream_forget_unresolved(struct upstream *up, struct upstream_conn *conn);
void upstream_dispatch(struct upstream *up);
void upstream_call_again(struct upstream_call *call);
void upstream_free_if_done(struct upstream *up);

/* Connections, for the pool. */
struct upstream_conn *upstream_conn_new(struct upstream *up); /* NULL: no memory */
/* until_us: of this address; then the next one is tried. */
void upstream_conn_connect(struct upstream_conn *conn, const struct sockaddr_storage *addr,
                           int64_t until_us);
void upstream_conn_failed(struct upstream_conn *conn, enum upstream_failure why, const char *text);
void upstream_conn_take(struct upstream_conn *conn); /* out of the idle ones */
/* Has the peer neither closed nor said anything?  The loop knows, if it has waited since. */
bool upstream_conn_is_usable(struct upstream_conn *conn);
static inline bool upstream_conn_is_watched(const struct upstream_conn *conn)
{
        return conn->sock.reading && loop_has_waited_since(conn->up->loop, conn->kept_turn);
}
void upstream_conn_serve(struct upstream_conn *conn, struct upstream_call *call);
void upstream_conn_abandon(struct upstream_conn *conn);
void upstream_conn_close(struct upstream_conn *conn);

#endif
