# SPDX-License-Identifier: Apache-2.0
"""What the system tests stand on: real binaries, a real PostgreSQL, waiting on conditions."""
import pathlib
import sys

# What the tests in C use too: ports, kafka_server.
TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / 'support'), str(TESTS / 'support' / 'kafka')]

from .binaries import Binaries  # noqa: E402
from .postgres import Postgres  # noqa: E402
from .process import Process, Processes, sanitizer_reports  # noqa: E402
from .store import Store  # noqa: E402
from .wait import wait_until  # noqa: E402

__all__ = ['Binaries', 'Postgres', 'Process', 'Processes', 'Store', 'sanitizer_reports', 'wait_until']
