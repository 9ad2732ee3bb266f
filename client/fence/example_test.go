package fence_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/zlockd/zlockd/client/fence"
)

func ExampleGate_Admit() {
	var gate fence.Gate
	fmt.Println(gate.Admit("/jobs/nightly", fence.Exclusive, 41))
	fmt.Println(gate.Admit("/jobs/nightly", fence.Exclusive, 57)) // the next holder
	fmt.Println(gate.Admit("/jobs/nightly", fence.Exclusive, 41)) // the first holder wakes up
	// Output:
	// <nil>
	// <nil>
	// fence: stale token 41 (exclusive) for /jobs/nightly
}

// A resource server requires the sequencer of the lock that guards a resource. It answers writes of former
// holders with status 412.
func ExampleHandler() {
	documents := map[string]string{}
	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		documents[r.URL.Path] = r.FormValue("text")
	})
	server := httptest.NewServer(&fence.Handler{
		Gate: new(fence.Gate),
		Next: put,
		Lock: func(r *http.Request) string { return "/locks" + r.URL.Path },
	})
	defer server.Close()

	// A real client takes the sequencer from lease.Sequencer().
	write := func(token fence.Token, text string) {
		s := fence.Sequencer{Path: "/locks/plan", Node: "lock-0000000000", Mode: fence.Exclusive, Token: token}
		r, _ := http.NewRequest("POST", server.URL+"/plan", strings.NewReader("text="+text))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(fence.Header, s.String())
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(token, resp.Status)
	}
	write(41, "first")
	write(57, "second")
	write(41, "late")
	fmt.Println(documents["/plan"])
	// Output:
	// 41 200 OK
	// 57 200 OK
	// 41 412 Precondition Failed
	// second
}
