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
SANITIZED = os.environ.get('SEMEL_BUILD_KIND', '') in ('asan', 'tsan')
KAFKA = ('relay', 'consume', 'dev-broker')
UNITS = [pytest.param(u, marks=pytest.mark.kafka if any(k in u.name for k in KAFKA) else ())
         for u in sorted(PACKAGING.glob('*.service.in'))]


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
    for sample, words in (('gateway.yaml', []), ('relay.yaml', ['relay']), ('consume.yaml', ['consume'])):
        r = semel('config', 'check', *words, str(PACKAGING / sample))
        assert r.returncode == 0, r.logs()


@pytest.mark.parametrize('daemon, right, wrong', [
    ('relay', 'slot_lease: 5s', 'slot_lease: 5'), ('relay', 'mode: owned', 'mode: owner'),
    ('consume', 'inbox_retention: 360h', 'inbox_retention: 360'), ('consume', 'group: "billing"', ''),
    ('consume', '#post:', 'post:')])
def test_a_sample_with_a_mistake_is_refused(semel, tmp, daemon, right, wrong):
    sample = (PACKAGING / f'{daemon}.yaml').read_text()
    assert right in sample
    (tmp / 'wrong.yaml').write_text(sample.replace(right, wrong))
    r = semel('config', 'check', daemon, str(tmp / 'wrong.yaml'))
    assert r.returncode == 64 and 'wrong.yaml:' in r.err(), r.logs()


@pytest.mark.parametrize('daemon', ['gateway', 'relay', 'consume'])
def test_the_reference_is_a_file_that_names_every_setting(semel, tmp, daemon):
    r = semel('config', 'reference', daemon)
    (tmp / 'all.yaml').write_text(r.out())
    assert semel('config', 'check', daemon, str(tmp / 'all.yaml')).returncode == 0
    names = set(re.findall(r'^#(\w+):', r.out(), re.M))
    used = re.findall(r'^(\w+):', (PACKAGING / f'{daemon}.yaml').read_text(), re.M)
    assert names >= set(used)


@pytest.mark.parametrize('daemon, least', [
    ('gateway', 'upstream: http://127.0.0.1:9000\n'), ('relay', 'brokers: 127.0.0.1:9092\n'),
    ('consume', 'brokers: 127.0.0.1:9092\ngroup: g\ntopics: t\npost: http://127.0.0.1:9000/\n')],
    ids=['gateway', 'relay', 'consume'])
def test_a_drain_delay_beyond_the_deadline_is_refused(semel, tmp, daemon, least):
    """Nothing would be drained: the deadline cuts off what runs before anybody is told to end."""
    (tmp / 'f.yaml').write_text(least + 'drain_delay: 5s\nshutdown_deadline: 5s\n')
    assert semel('config', 'check', daemon, str(tmp / 'f.yaml')).returncode == 0
    (tmp / 'f.yaml').write_text(least + 'drain_delay: 6s\nshutdown_deadline: 5s\n')
    r = semel('config', 'check', daemon, str(tmp / 'f.yaml'))
    assert r.returncode != 0 and 'drain_delay must not be longer than shutdown_deadline' in r.err()


def settings(unit):
    return dict(re.findall(r'^([A-Za-z]+)=(.*)$', unit.read_text(), re.M))


@pytest.mark.parametrize('unit', UNITS, ids=lambda u: u.name.removesuffix('.in'))
def test_a_unit_starts_what_exists_and_lets_it_drain(semel, unit):
    s = settings(unit)
    assert s['Type'] == 'notify' and int(s['WatchdogSec']) > 0
    assert (s['User'], s['StateDirectory']) == ('semel', 'semel'), 'a unit that starts takes the others\' folder'
    assert s['NoNewPrivileges'] == s['DynamicUser'] == 'yes' and s['ProtectSystem'] == 'strict'
    program, command, *words = shlex.split(s['ExecStart'])
    assert program == '@bindir@/semel'
    assert words[-1].replace('-%i', '') == f'/etc/semel/{command}.yaml'
    sample = (PACKAGING / f'{command}.yaml').read_text()
    deadline = re.search(r'^shutdown_deadline: (\S+)$', sample, re.M)[1]
    help_text = semel('help', command).out()
    assert all(f'{w} ' in help_text for w in words if w.startswith('--')), words
    assert int(s['TimeoutStopSec']) > int(deadline.removesuffix('s'))


# What is given where: a file, then the environment, then the options; no value of a secret is said.
@pytest.mark.kafka
@pytest.mark.parametrize('daemon', ['relay', 'consume'])
def test_secrets_come_from_the_environment_and_are_not_said(procs, build, tmp, sqlite_url, daemon):
    (tmp / 'daemon.yaml').write_text((PACKAGING / f'{daemon}.yaml').read_text())
    env = {**os.environ, 'SEMEL_DB': sqlite_url, 'SEMEL_KAFKA': 'sasl.passwrd=hunter2'}
    p = procs.run([build.semel, daemon, '--config', str(tmp / 'daemon.yaml')], env=env)
    assert p.returncode == 64, p.logs()
    assert 'sasl.passwrd' in p.err() and 'sasl.password' in p.err() and 'hunter2' not in p.err()
    (tmp / 'daemon.yaml').write_text('workers: 0\n' if daemon == 'consume' else 'lanes: 0\n')
    p = procs.run([build.semel, daemon, '--config', str(tmp / 'daemon.yaml')], env=env)
    assert p.returncode == 64 and 'daemon.yaml:1:' in p.err(), p.logs()
