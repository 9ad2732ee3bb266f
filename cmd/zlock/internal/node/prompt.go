package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/server/view/answer"
)

const prompt = "zlock> "

// Prompt runs the verbs that a person types, until the verb `quit`. `in` and `out` are the terminal. The Tab
// key completes verbs and paths, and the arrow keys recall earlier lines. An interrupt ends only the running
// verb. SIGTERM ends the prompt, whatever the prompt waits for.
func (s *Shell) Prompt(ctx context.Context, in, out *os.File) error {
	fd := int(in.Fd())
	cooked, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(fd, cooked) }()
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, prompt)
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		done, choice := s.complete(ctx, line[:pos])
		if len(choice) > 1 {
			s.tell("%s", strings.Join(choice, "  "))
		}
		return done + line[pos:], len(done), true
	}
	s.Out, s.Err, s.Terminal = t, t, true
	on, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
	defer stop()
	readLine := func() (string, error) {
		return within(on, t.ReadLine)
	}
	s.ask = func(question string) (string, error) {
		if _, err := term.MakeRaw(fd); err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(fd, cooked) }()
		t.SetPrompt(question)
		defer t.SetPrompt(prompt)
		return readLine()
	}
	for !s.quit && s.Conn.Err() == nil {
		if width, height, err := term.GetSize(fd); err == nil && width > 0 {
			_ = t.SetSize(width, height)
		}
		line, err := readLine()
		switch {
		case on.Err() != nil:
			return &call.SignalError{Sig: syscall.SIGTERM}
		case errors.Is(err, io.EOF):
			return nil
		}
		if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
			return err
		}
		_ = term.Restore(fd, cooked) // so that Ctrl-C can interrupt a long verb
		verb, stop := signal.NotifyContext(on, os.Interrupt)
		s.Line(verb, line)
		stop()
		if _, err := term.MakeRaw(fd); err != nil {
			return err
		}
	}
	return s.Conn.Err()
}

// complete() completes the last word of a line, as far as all choices agree. It also returns the choices.
func (s *Shell) complete(ctx context.Context, line string) (done string, choice []string) {
	at := strings.LastIndexByte(line, ' ') + 1
	word := line[at:]
	switch {
	case at == 0:
		for _, v := range Verbs() {
			if strings.HasPrefix(v, word) {
				choice = append(choice, v+" ")
			}
		}
	case strings.HasPrefix(word, "/"):
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		dir, begun := path.Split(word)
		names, _, err := s.children(ctx, path.Clean(dir))
		if err != nil {
			return line, nil
		}
		for _, n := range names {
			if strings.HasPrefix(n, begun) && !strings.ContainsAny(n, " \t\"'\\") && visibleData(n) == n {
				choice = append(choice, dir+n)
			}
		}
	}
	if len(choice) == 0 {
		return line, nil
	}
	same := slices.MinFunc(choice, func(a, b string) int { return len(a) - len(b) })
	for _, c := range choice {
		for !strings.HasPrefix(c, same) {
			_, n := utf8.DecodeLastRuneInString(same)
			same = same[:len(same)-n]
		}
	}
	return line[:at] + same, choice
}

// input() returns a reader of In that all verbs share.
func (s *Shell) input() *bufio.Reader {
	if s.lines == nil {
		s.lines = bufio.NewReader(s.In)
	}
	return s.lines
}

// Lines runs the verbs of In, one on each line, as zkCli does with a file: it reports the error of a verb and
// continues. It returns an error if In cannot be read.
func (s *Shell) Lines(ctx context.Context) error {
	for !s.quit && ctx.Err() == nil {
		line, err := within(ctx, func() (string, error) { return s.input().ReadString('\n') })
		s.Line(ctx, line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// within() returns the line that read() returns, or an error if ctx ends first. Nothing can end a read from a
// terminal, so read() may then still wait for a line.
func within(ctx context.Context, read func() (string, error)) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := read()
		done <- result{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Line runs the verb of a line and reports its error.
func (s *Shell) Line(ctx context.Context, line string) {
	words, err := Words(line)
	if err == nil && len(words) > 0 {
		s.history = append(s.history, strings.TrimSpace(line))
		err = s.Do(ctx, words)
	}
	if err != nil {
		s.tell("%s", answer.Visible(err.Error()))
	}
}

// Words splits a line into words at blanks. Quotes and backslashes keep blanks in a word.
func Words(line string) (words []string, err error) {
	var word strings.Builder
	inside, quote, escaped := false, rune(0), false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inside = r, true
		case quote == 0 && strings.ContainsRune(" \t\r\n", r):
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c has no end", quote)
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}
