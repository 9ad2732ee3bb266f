// Command fenced-server is a resource that checks fencing tokens: a store of small documents, each guarded by
// the lock /locks/NAME. It needs no lock client and never talks to the lock server; it keeps the highest
// token of each document on disk, beside the document.
//
//	go run ./examples/fenced-server --dir /tmp/documents &
//	zlock run /locks/plan -- sh -c \
//	  'curl -sf -X PUT -H "Zlock-Sequencer: $ZLOCK_SEQUENCER" -d hello localhost:8080/plan'
//
// A writer that lost the lock without knowing it receives 412 Precondition Failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/client/fence"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "listen on this address")
	dir := flag.String("dir", "documents", "keep documents and tokens in this directory")
	flag.Parse()
	h, err := newServer(*dir)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", *addr)
	srv := &http.Server{Addr: *addr, Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(srv.ListenAndServe())
}

// newServer serves GET /NAME to all and PUT /NAME to the holder of /locks/NAME.
func newServer(dir string) (http.Handler, error) {
	tokens, err := fence.NewFileStore(filepath.Join(dir, "tokens"))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(document(dir, r))
		if errors.Is(err, fs.ErrNotExist) {
			http.NotFound(w, r)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(b)
	})
	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The gate blocks later holders until this function returns, and ends the request's context
		// when a later holder comes. No part of this write may happen after the return.
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = r.Context().Err()
		}
		if err == nil {
			err = os.WriteFile(document(dir, r), b, 0o600)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s, _ := fence.FromContext(r.Context())
		fmt.Fprintf(w, "written under token %s\n", s.Token)
	})
	mux.Handle("PUT /{name}", &fence.Handler{
		Gate: fence.NewGate(tokens),
		Next: put,
		Lock: func(r *http.Request) string { return "/locks/" + r.PathValue("name") },
	})
	return mux, nil
}

// document() returns the file of the request's document. It escapes the name, because two
// documents with different locks must not share a file.
func document(dir string, r *http.Request) string {
	return filepath.Join(dir, "doc-"+url.PathEscape(r.PathValue("name")))
}
