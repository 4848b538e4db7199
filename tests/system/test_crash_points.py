# SPDX-License-Identifier: Apache-2.0
"""The real binary, killed with all its threads at system-call boundaries (tests/crash/run)."""
import os
import pathlib
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[1] / 'crash' / 'run'
# A sanitizer makes each run many times longer; there, a few points look for its reports.
POINTS = 40 if os.environ.get('SEMEL_BUILD_KIND', 'gcc') in ('gcc', 'clang') else 8


@pytest.mark.parametrize('path', ['run', 'library'])
@pytest.mark.parametrize('store', ['sqlite', 'postgres'])
def test_killed_at_system_calls(procs, store, path):
    r = procs.run([sys.executable, RUN, '--evenly', str(POINTS), '--store', store, '--path', path],
                  timeout=600, env={'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') +
                                    ':detect_leaks=0'})  # its leak check cannot run under ptrace
    print(r.out())
    assert r.returncode == 0, r.logs()
    assert r.out().endswith('every promise held\n')
