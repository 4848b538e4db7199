# SPDX-License-Identifier: Apache-2.0
"""The demo plays, and notices when an expectation does not hold."""
import pathlib
import re

DEMO = pathlib.Path(__file__).resolve().parents[2] / 'examples/shop/demo'


def test_the_demo_holds_and_cleans_up(build, procs, tmp):
    p = procs.run([DEMO, build.dir], timeout=60, env={'TMPDIR': tmp})
    assert p.returncode == 0, p.logs()
    assert re.search(r'demo: all \d\d expectations held in \d+ s', p.out().splitlines()[-1])
    assert 'FAIL' not in p.out() and p.err() == ''
    assert not list(tmp.glob('shop-demo-*'))


def test_the_demo_fails_when_the_shop_does_not_keep_its_promise(build, procs, tmp):
    """A shop that is naive whatever it is told must be caught."""
    liar = tmp / 'shop'
    liar.write_text(f'#!/bin/bash\nargs=("${{@/#reserve/naive}}")\nexec {build.shop} "${{args[@]}}"\n')
    liar.chmod(0o755)
    (tmp / 'semel').symlink_to(build.semel)
    p = procs.run([DEMO, tmp], timeout=60, env={'TMPDIR': tmp})
    assert p.returncode == 1
    assert 'FAIL statuses: expected 201 409 409 409 409' in p.out()


def test_the_demo_says_what_to_do_without_a_build(procs, tmp):
    p = procs.run([DEMO, tmp], env={k: '' for k in ('SEMEL_BUILD',)})
    assert p.returncode == 1 and 'make build' in p.err()
