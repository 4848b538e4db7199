# SPDX-License-Identifier: Apache-2.0
"""The rules about the tree itself, as functions from text to complaints.  test_tree.py applies
them to the tree; test_rules.py shows of each that it can fail."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# -- text of C ------------------------------------------------------------------------------


def blank(text, strings=True):
    """C with comments (and strings) blanked out, lines and columns kept."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def replace(m):
        s = m.group(0)
        if s[0] in '"\'' and not strings:
            return s
        return re.sub(r'[^\n]', ' ', s)
    return token.sub(replace, text)


def line_of(text, position):
    return text.count('\n', 0, position) + 1


# -- layers ---------------------------------------------------------------------------------

# Who may include whom; base is for all.  docs/architecture.md has the picture.
LAYERS = {
    'base': set(),
    'core': set(),
    'sys': {'core'},
    'json': {'core'},
    'store': {'json', 'sys', 'core'}, 'bus': {'json', 'sys', 'core'},
    'net': {'store', 'sys', 'core'},  # the store's interface: a loop drives it (docs/architecture.md)
    'call': {'sys', 'core'}, 'conf': {'sys', 'core'},
    'consume': {'json', 'store', 'bus', 'sys', 'core'},  # their interfaces
    'api': {'json', 'consume', 'store', 'bus', 'call', 'sys', 'core'},
    'app': {'json', 'consume', 'net', 'conf', 'store', 'bus', 'api', 'sys', 'core'},
    'cmd': {'json', 'app', 'bus', 'api', 'conf', 'sys', 'core'},
}

# Each foreign header, and the one folder that may include it.
FOREIGN = {
    'sqlite3.h': 'src/store/sqlite/',
    'libpq-fe.h': 'src/store/postgres/',
    'libpq-events.h': 'src/store/postgres/',
    'librdkafka/': 'src/bus/',
    'threads.h': 'tests/support/',
    'curl/curl.h': 'src/call/',
    'uv.h': 'src/net/',
    'yaml.h': 'src/conf/',
    'openssl/ssl.h': 'src/net/',
    'openssl/': 'src/sys/',
    'jansson.h': 'src/json/',
    'microhttpd.h': 'examples/',
    'cmocka.h': 'tests/',
}
# An example holds its own connection to its database, and reads JSON its own way.
EXAMPLES_TOO = {'sqlite3.h', 'libpq-fe.h', 'jansson.h'}

# What pure code may use of the C library: types and memory, nothing that acts.  (stdio.h is for
# snprintf; that nothing else of it is used, the symbols of libcore show.)
PURE = {'assert.h', 'inttypes.h', 'limits.h', 'stdarg.h', 'stdbool.h', 'stddef.h', 'stdint.h',
        'stdio.h', 'string.h'}
SYSTEM = PURE | {
    'ctype.h', 'dirent.h', 'errno.h', 'fcntl.h', 'float.h', 'getopt.h', 'grp.h', 'langinfo.h',
    'linux/magic.h', 'locale.h', 'math.h', 'netdb.h', 'netinet/in.h', 'netinet/tcp.h', 'poll.h', 'pthread.h',
    'pwd.h', 'sched.h', 'semaphore.h', 'setjmp.h', 'signal.h', 'spawn.h',
    'stdatomic.h', 'stdio.h',
    'stdlib.h', 'strings.h', 'sys/eventfd.h', 'sys/file.h', 'sys/mman.h', 'sys/mount.h', 'sys/param.h',
    'sys/prctl.h', 'sys/random.h', 'sys/ptrace.h', 'sys/resource.h', 'sys/select.h',
    'sys/socket.h', 'sys/stat.h', 'sys/statfs.h', 'sys/statvfs.h', 'sys/syscall.h',
    'sys/time.h', 'sys/timerfd.h', 'sys/types.h', 'sys/un.h', 'sys/user.h', 'sys/utsname.h',
    'sys/vfs.h', 'sys/wait.h', 'syslog.h', 'termios.h', 'time.h', 'unistd.h', 'dlfcn.h',
    'arpa/inet.h', 'net/if.h', 'malloc.h', 'sysexits.h', 'libgen.h', 'sys/signalfd.h',
    'sys/epoll.h', 'sys/uio.h', 'sys/ioctl.h', 'elf.h',
}
# `#include "x.h"` of these is one of our own folders under src/.
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def foreign_home(header):
    for prefix, home in FOREIGN.items():
        if header == prefix or (prefix.endswith('/') and header.startswith(prefix)):
            return home
    return None


