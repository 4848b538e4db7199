# SPDX-License-Identifier: Apache-2.0
"""What /metrics gives, beside what a page's table says that it gives."""
import re


def metrics_given(text):
    """{'semel_relay_rows_total': {'outcome'}, 'semel_relay_owned_slots': set(), ...}: the names, each with
    its labels; the `le` of a histogram is none of its own."""
    given = {name: set() for name in re.findall(r'^# TYPE (\S+) ', text, re.M)}
    for name, labels in re.findall(r'^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$', text, re.M):
        given[name] |= set(re.findall(r'(\w+)="', labels)) - {'le'}
    return given


def metrics_documented(page):
    """The same, of the first column of the page's tables: `name`, or `name{label,label}`."""
    column = '\n'.join(re.findall(r'^\| (`semel_[^|]*) \|', page, re.M))
    return {name: set(re.findall(r'\w+', labels))
            for name, labels in re.findall(r'`(semel_\w+)(?:\{([\w,]+)\})?`', column)}
