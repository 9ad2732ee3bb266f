package mutants

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/mutants/plant"
)

var (
	racesFlag = flag.Int("mutants.races", 0, "plant each race of testdata/races, and look for it with so "+
		"many seeds of each kind of run; 0: none")
	raceFlag  = flag.String("mutants.race", "", "a regular expression: only races with such a name")
	againFlag = flag.Int("mutants.again", 4, "how often a seed that found a race runs again")
)

// raceKinds are the kinds of runs that look for a race. The first kind uses the plain toolchain. For the
// others see test/sim/overlay.
var raceKinds = []struct {
	name  string
	exact bool
	ways  string
}{{"stock", false, ""}, {"exact", true, "0"}, {"exploring", true, "-2"}}

// TestRacesAreLookedFor plants races that were found by reading the code, and counts the seeds until each
// kind of run finds them. It does not fail: the numbers show what the simulation can find.
func TestRacesAreLookedFor(t *testing.T) {
	root := must.Get(filepath.Abs("../.."))(t)
	files := must.Get(filepath.Glob("testdata/races/*.txt"))(t)
	must.That(t, len(files) > 0, "no races")
	wanted := must.Get(regexp.Compile(*raceFlag))(t)
	for _, f := range files {
		bug := must.Get(plant.Load(f))(t)
		if !wanted.MatchString(bug.Name) {
			continue
		}
		t.Run(bug.Name, func(t *testing.T) {
			dir := t.TempDir()
			list := must.Get(bug.Overlay(root, dir))(t)
			if *racesFlag == 0 {
				t.Skip("the edit applies; make races looks for it")
			}
			stock := filepath.Join(dir, "stock.test")
			buildSim(t, root, stock, list)
			exact := filepath.Join(dir, "exact.test")
			overlay := exec.Command("go", "run", "./test/sim/overlay", filepath.Join(dir, "_exact"),
				must.Get(filepath.Abs(f))(t))
			overlay.Dir = root
			out, err := overlay.CombinedOutput()
			must.That(t, err == nil, "%v\n%s", err, out)
			buildSim(t, root, exact, filepath.Join(dir, "_exact", "overlay.json"), "-tags", "exact")
			row := "| " + bug.Name
			for _, k := range raceKinds {
				binary, more := stock, []string(nil)
				if k.exact {
					binary, more = exact, []string{"-sim.ways", k.ways}
				}
				began := time.Now()
				found := lookFor(t, &bug, binary, root, more)
				t.Logf("%s: %s, %v", k.name, found, time.Since(began).Round(time.Second))
				row += " | " + found
			}
			t.Log(row + " |")
		})
	}
}

func buildSim(t *testing.T, root, to, overlay string, more ...string) {
	args := append([]string{"test", "-c", "-ldflags=-w", "-o", to, "-overlay", overlay}, more...)
	args = append(args, "./test/sim")
	build := exec.Command("go", args...)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	must.That(t, err == nil, "%v\n%s", err, out)
}

// foundSeed matches the seed that failed. crashedSeed matches each seed that began: if the process crashed,
// the failed seed was the last of them.
var (
	foundSeed   = regexp.MustCompile(`seed[= ](\d+)(?::\n| \()`)
	crashedSeed = regexp.MustCompile(`=== RUN .*seed=(\d+)`)
)

// lookFor runs seeds until one fails, and then repeats that seed a few times.
func lookFor(t *testing.T, bug *plant.Bug, binary, root string, more []string) string {
	const first = 1
	out := simulate(t, binary, root, first, *racesFlag, more)
	at := foundSeed.FindStringSubmatch(failures(out))
	if begun := crashedSeed.FindAllStringSubmatch(out, -1); at == nil && len(begun) > 0 && crashed(out) {
		at = begun[len(begun)-1]
	}
	if at == nil {
		return fmt.Sprintf("not by %d seeds", *racesFlag)
	}
	seed := must.Get(strconv.Atoi(at[1]))(t)
	sign := bug.Catches.FindString(out)
	expect.That(t, sign != "", "the seed fails again, but with another message:\n%s", head(out, 20))
	again := 0
	for range *againFlag {
		out := simulate(t, binary, root, seed, 1, more)
		if strings.Contains(out, "--- FAIL") || crashed(out) {
			again++
		}
	}
	return fmt.Sprintf("by seed %d (%s), again in %d of %d", seed, strings.TrimSpace(sign), again, *againFlag)
}

func crashed(out string) bool {
	return strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: ")
}

func simulate(t *testing.T, binary, root string, seed, n int, more []string) string {
	cmd := exec.Command(binary, append([]string{"-test.run", "Histories", "-test.timeout", "60m", "-test.v",
		"-sim.seed", fmt.Sprint(seed), "-sim.hours", fmt.Sprint(float64(n) / 10)}, more...)...)
	cmd.Dir = filepath.Join(root, "test/sim")
	out, _ := cmd.CombinedOutput() // the caller looks at the output
	must.That(t, len(out) > 0, "%s says nothing", binary)
	return string(out)
}

// failures() leaves out the lines of runs that passed.
func failures(out string) string {
	var list []string
	for line := range strings.Lines(out) {
		passed := strings.Contains(line, "trace") || strings.Contains(line, "--- PASS")
		if !passed && !strings.Contains(line, "=== ") {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}
