#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First inputs for the fuzz targets, made from the tables of tests/data.

usage: seeds.py OUT [TARGET...]    writes OUT/TARGET/CASE
"""
import pathlib
import re
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
SIMPLE = {"\\": b"\\", "t": b"\t", "n": b"\n", "r": b"\r", "0": b"\0", "s": b" ", "e": b""}


def decode(field: str) -> bytes:
    out, i = b"", 0
    while i < len(field):
        if field[i] != "\\":
            out += field[i].encode()
            i += 1
        elif run := re.match(r"\\\[(\d+)\*(.)\]", field[i:]):
            out += run[2].encode() * int(run[1])
            i += run.end()
        elif field[i + 1] == "x":
            out += bytes([int(field[i + 2:i + 4], 16)])
            i += 4
        else:
            out += SIMPLE[field[i + 1]]
            i += 2
    return out


def rows(table: str):
    for line in (DATA / table).read_text().splitlines():
        if line and not line.startswith("#"):
            name, *fields = line.split("\t")
            yield name, [decode(f) for f in fields]


def seeds_key():
    for name, fields in rows("keys.txt"):
        yield name, fields[0]
    for name, fields in rows("key_joins.txt"):
        yield name, b"\0".join(fields[2:])


def seeds_fingerprint():
    for name, fields in rows("fingerprints.txt"):
        *parts, body = fields[3:]
        if max(map(len, fields[3:])) <= 255 and len(parts) <= 8:
            n = len(parts)
            yield name, bytes([n, max(n - 1, 0), 1] + [len(p) for p in parts]) + b"".join(parts) + body


def seeds_reply_codec():
    for name, fields in rows("reply_blobs.txt"):
        yield name, fields[0]
        pairs = fields[2:]
        if pairs:
            yield name + "-pairs", b"".join(bytes([len(n), len(v)]) + n + v
                                            for n, v in zip(pairs[::2], pairs[1::2]))


def seeds_http1_request():
    for name, fields in rows("http1_requests.txt"):
        yield name, bytes([len(fields[0]) // 2 % 256, 6]) + fields[0]


def seeds_http1_reply():
    for name, fields in rows("http1_replies.txt"):
        head = 1 if fields[0].startswith(b"HEAD") else 0
        yield name, bytes([len(fields[1]) // 2 % 256, 12 | head]) + fields[1]


def seeds_jcs():
    for name, fields in [*rows("jcs.txt"), *rows("jcs_numbers.txt")]:
        yield name, bytes([len(fields[0]) // 2 % 256, 4]) + fields[0]


def seeds_multipart():
    for name, fields in rows("http_fingerprints.txt"):
        head, _, body = fields[2].partition(b"\r\n\r\n")
        found = re.search(rb'boundary="?([^\r";]*)', head, re.I)
        if found and 0 < len(found[1]) <= 70:
            yield name, bytes([len(body) // 2 % 256, 6, len(found[1]) - 1]) + found[1] + body
    yield "header", b"multipart/form-data; charset=utf-8; boundary=X1"


def seeds_gateway_file():
    yield "packaging", (DATA.parent.parent / "packaging" / "gateway.yaml").read_bytes()
    yield "routes", (b'upstream: http://a:1\npolicy: {on_unknown: retry}\nroutes:\n'
                     b'  - path: /a/{*}\n    methods: [POST, PUT]\n    retention: 24h\n'
                     b'  - {path: "/b/{**}", upstream: idempotent}\n')
    yield "wrong", b'listn: ":1"\nroutes: 7\npolicy: []\nworkers: 99999\nlog: [a, {b: c}]\n'
    yield "alias", b'a: &x [1, 2]\nb: *x\nroutes: [*x, {path: *x}]\n? {}\n: x\n'
    yield "broken", b'listen: "\nupstream: [}'


def seeds_call_end():
    problem = (b'Content-Type: application/problem+json\nIdempotency-Outcome: unknown\n\n'
               b'{"type":"https://semel.dev/problems/%s","title":"x","status":409,"retryable":%s,'
               b'"original_status":201}')
    for name in ("in-flight", "reply-not-kept", "outcome-unknown", "newer"):
        yield name, b"\x01\x99" + problem % (name.encode(), b"true")
    for status in (200, 308, 401, 409, 422, 429, 503):
        yield str(status), status.to_bytes(2, "big") + b"Retry-After: 17\nIdempotency-Outcome: executed\n\n"
    yield "date", (b"\x01\xf7Date: Sun, 06 Nov 1994 08:49:37 GMT\n"
                   b"Retry-After: Sunday, 06-Nov-94 08:49:37 GMT\n\nSun Nov  6 08:49:37 1994")


TARGETS = {name[len("seeds_"):]: fn for name, fn in globals().items() if name.startswith("seeds_")}


def main():
    out = pathlib.Path(sys.argv[1])
    for target in sys.argv[2:] or TARGETS:
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in TARGETS[target]():
            if len(data) <= 65536:
                (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
