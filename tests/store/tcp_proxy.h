/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_proxy: a bad network between a client and 127.0.0.1:PORT, in a thread of its own.
 *
 *     struct tcp_proxy *px = tcp_proxy_start(5432);   // connect to tcp_proxy_port(px)
 *     tcp_proxy_set(px, PROXY_LOSE_REPLIES);          // requests arrive, replies do not
 *     tcp_proxy_cut(px);                              // and now all connections break
 *     tcp_proxy_set(px, PROXY_PASS);
 *     tcp_proxy_stop(px);
 */
#ifndef TESTS_STORE_TCP_PROXY_H
#define TESTS_STORE_TCP_PROXY_H

enum proxy_mode {
        PROXY_PASS,
        PROXY_LOSE_REPLIES,  /* what the server sends is thrown away */
        PROXY_LOSE_REQUESTS, /* what the client sends is thrown away */
        PROXY_REFUSE,        /* new connections are closed at once */
};

struct tcp_proxy;

struct tcp_proxy *tcp_proxy_start(int server_port);
int tcp_proxy_port(const struct tcp_proxy *px);
void tcp_proxy_set(struct tcp_proxy *px, enum proxy_mode mode);
/* Break all connections.  Returns when they are closed. */
void tcp_proxy_cut(struct tcp_proxy *px);
/* Bytes of the server thrown away so far. */
long tcp_proxy_lost(const struct tcp_proxy *px);
/* Connections so far, without those that were refused. */
long tcp_proxy_accepted(const struct tcp_proxy *px);
void tcp_proxy_stop(struct tcp_proxy *px);

#endif
