# SPDX-License-Identifier: Apache-2.0
"""The tree keeps its own rules (rules.py).  Each test lists every complaint at once."""
import os
import pathlib
import re
import subprocess

import pytest
import rules
from rules import ROOT

BUILD = pathlib.Path(os.environ.get('SEMEL_BUILD', ROOT / 'build')).resolve()


def tree():
    """{path: text} of all text files that are in the repository or about to be."""
    listed = subprocess.run(['git', '-C', str(ROOT), 'ls-files', '-z', '--cached', '--others',
                             '--exclude-standard'], capture_output=True, check=True).stdout
    out = {}
    for name in listed.decode().split('\0'):
        path = ROOT / name
        if name and path.is_file():
            try:
                out[name] = path.read_text(encoding='utf-8')
            except UnicodeDecodeError:
                pass  # binary test data
    return out


TREE = tree()


def read(path):
    if path in TREE:
        return TREE[path]
    return '' if (ROOT / path).is_dir() else None


def is_c(path):
    return path.endswith(('.c', '.h'))


def is_script(path, text):
    return text.startswith('#!')


def check(complaints):
    complaints = list(complaints)
    assert not complaints, '\n' + '\n'.join(complaints)


def each(rule, want):
    check(c for path, text in TREE.items() if want(path, text) for c in rule(path, text))


def test_layers():
    each(rules.layer_complaints, lambda p, t: is_c(p))


def test_each_foreign_header_has_one_folder():
    homes = {}
    for path, text in TREE.items():
        if path.startswith('src/') and is_c(path):
            for _, header in rules.INCLUDE.findall(rules.blank(text, strings=False)):
                if rules.foreign_home(header):
                    homes.setdefault(header, set()).add(path.rsplit('/', 1)[0])
    check(f'<{h}> is included in {sorted(d)}' for h, d in homes.items() if len(d) > 1)


def nm(option, library):
    out = subprocess.run(['nm', option, str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in out.stdout.splitlines()
            if line.strip() and not line.rstrip().endswith(':')}


def test_libcore_is_pure():
    core, base = BUILD / 'src/core/libcore.a', BUILD / 'src/base/libbase.a'
    assert core.exists() and base.exists(), f'no libraries in {BUILD}: run `make build`'
    check(rules.symbol_complaints(nm('-u', core), nm('--defined-only', core),
                                  nm('--defined-only', base)))


def test_files_are_short():
    each(rules.file_length_complaints,
         lambda p, t: is_c(p) or p.endswith(('.py', '.sql')) or is_script(p, t))


def test_functions_are_short():
    each(rules.function_length_complaints,
         lambda p, t: is_c(p) and p.startswith(('src/', 'examples/', 'include/')))


def test_no_banned_calls():
    each(rules.banned_complaints, lambda p, t: is_c(p))


def test_tests_do_not_sleep():
    each(rules.sleep_complaints, lambda p, t: True)


def test_no_place_of_one_machine_is_named():
    each(rules.place_complaints, lambda p, t: True)


def test_every_source_has_its_licence_line():
    each(rules.spdx_complaints, lambda p, t: is_c(p) or p.endswith('.py') or is_script(p, t))


def test_scripts_can_be_run():
    check(f'{p} begins with #! but may not be run' for p, t in TREE.items()
          if is_script(p, t) and not os.access(ROOT / p, os.X_OK))


def test_public_functions_are_documented():
    each(rules.public_doc_complaints, lambda p, t: p.startswith('include/'))


HEADERS = sorted(p for p in TREE if p.startswith('include/semel/') and p.endswith('.h'))


@pytest.mark.parametrize('compiler', [
    ['gcc', '-std=c11', '-x', 'c'], ['clang', '-std=c11', '-x', 'c'],
    ['g++', '-std=c++11', '-x', 'c++']], ids=lambda c: c[0])
def test_public_headers_compile_alone(compiler, tmp_path):
    bad = []
    for header in HEADERS:
        name = header.removeprefix('include/')
        source = tmp_path / 'alone.c'
        source.write_text(f'#include <{name}>\n#include <{name}>\nint main(void) {{ return 0; }}\n')
        r = subprocess.run(compiler + ['-Wall', '-Wextra', '-Wpedantic', '-Werror',
                                       '-fsyntax-only', '-I', str(ROOT / 'include'),
                                       str(source)], capture_output=True, text=True)
        if r.returncode != 0:
            bad.append(f'{name}: {r.stderr}')
    assert HEADERS
    check(bad)


def test_links_lead_somewhere():
    check(c for p, t in TREE.items() if p.endswith('.md')
          for c in rules.link_complaints(p, t, read))


def test_mutants_name_their_rule():
    names = [p.split('/')[-1] for p in TREE
             if p.startswith('tests/mutants/') and p.endswith('.patch')]
    check(rules.mutant_complaints(names, TREE['docs/rules.md'], TREE['docs/cases.md']))


def test_cases_name_their_tests():
    tests = '\n'.join(t for p, t in TREE.items()
                      if p.startswith(('tests/', 'fuzz/')) and not p.startswith('tests/tidy/'))
    assert rules.CASE_ROW.search(TREE['docs/cases.md'])
    check(rules.case_complaints(TREE['docs/cases.md'], tests))


def test_every_package_has_its_reason():
    check(rules.dependency_complaints(TREE['tools/packages.txt'], TREE['docs/dependencies.md']))


def test_ci_runs_what_the_readme_says():
    check(rules.command_complaints(TREE['README.md'], TREE['.ci/run']))


def test_every_statement_is_built_in():
    check(c for dialect in ('sqlite', 'postgres') for c in rules.unlisted_complaints(
        [p.split('/')[-1] for p in TREE if p.startswith(f'sql/{dialect}/') and p.endswith('.sql')],
        TREE[f'sql/{dialect}/meson.build'], f'sql/{dialect}'))


def test_every_unit_test_is_built():
    text = TREE['tests/unit/meson.build']
    names = [re.sub(r'^test_|\.c$', '', p.split('/')[-1]) for p in TREE
             if re.fullmatch(r'tests/unit/test_\w+\.c', p)]
    check(f'tests/unit/test_{n}.c is not in tests/unit/meson.build' for n in names
          if f"'{n}'" not in text)
