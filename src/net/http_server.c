/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server: see http_server.h.  The connections are in http_conn.c; here they are accepted,
 * counted and drained.
 */
#include "net/http_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "net/http_conn.h"

enum { LISTEN_BACKLOG = 4096 };

static void server_free_if_closed(struct http_server *server)
{
        if (server->listener_closed && server->freeing && server->conn_count == 0)
                free(server);
}

static void on_listener_closed(uv_handle_t *handle)
{
        struct http_server *server = handle->data;
        server->listener_closed = true;
        server_free_if_closed(server);
}

void http_server_conn_closed(struct http_server *server, struct http_conn *conn)
{
        *(conn->prev ? &conn->prev->next : &server->conns) = conn->next;
        if (conn->next)
                conn->next->prev = conn->prev;
        server->conn_count--;
        if (server->config.connections)
                atomic_fetch_sub(server->config.connections, 1);
        server_free_if_closed(server);
}

/* -- accepting ----------------------------------------------------------------------------- */

static void on_turned_away(uv_handle_t *handle)
{
        struct http_server *server = handle->data;
        server->away_busy = false;
}

/* No memory: accept and close, without a byte of the heap.  libuv does not listen any further while
 * one that it accepted is not taken. */
static void turn_away(struct http_server *server, uv_stream_t *listener)
{
        static _Thread_local union {
                uv_handle_t handle;
                uv_stream_t stream;
                uv_tcp_t tcp;
                uv_pipe_t pipe;
        } away;
        if (server->away_busy)
                return;
        int rc = server->config.listen.is_unix
                         ? uv_pipe_init(loop_uv(server->loop), &away.pipe, 0)
                         : uv_tcp_init(loop_uv(server->loop), &away.tcp);
        if (rc != 0)
                return;
        away.handle.data = server;
        server->away_busy = true;
        (void)uv_accept(listener, &away.stream);
        uv_close(&away.handle, on_turned_away);
}

static void on_connection(uv_stream_t *listener, int status)
{
        struct http_server *server = listener->data;
        if (status != 0)
                return; /* out of descriptors, or the client is gone: nothing to hold on to */
        struct http_conn *conn = http_conn_new(server);
        if (!conn) {
                turn_away(server, listener);
                return;
        }
        if (uv_accept(listener, &conn->sock.uv.stream) != 0) {
                sock_close(&conn->sock);
                return;
        }
        if (server->conn_count > server->config.connections_max || server->draining) {
                sock_close(&conn->sock);
                return;
        }
        http_conn_start(conn);
}

/* A socket file that nobody listens on any more is removed; one that is in use is not. */
static int remove_stale_socket(const char *path)
{
        struct stat sb;
        if (stat(path, &sb) != 0 || !S_ISSOCK(sb.st_mode))
                return 0;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
        int rc = connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0 ? 0 : errno;
        (void)close(fd);
        if (rc != ECONNREFUSED) /* EAGAIN: its owner lives, and is busy */
                return rc == 0 || rc == EAGAIN ? -EADDRINUSE : -rc;
        return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
}

static int bind_unix(struct http_server *server)
{
        const char *path = server->config.listen.path;
        int rc = uv_pipe_init(loop_uv(server->loop), &server->listener.pipe, 0);
        if (rc != 0)
                return rc;
        server->listener.handle.data = server;
        server->listener_open = true;
        rc = remove_stale_socket(path);
        return rc != 0 ? rc : uv_pipe_bind(&server->listener.pipe, path);
}

/* An empty host is every interface, IPv4 too where IPv6 is there. */
static int resolve(const struct address *a, struct sockaddr_storage *ret)
{
        const char *host = a->host[0] ? a->host : "::";
        if (strcmp(host, "localhost") == 0)
                host = "127.0.0.1";
        if (uv_ip4_addr(host, a->port, (struct sockaddr_in *)ret) == 0)
                return 0;
        return uv_ip6_addr(host, a->port, (struct sockaddr_in6 *)ret);
}

