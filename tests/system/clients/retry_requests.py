# SPDX-License-Identifier: Apache-2.0
"""POST with a key through requests; urllib3 sends it again."""
import sys

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

url, key, body = sys.argv[1:]
session = requests.Session()
session.mount('http://', HTTPAdapter(max_retries=Retry(total=3, backoff_factor=0.1,
                                                       allowed_methods=frozenset(['POST']))))
r = session.post(url, data=body.encode(), headers={'Idempotency-Key': key})
print(r.status_code, r.headers.get('Idempotent-Replayed', ''), r.content.hex())
