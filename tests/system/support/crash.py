# SPDX-License-Identifier: Apache-2.0
"""What the tests of tests/crash share: a kill at each boundary, on lines that work side by side."""
import argparse
import collections
import concurrent.futures
import contextlib
import os
import pathlib

# So many points must have struck unfinished work; a handful may all miss.
POINTS_THAT_SHOULD_STRIKE = 20


class Broken(Exception):
    """A promise was broken."""


def child_of(process):
    """Its pid, or 0: it has none yet."""
    try:
        children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text()
        return int((children.split() or [0])[0])
    except FileNotFoundError:
        return 0


def signal_child(process, sig):
    """Unless it is gone meanwhile: its pid is 0 then, and that is our own process group."""
    pid = child_of(process)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def arguments(doc, jobs=3):
    """A parser with what all of them take."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    how = p.add_mutually_exclusive_group(required=True)
    how.add_argument('--all', action='store_true', help='every boundary')
    how.add_argument('--evenly', type=int, metavar='N', help='N boundaries, evenly spread')
    p.add_argument('--jobs', type=int, default=jobs)
    return p


def boundaries(total, evenly, begin=1):
    """All from 1, or `evenly` of them from `begin`, evenly spread."""
    if not evenly:
        return range(1, total + 1)
    return sorted({begin + i * (total - begin) // max(evenly - 1, 1) for i in range(evenly)})


def tell(name, n, total, found):
    print(f'{name}: {n} of {total} boundaries')
    for what, count in sorted(found.items()):
        print(f'    {count:5} x {what}')


def sweep(name, new_line, evenly, jobs, unfinished):
    """new_line(i): a Line with point(n), which dies at the n-th stop of its work (0: never) and returns
    the stops; finish(); found, a Counter; close(keep).  `unfinished`: what must have been found."""
    lines = [new_line(0)]

    def run(line, points):
        for n in points:
            line.point(n)
        line.finish()

    try:
        total = min(lines[0].point(0) for _ in range(3))
        lines[0].found.clear()
        points = boundaries(total, evenly)
        lines += [new_line(i) for i in range(1, min(jobs, len(points)))]
        with concurrent.futures.ThreadPoolExecutor(len(lines)) as pool:
            list(pool.map(run, lines, [points[i::len(lines)] for i in range(len(lines))]))
        found = sum((line.found for line in lines), collections.Counter())
        tell(name, len(points), total, found)
        if len(points) >= POINTS_THAT_SHOULD_STRIKE and not found[unfinished]:
            raise Broken(f'{name}: no kill struck unfinished work')
        for line in lines:
            line.close(keep=False)
    except BaseException:
        for line in lines:
            line.close(keep=True)
        raise
