# SPDX-License-Identifier: Apache-2.0
"""Our reading of HTTP/1.1 requests beside nginx's reading of the same bytes.

Every line of tests/data/http1_requests.txt, and many broken copies of them, go to a real nginx that
passes on what it understood; the same bytes go through our parser.  We may refuse what nginx accepts.
We must never read another request, another body, or one request more than nginx does: that is what
request smuggling is made of.
"""
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading

import pytest

from ports import free_port
from support import wait_until
from support.binaries import ROOT

sys.path.insert(0, str(ROOT / 'fuzz'))
from seeds import rows  # noqa: E402

CONFIG = """
daemon off;
worker_processes 1;
error_log {tmp}/error.log;
pid {tmp}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {tmp}/body;
    proxy_temp_path {tmp}/proxy;
    fastcgi_temp_path {tmp}/fastcgi;
    uwsgi_temp_path {tmp}/uwsgi;
    scgi_temp_path {tmp}/scgi;
    client_header_timeout 1s;
    client_body_timeout 1s;
    keepalive_timeout 1s;
    lingering_close off;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_set_header X-Client-Port $remote_port;
        }}
    }}
}}
"""


class Recorder(socketserver.ThreadingTCPServer):
    """The upstream behind nginx: keeps what came, by the port of nginx's client."""
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Upstream)
        self.seen = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Upstream(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline()
        method, target, _ = line.rstrip(b'\r\n').split(b' ')
        headers = {}
        while (h := self.rfile.readline().rstrip(b'\r\n')):
            name, value = h.split(b':', 1)
            headers[name.lower()] = value.strip()
        assert b'transfer-encoding' not in headers, 'nginx buffers requests'
        body = self.rfile.read(int(headers.get(b'content-length', 0)))
        self.server.seen.setdefault(int(headers[b'x-client-port']), []).append((method, target, body))
        self.wfile.write(b'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n')


@pytest.fixture
def nginx(tmp, procs):
    program = shutil.which('nginx', path=os.environ['PATH'] + ':/usr/sbin')
    assert program, 'nginx is missing: tools/setup test'
    port, upstream = free_port(), Recorder()
    config = tmp / 'nginx.conf'
    config.write_text(CONFIG.format(tmp=tmp, port=port, upstream=upstream.server_address[1]))
    procs.start([program, '-e', tmp / 'start.log', '-p', tmp, '-c', config])
    wait_until(lambda: socket.create_connection(('127.0.0.1', port)).close() is None,
               what='nginx listens')

    def read(data):
        """The requests that nginx read in these bytes, once it has closed the connection."""
        with socket.create_connection(('127.0.0.1', port)) as s:
            s.settimeout(20)
            mine = s.getsockname()[1]
            try:
                s.sendall(data)
                while s.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass
            return upstream.seen.pop(mine, [])

    yield read
    upstream.shutdown()
    upstream.server_close()


def ours(program, data):
    out = subprocess.run([program], input=data, stdout=subprocess.PIPE, check=True).stdout
    *lines, verdict = out.decode().splitlines()
    return [tuple(bytes.fromhex(f) for f in line.split(' ')) for line in lines], verdict


def broken(case, data, rng):
    """A copy with one small thing changed where it matters: in the first 300 bytes."""
    at = rng.randrange(min(len(data), 300))
    piece = rng.choice([b'\r', b'\n', b'\r\n', b' ', b'\t', b'\0', b'\x0b', b':', b';', b',', b'0', b'+',
                        b'-', b'x', b'chunked', b'\r\n ', b'\r\nContent-Length: 3', b'\x80', b'"',
                        b'\r\nTransfer-Encoding: chunked', b' HTTP/1.1', b'\r\n\r\n'])
    how = rng.randrange(3)
    end = at + (how > 0) * rng.randrange(1, 4)
    return f'{case}, broken at {at}', data[:at] + (piece if how < 2 else b'') + data[end:]


def compare(program, nginx, case, data):
    """None, or what is wrong."""
    we, verdict = ours(program, data)
    they = nginx(data)
    # nginx serves one request after another: what it does not answer ends the connection there
    for i, (mine, theirs) in enumerate(zip(we, they)):
        if mine != theirs:
            return f'{case}: request {i}: we read {mine}, nginx {theirs}: {data!r}'
    if len(they) > len(we) and verdict == 'ok':
        return f'{case}: nginx reads {they[len(we):]} more: {data!r}'
    if len(we) > len(they):
        # nginx refuses some requests that are well framed: their methods, targets and names of
        # hosts are its affair
        method, target, _ = we[len(they)]
        odd = (not re.fullmatch(rb'[A-Z_-]+', method) or method in (b'CONNECT', b'TRACE') or
               target == b'*' or b'%' in target or b'//' in target or b'..' in target or
               re.search(rb'(://|[Hh]ost: *)[^/\r]*[_%]', data))
        if not odd:
            return f'{case}: we read {we[len(they):]} more: {data!r}'
    return None


def test_never_another_reading_than_nginx(nginx, build):
    program = build.path('http1_show')
    cases = [(name, fields[0]) for name, fields in rows('http1_requests.txt') if fields[0]]
    seed = int(os.environ.get('SEMEL_SEED', random.SystemRandom().randrange(1 << 32)))
    print(f'SEMEL_SEED={seed}')
    rng = random.Random(seed)
    cases += [broken(*rng.choice(cases), rng) for _ in range(int(os.environ.get('SEMEL_CASES', 1500)))]
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        wrong = [w for w in pool.map(lambda c: compare(program, nginx, *c), cases) if w]
    assert not wrong, '\n'.join(wrong[:20])
