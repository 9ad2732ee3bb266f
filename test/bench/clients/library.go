package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// point is one measurement, with the field names of test/bench/locks, which the other programs
// repeat.
type point struct {
	Acquired   int         `json:"acquired"`
	PerSecond  float64     `json:"perSecond"`
	Acquire    percentiles `json:"acquireMs"`
	Handoff    percentiles `json:"handoffMs"`
	Events     *float64    `json:"eventsPerAcquire"` // nil: unknown
	Requests   float64     `json:"serverRequestsPerAcquire"`
	Violations int         `json:"violations"`
}

type percentiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// library is one of the compared libraries.
type library struct {
	name, what string
	most       int // the most waiters in a measurement
	prepare    func(*bench) error
	command    func(b *bench, path string, waiters int) []string
}

var libraries = []*library{
	{name: "zlock", what: "package client, `Mutex`", most: 1000, command: ours("mutex")},
	{name: "zlock-early", what: "package client, `Mutex` with `WithEarlyUnlock`", most: 1000,
		command: ours("mutex-early")},
	{name: "go-zookeeper", what: "go-zookeeper, `Lock`", most: 1000, command: ours("go-zookeeper")},
	{name: "curator", what: "Curator, `InterProcessMutex`", most: 100, prepare: compile,
		command: func(b *bench, path string, waiters int) []string {
			return b.foreign([]string{"java", "-XX:+UseSerialGC", "-Xmx512m",
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
				"-cp", b.dir + ":" + javaClasses, "LockBench"}, path, waiters)
		}},
	{name: "kazoo", what: "kazoo, `Lock`", most: 100, prepare: importKazoo,
		command: func(b *bench, path string, waiters int) []string {
			return b.foreign([]string{python, filepath.Join(b.source, "lockbench.py")}, path, waiters)
		}},
	{name: "children-watch", what: "all waiters watch the directory", most: 100,
		command: ours("children-watch")},
}

// Debian's jars, and the Python interpreter that has Debian's kazoo.
const (
	javaClasses = "/usr/share/java/zookeeper.jar:/usr/share/java/curator-client.jar:" +
		"/usr/share/java/curator-framework.jar:/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar"
	python = "/usr/bin/python3"
)

// ours returns the command that runs test/bench/locks.
func ours(recipe string) func(*bench, string, int) []string {
	return func(b *bench, path string, waiters int) []string {
		return []string{b.locks, "-recipe", recipe, "-servers", b.server, "-root", path, "-clients",
			strconv.Itoa(waiters + 1),
			"-warm", b.warm.String(), "-duration", b.duration.String(), "-json"}
	}
}

func (b *bench) foreign(command []string, path string, waiters int) []string {
	return append(command, b.server, path, strconv.Itoa(waiters+1),
		strconv.FormatInt(b.warm.Milliseconds(), 10), strconv.FormatInt(b.duration.Milliseconds(), 10))
}

func compile(b *bench) error {
	if _, err := os.Stat("/usr/share/java/curator-recipes.jar"); err != nil {
		return errors.New("Curator is not installed")
	}
	out, err := exec.Command("javac", "-d", b.dir, "-cp", javaClasses,
		filepath.Join(b.source, "LockBench.java")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("javac: %w: %s", err, out)
	}
	return nil
}

func importKazoo(*bench) error {
	if err := exec.Command(python, "-c", "import kazoo").Run(); err != nil {
		return errors.New("kazoo is not installed")
	}
	return nil
}

// measure runs a library once, on a lock of its own.
func (b *bench) measure(l *library, waiters int) (point, error) {
	b.runs++
	command := l.command(b, fmt.Sprintf("/bench-%s-%d", l.name, b.runs), waiters)
	// Sessions open one by one, and every waiter in the queue gets the lock before the end.
	limit := b.warm + b.duration + 2*time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return point{}, fmt.Errorf("%s, %d waiters: %w: %s", l.name, waiters, err, lastLines(errs.String(), 3))
	}
	var p point
	if err := json.Unmarshal(out, &p); err != nil {
		return p, fmt.Errorf("%s, %d waiters: %w in %q", l.name, waiters, err, out)
	}
	if p.Acquired == 0 {
		p.Requests = math.NaN() // unknown
	}
	if p.Violations > 0 {
		return p, fmt.Errorf("%s, %d waiters: two held the lock at a time, %d times", l.name, waiters, p.Violations)
	}
	return p, nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
