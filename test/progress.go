//go:build ignore

// Command progress runs go test with the given arguments and prints one line for each package when it ends,
// with the number of packages left. go test alone prints the packages in their order, so that a slow
// package hides the others. The output of a failed package follows its line. Without arguments it reads the
// output of go test -json, with an unknown number of packages, from its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
)

// repeats limits how often a package runs again after its race detector crashed. In the long simulation two
// crashes in a row were seen. Each run leaves out the tests that have passed.
const repeats = 8

// passed are the tests of each package that have passed. They are left out when the package runs again.
var passed = map[string][]string{}

func main() {
	if len(os.Args) == 1 {
		failed, crashed := report(os.Stdout, os.Stdin, 0)
		fmt.Println("failed:", failed, "crashed:", strings.Join(crashed, " "), "passed:", passed)
		return
	}
	code, failed, crashed := run(os.Args[1:])
	flags, _, _ := divide(os.Args[1:])
	for n := 0; n < repeats && code != 0 && len(crashed) > 0 && failed == len(crashed); n++ {
		again := crashed
		code, failed, crashed = 0, 0, nil
		for _, pkg := range again {
			fmt.Printf("progress: the race detector itself broke off, which says nothing of the tests. Once more: "+
				"%s, without %d tests that passed\n", pkg, len(passed[pkg]))
			c, f, broke := run(append(slices.Clone(flags), "-skip=^("+strings.Join(passed[pkg], "|")+")$", pkg))
			code, failed, crashed = max(code, c), failed+f, append(crashed, broke...)
		}
	}
	os.Exit(code)
}

// run() runs go test. It returns the exit code of go test, how many packages failed, and in which of them the
// race detector itself crashed.
func run(args []string) (code, failed int, crashed []string) {
	flags, sets, total := divide(args)
	out, in := io.Pipe()
	errs := make([]error, len(sets))
	var lines sync.Mutex
	var running sync.WaitGroup
	for i, set := range sets {
		running.Go(func() { errs[i] = goTest(slices.Concat(flags, set), in, &lines) })
	}
	go func() {
		running.Wait()
		in.Close()
	}()
	failed, crashed = report(os.Stdout, out, total)
	for _, err := range errs {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = max(code, exit.ExitCode())
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "progress:", err)
			code = max(code, 1)
		}
	}
	if failed > 0 && code == 0 {
		fmt.Fprintln(os.Stderr, "progress: failed:", failed)
		code = 1
	}
	return code, failed, crashed
}

// goTest runs go test and writes its output to w, line by line.
func goTest(args []string, w io.Writer, lines *sync.Mutex) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		lines.Lock()
		w.Write(line)
		lines.Unlock()
		if err != nil {
			return cmd.Wait()
		}
	}
}

// divide() separates the flags from the packages, and returns the number of packages. Each set of packages is
// for one call of go test, because go test -o DIR/ refuses two packages whose programs have the same name.
func divide(args []string) (flags []string, sets [][]string, total int) {
	var patterns []string
	for _, a := range args {
		if strings.HasPrefix(a, "./") || strings.HasPrefix(a, "github.com/") {
			patterns = append(patterns, a)
		} else {
			flags = append(flags, a)
		}
	}
	out, err := exec.Command("go", append([]string{"list"}, patterns...)...).Output()
	if err != nil {
		return flags, [][]string{patterns}, 0 // go test says what is wrong
	}
	same := map[string]int{}
	for _, pkg := range strings.Fields(string(out)) {
		n := same[path.Base(pkg)]
		same[path.Base(pkg)]++
		if n == len(sets) {
			sets = append(sets, nil)
		}
		sets[n] = append(sets[n], pkg)
		total++
	}
	return flags, sets, total
}

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // the package whose build fails
	Test       string
	Elapsed    float64
	Output     string
}

// detectorBroke reports whether the race detector crashed instead of finding a race: by a failed check of its
// own, or by a signal in the runtime beneath it. If a Go program itself reads a wrong address, it says
// "panic" and "[signal SIGSEGV" instead.
func detectorBroke(text string) bool {
	return !strings.Contains(text, "WARNING: DATA RACE") &&
		(strings.Contains(text, "ThreadSanitizer: CHECK failed") ||
			strings.Contains(text, "SIGSEGV: segmentation violation\nPC="))
}

// report() prints the events that it reads from `in`, for `total` packages. It returns how many packages
// failed, and in which the race detector itself crashed.
func report(w io.Writer, in io.Reader, total int) (failed int, crashed []string) {
	said := map[string][]string{} // output of each package or build
	ended := 0
	for d := json.NewDecoder(in); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			return failed, crashed
		} else if err != nil {
			fmt.Fprintln(w, "progress: cannot read what go test says:", err)
			return failed + 1, crashed
		}
		of := e.Package
		if of == "" {
			of = e.ImportPath
		}
		switch {
		case e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/"):
			passed[of] = append(passed[of], e.Test)
		case e.Output != "":
			said[of] = append(said[of], e.Output)
		case e.Action == "build-fail":
			fmt.Fprint(w, strings.Join(said[of], ""))
			delete(said, of)
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			ended++
			if e.Action == "skip" { // the package has no tests
				continue
			}
			verdict := "ok  "
			if e.Action == "fail" {
				failed++
				verdict = "FAIL"
			}
			fmt.Fprintf(w, "%s %3d of %d  %6.1f s  %s\n", verdict, ended, total, e.Elapsed, of)
			if e.Action == "fail" {
				text := strings.Join(worthReading(said[of]), "")
				if detectorBroke(text) {
					crashed = append(crashed, of)
				}
				fmt.Fprint(w, text)
			}
			delete(said, of)
		}
	}
}

// worthReading removes the output of passed tests from that of a failed package.
func worthReading(lines []string) (list []string) {
	for _, l := range lines {
		head := strings.TrimSpace(l)
		if strings.HasPrefix(head, "=== ") || strings.HasPrefix(head, "--- PASS") ||
			strings.HasPrefix(head, "--- SKIP") {
			continue
		}
		list = append(list, l)
	}
	return list
}
