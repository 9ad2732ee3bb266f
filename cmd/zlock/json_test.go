package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// answers are what each command prints with -o json, where zlock makes it.
var answers = map[string][]any{
	"ls":                         {listed{}},
	"show, holders, waiters":     {shownEntry{}},
	"wait-graph":                 {shownEdge{}, shownParty{}},
	"leader":                     {shownLeader{}},
	"doctor":                     {finding{}, trouble{}},
	"member list, restart-order": {memberInfo{}},
	"top":                        {topRow{}},
	"backup, export":             {takenFile{}},
	"restore":                    {restoredFile{}},
}

// TestAnswersInJSONAreDescribed: whatever a field is called, the line of its
// command in the documentation names it.
func TestAnswersInJSONAreDescribed(t *testing.T) {
	lines := map[string]string{}
	for _, file := range []string{"zlock.md", "data.md"} {
		b := must.Get(os.ReadFile("../../docs/" + file))(t)
		_, part, found := strings.Cut(string(b), "\n## Answers in JSON\n")
		must.That(t, found, "docs/%s does not describe answers in JSON", file)
		part, _, _ = strings.Cut(part, "\n## ")
		for line := range strings.Lines(part) {
			if cells := strings.Split(line, "|"); len(cells) > 3 {
				name := strings.ReplaceAll(strings.ReplaceAll(cells[1], "`", ""), "zlock ", "")
				lines[strings.TrimSpace(name)] += line
			}
		}
	}
	for command, objects := range answers {
		line, ok := lines[command]
		expect.That(t, ok, "no line describes %s; there are %v", command, lines)
		for _, o := range objects {
			for _, name := range fieldsOf(reflect.TypeOf(o)) {
				expect.Has(t, line, "`"+name+"`", "%s: the field %s is not described", command, name)
			}
		}
	}
}

// fieldsOf are the names of an object's fields.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fieldsOf(f.Type)...)
		case f.IsExported() && name != "-":
			names = append(names, name)
		}
	}
	return names
}

// Every object has a version, and one only.
func TestAnswersInJSONHaveAVersion(t *testing.T) {
	all := map[string]any{"empty": struct{}{}, "a server's": json.RawMessage(`{"v":1,"id":"0x1"}`),
		"a part of a server's": json.RawMessage(`{"id":"0x1"}`)}
	for command, objects := range answers {
		all[command] = objects[0]
	}
	for what, o := range all {
		var b bytes.Buffer
		p := &printer{w: &b, format: formatJSON}
		p.row(o)
		var read struct{ V int }
		if err := json.Unmarshal(b.Bytes(), &read); err != nil || read.V != 1 || p.err != nil ||
			!strings.HasPrefix(b.String(), `{"v":1`) || strings.Count(b.String(), `"v":`) > 1 {
			t.Errorf("%s: %s %v %v", what, &b, err, p.err)
		}
	}
}
