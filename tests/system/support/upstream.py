# SPDX-License-Identifier: Apache-2.0
"""A service behind the gateway that counts what it did, and misbehaves as it is told.

It speaks HTTP over plain sockets, so that every byte of its answers is ours.  `plan` is a list of
behaviours for the next requests, in order; when it is empty they are answered well.  A behaviour
is a function (upstream, connection, request) -> keep the connection?
"""
import collections
import re
import socket
import struct
import threading
import time

REPLY = (b'HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nLink: <a>; rel=x\r\nLink: <b>\r\n'
         b'X-Empty:\r\nX-Latin: caf\xe9\r\nSet-Cookie: secret=1\r\nContent-Length: %d\r\n\r\n%s')

Request = collections.namedtuple('Request', 'method path headers body raw')


def reset(conn):
    """Close with a reset: what was not read is thrown away."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    conn.close()


class Upstream:
    def __init__(self, dedupes=False, host='127.0.0.1', port=0, tls=None):
        self.dedupes = dedupes
        self.tls = tls  # an ssl.SSLContext
        self.lock = threading.Condition()
        self.effects = collections.Counter()  # by key, or by path without one
        self.requests = []
        self.times = []        # of the requests (time.monotonic())
        self.plan = []
        self.struck = 0        # behaviours that were carried out
        self.replies = {}      # of a deduping upstream, by key
        self.running = set()   # keys of a deduping upstream that are being executed
        self.release = threading.Event()
        self.reached = threading.Event()  # a behaviour of when() has its request
        self.connections = []
        self.listener = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]
        self.url = f'{"https" if tls else "http"}://127.0.0.1:{self.port}'
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(conn)
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def close(self):
        self.release.set()
        self.listener.close()
        for conn in self.connections:
            conn.close()

    def total(self):
        with self.lock:
            return sum(self.effects.values())

    def next_behaviour(self):
        with self.lock:
            if not self.plan:
                return None
            return self.plan.pop(0)

    def serve(self, conn):
        try:
            if self.tls:
                conn = self.tls.wrap_socket(conn, server_side=True)
            while True:
                before = self.plan[0] if self.plan else None
                if getattr(before, 'before_reading', False):
                    self.next_behaviour()
                    self.struck += 1
                    before(self, conn, None)
                    return
                request = self.read(conn)
                if request is None:
                    return
                with self.lock:
                    self.requests.append(request)
                    self.times.append(time.monotonic())
                    self.lock.notify_all()
                behave = self.next_behaviour()
                if behave is None:
                    conn.sendall(self.answer(request))
                    continue
                self.struck += 1
                if not behave(self, conn, request):
                    return
        except OSError:
            pass
        finally:
            conn.close()

    @staticmethod
    def read(conn):
        data = b''
        while b'\r\n\r\n' not in data:
            piece = conn.recv(65536)
            if not piece:
                return None
            data += piece
        head, body = data.split(b'\r\n\r\n', 1)
        lines = head.split(b'\r\n')
        method, path, _ = lines[0].decode().split(' ')
        headers = [tuple(x.strip() for x in line.decode('latin-1').split(':', 1))
                   for line in lines[1:]]
        low = {k.lower(): v for k, v in headers}
        if low.get('transfer-encoding') == 'chunked':
            while not body.endswith(b'0\r\n\r\n'):
                piece = conn.recv(65536)
                if not piece:
                    return None
                body += piece
        else:
            while len(body) < int(low.get('content-length', 0)):
                piece = conn.recv(65536)
                if not piece:
                    return None
                body += piece
        return Request(method, path, headers, body, head + b'\r\n\r\n' + body)

    @staticmethod
    def key(request):
        low = {k.lower(): v for k, v in request.headers}
        return low.get('idempotency-key') or low.get('semel-key') or request.path

    def execute(self, request):
        """The effect, once per key when it dedupes; the reply's bytes."""
        key = self.key(request)
        with self.lock:
            if self.dedupes and key in self.replies:
                return self.replies[key]
            self.effects[key] += 1
            body = b'effect %d of %s\0\xff' % (self.effects[key], key.encode())
            reply = REPLY % (len(body), body)
            self.replies[key] = reply
            self.lock.notify_all()
        return reply

    def answer(self, request):
        if request.method == 'GET':
            body = b'hello'
            return b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n' + body
        return self.execute(request)


class Forever(list):
    """A plan that never ends."""

    def __init__(self, behaviour):
        super().__init__([behaviour])

    def pop(self, *_):
        return self[0]


# -- behaviours: what goes wrong, and whether the effect has happened by then ------------------------

def answers(raw, executes=False):
    """These very bytes."""
    def behave(up, conn, request):
        if executes:
            up.execute(request)
        conn.sendall(raw)
        return True
    return behave


def resets_after(n, executes):
    """Send the first n bytes of the reply (negative: all but -n), then reset."""
    def behave(up, conn, request):
        reply = up.execute(request) if executes else REPLY % (1, b'x')
        conn.sendall(reply[:n])
        # the bytes must be read before the reset throws them away
        if n:
            conn.shutdown(socket.SHUT_WR)
            conn.recv(1)
        reset(conn)
        return False
    return behave


def resets_before_reading(up, conn, request):
    """Accept, and reset without reading a byte of the request."""
    reset(conn)
    return False


resets_before_reading.before_reading = True


def resets_in_the_body(up, conn, request):
    """Read the head of the request only, then reset."""
    data = b''
    while b'\r\n\r\n' not in data:
        data += conn.recv(1)
    reset(conn)


resets_in_the_body.before_reading = True


def resets_after_request(part):
    """Read this part of the request (0: none of it, but wait until it comes; 1 byte; 0.5 of its body),
    then reset."""
    def behave(up, conn, request):
        conn.recv(1, socket.MSG_PEEK)
        data = conn.recv(1) if part else b''
        if 0 < part < 1:
            while b'\r\n\r\n' not in data:
                data += conn.recv(1)
            length = int(re.search(rb'Content-Length: (\d+)', data).group(1))
            left = int(length * part)
            while left > 0:
                left -= len(conn.recv(min(left, 65536)))
        up.read_of_request = len(data)
        reset(conn)
    behave.before_reading = True
    return behave


def when(event, behaviour):
    """The same, but only when something has happened."""
    early = getattr(behaviour, 'before_reading', False)

    def behave(up, conn, request):
        # A connection without a byte is not yet a request that may have been executed.
        assert not early or conn.recv(1, socket.MSG_PEEK), 'nothing came'
        up.reached.set()
        assert event.wait(30)
        return behaviour(up, conn, request)
    behave.before_reading = early
    return behave


def closes(executes):
    """Close without an answer."""
    def behave(up, conn, request):
        if executes:
            up.execute(request)
        return False
    return behave


def hangs(executes):
    """Answer only when it is released (too late)."""
    def behave(up, conn, request):
        reply = up.execute(request) if executes else None
        up.release.wait(60)
        if reply:
            conn.sendall(reply)
        return False
    return behave


def says_running_once(up, conn, request):
    """A deduping upstream whose first run goes on."""
    conn.sendall(b'HTTP/1.1 409 Conflict\r\nContent-Length: 7\r\n\r\nrunning')
    return True
