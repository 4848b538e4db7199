# SPDX-License-Identifier: Apache-2.0
"""Waiting.  Tests wait for a condition, never for a time: the only pause of the system tests is
in here."""
import time


def wait_until(condition, timeout=10.0, what='', interval=0.01):
    """Call `condition` until it returns something true, and return that.

    An AssertionError, OSError or anything else it raises counts as "not yet"; after `timeout`
    seconds the last one is raised (or a TimeoutError that says `what`)."""
    end = time.monotonic() + timeout
    while True:
        last = None
        try:
            got = condition()
            if got:
                return got
        except Exception as e:  # noqa: BLE001: whatever it is, it may be gone in a moment
            last = e
        if time.monotonic() >= end:
            if last is not None:
                raise last
            raise TimeoutError(f'not within {timeout} s: {what or condition}')
        time.sleep(interval)


def answered(attempt, **how):
    """wait_until(attempt), but an AssertionError in it ends the wait at once and is raised: the attempt
    came through, and what it got is wrong."""
    def look():
        try:
            return attempt()
        except AssertionError as e:
            return e
    got = wait_until(look, **how)
    if isinstance(got, AssertionError):
        raise got
    return got
