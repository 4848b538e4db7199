# SPDX-License-Identifier: Apache-2.0
"""docs/gateway.md and packaging/gateway.yaml say what the gateway does."""
import json
import re

import test_gateway_faults
from support.binaries import ROOT
from support.gateway import Gateway
from support.metrics import metrics_documented, metrics_given
from support.upstream import Upstream
from support.wait import wait_until

PAGE = (ROOT / 'docs/gateway.md').read_text(encoding='utf-8')


def test_the_fault_matrix_is_the_one_that_is_tested():
    """To write it anew: put the expected text between the two marks."""
    shown = re.search(r'<!-- faults -->\n(?:\|[^\n]*\n){2}(.*?)\n?<!-- /faults -->', PAGE, re.S).group(1)
    assert shown == test_gateway_faults.table(), test_gateway_faults.table()


def test_metrics_outcomes_and_log_fields(procs, build, sqlite_url):
    upstream = Upstream()
    gateway = Gateway(procs, build.semel, upstream.url, sqlite_url, '--log', 'json')
    assert gateway.post('k').status == 201
    text = gateway.get_admin('/metrics')[1].decode()
    assert metrics_given(text) == metrics_documented(PAGE)
    outcomes = set(re.findall(r'outcome="(\w+)"', text))
    assert outcomes == set(re.findall(r'^\|.*\| `(\w+)` \|$', PAGE, re.M))
    line = json.loads(wait_until(lambda: gateway.process.out().splitlines())[0])
    log = PAGE[PAGE.index('## Access log'):]
    assert set(line) == set(re.findall(r'`(\w+)`', log[log.index('JSON fields'):]))
    upstream.close()


def test_problems_that_the_page_names_are_those_of_the_table():
    table = (ROOT / 'docs/problems.md').read_text(encoding='utf-8')
    known = dict(re.findall(r'problems/([\w-]+)` \| (\d+)', table))
    named = set(re.findall(r'`([a-z]+(?:-[a-z]+)*)`', PAGE[:PAGE.index('## Fields')]))
    assert len(known) > 10 and set(known) <= named, set(known) - named
    for status, kind in re.findall(r'\b(\d\d\d) `([a-z-]+)`', PAGE):
        assert known.get(kind, status) == status, kind


def test_the_sample_is_a_configuration(semel):
    r = semel('config', 'check', str(ROOT / 'packaging/gateway.yaml'))
    assert r.returncode == 0 and '4 routes' in r.err(), r.logs()
