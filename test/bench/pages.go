package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// look() opens n pages of the lock view, spread over the side's servers. The pages poll once a second, as the
// page's script does. look() returns a function that closes the pages and reports how often a page failed.
func (s *side) look(n int) (closed func() error) {
	stop, missed := make(chan struct{}), make([]int, n)
	var pages sync.WaitGroup
	for i := range n {
		pages.Go(func() {
			url := "http://" + s.steady.Servers[i%len(s.steady.Servers)].Admin + "/?tab=locks"
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			etag := ""
			for {
				if next, err := page(url, etag); err != nil {
					missed[i]++
				} else {
					etag = next
				}
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	return func() error {
		close(stop)
		pages.Wait()
		for i, m := range missed {
			if m > 0 {
				return fmt.Errorf("page %d was not had %d times", i+1, m)
			}
		}
		return nil
	}
}

// page() fetches a page and returns its new etag. The server sends no text if the page still has the old
// etag.
func page(url, etag string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return "", err
	}
	if r.StatusCode != http.StatusOK && r.StatusCode != http.StatusNotModified {
		return "", fmt.Errorf("%s: %s", url, r.Status)
	}
	return r.Header.Get("ETag"), nil
}