def layer_complaints(path, text):
    """path: relative to the root, with slashes."""
    out = []
    parts = path.split('/')
    layer = parts[1] if parts[0] == 'src' else None
    for m in INCLUDE.finditer(blank(text, strings=False)):
        kind, header = m.groups()
        where = f'{path}:{line_of(text, m.start())}'
        home = foreign_home(header)
        if home is not None:
            allowed = path.startswith(home) or parts[0] in ('tests', 'fuzz', 'bench')
            if parts[0] == 'examples' and header in EXAMPLES_TOO:
                allowed = True
            if not allowed:
                out.append(f'{where}: <{header}> belongs to {home} alone')
        elif header.startswith('semel/'):
            if layer in ('base', 'core', 'sys') and header != 'semel/error.h':
                out.append(f'{where}: {layer} may include no public header but semel/error.h')
        elif kind == '<':
            if header not in SYSTEM:
                out.append(f'{where}: <{header}> is unknown: add it to tests/tidy/rules.py, with its one folder')
            elif layer == 'core' and header not in PURE:
                out.append(f'{where}: core is pure and may not include <{header}>')
        elif '/' in header:
            to = header.split('/')[0]
            if to not in LAYERS:
                out.append(f'{where}: "{header}" names no layer')
            elif parts[0] in ('examples', 'include'):
                out.append(f'{where}: {parts[0]} sees only include/semel, not "{header}"')
            elif layer is not None and to not in (layer, 'base') and to not in LAYERS[layer]:
                out.append(f'{where}: {layer} may not include {to} ("{header}")')
            elif layer == 'store' and to == 'store' and header.count('/') > 1:
                mine = parts[2] if len(parts) > 3 else ''
                if mine and header.split('/')[1] != mine:
                    out.append(f'{where}: one store may not include another ("{header}")')
            elif layer in ('app', 'cmd', 'net') and to in ('store', 'bus') and header.count('/') > 1:
                out.append(f'{where}: {layer} may not see a driver ("{header}")')
    return out


# -- libcore's undefined symbols --------------------------------------------------------------

CORE_SYMBOLS = {'memcpy', 'memcmp', 'memset', 'memmove', 'memchr', 'strlen', 'strcmp', 'strncmp',
                'strcspn', 'strspn', 'strchr', 'snprintf',
                '__assert_fail', '__stack_chk_fail', '_GLOBAL_OFFSET_TABLE_'}


def symbol_complaints(undefined, defined_by_core, defined_by_base):
    return [f'libcore needs {s}, which is not on the list of pure symbols'
            for s in sorted(set(undefined) - set(defined_by_core) - set(defined_by_base) - CORE_SYMBOLS)]


# -- sizes ------------------------------------------------------------------------------------

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70


def file_length_complaints(path, text):
    n = text.count('\n')
    if n <= FILE_LINES_MAX or 'why this file is long:' in '\n'.join(text.splitlines()[:30]):
        return []
    return [f'{path}: {n} lines; split it, or say "why this file is long:" at its top']


def function_length_complaints(path, text):
    out, start = [], None
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line == '{':
            start = i
        elif line == '}' and start is not None:
            n = i - start + 1
            near = '\n'.join(lines[max(0, start - 20):i])
            if n > FUNCTION_LINES_MAX and 'why this function is long:' not in near:
                out.append(f'{path}:{start}: a function of {n} lines; split it, or say '
                           '"why this function is long:" above it')
            start = None
    return out


# -- calls ------------------------------------------------------------------------------------

