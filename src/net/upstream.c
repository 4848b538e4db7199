/* SPDX-License-Identifier: Apache-2.0
 *
 * upstream: see upstream.h.  The pool: who gets which connection, who waits, and name lookup.
 * What happens on a connection is in upstream_conn.c.
 */
#include "net/upstream.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>

#include "net/upstream_conn.h"

/* -- names ------------------------------------------------------------------------------------ */

static void lookup_done(struct upstream *up, const char *failure)
{
        up->looking_up = false;
        while (up->unresolved) {
                struct upstream_conn *conn = up->unresolved;
                up->unresolved = conn->next_unresolved;
                conn->next_unresolved = NULL;
                if (failure || !upstream_try_next(up, conn))
                        upstream_conn_failed(conn, UPSTREAM_UNREACHABLE,
                                             failure ? failure : "the name's lookup took too long");
        }
        upstream_free_if_done(up);
}

/* A connection that ends before its name was found. */
void upstream_forget_unresolved(struct upstream *up, struct upstream_conn *conn)
{
        struct upstream_conn **at = &up->unresolved;
        while (*at && *at != conn)
                at = &(*at)->next_unresolved;
        if (*at)
                *at = conn->next_unresolved;
}

size_t upstream_untried(const struct upstream *up, const struct upstream_conn *conn)
{
        size_t n = 0;
        for (size_t i = 0; i < UPSTREAM_ADDRESSES_MAX; i++)
                n += up->addresses[i].known && !(conn->tried & 1U << i);
        return n;
}

/* The slot that has this address, or NULL. */
static struct upstream_address *slot_of(struct upstream *up, const struct addrinfo *a)
{
        for (size_t i = 0; i < UPSTREAM_ADDRESSES_MAX; i++)
                if (a->ai_addrlen <= sizeof up->addresses[i].at &&
                    memcmp(&up->addresses[i].at, a->ai_addr, a->ai_addrlen) == 0)
                        return &up->addresses[i];
        return NULL;
}

static void add_address(struct upstream *up, const struct addrinfo *a)
{
        struct upstream_address *slot = up->addresses;
        struct upstream_address *end = slot + UPSTREAM_ADDRESSES_MAX;
        while (slot < end && slot->known)
                slot++;
        if (slot == end || slot_of(up, a) || a->ai_addrlen > sizeof slot->at)
                return;
        *slot = (struct upstream_address){.known = true};
        memcpy(&slot->at, a->ai_addr, a->ai_addrlen);
}

/* What is known of an address, and by whom it was tried, outlives a lookup. */
static void take_addresses(struct upstream *up, const struct addrinfo *list)
{
        for (size_t i = 0; i < UPSTREAM_ADDRESSES_MAX; i++)
                up->addresses[i].known = false;
        for (const struct addrinfo *a = list; a; a = a->ai_next) {
                struct upstream_address *slot = slot_of(up, a);
                if (slot)
                        slot->known = true;
        }
        for (const struct addrinfo *a = list; a; a = a->ai_next)
                add_address(up, a);
        up->looked_up_us = loop_now_us(up->loop);
}

static void on_addresses(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
        struct upstream *up = req->data;
        bool found = status == 0 && list;
        if (found)
                take_addresses(up, list);
        uv_freeaddrinfo(list);
        lookup_done(up, found ? NULL : "the upstream's name cannot be resolved");
}

/* They take turns; one that failed lately comes when no other is left. */
static struct upstream_address *next_address(struct upstream *up, unsigned tried)
{
        int64_t now_us = loop_now_us(up->loop);
        struct upstream_address *found = NULL;
        for (size_t i = 0; i < UPSTREAM_ADDRESSES_MAX; i++) {
                size_t at = (up->next_address + i) % UPSTREAM_ADDRESSES_MAX;
                struct upstream_address *a = &up->addresses[at];
                if (!a->known || tried & 1U << at)
                        continue;
                if (!found || a->avoided_until_us <= now_us)
                        found = a;
                if (a->avoided_until_us <= now_us)
                        break;
        }
        if (found)
                up->next_address = (size_t)(found - up->addresses) + 1;
        return found;
}

