#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn sql/<dialect>/*.sql into one C header: one string per file, symbol = file name.

    embed_sql.py PREFIX OUT.h FILE.sql...

`-- ` comment lines are for readers of the SQL and are left out of the string.  A line `@NAME` stands
for the text of the file NAME beside it: what several statements must say alike.  The generated
header is never committed.
"""
import pathlib
import sys


def statement(path: pathlib.Path) -> list[str]:
    """The lines that are sent to the database."""
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith('@'):
            lines += statement(path.with_name(line[1:].strip()))
        elif line.strip() and not line.lstrip().startswith('--'):
            lines.append(line.rstrip())
    return lines


def c_string(lines: list[str]) -> str:
    escaped = (line.replace('\\', '\\\\').replace('"', '\\"') for line in lines)
    return '\n'.join(f'        "{line}\\n"' for line in escaped) or '        ""'


def main() -> None:
    prefix, out, files = sys.argv[1], sys.argv[2], sorted(sys.argv[3:])
    guard = f'SQL_{prefix.upper()}_H'
    parts = [f'/* Generated from sql/{prefix}/ by tools/embed_sql.py. */',
             f'#ifndef {guard}', f'#define {guard}', '']
    names = []
    for name in files:
        path = pathlib.Path(name)
        symbol = f'sql_{prefix}_{path.stem}'
        names.append((path.stem, symbol))
        parts += [f'static const char {symbol}[] __attribute__((unused)) =',
                  c_string(statement(path)) + ';', '']
    parts.append(f'/* Every statement, for the test that prepares each. */')
    parts.append(f'#define SQL_{prefix.upper()}_ALL \\')
    for stem, symbol in names:
        parts.append(f'        {{"{stem}", {symbol}}}, \\')
    parts += ['', '#endif', '']
    pathlib.Path(out).write_text('\n'.join(parts))


if __name__ == '__main__':
    main()
