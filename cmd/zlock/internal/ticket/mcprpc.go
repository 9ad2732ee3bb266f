package ticket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/release"
)

// The revisions of the Model Context Protocol that zlock speaks, newest first. In the newest, each request
// names its revision. In the others the client names it once, by `initialize`.
const statelessRevision = "2026-07-28"

var mcpRevisions = []string{statelessRevision, "2025-11-25", "2025-06-18", "2024-11-05"}

// Codes of JSON-RPC and of the Model Context Protocol.
const (
	rpcNotJSON         = -32700
	rpcInvalid         = -32600
	rpcNoMethod        = -32601
	rpcBadParams       = -32602
	rpcUnknownRevision = -32022
)

const (
	mostMessage = 1 << 20 // bytes of a message
	mostCalls   = 32      // calls that may wait or run at the same time
)

// metaPrefix is the prefix of the protocol's own names in _meta.
const metaPrefix = "io.modelcontextprotocol/"

// rpcServer answers a client of the Model Context Protocol over two streams. Each line is one message of
// JSON-RPC. It reads on while calls of tools wait, so that a client can cancel them.
type rpcServer struct {
	out   io.Writer
	tools *lockTools

	mu      sync.Mutex // guards out, and the fields below
	legacy  bool       // whether the client sent `initialize`
	running map[string]context.CancelFunc
	calls   sync.WaitGroup
}

// rpcMessage is the message that a client sends.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`

	stateless bool // the request names its revision, as since statelessRevision
}

// rpcError says that the client has broken the protocol. A mistake that the model can correct is no such
// error, but the result of a tool.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func wrongRequest(code int, format string, args ...any) *rpcError {
	return &rpcError{Code: code, Message: fmt.Sprintf(format, args...)}
}

var errLongMessage = errors.New("the message is longer than 1 MiB")

// lastAnswers bounds how long calls may still run when the input has ended.
const lastAnswers = 5 * time.Second

