package admin

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// script is a connection: the test sets what is read from it, and the Buffer keeps what is written to it.
type script struct {
	io.Reader
	bytes.Buffer
	writes int
}

func (s *script) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func (s *script) Write(b []byte) (int, error) {
	s.writes++
	return s.Buffer.Write(b)
}

func ask(t *testing.T, a *Admin, word, rest string) string {
	t.Helper()
	conn := &script{Reader: strings.NewReader(rest)}
	must.OK(t, a.Answer(conn, [4]byte([]byte(word))))
	expect.That(t, conn.writes <= 1, "%s left in %d writes", word, conn.writes)
	return conn.String()
}

// TestWordsHaveTheBytesOfZooKeeper compares the answers with files in testdata. These files were checked by
// eye against the samples of the admin specification.
func TestWordsHaveTheBytesOfZooKeeper(t *testing.T) {
	for _, server := range []struct {
		name   string
		status report.Status
	}{{"standalone", standalone()}, {"leader", ensemble()}, {"follower", follower()}} {
		a := newAdmin(t, &fake{status: server.status}, "*")
		for word := range strings.FieldsSeq(words) {
			if word == "stmk" || word == "mntr" && server.name == "follower" {
				continue
			}
			golden(t, server.name+"."+word, []byte(ask(t, a, word, "")))
		}
	}
}

func TestEndsOfWords(t *testing.T) {
	a := newAdmin(t, &fake{status: standalone()}, "*")
	for word, end := range map[string]string{
		"ruok": "imok", "isro": "rw", "gtmk": "306",
		"srvr": "Node count: 31\n", "stat": "Node count: 31\n", "conf": "serverId=0\n",
		"cons": ")\n\n", "wchc": "\t/cap\n\n", "wchp": "0024\n\n",
		"crst": "Connection stats reset.\n", "srst": "Server stats reset.\n",
		"wchs": "Total watches:3\n", "hash": "80: 59093131102\n",
	} {
		got := ask(t, a, word, "")
		expect.That(t, strings.HasSuffix(got, end), "%s: %q does not end with %q", word, got, end)
	}
	a = newAdmin(t, &fake{status: ensemble()}, "*")
	if got := ask(t, a, "conf", ""); !strings.HasSuffix(got, "participant;127.0.0.1:22203\nversion=1a") {
		t.Errorf("conf of an ensemble ends %q", got[len(got)-40:])
	}
}

func TestWordsWithoutService(t *testing.T) {
	s := ensemble()
	s.Serving, s.Reason = false, "no leader"
	a := newAdmin(t, &fake{status: s}, "*")
	const sentence = "This ZooKeeper instance is not currently serving requests"
	for word := range strings.FieldsSeq(words) {
		want := sentence + "\n"
		switch word {
		case "ruok":
			want = "imok"
		case "isro":
			want = "null"
		case "gtmk", "stmk":
			want = "306"
		case "hash":
			want = sentence
		case "envi":
			want = "Environment:\nzookeeper.version=3.9.3-zlockd-1.2.0, built on 02/25/2022 08:49 " +
				"GMT\nhost.name=localhost\nos.name=Linux\n"
		}
		expect.Equal(t, ask(t, a, word, "\x00\x00\x00\x00\x00\x00\x01\x32"), want, "%s", word)
	}
}

func TestNoModeIsNamedWithoutService(t *testing.T) {
	s := ensemble()
	s.Serving = false
	a := newAdmin(t, &fake{status: s}, "*")
	for _, word := range []string{"srvr", "stat", "mntr"} {
		got := ask(t, a, word, "")
		expect.That(t, !strings.Contains(got, "leader"), "%s names a mode: %q", word, got)
	}
}

func TestWhitelist(t *testing.T) {
	f := &fake{status: standalone()}
	for _, test := range []struct{ list, on, off string }{
		{"", "ruok srvr stat mntr conf envi isro dirs wchs crst srst", "cons dump wchc wchp gtmk stmk hash"},
		{"*", words, ""},
		{"ruok, cons", "ruok cons srvr", "stat mntr isro dump stmk"},
		{"ruok,*", words, ""},
	} {
		a := newAdmin(t, f, test.list)
		for word := range strings.FieldsSeq(test.on) {
			if got := ask(t, a, word, "12345678"); strings.Contains(got, "whitelist") {
				t.Errorf("list %q: %s answers %q", test.list, word, got)
			}
		}
		for word := range strings.FieldsSeq(test.off) {
			want := word + " is not executed because it is not in the whitelist.\n"
			expect.Equal(t, ask(t, a, word, "12345678"), want, "list %q: %s answers", test.list, word)
		}
	}
	for _, list := range []string{"help", "ruok srvr", "rüo", "k sr"} {
		expect.Fails(t, expect.Err(New(Options{Source: f, Whitelist: list})),
			"whitelist %q was taken", list)
	}
}