bool upstream_try_next(struct upstream *up, struct upstream_conn *conn)
{
        int64_t now_us = loop_now_us(up->loop);
        struct upstream_address *a = next_address(up, conn->tried);
        if (!a || now_us >= conn->connect_until_us)
                return false;
        /* One that does not answer leaves the others their share of the time. */
        int64_t share_us = (conn->connect_until_us - now_us) / (int64_t)upstream_untried(up, conn);
        conn->address = (size_t)(a - up->addresses);
        conn->tried |= 1U << conn->address;
        upstream_conn_connect(conn, &a->at, now_us + share_us);
        return true;
}

static int lookup(struct upstream *up)
{
        char port[8];
        const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        (void)snprintf(port, sizeof port, "%u", up->config.address.port);
        up->lookup.data = up;
        int rc = uv_getaddrinfo(loop_uv(up->loop), &up->lookup, on_addresses,
                                up->config.address.host, port, &hints);
        up->looking_up = rc == 0;
        return rc;
}

/* A numeric host is its own address; a name is looked up again when it was known for long, or
 * when connecting to what it gave failed. */
void upstream_resolve(struct upstream *up, struct upstream_conn *conn)
{
        bool fresh = up->numeric ||
                     (up->looked_up_us > 0 &&
                      loop_now_us(up->loop) - up->looked_up_us < UPSTREAM_NAME_KEPT_US);
        if (fresh && upstream_try_next(up, conn))
                return;
        conn->next_unresolved = up->unresolved;
        up->unresolved = conn;
        if (!up->looking_up && lookup(up) != 0)
                lookup_done(up, "the upstream's name cannot be looked up");
}

static void parse_numeric(struct upstream *up)
{
        const struct address *a = &up->config.address;
        struct sockaddr_storage *at = &up->addresses[0].at;
        up->numeric = a->is_unix ||
                      uv_ip4_addr(a->host, a->port, (struct sockaddr_in *)at) == 0 ||
                      uv_ip6_addr(a->host, a->port, (struct sockaddr_in6 *)at) == 0;
        up->addresses[0].known = up->numeric;
}

/* -- who waits ----------------------------------------------------------------------------------- */

static void wait_append(struct upstream *up, struct upstream_call *call)
{
        call->waiting = true;
        call->next = NULL;
        call->prev = up->last_waiting;
        *(up->last_waiting ? &up->last_waiting->next : &up->first_waiting) = call;
        up->last_waiting = call;
        up->waiting_count++;
        if (up->config.waiting)
                atomic_fetch_add(up->config.waiting, 1);
}

static void wait_remove(struct upstream *up, struct upstream_call *call)
{
        *(call->prev ? &call->prev->next : &up->first_waiting) = call->next;
        *(call->next ? &call->next->prev : &up->last_waiting) = call->prev;
        call->prev = call->next = NULL;
        call->waiting = false;
        up->waiting_count--;
        if (up->config.waiting)
                atomic_fetch_sub(up->config.waiting, 1);
}

/* No room to wait.  Told in the next turn: nothing is called back inside a start. */
static void turn_away(struct upstream *up, struct upstream_call *call)
{
        call->turned_away = true;
        call->next = up->turned_away;
        call->prev = NULL;
        if (call->next)
                call->next->prev = call;
        up->turned_away = call;
        loop_soon(up->loop, &up->dispatch);
}

static void away_remove(struct upstream *up, struct upstream_call *call)
{
        *(call->prev ? &call->prev->next : &up->turned_away) = call->next;
        if (call->next)
                call->next->prev = call->prev;
        call->prev = call->next = NULL;
        call->turned_away = false;
}

/* The newest of the kept ones; better one that the loop has watched since, for the others have to
 * be asked from the kernel. */