BANNED = {
    'strcpy': 'no bound', 'strcat': 'no bound', 'sprintf': 'no bound', 'vsprintf': 'no bound',
    'gets': 'no bound', 'strncpy': 'may leave no NUL', 'strncat': 'its bound is not the size',
    'stpcpy': 'no bound', 'atoi': 'hides errors', 'atol': 'hides errors', 'atoll': 'hides errors',
    'atof': 'hides errors', 'strtok': 'shared state', 'alloca': 'no bound', 'rand': 'predictable',
    'srand': 'predictable', 'random': 'predictable', 'system': 'a shell', 'popen': 'a shell',
    'tmpnam': 'a race', 'mktemp': 'a race', 'asctime': 'shared state', 'ctime': 'shared state',
    'localtime': 'shared state', 'gmtime': 'shared state', 'strerror': 'shared state',
    'setenv': 'not safe with threads', 'vfork': 'shares memory', 'usleep': 'obsolete',
}
CALL = re.compile(r'(?<![\w>.])(' + '|'.join(BANNED) + r')\s*\(')


def banned_complaints(path, text):
    """A line, or the line above it, may say `allowed: why` in a comment."""
    lines = text.splitlines()
    out = []
    for m in CALL.finditer(blank(text)):
        n = line_of(text, m.start())
        if not any('allowed:' in s for s in lines[max(0, n - 2):n]):
            out.append(f'{path}:{n}: {m.group(1)}() is banned: {BANNED[m.group(1)]}')
    return out


SLEEPS = {
    '.py': re.compile(r'\btime\.sleep\s*\(|^\s*from time import .*\bsleep\b', re.MULTILINE),
    '.c': re.compile(r'(?<!\w)(sleep|usleep|nanosleep|clock_nanosleep)\s*\('),
    '.sh': re.compile(r'^\s*sleep\s', re.MULTILINE),
}
SLEEP_HOMES = ('tests/support/', 'tests/system/support/')


def sleep_complaints(path, text):
    """Tests wait for conditions.  The waiting itself lives in the support folders; an
    `allowed: why` on the line or above it is for what is not waiting."""
    if not path.startswith('tests/') or path.startswith(SLEEP_HOMES):
        return []
    suffix = pathlib.PurePath(path).suffix
    if suffix not in ('.py', '.c', '.h'):
        suffix = '.sh' if text.startswith('#!') and 'sh' in text.splitlines()[0] else None
    rx = SLEEPS.get('.c' if suffix == '.h' else suffix)
    if rx is None:
        return []
    lines = text.splitlines()
    searched = blank(text) if suffix in ('.c', '.h') else text
    return [f'{path}:{n}: a bare sleep; wait for the condition instead'
            for n in (line_of(text, m.end()) for m in rx.finditer(searched))
            if not any('allowed:' in s for s in lines[max(0, n - 2):n])]


# -- words that must not be in the tree -------------------------------------------------------

FOREIGN_PLACES = re.compile('|'.join((r'\.\./sha' 'red', r'(?<![\w.-])/wo' r'rk/', r'/tmp/' 'b-',
                                      r'(?<![\w.-])/ro' r'ot/', r'/tmp/te' 'am')))


def place_complaints(path, text):
    return [f'{path}:{line_of(text, m.start())}: names a place of one machine: {m.group(0)}'
            for m in FOREIGN_PLACES.finditer(text)]


def spdx_complaints(path, text):
    if 'SPDX-License-Identifier: Apache-2.0' in '\n'.join(text.splitlines()[:5]):
        return []
    return [f'{path}: no SPDX line at its top']


# -- documentation ------------------------------------------------------------------------------

def public_doc_complaints(path, text):
    """Each block of declarations (no blank line inside) of a public header begins with a
    comment."""
    out = []
    line_no = 1
    for block in re.split(r'\n[ \t]*\n', text):
        code = blank(block)
        if 'SEMEL_API' in code and '#define' not in code and not block.lstrip().startswith('/*'):
            name = re.search(r'(\w+)\s*\(', code)
            out.append(f'{path}:{line_no}: {name.group(1) if name else "?"} has no comment above it')
        line_no += block.count('\n') + 2
    return out


LINK = re.compile(r'(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)')


def heading_anchors(text):
    out = set()
    for m in re.finditer(r'^#+ +(.*?)\s*$', text, re.MULTILINE):
        s = re.sub(r'[`*_]', lambda c: '_' if c.group(0) == '_' else '', m.group(1).lower())
        out.add(re.sub(r'[^\w\- ]', '', s).replace(' ', '-'))
    return out


