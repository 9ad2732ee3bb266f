package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runIn calls the command line in this process.
func runIn(t *testing.T, env map[string]string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e strings.Builder
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a := &app{stdin: null, stdout: &o, stderr: &e, getenv: func(k string) string { return env[k] }}
	code = a.main(args)
	return o.String(), e.String(), code
}

func TestMemberTalksToTheAdminListener(t *testing.T) {
	var got []memberChange
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"id":2,"leader":2,"members":{"10":{"peer":"h10:2888","client":"h10:2181","voter":false},"2":{"peer":"h2:2888","client":"","voter":true},"3":{"peer":"h3:2888","client":"","voter":true}}}`))
	})
	mux.HandleFunc("POST /members", func(w http.ResponseWriter, r *http.Request) {
		var ch memberChange
		if err := json.NewDecoder(r.Body).Decode(&ch); err != nil {
			t.Error(err)
		}
		if h := r.Header.Get("Authorization"); h != "digest super:secret:word" {
			t.Errorf("authorization %q", h)
		}
		if ch.ID == 9 {
			w.WriteHeader(http.StatusConflict)
			w.Write([]byte(`{"error":"member 9 is unknown"}`))
			return
		}
		got = append(got, ch)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	auth := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(auth, []byte("# the super user\ndigest:super:secret:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ZLOCK_ADMIN": strings.TrimPrefix(srv.URL, "http://")}

	out, errs, code := runIn(t, env, "member", "list", "-o", "plain")
	if want := "2\th2:2888\t\tleader\n3\th3:2888\t\tvoter\n10\th10:2888\th10:2181\tnon-voter\n"; out != want || errs != "" || code != 0 {
		t.Errorf("list: %q %q %d", out, errs, code)
	}
	for _, tc := range []struct {
		args string
		err  string
		code int
	}{
		{"add 4 h4:2888", "", 0},
		{"promote 4", "", 0},
		{"remove 4", "", 0},
		{"remove 9", "zlock: member: member 9 is unknown\n", exitNo},
		{"remove x", "zlock: member: the ID of a member is a positive number\nTry 'zlock member --help'.\n", exitFailed},
		{"add 4", "zlock: member: member add takes 2 operands\nTry 'zlock member --help'.\n", exitFailed},
		{"rename 4", "zlock: member: \"rename\" is none of list, add, promote, remove\nTry 'zlock member --help'.\n", exitFailed},
	} {
		_, errs, code := runIn(t, env, append([]string{"member", "--auth-file", auth}, strings.Fields(tc.args)...)...)
		if errs != tc.err || code != tc.code {
			t.Errorf("%s: %q, %d", tc.args, errs, code)
		}
	}
	want := []memberChange{{"add", 4, "h4:2888"}, {"promote", 4, ""}, {"remove", 4, ""}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("asked for %v", got)
	}
}

// Every command has a help text made of its flags, and its options are completed.
func TestEveryCommandHasHelpAndCompletion(t *testing.T) {
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		out, errs, code := runIn(t, nil, c.name, "--help")
		if code != 0 || errs != "" || !strings.HasPrefix(out, "Usage: zlock "+c.name) || !strings.Contains(out, "--help") || c.does == "" {
			t.Errorf("%s --help: %d %q\n%s", c.name, code, errs, out)
		}
		found := (&app{getenv: os.Getenv}).candidates([]string{c.name, "--"})
		if len(found) == 0 {
			t.Errorf("%s: no option is completed", c.name)
		}
		for _, f := range found {
			if !strings.Contains(out, f.word) {
				t.Errorf("%s: %s is completed but not in the help", c.name, f.word)
			}
		}
	}
}

func TestForeignTextCannotCommandATerminal(t *testing.T) {
	if got := clean("a\x1b[2Jb\tc\nd\u0085e\xff"); strings.ContainsAny(got, "\x1b\t\n\u0085") {
		t.Errorf("cleaned to %q", got)
	}
	if got := clean("Größe → ok"); got != "Größe → ok" {
		t.Errorf("harmless text became %q", got)
	}
}

func TestNeededTimeoutFitsTheMargin(t *testing.T) {
	for _, k := range []string{"0", "1", "5", "30"} {
		killAfter, err := parseDuration(k)
		if err != nil {
			t.Fatal(err)
		}
		need := neededTimeout(marginFor(killAfter))
		if checkMargin(true, need, killAfter) != nil {
			t.Errorf("kill-after %v: %v is refused", killAfter, need)
		}
		if checkMargin(true, need-1e9, killAfter) == nil {
			t.Errorf("kill-after %v: a second less than %v is allowed", killAfter, need)
		}
		if killFor(need) < killAfter {
			t.Errorf("%v would do for kill-after %v, but killFor says %v", need, killAfter, killFor(need))
		}
	}
}
