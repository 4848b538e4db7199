# SPDX-License-Identifier: Apache-2.0
"""What is installed can be used by those who have nothing but it: pkg-config, headers and
libraries, from C and C++; and the README's own example is one of the programs."""
import os
import re
import subprocess

import pytest

from support.binaries import ROOT

# Without Kafka (the thread sanitizer's build) libsemel-kafka is not there, and the set is not whole.
pytestmark = pytest.mark.kafka

# A program that links sanitized libraries must be sanitized itself.
FLAGS = {'asan': ['-fsanitize=address,undefined'], 'tsan': ['-fsanitize=thread']}.get(
    os.environ.get('SEMEL_BUILD_KIND', ''), [])

LIBRARIES = ['libsemel', 'libsemel-sqlite', 'libsemel-postgres', 'libsemel-http', 'libsemel-kafka']

CPP = r'''
#include <cstdio>
#include <cstring>
#include <semel/call.h>
#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

static semel_effect work(void *arg, semel_claim *claim, semel_reply *reply)
{
        ++*static_cast<int *>(arg);
        semel_reply_set_status(reply, semel_claim_token(claim) > 0 ? 7 : 0);
        return SEMEL_EFFECT_DONE;
}

int main()
{
        semel_postgres_register();
        semel_sqlite_register();
        semel_error *err = semel_error_new();
        semel_store *st = nullptr;
        if (semel_store_open("memory:", &st, err) != SEMEL_OK)
                return 1;
        const char *parts[] = {"order-7", "charge"};
        char key[SEMEL_KEY_BYTES_MAX + 1];
        if (semel_key_join(parts, 2, key, err) != SEMEL_OK || std::strcmp(key, "order-7:charge") != 0)
                return 2;
        int runs = 0;
        semel_command *cmd = semel_command_new(key, std::strlen(key), err);
        for (int i = 0; i < 3; i++) {
                semel_reply *reply = nullptr;
                semel_outcome outcome = semel_run(st, cmd, work, &runs, &reply, err);
                std::printf("%s %d\n", semel_outcome_name(outcome), semel_reply_status(reply));
                semel_reply_free(reply);
        }
        semel_command_free(cmd);
        semel_call *call = semel_call_new("POST", "http://127.0.0.1:1/nobody", key, err);
        semel_call_set_store(call, st, err);
        semel_call_set_attempts_max(call, 1, err);
        std::printf("%s\n", semel_call_result_name(semel_call_run(call, nullptr, err)));
        semel_call_free(call);
        semel_store_close(st);
        semel_error_free(err);
        return runs == 1 ? 0 : 3;
}
'''


@pytest.fixture(scope='module')
def installed(build, tmp_path_factory):
    """A prefix into which everything was installed."""
    root = tmp_path_factory.mktemp('install')
    r = subprocess.run(['meson', 'install', '-C', str(build.dir), '--no-rebuild', '--destdir', str(root)],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    return root


@pytest.fixture
def env(installed):
    libs = {str(p.parent) for p in installed.rglob('libsemel.so')}
    assert len(libs) == 1
    (lib,) = libs
    return {**os.environ, 'PKG_CONFIG_PATH': f'{lib}/pkgconfig', 'LD_LIBRARY_PATH': lib,
            'PKG_CONFIG_SYSROOT_DIR': str(installed)}


def compile_and_link(compiler, source, program, libraries, env):
    flags = subprocess.run(['pkg-config', '--cflags', '--libs', *libraries], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
    r = subprocess.run([*compiler, '-Wall', '-Wextra', '-Werror', '-o', program, source, *FLAGS,
                        *flags], env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return program


def test_the_example_of_the_readme_runs_once(procs, tmp, env):
    source = tmp / 'once.c'
    source.write_text(re.search(r'```c\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL)[1])
    once = compile_and_link(['gcc', '-std=c11'], source, tmp / 'once',
                            ['libsemel', 'libsemel-sqlite'], env)
    first = procs.run([once], cwd=tmp, env=env)
    again = procs.run([once], cwd=tmp, env=env)
    assert (first.returncode, first.out()) == (0, 'creating Widget\nran: 201\n'), first.err()
    assert (again.returncode, again.out()) == (0, 'replayed: 201\n'), again.err()


def test_the_libraries_serve_cpp(procs, tmp, env):
    source = tmp / 'once.cpp'
    source.write_text(CPP)
    once = compile_and_link(['g++', '-std=c++11'], source, tmp / 'once', LIBRARIES, env)
    p = procs.run([once], env=env)
    assert (p.returncode, p.out()) == (0, 'ran 7\nreplayed 7\nreplayed 7\nerror\n'), p.err()


@pytest.mark.parametrize('library', LIBRARIES)
def test_a_library_exports_public_names_only(installed, library):
    (path,) = [p for p in installed.rglob(f'{library}.so')]
    out = subprocess.run(['nm', '-D', '--defined-only', str(path)], check=True, capture_output=True,
                         text=True).stdout
    names = {line.split()[-1] for line in out.splitlines()}
    declared = ''.join(p.read_text() for p in (ROOT / 'include/semel').glob('*.h'))
    assert names
    # How a driver library makes itself known to libsemel; AddressSanitizer adds names too.
    inner = ('semel_internal_', '__asan', '__odr') if FLAGS else ('semel_internal_',)
    strange = {n for n in names if not re.search(rf'\b{n}\(', declared)}
    assert not {n for n in strange if not n.startswith(inner)}


def test_every_declared_function_is_in_a_library(installed):
    exported = set()
    for library in LIBRARIES:
        for path in installed.rglob(f'{library}.so'):
            out = subprocess.run(['nm', '-D', '--defined-only', str(path)], check=True,
                                 capture_output=True, text=True).stdout
            exported |= {line.split()[-1] for line in out.splitlines()}
    declared = set()
    for header in (ROOT / 'include/semel').glob('*.h'):
        text = re.sub(r'/\*.*?\*/', '', header.read_text(), flags=re.DOTALL)
        declared |= set(re.findall(r'^SEMEL_API[^;(]*?(\w+)\(', text, re.MULTILINE))
    assert declared and not declared - exported


def test_every_public_header_is_installed(installed):
    here = {p.name for p in (ROOT / 'include/semel').glob('*.h')}
    assert here == {p.name for p in installed.rglob('include/semel/*.h')}