// serve() answers messages until the input ends. Then it ends calls that wait for a lock, and returns when
// all other calls are answered.
func (s *rpcServer) serve(in io.Reader) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	waits, stopWaits := context.WithCancel(ctx)
	defer stopWaits()
	r := bufio.NewReader(in)
	for {
		line, err := readMessage(r)
		if errors.Is(err, errLongMessage) {
			s.answer(nil, nil, wrongRequest(rpcInvalid, "%v", err))
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.handle(ctx, waits, line)
		}
		if err != nil {
			stopWaits()
			defer time.AfterFunc(lastAnswers, stop).Stop()
			s.calls.Wait()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// readMessage reads a line. It skips a line that is too long, and returns errLongMessage.
func readMessage(r *bufio.Reader) (line []byte, err error) {
	for long := false; ; {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > mostMessage {
			line, long = line[:0], true
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !(long && errors.Is(err, io.EOF)):
			return line, err
		case long:
			return nil, errLongMessage
		default:
			return line, nil
		}
	}
}

// handle() answers a message. A call of a tool continues after handle() has returned.
func (s *rpcServer) handle(ctx, waits context.Context, line []byte) {
	var m rpcMessage
	if err := json.Unmarshal(line, &m); err != nil {
		code := rpcNotJSON
		if json.Valid(line) {
			code = rpcInvalid
		}
		s.answer(nil, nil, wrongRequest(code, "the line is not a message: want one JSON-RPC object in each line"))
		return
	}
	switch {
	case m.Method == nil && (m.Result != nil || m.Error != nil): // ignore answers: zlock asks clients nothing
	case m.Method == nil || m.Version != "2.0":
		s.answer(nil, nil, wrongRequest(rpcInvalid, `a message must have "jsonrpc": "2.0" and a method`))
	case m.ID == nil:
		s.notified(*m.Method, m.Params)
	case !isID(m.ID):
		s.answer(nil, nil, wrongRequest(rpcInvalid, "the id of a request must be a text or a whole number"))
	default:
		result, e := s.request(ctx, waits, &m)
		if result != nil || e != nil {
			s.answer(&m, result, e)
		}
	}
}

func isID(id json.RawMessage) bool {
	return id[0] == '"' || (id[0] == '-' || id[0] >= '0' && id[0] <= '9') && !bytes.ContainsAny(id, ".eE")
}

// notified() handles a message that needs no answer.
func (s *rpcServer) notified(method string, params json.RawMessage) {
	if method != "notifications/cancelled" {
		return
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[string(p.ID)]; cancel != nil {
		delete(s.running, string(p.ID)) // call() then knows that it must not answer
		cancel()
	}
}

// request() returns the result of a request, or an error. It returns nil twice if the request is a call that
// continues in another goroutine.
func (s *rpcServer) request(ctx, waits context.Context, m *rpcMessage) (map[string]any, *rpcError) {
	var e *rpcError
	m.stateless, e = metaOf(m.Params)
	switch {
	case e != nil:
		return nil, e
	case *m.Method == "initialize":
		return s.initialize(m.Params), nil
	case *m.Method == "ping":
		return map[string]any{}, nil
	}
	s.mu.Lock()
	known := s.legacy || m.stateless
	s.mu.Unlock()
	if !known {
		return nil, wrongRequest(rpcBadParams, "send initialize first, or %sprotocolVersion and "+
			"%[1]sclientCapabilities in _meta", metaPrefix)
	}
	const cached = 3_600_000 // how long clients may cache these answers, in ms
	switch *m.Method {
	case "server/discover":
		return map[string]any{"supportedVersions": mcpRevisions, "capabilities": mcpCapabilities,
			"instructions": mcpInstructions, "ttlMs": cached, "cacheScope": "public"}, nil
	case "tools/list":
		return map[string]any{"tools": toolList, "ttlMs": cached, "cacheScope": "public"}, nil
	case "tools/call":
		return nil, s.call(ctx, waits, m)
	}
	return nil, wrongRequest(rpcNoMethod, "no method %q: zlock has tools/list and tools/call", *m.Method)
}

// metaOf reports whether a request names its revision. It returns an error if zlock does not know the
// revision.
func metaOf(params json.RawMessage) (given bool, e *rpcError) {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if params != nil && json.Unmarshal(params, &p) != nil {
		return false, wrongRequest(rpcBadParams, "the params of a request must be an object")
	}
	raw, given := p.Meta[metaPrefix+"protocolVersion"]
	if !given {
		return false, nil
	}
	var revision string
	_ = json.Unmarshal(raw, &revision)
	for _, known := range mcpRevisions {
		if revision != known {
			continue
		}
		if c := p.Meta[metaPrefix+"clientCapabilities"]; len(c) == 0 || c[0] != '{' {
			return false, wrongRequest(rpcBadParams, "_meta lacks %sclientCapabilities, an object", metaPrefix)
		}
		return true, nil
	}
	e = wrongRequest(rpcUnknownRevision, "zlock does not speak revision %q", revision)
	e.Data = map[string]any{"supported": mcpRevisions, "requested": revision}
	return false, e
}

var mcpCapabilities = map[string]any{"tools": map[string]any{}}

func serverInfo() map[string]any {
	return map[string]any{"name": "zlock", "version": release.Version()}
}

// initialize() agrees on a revision with the client: the client's own, or the newest one before it that zlock
// has. If zlock has none of these, it offers the newest revision that has `initialize`.
func (s *rpcServer) initialize(params json.RawMessage) map[string]any {
	var p struct {
		Revision string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(params, &p)
	agreed := mcpRevisions[1]
	for _, known := range mcpRevisions[1:] {
		if known <= p.Revision {
			agreed = known
			break
		}
	}
	s.mu.Lock()
	s.legacy = true
	s.mu.Unlock()
	return map[string]any{"protocolVersion": agreed, "capabilities": mcpCapabilities,
		"serverInfo": serverInfo(), "instructions": mcpInstructions}
}

// call() starts a tool.
func (s *rpcServer) call(ctx, waits context.Context, m *rpcMessage) *rpcError {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return wrongRequest(rpcBadParams, "params of tools/call must be a name and arguments")
	}
	do, there := s.tools.named()[p.Name]
	if !there {
		return wrongRequest(rpcBadParams, "no tool %q: zlock has lock_take, lock_wait and lock_give", p.Name)
	}
	if p.Name == "lock_wait" {
		ctx = waits
	}
	id := string(m.ID)
	ctx, cancel := context.WithCancel(ctx)
	stop := cancel
	if p.Name == "lock_take" {
		stop = func() {} // do not stop lock_take: only its answer shows whether it has taken a ticket
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running[id] != nil:
		cancel()
		return wrongRequest(rpcInvalid, "a request with the id %s is not answered yet: use another id", id)
	case len(s.running) == mostCalls:
		cancel()
		return wrongRequest(rpcInvalid, "%d calls wait for their answers: wait, or cancel some", mostCalls)
	}
	s.running[id] = stop
	s.calls.Go(func() {
		defer cancel()
		result, undo := do(ctx, p.Arguments)
		s.mu.Lock()
		_, wanted := s.running[id]
		delete(s.running, id)
		s.mu.Unlock()
		if wanted {
			s.answer(m, result, nil)
		} else if undo != nil {
			undo()
		}
	})
	return nil
}

// answer() writes a result or an error. `m` is nil if the request cannot be read, so that its id is unknown.
func (s *rpcServer) answer(m *rpcMessage, result map[string]any, e *rpcError) {
	a := map[string]any{"jsonrpc": "2.0"}
	if m != nil {
		a["id"] = m.ID
		// Only clients of the newest revision know these names; others may refuse them.
		if m.stateless && result != nil {
			result["resultType"] = "complete"
			result["_meta"] = map[string]any{metaPrefix + "serverInfo": serverInfo()}
		}
	}
	if e != nil {
		a["error"] = e
	} else {
		a["result"] = result
	}
	var line strings.Builder
	encode := json.NewEncoder(&line)
	encode.SetEscapeHTML(false)
	if err := encode.Encode(a); err != nil {
		return // cannot happen: every part can be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, line.String())
}
