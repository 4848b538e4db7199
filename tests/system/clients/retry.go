// SPDX-License-Identifier: Apache-2.0

// retry: POST with a key; net/http itself sends it again when a connection it had used before breaks,
// because it takes the key as leave to do so.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

func ask(req *http.Request, err error) (*http.Response, []byte) {
	if err == nil {
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			var body []byte
			if body, err = io.ReadAll(resp.Body); err == nil {
				resp.Body.Close()
				return resp, body
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
	return nil, nil
}

func main() {
	url, key, body := os.Args[1], os.Args[2], os.Args[3]
	ask(http.NewRequest("GET", url, nil)) // the connection has been used
	req, err := http.NewRequest("POST", url, bytes.NewReader([]byte(body)))
	req.Header.Set("Idempotency-Key", key)
	resp, got := ask(req, err)
	fmt.Printf("%d %s %x\n", resp.StatusCode, resp.Header.Get("Idempotent-Replayed"), got)
}
