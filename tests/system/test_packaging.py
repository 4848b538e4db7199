# SPDX-License-Identifier: Apache-2.0
"""What `make install` brings beside the programs: the manual is whole and renders, the samples are
configurations, and the units start what exists and let it drain."""
import os
import re
import shlex
import subprocess

import pytest

from support.binaries import ROOT

PACKAGING = ROOT / 'packaging'
UNITS = sorted(PACKAGING.glob('*.service.in'))
SANITIZED = os.environ.get('SEMEL_BUILD_KIND', '') in ('asan', 'tsan')
KAFKA = ('relay', 'consume', 'dev-broker')


@pytest.fixture(scope='module')
def man(build, tmp_path_factory):
    """The folder of the installed manual: man1, man3, man7."""
    root = tmp_path_factory.mktemp('install')
    r = subprocess.run(['meson', 'install', '-C', str(build.dir), '--no-rebuild', '--destdir', str(root)],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    (page,) = root.rglob('semel.1')
    return page.parent.parent


def rendered(page):
    """As it is read; a warning of the formatter is a failure."""
    r = subprocess.run(['groff', '-man', '-Tascii', '-P-cbou', '-ww', page.name], cwd=page.parent,
                       capture_output=True, text=True)
    assert r.returncode == 0 and not r.stderr, f'{page.name}: {r.stderr}'
    return re.sub(r'\s+', ' ', r.stdout)


def commands(semel):
    """[(command, verb or None)] as `semel help` lists them."""
    text = semel('help').out()
    block = text[text.index('Commands\n'):text.index('  help ')]
    out = []
    for line in block.splitlines()[1:]:
        name = line[2:18].split()
        out.append((name[0], name[1] if len(name) > 1 else None))
    return out


# A sanitized build has no manual.
if not SANITIZED:
    def test_every_command_has_its_page_with_every_option(semel, man):
        found = commands(semel)
        assert ('run', None) in found and ('keys', 'list') in found, found
        pages = {p.name for p in (man / 'man1').iterdir()}
        assert pages == {'semel.1'} | {f'semel-{name}.1' for name, _ in found}
        overview = rendered(man / 'man1/semel.1')
        for name, verb in found:
            page = rendered(man / f'man1/semel-{name}.1')
            assert f'semel-{name}(1)' in overview
            assert verb is None or f'SEMEL {name.upper()} {verb.upper()}' in page
            words = semel('help', name, *([verb] if verb else [])).out()
            options = set(re.findall(r'^  (--[\w-]+)', words, re.M))
            assert options and all(o in page.replace('- ', '-') for o in options), (name, options)

    def test_every_header_has_its_page_and_every_function_leads_to_it(man):
        pages = man / 'man3'
        for header in (ROOT / 'include/semel').glob('*.h'):
            text = re.sub(r'/\*.*?\*/', '', header.read_text(), flags=re.DOTALL)
            page = rendered(pages / f'semel_{header.name}.3')
            assert f'#include <semel/{header.name}>' in page
            for name in re.findall(r'^SEMEL_API[^;(]*?(\w+)\(', text, re.M):
                assert f'{name}(' in page
                assert (pages / f'{name}.3').resolve() == (pages / f'semel_{header.name}.3').resolve()

    def test_the_overview_names_pages_that_exist(man):
        page = man / 'man7/semel.7'
        rendered(page)
        source = (ROOT / 'docs/man/semel.7.scd').read_text()
        for name, section in re.findall(r'\*([\w.-]+)\*\((\d)\)', source):
            assert (man / f'man{section}' / f'{name}.{section}').exists(), name


def test_the_samples_are_configurations(semel):
    for sample, words in (('gateway.yaml', []), ('relay.yaml', ['relay'])):
        r = semel('config', 'check', *words, str(PACKAGING / sample))
        assert r.returncode == 0, r.logs()


def test_a_sample_with_a_mistake_is_refused(semel, tmp):
    wrong = (PACKAGING / 'relay.yaml').read_text().replace('slot_lease: 5s', 'slot_lease: 5')
    (tmp / 'relay.yaml').write_text(wrong)
    r = semel('config', 'check', 'relay', str(tmp / 'relay.yaml'))
    assert r.returncode == 64 and 'relay.yaml:' in r.err(), r.logs()


def settings(unit):
    return dict(re.findall(r'^([A-Za-z]+)=(.*)$', unit.read_text(), re.M))


@pytest.mark.parametrize('unit', UNITS, ids=lambda u: u.name.removesuffix('.in'))
def test_a_unit_starts_what_exists_and_lets_it_drain(semel, unit):
    s = settings(unit)
    assert s['Type'] == 'notify' and int(s['WatchdogSec']) > 0
    assert s['NoNewPrivileges'] == s['DynamicUser'] == 'yes' and s['ProtectSystem'] == 'strict'
    program, command, *words = shlex.split(s['ExecStart'])
    assert program == '@bindir@/semel'
    if command in KAFKA and (command, None) not in commands(semel):
        return  # a build without Kafka
    if words == ['$CONSUME_OPTIONS']:
        line = re.search(r'^CONSUME_OPTIONS=(.*)$', (PACKAGING / 'consume.env').read_text(), re.M)[1]
        words = shlex.split(line)
        assert '--sql' in words and 'SELECT billing.apply($1, $2)' in words
        deadline = words[words.index('--shutdown-deadline') + 1]
    else:
        assert words[-1] == f'/etc/semel/{command}.yaml' and (PACKAGING / f'{command}.yaml').exists()
        deadline = re.search(r'^shutdown_deadline: (\S+)$', (PACKAGING / f'{command}.yaml').read_text(), re.M)[1]
    help_text = semel('help', command).out()
    assert all(f'{w} ' in help_text for w in words if w.startswith('--')), words
    assert int(s['TimeoutStopSec']) > int(deadline.removesuffix('s'))
