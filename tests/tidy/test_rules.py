# SPDX-License-Identifier: Apache-2.0
"""Each rule of rules.py finds what it is there to find, and lets the good form pass."""
import pytest
import rules


@pytest.mark.parametrize('path, include, bad', [
    ('src/core/key.c', '"base/buf.h"', False),
    ('src/core/key.c', '"core/key.h"', False),
    ('src/core/key.c', '<string.h>', False),
    ('src/core/key.c', '<time.h>', True),
    ('src/core/key.c', '<stdlib.h>', True),
    ('src/core/key.c', '"sys/clock.h"', True),
    ('src/net/loop.c', '"store/store.h"', False),
    ('src/net/loop.c', '"store/sqlite/sqlite_store.h"', True),
    ('src/net/loop.c', '"api/handle.h"', True),
    ('src/core/key.c', '<semel/run.h>', True),
    ('src/sys/sha256.c', '<openssl/evp.h>', False),
    ('src/api/run.c', '<openssl/evp.h>', True),
    ('src/store/sqlite/a.c', '<sqlite3.h>', False),
    ('src/store/sqlite/a.c', '<libpq-fe.h>', True),
    ('src/store/sqlite/a.c', '"store/postgres/postgres_store.h"', True),
    ('src/store/sqlite/a.c', '"store/store.h"', False),
    ('src/store/store.c', '"api/run.h"', True),
    ('src/cmd/main.c', '"store/store.h"', True),
    ('src/api/run.c', '"store/store.h"', False),
    ('src/api/run.c', '<somelib.h>', True),
    ('examples/shop/main.c', '"core/key.h"', True),
    ('examples/shop/main.c', '<semel/semel.h>', False),
    ('examples/shop/main.c', '<sqlite3.h>', False),
    ('examples/shop/main.c', '<openssl/evp.h>', True),
    ('include/semel/run.h', '"core/key.h"', True),
])
def test_layers(path, include, bad):
    assert bool(rules.layer_complaints(path, f'#include {include}\n')) == bad


def test_layers_do_not_read_comments():
    assert not rules.layer_complaints('src/core/a.c', '/*\n#include <time.h>\n*/\n')


def test_symbols():
    assert rules.symbol_complaints({'malloc', 'memcpy', 'buf_append', 'key_parse'},
                                   {'key_parse'}, {'buf_append'}) \
        == ['libcore needs malloc, which is not on the list of pure symbols']


def test_file_length():
    long = 'x\n' * 701
    assert rules.file_length_complaints('a.c', long)
    assert not rules.file_length_complaints('a.c', 'x\n' * 700)
    assert not rules.file_length_complaints('a.c', '/* why this file is long: a table */\n' + long)


def test_function_length():
    body = 'int f(void)\n{\n' + '        x();\n' * 69 + '}\n'
    assert rules.function_length_complaints('a.c', body)
    assert not rules.function_length_complaints('a.c', body.replace('        x();\n', '', 1))
    assert not rules.function_length_complaints(
        'a.c', '/* why this function is long: a table */\n' + body)


@pytest.mark.parametrize('line, bad', [
    ('strcpy(a, b);', True),
    ('x = atoi(s);', True),
    ('system("ls");', True),
    ('my_system("ls");', False),
    ('p->rand(1);', False),
    ('puts("strcpy(a, b)");', False),
    ('/* strcpy(a, b) */', False),
    ('system("ls"); /* allowed: a test of the shell */', False),
    ('/* allowed: a test of the shell */\nsystem("ls");', False),
    ('operand(3);', False),
])
def test_banned(line, bad):
    assert bool(rules.banned_complaints('a.c', line + '\n')) == bad


@pytest.mark.parametrize('path, text, bad', [
    ('tests/system/test_a.py', 'import time\ntime' '.sleep(1)\n', True),
    ('tests/system/test_a.py', 'from time import sleep\n', True),
    ('tests/system/support/wait.py', 'time' '.sleep(1)\n', False),
    ('tests/unit/a.c', 'usleep(3);\n', True),
    ('tests/unit/a.c', '/* usleep(3); */\n', False),
    ('tests/store/x', '#!/bin/bash\nsleep 1\n', True),
    ('src/store/wait.c', 'nanosleep(&t, 0);\n', False),
])
def test_sleeps(path, text, bad):
    assert bool(rules.sleep_complaints(path, text)) == bad


