# SPDX-License-Identifier: Apache-2.0
"""The tools that judge the rest: each must be able to fail."""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess

import pytest
from rules import ROOT


def load(path):
    loader = importlib.machinery.SourceFileLoader('test_all', str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('test_all', loader))
    loader.exec_module(module)
    return module


test_all = load('tools/test-all')


def meson_line(result='OK', stdout='', stderr='', name='semel:unit / thing'):
    return json.dumps({'name': name, 'result': result, 'stdout': stdout, 'stderr': stderr}) + '\n'


CASES = '[==========] Running 2 test(s).\n[       OK ] one\n{}\n[==========] 2 test(s) run.\n'


@pytest.mark.parametrize('text, line', [
    (meson_line(), '1 passed, 0 failed, 0 skipped'),
    (meson_line(stdout=CASES.format('[       OK ] two')), '2 passed, 0 failed, 0 skipped'),
    (meson_line('FAIL', CASES.format('[  FAILED  ] two')), '1 passed, 1 failed, 0 skipped'),
    (meson_line(stdout=CASES.format('[  SKIPPED ] two')), '1 passed, 0 failed, 1 skipped'),
    (meson_line('SKIP', 'no server'), '0 passed, 0 failed, 1 skipped'),
    (meson_line('TIMEOUT', CASES.format('')), '1 passed, 1 failed, 0 skipped'),
    (meson_line('FAIL', CASES.format('[       OK ] two')), '2 passed, 1 failed, 0 skipped'),
    (meson_line(stderr='==1==ERROR: AddressSanitizer: x'), '1 passed, 1 failed, 0 skipped'),
    (meson_line() + meson_line('SKIP', name='semel:unit / other'), '1 passed, 0 failed, 1 skipped'),
])
def test_results_of_meson_are_counted(text, line):
    assert test_all.parse_meson(text, 'stage').line() == line


def test_results_of_pytest_are_counted():
    xml = ('<testsuites><testsuite><testcase classname="a" name="x"/>'
           '<testcase classname="a" name="y"><failure message="no">t</failure></testcase>'
           '<testcase classname="a" name="e"><error message="no">t</error></testcase>'
           '<testcase classname="a" name="z"><skipped message="why not"/></testcase>'
           '</testsuite></testsuites>')
    results = test_all.parse_junit(xml, 'stage')
    assert results.line() == '1 passed, 2 failed, 1 skipped'
    assert results.names(test_all.SKIPPED) == [('a:z', 'stage: why not')]


def test_fuzz_targets_are_counted():
    text = 'ok    key   1510809 runs  cov: 170\nFOUND reply exit 77, see x.log\n'
    assert test_all.parse_fuzz(text).line() == '1 passed, 1 failed, 0 skipped'


def test_a_test_counts_once_with_its_worst_result():
    results = test_all.Results()
    for result in (test_all.PASSED, test_all.FAILED, test_all.SKIPPED, test_all.PASSED):
        results.add('same', result)
    assert results.line() == '0 passed, 1 failed, 0 skipped'


@pytest.mark.parametrize('text, bad', [
    ('a.c:3:1: warning: unused variable', True),
    ('WARNING: Project targets 1.0 but uses a feature of 1.3', True),
    ('Compiler for C supports arguments -Wwarning: YES', False),
])
def test_warnings_of_a_build_are_seen(text, bad):
    assert bool(test_all.WARNING.search('first\n' + text + '\n')) == bad


@pytest.mark.parametrize('last, rc, good', [
    ('12 passed, 0 failed, 0 skipped', 0, True),
    ('12 passed, 0 failed, 1 skipped', 0, False),
    ('12 passed, 1 failed, 0 skipped', 0, False),
    ('0 passed, 0 failed, 0 skipped', 0, False),
    ('12 passed, 0 failed, 0 skipped', 1, False),
    ('all is well', 0, False),
])
def test_ci_forgives_nothing(tmp_path, last, rc, good):
    """.ci/run with a `make` that says `last` and ends with `rc` for `make test`."""
    (tmp_path / '.ci').mkdir()
    shutil.copy(ROOT / '.ci/run', tmp_path / '.ci/run')
    make = tmp_path / 'make'
    make.write_text(f'#!/bin/sh\n[ "$1" = demo ] && exit 0\necho "{last}"\nexit {rc}\n')
    make.chmod(0o755)
    r = subprocess.run([str(tmp_path / '.ci/run')], capture_output=True, text=True,
                       env={**os.environ, 'PATH': f"{tmp_path}:{os.environ['PATH']}"})
    assert (r.returncode == 0) == good, r.stdout + r.stderr


def test_ci_fails_when_the_demo_does(tmp_path):
    (tmp_path / '.ci').mkdir()
    shutil.copy(ROOT / '.ci/run', tmp_path / '.ci/run')
    make = tmp_path / 'make'
    make.write_text('#!/bin/sh\n[ "$1" = test ] && echo "1 passed, 0 failed, 0 skipped"\n'
                    '[ "$1" = test ]\n')
    make.chmod(0o755)
    r = subprocess.run([str(tmp_path / '.ci/run')], capture_output=True,
                       env={**os.environ, 'PATH': f"{tmp_path}:{os.environ['PATH']}"})
    assert r.returncode != 0


def setup(*args, path=None):
    env = dict(os.environ, PATH=path or os.environ['PATH'])
    return subprocess.run(['/bin/bash', str(ROOT / 'tools/setup'), *args], capture_output=True, text=True, env=env)


def test_setup_knows_its_sections():
    assert 'meson' in setup('--list', 'build').stdout.split()
    assert 'postgresql' not in setup('--list', 'build', 'demo').stdout.split()
    assert setup('--list', 'nothing').returncode == 64
    assert setup().returncode == 64


@pytest.mark.parametrize('installed, calls', [(True, []), (False, ['update', 'install'])])
def test_setup_calls_apt_only_when_something_is_missing(tmp_path, installed, calls):
    status = 'ii ' if installed else 'un '
    for name, text in {'dpkg-query': f'printf "{status}"',
                       'apt-get': f'echo "$@" >>{tmp_path}/calls', 'sudo': 'exec "$@"'}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{text}\n')
        (tmp_path / name).chmod(0o755)
    r = setup('build', path=f"{tmp_path}:{os.environ['PATH']}")
    assert r.returncode == 0, r.stderr
    log = tmp_path / 'calls'
    lines = log.read_text().splitlines() if log.exists() else []
    assert [next(w for w in line.split() if w in ('update', 'install')) for line in lines] == calls