static int set_reuse_port(struct http_server *server)
{
        uv_os_fd_t fd;
        const int on = 1;
        int rc = uv_fileno(&server->listener.handle, &fd);
        if (rc == 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0)
                rc = -errno;
        return rc;
}

static int bind_tcp(struct http_server *server)
{
        struct sockaddr_storage addr = {0};
        int rc = resolve(&server->config.listen, &addr);
        if (rc != 0)
                return rc;
        rc = uv_tcp_init_ex(loop_uv(server->loop), &server->listener.tcp,
                            (unsigned)addr.ss_family);
        if (rc != 0)
                return rc;
        server->listener.handle.data = server;
        server->listener_open = true;
        if (server->config.reuse_port)
                rc = set_reuse_port(server);
        if (rc == 0) /* accepted connections inherit it */
                rc = uv_tcp_nodelay(&server->listener.tcp, 1);
        if (rc == 0)
                rc = uv_tcp_bind(&server->listener.tcp, (struct sockaddr *)&addr, 0);
        if ((rc == UV_EAFNOSUPPORT || rc == UV_EADDRNOTAVAIL) && !server->config.listen.host[0]) {
                /* A machine without IPv6. */
                (void)uv_ip4_addr("0.0.0.0", server->config.listen.port,
                                  (struct sockaddr_in *)&addr);
                rc = uv_tcp_bind(&server->listener.tcp, (struct sockaddr *)&addr, 0);
        }
        return rc;
}

static uint16_t port_of(const struct http_server *server)
{
        struct sockaddr_storage addr;
        int n = sizeof addr;
        if (server->config.listen.is_unix ||
            uv_tcp_getsockname(&server->listener.tcp, (struct sockaddr *)&addr, &n) != 0)
                return 0;
        return ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                : ((struct sockaddr_in *)&addr)->sin_port);
}

semel_code http_server_new(struct loop *loop, struct deadline_list *deadlines,
                           const struct http_server_config *config,
                           const struct http_handler *handler, struct http_server **ret_server,
                           semel_error *err)
{
        struct http_server *server = calloc(1, sizeof *server);
        if (!server)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a listener");
        server->loop = loop;
        server->deadlines = deadlines;
        server->config = *config;
        server->handler = *handler;
        int rc = config->listen.is_unix ? bind_unix(server) : bind_tcp(server);
        if (rc == 0)
                rc = uv_listen(&server->listener.stream, LISTEN_BACKLOG, on_connection);
        if (rc == 0) {
                server->port = port_of(server);
                *ret_server = server;
                return SEMEL_OK;
        }
        char text[ADDRESS_HOST_BYTES + 16];
        address_format(&config->listen, text, sizeof text);
        (void)err_set_errno(err, SEMEL_ERR_ARGUMENT, -rc, "cannot listen on %s", text);
        if (server->listener_open) {
                server->freeing = true;
                uv_close(&server->listener.handle, on_listener_closed);
        } else {
                free(server);
        }
        return SEMEL_ERR_ARGUMENT;
}

uint16_t http_server_port(const struct http_server *server)
{
        return server->port;
}

size_t http_server_connections(const struct http_server *server)
{
        return server->conn_count;
}

bool http_server_has_backlog(const struct http_server *server)
{
        for (const struct http_conn *conn = server->conns; conn; conn = conn->next)
                if (conn->state != CONN_CLOSED && sock_backlog(&conn->sock) > 0)
                        return true;
        return false;
}

static void stop_listening(struct http_server *server)
{
        if (!server->listener_open)
                return;
        server->listener_open = false;
        uv_close(&server->listener.handle, on_listener_closed);
}

void http_server_drain(struct http_server *server)
{
        server->draining = true;
        stop_listening(server);
        for (struct http_conn *conn = server->conns, *next; conn; conn = next) {
                next = conn->next;
                http_conn_drain(conn);
        }
}

void http_server_free(struct http_server *server)
{
        if (!server)
                return;
        server->freeing = server->draining = true;
        stop_listening(server);
        for (struct http_conn *conn = server->conns, *next; conn; conn = next) {
                next = conn->next;
                http_conn_abort(conn);
        }
        server_free_if_closed(server);
}