@pytest.mark.parametrize('text, bad', [
    ('see ../sha' 'red/design.md', True),
    ('/wo' 'rk/main/src', True),
    ('cd /ro' 'ot/x', True),
    ('the frame/work/place', False),
    ('build in /tmp/' 'b-x', True),
    ('src/sys/clock.c', False),
])
def test_places(text, bad):
    assert bool(rules.place_complaints('a.md', text)) == bad


def test_spdx():
    assert rules.spdx_complaints('a.c', 'int x;\n')
    assert not rules.spdx_complaints('a.c', '/* SPDX-License-Identifier: Apache-2.0 */\n')


def test_public_doc():
    assert rules.public_doc_complaints('a.h', '/* x */\n\nSEMEL_API int f(void);\n')
    assert not rules.public_doc_complaints('a.h', '/* Does f. */\nSEMEL_API int f(void);\nSEMEL_API int g(void);\n')


def test_links():
    def read(path):
        return {'docs/a.md': '# One two\n'}.get(path)
    assert rules.link_complaints('README.md', '[x](docs/b.md)', read)
    assert rules.link_complaints('README.md', '[x](docs/a.md#three)', read)
    assert rules.link_complaints('README.md', '[x](#nowhere)', read)
    assert not rules.link_complaints('README.md', '[x](docs/a.md#one-two) [y](https://a.b)', read)
    assert not rules.link_complaints('docs/c.md', '[x](../docs/a.md)', read)


def test_mutants():
    md = '# Rules\n### A1. Tokens\n### A5b. Operators\n'
    cases = '| H58 | a | b | c |\n'
    assert rules.mutant_complaints(['a2.patch', 'fence.patch', 'H5-x.patch'], md, cases) == [
        f'tests/mutants/{name}: names no rule of docs/rules.md, and no case'
        for name in ('a2.patch', 'fence.patch', 'H5-x.patch')]
    assert not rules.mutant_complaints(
        ['A1.patch', 'a5b-forget.patch', 'a1_x.patch', 'H58-x.patch'], md, cases)


def test_cases():
    row = '| H1 | two run | one runs | {} |\n'
    assert rules.case_complaints(row.format('tested: `h1_gone`'), 'def h1_there')
    assert rules.case_complaints(row.format('tested'), '')
    assert rules.case_complaints(row.format('maybe'), '')
    assert rules.case_complaints(row.format('not yet:'), '')
    assert rules.case_complaints(row.format('tested: `h11_there`'), 'def h11_there(')
    assert not rules.case_complaints(row.format('tested: `h1_there`'), 'def h1_there(')
    assert not rules.case_complaints(row.format('not yet: the gateway is not written'), '')
    assert not rules.case_complaints(row.format('not here: there is no slot'), '')
    assert rules.case_complaints(row.format('not here:'), '')


def test_dependencies():
    assert rules.dependency_complaints('[build]\ngcc\n', '| `make` | why |\n') == [
        'gcc: in tools/packages.txt, but docs/dependencies.md gives no reason',
        'make: in docs/dependencies.md, but not in tools/packages.txt']
    assert not rules.dependency_complaints('[build]\ngcc\n', '| `gcc` | compiles |\n')


def test_commands():
    readme = '```console\n$ make demo\n$ make test\n```\n'
    assert not rules.command_complaints(readme, 'make demo\ntimeout 90m make test </dev/null\n')
    assert rules.command_complaints(readme, 'make test\n')
    assert rules.command_complaints('nothing', 'make test\n')
    assert rules.command_complaints(readme, '# make demo\nmake test\n')


def test_unlisted():
    assert rules.unlisted_complaints(['a.sql'], "files('b.sql')", 'sql/x')
    assert not rules.unlisted_complaints(['a.sql'], "files('a.sql')", 'sql/x')