func TestOnlyWordsAreWords(t *testing.T) {
	for word := range strings.FieldsSeq(words) {
		expect.That(t, IsWord([4]byte([]byte(word))), "%s is a word", word)
	}
	for _, no := range []string{"lsnp", "ssfx", "help", "k sr", "    ", "\x00\x00\x00\x2d", "\xff\xf4\xff\xfd",
		"GET ", "RUOK"} {
		expect.That(t, !IsWord([4]byte([]byte(no))), "%q is no word", no)
	}
}

func TestTraceMaskIsKept(t *testing.T) {
	a := newAdmin(t, &fake{status: standalone()}, "*")
	expect.Equal(t, ask(t, a, "stmk", "\x00\x00\x00\x00\x00\x00\x01\x00"), "256", "stmk answers")
	expect.Equal(t, ask(t, a, "gtmk", ""), "256", "gtmk answers")
}

func TestResetWordsReset(t *testing.T) {
	f := &fake{status: standalone()}
	a := newAdmin(t, f, "")
	ask(t, a, "crst", "")
	ask(t, a, "srst", "")
	expect.That(t, f.resets == 1 && f.conns == 1,
		"%d resets of the server, %d of connections", f.resets, f.conns)
	f.status.Serving = false
	ask(t, a, "srst", "")
	expect.Equal(t, f.resets, 1, "reset without service")
}

func TestWordsAskForNoMoreThanTheyShow(t *testing.T) {
	f := &fake{status: standalone()}
	a := newAdmin(t, f, "*")
	ask(t, a, "srvr", "")
	expect.Equal(t, f.asked, 0, "srvr asks for")
}

// TestClientsParseTheVersion runs go-zookeeper's parser and the expressions of kazoo's server_version().
func TestClientsParseTheVersion(t *testing.T) {
	for _, status := range []report.Status{standalone(), ensemble(), follower()} {
		a := newAdmin(t, &fake{status: status}, "")
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				var first [4]byte
				io.ReadFull(c, first[:])
				a.Answer(c, first)
				c.Close()
			}
		}()
		stats, ok := zk.FLWSrvr([]string{l.Addr().String()}, time.Minute)
		if !ok {
			t.Fatalf("go-zookeeper: %v", stats[0].Error)
		}
		got := stats[0]
		if got.Version != status.Version || !got.BuildTime.Equal(status.Built) ||
			got.Mode.String() != string(status.Mode) || got.NodeCount != 31 {
			t.Errorf("go-zookeeper reads %+v", got)
		}
		if ok := zk.FLWRuok([]string{l.Addr().String()}, time.Minute); !ok[0] {
			t.Error("go-zookeeper hears no imok")
		}

		line := regexp.MustCompile(`(?m)^zookeeper\.version=(.*)$`).FindStringSubmatch(ask(t, a, "envi", ""))
		must.That(t, line != nil, "envi has no version")
		expect.Equal(t, regexp.MustCompile(`^([\d\.]*)`).FindString(line[1]), "3.9.3",
			"kazoo reads version")
	}
}

func TestGoZooKeeperParsesCons(t *testing.T) {
	a := newAdmin(t, &fake{status: standalone()}, "*")
	line := regexp.MustCompile(
		`^ /127.0.0.1:(?P<port>\d+)\[1\]\(queued=0,recved=7,sent=7,sid=0x[0-9a-f]+,lop=(\w+),est=(\d+),to=(\d+),` +
			`lcxid=0x([A-Za-z0-9]+),lzxid=0x([A-Za-z0-9]+),lresp=(\d+),llat=(\d+),minlat=(\d+),avglat=(\d+),maxlat=(\d+)\)$`)
	first, _, _ := strings.Cut(ask(t, a, "cons", ""), "\n")
	expect.That(t, line.MatchString(first), "unexpected %q", first)
}

