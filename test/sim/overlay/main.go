// Overlay writes changed copies of a few files of Go's standard library, and the file that
// go build's flag -overlay wants, so that a seed of the simulation repeats bit for bit:
//
//	go run ./test/sim/overlay DIR [PLANT]
//	CGO_ENABLED=0 go test -overlay DIR/overlay.json -tags exact ./test/sim -run Histories
//
// Calls that count rare states are added to copies of the servers' own files; see test/sim/reached. If PLANT
// names the file of a planted bug (see test/mutants), the copies have that bug.
//
// The program changes no installed file. The edits search for exact text of one Go release, and the program
// fails if it does not find a text exactly once. Inside a synctest bubble, and only there, the order of
// select, of timers at one instant and of maps comes from one stream that the test seeds. The runtime takes
// no processor away by real time while a bubble runs, and no mutex in a bubble starves by real time.
//
// If ZLOCKD_SIM_ALONE is in the environment of a process, the process makes one run and nothing else. Then
// random events before the run and beside it do not change the heap. For example, the kernel decides when
// threads begin, so their memory does not come from the heap. Such a process collects garbage only when the
// run asks for that (GOGC=off), with the world stopped (gcstoptheworld=2), and has one processor
// (GOMAXPROCS=1).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// release is the Go release for whose files the edits are made. With another release, check each edit again.
const release = "go1.26"

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/sim/overlay DIR [PLANT]")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

// write() fills a directory with the changed files and overlay.json.
func write(dir string, plants []string) error {
	if v := runtime.Version(); v != release && !strings.HasPrefix(v, release+".") {
		return fmt.Errorf("the edits are made for %s, and this is %s: look at each of them again", release, v)
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	replace := map[string]string{}
	put := func(name, text string) error {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		replace[filepath.Join(src, name)] = to
		return writeChanged(to, []byte(text))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, list := range edits {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		changed, err := apply(string(text), list)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := put(name, changed); err != nil {
			return err
		}
	}
	for name, text := range added {
		if err := put(name, text); err != nil {
			return err
		}
	}
	texts, err := servers(plants)
	if err != nil {
		return err
	}
	for path, text := range texts {
		// The ending shows that the file is not a source of the repository.
		to := filepath.Join(dir, "zlockd_"+strings.ReplaceAll(path, "/", "_")+".txt")
		full, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		replace[full] = to
		if err := writeChanged(to, []byte(text)); err != nil {
			return err
		}
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return writeChanged(filepath.Join(dir, "overlay.json"), list)
}

// writeChanged writes a file unless it already has this text.
func writeChanged(path string, text []byte) error {
	if was, err := os.ReadFile(path); err == nil && string(was) == string(text) {
		return nil
	}
	return os.WriteFile(path, text, 0o644)
}

// apply() makes edits, each of which must find its place exactly once.
func apply(text string, list []edit) (string, error) {
	var wrong error
	for _, e := range list {
		if n := strings.Count(text, e.old); n != 1 {
			wrong = errors.Join(wrong, fmt.Errorf("a place is there %d times instead of once:\n%s", n, e.old))
			continue
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, wrong
}
