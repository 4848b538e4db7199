# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md does what it says: its commands are run, its outputs compared."""
import pathlib
import re

import pytest

from ports import free_port

DOC = pathlib.Path(__file__).resolve().parents[2] / 'docs/tutorial.md'
MARK = '### next command'


def steps(text):
    """[(command, expected lines)] of the console blocks: `$ ` begins a command, `> ` continues
    it, anything else is its output."""
    out = []
    for block in re.findall(r'^```console\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith('$ '):
                out.append((line[2:], []))
            elif line.startswith('> '):
                out[-1] = (out[-1][0] + '\n' + line[2:], out[-1][1])
            else:
                out[-1][1].append(line)
    return out


def fits(expected, line):
    """`...` stands for anything."""
    return re.fullmatch('.*?'.join(re.escape(p) for p in expected.split('...')), line) is not None


def test_steps_and_fits():
    assert steps('x\n```console\n$ a \\\n>   b\n1\n\n2\n$ c\n```\n') == [
        ('a \\\n  b', ['1', '', '2']), ('c', [])]
    assert fits('Date: ...', 'Date: now') and not fits('Date: ...', 'Data: now')
    assert fits('{"a":"...","b":1}', '{"a":"x","b":1}') and not fits('5 201', '4 201')


def play(build, procs, home, todo):
    """Run the commands in a shell of their own; the first one with another output and that output, or None."""
    (home / 'build').mkdir(parents=True)
    (home / 'build/shop').symlink_to(build.shop)
    for name in ('payd', 'billing', 'semel'):
        (home / 'build' / name).symlink_to(build.path(name))
    (home / 'examples').symlink_to(DOC.parents[1] / 'examples')
    script = '\n'.join(f"{command}\necho '{MARK}'" for command, _ in todo)
    script = 'trap "kill \\$(jobs -p)" EXIT\n' + script.replace(
        '8080', str(free_port())).replace('8090', str(free_port()))
    (home / 'script').write_text(script)
    p = procs.run(['bash', 'script'], cwd=home, timeout=300)
    got = [part.strip('\n').split('\n') for part in p.out().split(MARK)]
    for (command, expected), lines in zip(todo, got):
        lines = [line.rstrip('\r') for line in lines if line != ''] if expected == [] else \
            [line.rstrip('\r') for line in lines]
        if len(lines) != len(expected) or not all(map(fits, expected, lines)):
            return command, f'{command}\nexpected: {expected}\ngot:      {lines}\n{p.err()}'
    assert len(got) == len(todo) + 1
    return None


@pytest.mark.kafka
def test_every_command_of_the_tutorial(build, procs, tmp):
    """The outputs of a race are those of a machine that starts five programs while a command of one second
    runs.  One that is too busy for it gets two more tries; nothing else does."""
    todo = steps(DOC.read_text())
    assert len(todo) > 20
    for number in range(3):
        wrong = play(build, procs, tmp / str(number), todo)
        if wrong is None or not wrong[0].startswith('five '):
            break
    assert wrong is None, wrong[1]
