#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service that knows nothing of idempotency keys: it counts what it did.

    service.py [PORT]     POST /orders takes 300 ms and makes one more order; GET /orders counts

Put the gateway in front of it:

    semel gateway --listen :8080 --upstream http://127.0.0.1:PORT
"""
import http.server
import itertools
import sys
import time

numbers = itertools.count(1)
orders = []


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', 'text/plain')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        time.sleep(0.3)
        orders.append(next(numbers))
        self.answer(201, f'order {orders[-1]}\n')

    def do_GET(self):
        self.answer(200, f'{len(orders)}\n')

    def log_message(self, *args):
        pass


if __name__ == '__main__':
    server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1]) if sys.argv[1:] else 0),
                                             Service)
    print(f'service on {server.server_port}', flush=True)
    server.serve_forever()
