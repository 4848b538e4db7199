# SPDX-License-Identifier: Apache-2.0
"""A running `semel gateway`, and clients that speak to it over plain sockets."""
import concurrent.futures
import contextlib
import http.client
import re
import socket

from .shop import Reply
from .wait import wait_until


class Gateway:
    def __init__(self, procs, binary, upstream_url, url, *options, wait=True, prefix=()):
        self.process = procs.start([*prefix, binary, 'gateway', '--listen', '127.0.0.1:0', '--upstream',
                                    upstream_url, '--db', url, '--admin', '127.0.0.1:0', *options])
        self.port = self.admin = 0
        if wait:
            self.wait_ready()

    def wait_ready(self):
        self.process.wait_log(r'admin on port \d+', timeout=20)
        self.port = int(re.search(r'listening on 127\.0\.0\.1:(\d+)', self.process.err()).group(1))
        self.admin = int(re.search(r'admin on port (\d+)', self.process.err()).group(1))

    def request(self, method, path, body=None, key=None, headers=(), timeout=60, host='shop.test'):
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        try:
            # One name for all gateways: the Host is part of a request's fingerprint.
            conn.putrequest(method, path, skip_host=True)
            conn.putheader('Host', host)
            if key is not None:
                conn.putheader('Idempotency-Key', key)
            for k, v in headers:
                conn.putheader(k, v)
            if body is not None:
                conn.putheader('Content-Length', str(len(body)))
            conn.endheaders(body)
            r = conn.getresponse()
            return Reply(r.status, r.getheaders(), r.read())
        finally:
            conn.close()

    def post(self, key=None, body=b'x=1', path='/orders', headers=(), timeout=60, host='shop.test'):
        return self.request('POST', path, body, key, headers, timeout, host)

    def post_parallel(self, n, *args, **kw):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            return [f.result() for f in [pool.submit(self.post, *args, **kw) for _ in range(n)]]

    def background(self, *args, **kw):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        future = pool.submit(self.post, *args, **kw)
        pool.shutdown(wait=False)
        return future

    @contextlib.contextmanager
    def leaving(self, key, body=b'x=1', fields=b''):
        """A client that sends a request, and is gone without its reply when the block ends; its socket."""
        with socket.create_connection(('127.0.0.1', self.port)) as s:
            s.sendall(b'POST /orders HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: %s\r\n%s'
                      b'Content-Length: %d\r\n\r\n%s' % (key.encode(), fields, len(body), body))
            yield s

    def raw(self, data, timeout=20, half_close=False):
        """Send bytes, return all that comes until the end of the connection."""
        with socket.create_connection(('127.0.0.1', self.port), timeout=timeout) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            out = b''
            while True:
                piece = s.recv(65536)
                if not piece:
                    return out
                out += piece

    def metric(self, name):
        conn = http.client.HTTPConnection('127.0.0.1', self.admin, timeout=10)
        conn.request('GET', '/metrics')
        text = conn.getresponse().read().decode()
        conn.close()
        found = re.search(r'^' + re.escape(name) + r' (\S+)$', text, re.M)
        assert found, f'{name} is not in\n{text}'
        return float(found.group(1))

    def outcome(self, name):
        return self.metric(f'semel_gateway_requests_total{{outcome="{name}"}}')

    def get_admin(self, path, headers={}):
        conn = http.client.HTTPConnection('127.0.0.1', self.admin, timeout=10)
        conn.request('GET', path, headers=headers)
        r = conn.getresponse()
        body = r.read()
        conn.close()
        return r.status, body

    def wait_quiet(self):
        """No request is under way any more."""
        wait_until(lambda: self.metric('semel_gateway_requests') == 0, timeout=30,
                   what='requests to end')
