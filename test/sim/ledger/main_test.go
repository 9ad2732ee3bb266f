package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim/reached"
)

func read(t *testing.T, name string) []byte {
	return must.Get(os.ReadFile("../../../" + name))(t)
}

// The newest twenty hours of busy minutes in the ledger reached each rare state that campaigns must reach. A
// campaign of twenty hours takes too long for CI, so CI reads what the last campaigns noted.
func TestNewestCampaignsReachedTheRareStates(t *testing.T) {
	list := strings.Split(strings.TrimSpace(string(read(t, "test/sim/reached/reached.txt"))), "\n")
	for _, s := range must.Get(missed(read(t, source), list, 20))(t) {
		t.Errorf("not reached by the newest twenty hours of %s: %s", source, s)
	}
}

// Each seed of the ledger that failed is explained.
func TestFailedSeedsAreExplained(t *testing.T) {
	for _, s := range must.Get(unexplained(read(t, source), read(t, found)))(t) {
		t.Errorf("seed %d failed: add its date, class and repair to %s", s, found)
	}
}

// The page has the tables that the files give.
func TestThePageIsWritten(t *testing.T) {
	text := string(read(t, page))
	_, rest, _ := strings.Cut(text, begin)
	is, _, _ := strings.Cut(rest, end)
	findings := must.Get(findings(read(t, found)))(t)
	expect.That(t, strings.HasSuffix(is, findings+"\n"), "run go run ./test/sim/ledger: the page lacks\n%s",
		findings)
}

// A gap in the newest hours is found, also if older hours have no gap.
func TestAGapIsFound(t *testing.T) {
	a, b := reached.States[0].Name, reached.States[1].Name
	line := func(hours float64, profile string, states ...string) string {
		var list []string
		for _, s := range states {
			list = append(list, fmt.Sprintf("%q:1", s))
		}
		return fmt.Sprintf(`{"Commit":"c","Hours":%g,"Profile":%q,"Reached":{%s}}`+"\n", hours, profile,
			strings.Join(list, ","))
	}
	for _, c := range []struct {
		name, ledger string
		missed       []string
		fails        bool
	}{
		{"both in one line", line(20, "", a, b), nil, false},
		{"both in two lines", line(15, "", a) + line(15, "", b), nil, false},
		{"older hours do not count", line(20, "", a, b) + line(20, "", b), []string{a}, false},
		{"long days do not count", line(20, "", b) + line(20, "", a) + line(20, "long", b), []string{b}, false},
		{"a state that no line has yet", line(20, "", a) + line(20, "", a), nil, false},
		{"lines that count no states do not count", line(20, "", a, b) + line(20, ""), nil, false},
		{"too little", line(19, "", a, b), nil, true},
	} {
		got, err := missed([]byte(c.ledger), []string{a, b}, 20)
		expect.Equal(t, err != nil, c.fails, "%s: error %v", c.name, err)
		expect.List(t, got, c.missed, "%s", c.name)
	}
}

// A failed seed without a finding is found, and a finding without a repair is refused.
func TestAnUnexplainedSeedIsFound(t *testing.T) {
	ledger := []byte(`{"Commit":"c","Found":[7,8]}` + "\n")
	whole := `{"Date":"2026-11-28","Seed":7,"Class":"c","What":"w","Repair":"r"}`
	expect.List(t, must.Get(unexplained(ledger, []byte(whole)))(t), []uint64{8}, "unexplained seeds")
	_, err := unexplained(ledger, []byte(strings.Replace(whole, `"r"`, `""`, 1)))
	expect.That(t, err != nil, "a finding without a repair is accepted")
}