def link_complaints(path, text, read):
    """read(relative path) -> text, or None when there is no such file or folder."""
    out = []
    plain = re.sub(r'```.*?```', lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text, flags=re.DOTALL)
    for m in LINK.finditer(plain):
        target = m.group(1)
        if re.match(r'[a-z]+:', target):
            continue
        where = f'{path}:{line_of(plain, m.start())}'
        file, _, anchor = target.partition('#')
        full = path
        if file:
            full = str(pathlib.PurePosixPath(path).parent / file)
            stack = []
            for part in full.split('/'):
                if part == '..' and stack:
                    stack.pop()
                elif part not in ('.', ''):
                    stack.append(part)
            full = '/'.join(stack)
        content = text if not file else read(full)
        if content is None:
            out.append(f'{where}: {target} does not exist')
        elif anchor and full.endswith('.md') and anchor not in heading_anchors(content):
            out.append(f'{where}: {full} has no heading #{anchor}')
    return out


RULE_HEADING = re.compile(r'^#+ ([A-D]\d+[a-z]?)\b', re.MULTILINE)


def rule_ids(rules_md):
    return set(RULE_HEADING.findall(rules_md))


def mutant_complaints(names, rules_md, cases_md):
    """Each tests/mutants/<id>[-what].patch names a rule of docs/rules.md or a case of
    docs/cases.md."""
    known = {r.lower() for r in rule_ids(rules_md)}
    known |= {m.group(1).lower() for m in CASE_ROW.finditer(cases_md)}
    out = []
    for name in names:
        m = re.match(r'([a-dho]\d+[a-z]?)(?:[-_.]|$)', name.lower())
        if not m or m.group(1) not in known:
            out.append(f'tests/mutants/{name}: names no rule of docs/rules.md, and no case')
    return out


CASE_ROW = re.compile(r'^\| *([HO]\d+[a-z]?) *\|(.*)\|\s*$', re.MULTILINE)


def case_complaints(cases_md, tests_text):
    """Each row's last column is `tested: ` and test names in backticks, `not yet: why`, or `not here: why`."""
    out = []
    for m in CASE_ROW.finditer(cases_md):
        case, cells = m.group(1), [c.strip() for c in m.group(2).split('|')]
        state = cells[-1]
        if state.startswith('tested'):
            names = re.findall(r'`(\w+)`', state)
            if not names:
                out.append(f'{case}: tested by what?')
            out += [f'{case}: there is no test {n}' for n in names
                    if not re.search(rf'\b{n}\b', tests_text)]
            if names and not any(case.lower() in n.split('_') for n in names):
                out.append(f'{case}: no test has it in its name')
        elif not re.match(r'not (yet|here): \w', state):
            out.append(f'{case}: the last column must say `tested: name`, `not yet: why` or `not here: why`, not {state!r}')
    return out


def package_list(packages_txt):
    return [s.strip() for s in packages_txt.splitlines()
            if s.strip() and not s.startswith(('#', '['))]


def dependency_complaints(packages_txt, dependencies_md):
    listed = set(package_list(packages_txt))
    told = set(re.findall(r'^\| *`([\w.+-]+)`', dependencies_md, re.MULTILINE))
    return ([f'{p}: in tools/packages.txt, but docs/dependencies.md gives no reason' for p in sorted(listed - told)] +
            [f'{p}: in docs/dependencies.md, but not in tools/packages.txt' for p in sorted(told - listed)])


def command_complaints(readme_md, ci_run):
    """The commands of the README's first console block are those that .ci/run calls."""
    m = re.search(r'```(?:console|sh)\n(.*?)```', readme_md, re.DOTALL)
    told = re.findall(r'^(?:\$ )?(make \w+)', m.group(1), re.MULTILINE) if m else []
    called = re.findall(r'^[^#\n]*?\b(make (?:demo|test|build))\b', ci_run, re.MULTILINE)
    if told and told == called:
        return []
    return [f'the README says {told}, .ci/run calls {called}']


def unlisted_complaints(folder_files, meson_text, folder):
    return [f'{folder}/{f} is not in {folder}/meson.build' for f in sorted(folder_files)
            if f not in meson_text]