static struct upstream_conn *newest_kept(const struct upstream *up)
{
        enum { LOOK_AT = 8 };
        struct upstream_conn *conn = up->idle;
        for (int i = 0; conn && i < LOOK_AT; i++, conn = conn->next)
                if (upstream_conn_is_watched(conn))
                        return conn;
        return up->idle;
}

/* Give connections to those who wait: kept ones first, then new ones. */
static void on_dispatch(void *arg)
{
        struct upstream *up = arg;
        while (up->turned_away) {
                struct upstream_call *call = up->turned_away;
                away_remove(up, call);
                call->handler->failed(call, UPSTREAM_BUSY,
                                      "too many requests wait for a connection to the upstream");
        }
        while (up->first_waiting) {
                struct upstream_call *call = up->first_waiting;
                struct upstream_conn *conn = newest_kept(up);
                if (conn) {
                        upstream_conn_take(conn);
                        if (!upstream_conn_is_usable(conn)) {
                                upstream_conn_close(conn);
                                continue;
                        }
                } else if (up->conn_count < up->config.connections_max) {
                        conn = upstream_conn_new(up);
                }
                if (!conn) {
                        if (up->conn_count > 0)
                                return; /* one of them will be free, or closed */
                        wait_remove(up, call);
                        call->handler->failed(call, UPSTREAM_UNREACHABLE,
                                              "no memory for a connection to the upstream");
                        continue;
                }
                wait_remove(up, call);
                upstream_conn_serve(conn, call);
        }
}

void upstream_dispatch(struct upstream *up)
{
        if (up->first_waiting)
                loop_soon(up->loop, &up->dispatch);
}

void upstream_call_start(struct upstream *up, struct upstream_call *call,
                         const struct upstream_handler *handler, void *app)
{
        *call = (struct upstream_call){.handler = handler, .app = app, .up = up};
        /* Those who wait beyond the connections that may still be opened. */
        size_t open = up->config.connections_max - up->conn_count;
        if (up->waiting_count >= open + up->config.waiting_max) {
                turn_away(up, call);
                return;
        }
        wait_append(up, call);
        upstream_dispatch(up);
}

void upstream_call_again(struct upstream_call *call)
{
        call->conn = NULL;
        call->request_done = false;
        call->tries++;
        wait_append(call->up, call);
        upstream_dispatch(call->up);
}

void upstream_call_cancel(struct upstream_call *call)
{
        if (call->waiting)
                wait_remove(call->up, call);
        if (call->turned_away)
                away_remove(call->up, call);
        if (call->conn)
                upstream_conn_abandon(call->conn);
        call->conn = NULL;
}

/* -- life ------------------------------------------------------------------------------------------- */

struct upstream *upstream_new(struct loop *loop, struct deadline_list *deadlines,
                              const struct upstream_config *config)
{
        struct upstream *up = calloc(1, sizeof *up);
        if (!up)
                return NULL;
        up->loop = loop;
        up->deadlines = deadlines;
        up->config = *config;
        up->dispatch = (struct soon){.run = on_dispatch, .arg = up};
        parse_numeric(up);
        return up;
}

void upstream_free_if_done(struct upstream *up)
{
        if (!up->freeing || up->conn_count > 0 || up->looking_up)
                return;
        loop_not_soon(up->loop, &up->dispatch);
        free(up);
}

void upstream_free(struct upstream *up)
{
        if (!up)
                return;
        assert(!up->first_waiting && !up->turned_away);
        up->freeing = true;
        for (struct upstream_conn *conn = up->all, *next; conn; conn = next) {
                next = conn->next_all;
                assert(!conn->call);
                if (conn->state == UP_IDLE)
                        upstream_conn_take(conn);
                upstream_conn_close(conn);
        }
        upstream_free_if_done(up);
}

size_t upstream_connections(const struct upstream *up)
{
        return up->conn_count;
}

size_t upstream_waiting(const struct upstream *up)
{
        return up->waiting_count;
}
