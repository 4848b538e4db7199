# SPDX-License-Identifier: Apache-2.0
"""Where the programs under test are: SEMEL_BUILD, or build/ of this checkout."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]

# A build without a sanitizer, which runs the large forms of tests in their full size.
FULL = os.environ.get('SEMEL_BUILD_KIND', 'gcc') in ('gcc', 'clang')

# Where meson leaves each program; `make build` also links it into the top of the build folder.
PLACES = {'semel': 'src/cmd', 'shop': 'examples/shop', 'payd': 'examples/payd',
          'billing': 'examples/billing', 'http1_show': 'tests/unit'}


class Binaries:
    def __init__(self):
        self.dir = pathlib.Path(os.environ.get('SEMEL_BUILD', ROOT / 'build')).resolve()

    def path(self, name):
        """The program `name`, which must exist: a missing program is a failure, not a skip."""
        for place in (PLACES.get(name, '.'), '.'):
            p = self.dir / place / name
            if p.is_file() and os.access(p, os.X_OK):
                return str(p)
        raise FileNotFoundError(f'{name} is not in {self.dir}: run `make build`, or set SEMEL_BUILD')

    @property
    def semel(self):
        return self.path('semel')

    @property
    def shop(self):
        return self.path('shop')
