package admin

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
)

// Texts of ZooKeeper, with which clients and scripts compare answers.
const (
	notServing     = "This ZooKeeper instance is not currently serving requests"
	notWhitelisted = " is not executed because it is not in the whitelist."
)

// DefaultWhitelist lists the words that are answered by default. They cost little, and show no session.
const DefaultWhitelist = "ruok,srvr,stat,mntr,conf,envi,isro,dirs,wchs,crst,srst"

// word is one row of the table of four-letter words.
type word struct {
	name string
	need report.Need
	// heavy says that the cost of the answer grows with the number of clients, nodes or watches.
	heavy bool
	// idle is the answer while the server does not serve clients, notServing if empty. If `always` is true, the
	// word has its usual answer even then.
	idle   string
	always bool
	render func(w io.Writer, s *report.Status)
	do     func(Source) // runs before the answer is rendered
}

func (a *Admin) wordTable() []word {
	return []word{
		{name: "ruok", always: true, render: func(w io.Writer, _ *report.Status) { io.WriteString(w, "imok") }},
		{name: "srvr", render: renderSrvr},
		{name: "stat", need: report.NeedConns, render: renderStat},
		{name: "mntr", need: report.NeedMetrics | report.NeedDirs | report.NeedProcess, render: renderMntr},
		{name: "conf", need: report.NeedDirs, render: renderConf},
		{name: "cons", need: report.NeedConns, heavy: true,
			render: func(w io.Writer, s *report.Status) { renderConns(w, s, false) }},
		{name: "crst", render: renderText("Connection stats reset.\n"), do: Source.ResetConns},
		{name: "srst", render: renderText("Server stats reset.\n"), do: Source.ResetStats},
		{name: "envi", need: report.NeedProcess, always: true, render: renderEnvi},
		{name: "dump", need: report.NeedSessions | report.NeedEphemerals | report.NeedConns, heavy: true,
			render: renderDump},
		{name: "wchs", render: renderWchs},
		{name: "wchc", need: report.NeedWatches, heavy: true, render: renderWchc},
		{name: "wchp", need: report.NeedWatches, heavy: true, render: renderWchp},
		{name: "dirs", need: report.NeedDirs, render: renderDirs},
		{name: "isro", idle: "null", render: renderIsRO},
		{name: "gtmk", always: true, render: func(w io.Writer, _ *report.Status) { a.renderMask(w) }},
		{name: "stmk", always: true, render: func(w io.Writer, _ *report.Status) { a.renderMask(w) }},
		{name: "hash", idle: notServing, render: renderHash},
	}
}

// words are all four-letter words. They are listed here, too, because the client port checks words without an
// Admin.
const words = "ruok srvr stat mntr conf cons crst srst envi dump wchs wchc wchp dirs isro gtmk stmk hash"

// Words lists the four-letter words.
func Words() []string { return strings.Fields(words) }

// IsWord reports whether the first four bytes of a connection are a four-letter word, and not the length of a
// frame.
func IsWord(first [4]byte) bool {
	return first[0] >= 'a' && first[0] <= 'z' && !slices.Contains(first[:], ' ') &&
		strings.Contains(words, string(first[:]))
}

// IsWord is the function IsWord as a method, so that an Admin can be passed as the answerer of words.
func (a *Admin) IsWord(first [4]byte) bool { return IsWord(first) }

// SetWhitelist sets the words that Admin answers. srvr is always among them, because health checks and
// zkServer.sh need it.
func (a *Admin) SetWhitelist(list string) error {
	allowed := map[string]bool{"srvr": true}
	for name := range strings.SplitSeq(cmp.Or(list, DefaultWhitelist), ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case name == "*":
			for _, w := range Words() {
				allowed[w] = true
			}
		case len(name) == 4 && IsWord([4]byte([]byte(name))):
			allowed[name] = true
		default:
			return fmt.Errorf("unknown four-letter word %q (known: %s, or * for all)", name, words)
		}
	}
	a.allowed.Store(&allowed)
	return nil
}

// Answer answers the word with which a connection began. It writes a small answer at once, because some
// clients read only once. With stmk come eight more bytes, which Answer reads first. The caller closes the
// connection.
func (a *Admin) Answer(conn io.ReadWriter, first [4]byte) error {
	i := slices.IndexFunc(a.words, func(w word) bool { return w.name == string(first[:]) })
	if i < 0 {
		return nil
	}
	w := a.words[i]
	if !(*a.allowed.Load())[w.name] {
		_, err := io.WriteString(conn, w.name+notWhitelisted+"\n")
		return err
	}
	if w.name == "stmk" {
		var mask [8]byte
		if _, err := io.ReadFull(conn, mask[:]); err != nil {
			return err
		}
		a.mask.Store(int64(binary.BigEndian.Uint64(mask[:])))
	}
	release := func() {}
	if w.heavy {
		var ok bool
		if release, ok = a.heavy.Acquire(); !ok {
			return port.ErrBusy
		}
	}
	var body bytes.Buffer
	func() {
		defer release()
		a.answer(&body, w)
	}()
	addr, deadline := "", func(time.Time) error { return nil }
	if c, ok := conn.(net.Conn); ok {
		addr = c.RemoteAddr().String()
	}
	if d, ok := conn.(interface{ SetWriteDeadline(time.Time) error }); ok {
		deadline = d.SetWriteDeadline
	}
	return a.outgoing.Send(addr, body.Len(), func() error {
		return port.Pace(conn, deadline, a.o.Now(),
			body.Bytes())
	})
}

func (a *Admin) answer(out io.Writer, w word) {
	var s *report.Status
	if w.name != "ruok" { // ruok has the same answer in every state
		s = a.o.Source.Status(w.need)
		if !s.Answers() && !w.always {
			io.WriteString(out, cmp.Or(w.idle, notServing+"\n"))
			return
		}
	}
	if w.do != nil {
		w.do(a.o.Source)
	}
	w.render(out, s)
	if s != nil && s.Truncated != "" {
		io.WriteString(out, s.Truncated+"\n")
	}
}

func renderText(text string) func(io.Writer, *report.Status) {
	return func(w io.Writer, _ *report.Status) { io.WriteString(w, text) }
}

func (a *Admin) renderMask(w io.Writer) {
	io.WriteString(w, strconv.FormatInt(a.mask.Load(), 10))
}