// TestEveryLineOfMntrIsParsed matches each line with Telegraf's regular expression. Telegraf drops the whole
// answer at the first line that does not match.
func TestEveryLineOfMntrIsParsed(t *testing.T) {
	line := regexp.MustCompile(`^zk_(\w[\w\.\-]*)\s+([\w\.\-]+)`)
	for _, status := range []report.Status{standalone(), ensemble()} {
		a := newAdmin(t, &fake{status: status}, "")
		seen := map[string]bool{}
		for l := range strings.Lines(ask(t, a, "mntr", "")) {
			m := line.FindStringSubmatch(l)
			if m == nil {
				t.Errorf("not understood: %q", l)
				continue
			}
			expect.That(t, !seen[m[1]], "%s is there twice", m[1])
			seen[m[1]] = true
		}
		for name := range strings.FieldsSeq(dashboardGauges) {
			if status.Mode == report.Standalone && strings.Contains(leaderGauges, name) {
				continue
			}
			expect.That(t, seen[name], "%s is missing", name)
		}
		for name := range strings.FieldsSeq(dashboardSummaries) {
			for _, part := range []string{"avg", "min", "max", "cnt", "sum"} {
				expect.That(t, seen[part+"_"+name], "%s_%s is missing", part, name)
			}
		}
	}
}

// slow is a connection that records its write deadlines.
type slow struct {
	script
	deadlines []time.Time
}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.deadlines = append(s.deadlines, t)
	return nil
}

func TestAnswersHaveFiveSecondsAndOneForEachMegabyte(t *testing.T) {
	status := standalone()
	status.WatchList = []report.SessionPaths{{Session: 1}}
	for i := range 30000 {
		status.WatchList[0].Paths = append(status.WatchList[0].Paths, fmt.Sprintf("/%099d", i))
	}
	now := at
	a := must.Get(New(Options{Source: &fake{status: status}, Whitelist: "*", Now: func() time.Time {
		return now
	}}))(t)
	conn := &slow{}
	must.OK(t, a.Answer(conn, [4]byte([]byte("wchc"))))
	first, last := conn.deadlines[0].Sub(at), conn.deadlines[len(conn.deadlines)-1].Sub(at)
	expect.Equal(t, first, 5*time.Second, "first write may take")
	if want := 5 + float64(conn.Len())/(1<<20); last.Seconds() > want || last.Seconds() < want-0.1 {
		t.Errorf("all of it may take %v, not %v s", last, want)
	}
}

func TestOnlyFourHeavyAnswersAtOnce(t *testing.T) {
	f := &fake{status: standalone(), delay: make(chan struct{})}
	a := newAdmin(t, f, "*")
	a.heavy.Wait = time.Millisecond
	done := make(chan error, 4)
	for range 4 {
		go func() { done <- a.Answer(&script{}, [4]byte([]byte("wchp"))) }()
	}
	for a.heavy.Taken() < 4 {
		time.Sleep(time.Millisecond)
	}
	fifth := make(chan error, 1)
	go func() { fifth <- a.Answer(&script{}, [4]byte([]byte("cons"))) }()
	select {
	case err := <-fifth:
		if err != port.ErrBusy {
			t.Errorf("the fifth heavy word: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the fifth heavy word waits for the others")
	}
	expect.Equal(t, ask(t, a, "ruok", ""), "imok", "ruok meanwhile")
	close(f.delay)
	for range 4 {
		expect.OK(t, <-done)
	}
	got := ask(t, a, "cons", "")
	expect.That(t, got != "", "the places were not given back")
}

// conf shows whether the server votes. It lists the members from the configuration in the tree, if there is
// one. Otherwise it lists the members that raft knows.
func TestConfOfAMember(t *testing.T) {
	s := follower()
	conf := func() string { return ask(t, newAdmin(t, &fake{status: s}, "*"), "conf", "") }
	expect.Has(t, conf(), "\npeerType=0\n")
	expect.Has(t, conf(), "\nserver.2=127.0.0.1:22312")
	s.Members[0].Voter = false
	expect.Has(t, conf(), "\npeerType=1\n")
	s.ConfigText = "server.1=a:1:1:observer"
	got := conf()
	expect.Has(t, got, "membership: \nserver.1=a:1:1:observer\nversion=1a")
	expect.That(t, !strings.Contains(got, "server.2"), "%s", got)
}

// A read-only server says in its answers that it is read-only.
func TestReadOnlyServerSaysSo(t *testing.T) {
	s := follower()
	for mode, want := range map[report.Mode][2]string{report.Follower: {"rw", ""},
		report.ReadOnly: {"ro", "READ-ONLY mode"}} {
		s.Mode = mode
		a := newAdmin(t, &fake{status: s}, "*")
		expect.Equal(t, ask(t, a, "isro", ""), want[0])
		for _, word := range []string{"stat", "srvr"} {
			expect.Equal(t, strings.Contains(ask(t, a, word, ""), "READ-ONLY mode"), want[1] != "", "%s of a %v", word,
				mode)
		}
	}
}
