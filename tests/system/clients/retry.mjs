// SPDX-License-Identifier: Apache-2.0
// retry: POST with a key through fetch(), again when it throws.
const [url, key, body] = process.argv.slice(2);
for (let left = 3; ; left--) {
  try {
    const r = await fetch(url, { method: 'POST', body, headers: { 'Idempotency-Key': key } });
    const got = Buffer.from(await r.arrayBuffer()).toString('hex');
    console.log(r.status, r.headers.get('Idempotent-Replayed') ?? '', got);
    process.exit(0);
  } catch (error) {
    console.error('again after:', error.cause ?? error);
    if (left === 1) process.exit(1);
  }
}
