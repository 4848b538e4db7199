# SPDX-License-Identifier: Apache-2.0
"""TCP ports for servers that end and come back while a test runs.

A port that the kernel chose (port 0) is one of those it gives to outgoing connections too: while the
server is away any client on the machine can get it, and the server cannot come back.  These lie where
the kernel gives none, and each belongs to the process that asked until that process ends."""
import os
import socket

RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range'
LOWEST = 10000  # below are the well-known servers of the machine

_held = []  # sockets whose names are our claims


def _candidates():
    with open(RANGE_FILE, encoding='ascii') as f:
        first, last = map(int, f.read().split())
    ports = [*range(LOWEST, first), *range(last + 1, 65536)]
    start = os.getpid() * 64 % len(ports) if ports else 0  # processes side by side begin far apart
    return ports[start:] + ports[:start]


def _claimed(port):
    """A name without a file, which the kernel frees when we end."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f'\0semel-test-port-{port}')
    except OSError:
        claim.close()
        return False
    _held.append(claim)
    return True


def _nobody_listens(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(('127.0.0.1', port))
        except OSError:
            return False
    return True


def free_port():
    """A port of 127.0.0.1 that nobody listens on, and that nobody is given until this process ends."""
    for port in _candidates():
        if _claimed(port) and _nobody_listens(port):
            return port
    raise OSError(f'no port is free outside of {RANGE_FILE}')


def free_ports(n):
    return [free_port() for _ in range(n)]
