# SPDX-License-Identifier: Apache-2.0
"""What the system tests stand on: real binaries, a real PostgreSQL, waiting on conditions."""
from .binaries import Binaries
from .postgres import Postgres
from .process import Process, Processes, sanitizer_reports
from .store import Store
from .wait import free_port, wait_until

__all__ = ['Binaries', 'Postgres', 'Process', 'Processes', 'Store', 'sanitizer_reports', 'free_port',
           'wait_until']
