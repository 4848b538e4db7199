# SPDX-License-Identifier: Apache-2.0
"""The real binary, killed with all its threads at system-call boundaries (tests/crash/run,
tests/crash/relay and relay_sqlite for relays, tests/crash/consume for consumers)."""
import os
import pathlib
import sys

import pytest

from support.binaries import FULL

CRASH = pathlib.Path(__file__).resolve().parents[1] / 'crash'
# A sanitizer makes each run many times longer; there, a few points look for its reports.
POINTS = 40 if FULL else 8
RELAY_POINTS = 20 if os.environ.get('SEMEL_BUILD_KIND', 'gcc') == 'gcc' else 4
# Its leak check cannot run under ptrace.
ENV = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}


@pytest.mark.parametrize('path', ['run', 'library'])
@pytest.mark.parametrize('store', ['sqlite', 'postgres'])
def test_killed_at_system_calls(procs, store, path):
    r = procs.run([sys.executable, CRASH / 'run', '--evenly', str(POINTS), '--store', store, '--path',
                   path], timeout=600, env=ENV)
    print(r.out())
    assert r.returncode == 0, r.logs()
    assert r.out().endswith('every promise held\n')


@pytest.mark.parametrize('mode', ['owned', 'single', 'two-phase', 'exactly-once'])
def test_c12_a_relay_killed_at_system_calls(procs, kafka, mode):
    r = procs.run([sys.executable, CRASH / 'relay', '--evenly', str(RELAY_POINTS), '--mode', mode,
                   '--brokers', kafka.bootstrap], timeout=600, env=ENV)
    print(r.out())
    assert r.returncode == 0, r.logs()
    assert r.out().endswith('every promise held\n')


def test_d3_d4_a_consumer_killed_at_system_calls(procs, kafka):
    r = procs.run([sys.executable, CRASH / 'consume', '--evenly', str(RELAY_POINTS), '--brokers',
                   kafka.bootstrap], timeout=600, env=ENV)
    print(r.out())
    assert r.returncode == 0, r.logs()
    assert r.out().endswith('every promise held\n')


@pytest.mark.kafka
@pytest.mark.parametrize('done', ['delete', 'keep'])
def test_c12_a_relay_of_a_sqlite_file_killed_at_system_calls(procs, done):
    r = procs.run([sys.executable, CRASH / 'relay_sqlite', '--evenly', str(RELAY_POINTS), '--done', done],
                  timeout=600, env=ENV)
    print(r.out())
    assert r.returncode == 0, r.logs()
    assert r.out().endswith('every promise held\n')
