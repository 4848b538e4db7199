#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""print_header_manual: the manual page of a public header on stdout, as scdoc reads it, from the
header's own comments and declarations.

    print_header_manual.py VERSION HEADER     the page
    print_header_manual.py --functions HEADER its functions, one a line (each is a name of the page)
"""
import pathlib
import re
import sys
import textwrap

COMMENT = re.compile(r'/\*(.*?)\*/', re.DOTALL)


def functions(text):
    code = COMMENT.sub('', text)
    return re.findall(r'^SEMEL_API[^;(]*?\b(\w+)\(', code, re.MULTILINE)


def words(comment):
    """The text of a comment, without its stars."""
    lines = [re.sub(r'^\s*\* ?', '', line) for line in comment.strip('\n').split('\n')]
    return '\n'.join(line.rstrip() for line in lines).strip('\n')


def escape(text):
    return re.sub(r"([\\*_#\-|\[\]<>`+~.'])", r'\\\1', text)


def literal(text):
    return f'```\n{text.rstrip()}\n```\n'


def laid_out(paragraph):
    """Columns, or code: filling it would destroy it."""
    return any(line.startswith(' ') or re.search(r'[^.:;?!\s]  +\S', line)
               for line in paragraph.split('\n'))


def paragraphs(text):
    out = []
    for p in re.split(r'\n\s*\n', text):
        out.append(literal(textwrap.dedent(p.strip('\n'))) if laid_out(p)
                   else escape(' '.join(p.split())) + '\n')
    return '\n'.join(out)


def declarations(text):
    """The blocks between extern "C" { and its end: (comment or '', code)."""
    body = re.search(r'extern "C" \{\n#endif\n(.*)\n#ifdef __cplusplus', text, re.DOTALL)
    for block in re.split(r'\n[ \t]*\n', body[1].strip('\n') if body else ''):
        m = COMMENT.match(block.lstrip())
        comment = words(m[1]).strip() if m else ''
        code = block.lstrip()[m.end():] if m else block
        code = re.sub(r'^SEMEL_API (.*?;)', lambda d: d[1].replace('\n' + ' ' * len('SEMEL_API '), '\n'),
                      code.strip('\n'), flags=re.MULTILINE | re.DOTALL)
        if comment or code.strip():
            yield comment, code


def page(version, path):
    text = path.read_text(encoding='utf-8')
    top = words(COMMENT.search(text)[1]).strip()
    top = top.split('\n', 1)[1].strip('\n')  # behind the licence line
    name = f'semel/{path.name}'
    assert top.startswith(f'{name}: '), f'{path}: its first comment must begin with "{name}: "'
    first, _, rest = top.partition('\n\n')
    first = ' '.join(first.split()).removeprefix(f'{name}: ')
    summary, _, more = first.partition('. ')
    libraries = ['libsemel'] + sorted(set(re.findall(r'Link (libsemel-\w+)', first)))
    out = [f'semel_{path.name}(3) "semel {version}" "The functions of libsemel"\n',
           '# NAME\n',
           f'semel_{path.name} - {escape(summary.rstrip("."))}\n',
           '# SYNOPSIS\n',
           literal(f'#include <{name}>\n\ncc ... $(pkg-config --cflags --libs {" ".join(libraries)})'),
           '# DESCRIPTION\n']
    out += [escape(more) + '\n'] if more else []
    out += [paragraphs(rest)] if rest else []
    out.append('# DECLARATIONS\n')
    for comment, code in declarations(text):
        if code.strip():
            out.append(literal(code))
        if comment:
            out.append(paragraphs(comment))
    out += ['# SEE ALSO\n', '*semel*(7)']
    print('\n'.join(out))


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == '--functions':
        print('\n'.join(functions(pathlib.Path(sys.argv[2]).read_text(encoding='utf-8'))))
    else:
        page(sys.argv[1], pathlib.Path(sys.argv[2]))
