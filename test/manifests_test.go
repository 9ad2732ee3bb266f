package test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// documents() returns the YAML documents of a file below deploy.
func documents(t *testing.T, file string) (all []map[string]any, text string) {
	t.Helper()
	b := must.Get(os.ReadFile("../deploy/" + file))(t)
	for in := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var doc map[string]any
		err := in.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, string(b)
		}
		must.OK(t, err, "%s", file)
		all = append(all, doc)
	}
}

// at() returns the value at a path of keys.
func at(doc any, keys ...string) any {
	for _, k := range keys {
		m, _ := doc.(map[string]any)
		doc = m[k]
	}
	return doc
}

// The manifests below deploy use only flags that zlockd has. Their names, labels and images fit together, and
// their cluster can form.
func TestManifests(t *testing.T) {
	help := must.Get(exec.Command("go", "run", "../cmd/zlockd", "--help").Output())(t)
	objects, kubernetes := documents(t, "kubernetes/zlockd.yaml")
	composed, compose := documents(t, "compose/compose.yaml")
	flag := regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	comment := regexp.MustCompile(`(?m)^\s*#.*$`)
	for name, text := range map[string]string{"kubernetes": kubernetes, "compose": compose} {
		found := flag.FindAllString(comment.ReplaceAllString(text, ""), -1)
		expect.That(t, len(found) != 0, "%s names no flag", name)
		for _, f := range found {
			expect.That(t, regexp.MustCompile(regexp.QuoteMeta(f)+`[ \n]`).Match(help),
				"%s: zlockd has no flag %s", name, f)
		}
	}

	kinds := map[string]map[string]any{}
	for _, o := range objects {
		kinds[o["kind"].(string)+" "+at(o, "metadata", "name").(string)] = o
	}
	set := kinds["StatefulSet zlockd"]
	if at(set, "spec", "replicas") != 3 || at(set, "spec", "podManagementPolicy") != "Parallel" {
		t.Error("want a StatefulSet of three servers that start in parallel")
	}
	if s := kinds["Service "+at(set, "spec", "serviceName").(string)]; at(s, "spec", "clusterIP") != "None" ||
		at(s, "spec", "publishNotReadyAddresses") != true {
		t.Error("the StatefulSet's service must be headless and know servers that are not ready: else no cluster forms")
	}
	expect.Equal(t, at(kinds["PodDisruptionBudget zlockd"], "spec", "maxUnavailable"), 1,
		"a disruption must leave two of three servers")
	release := regexp.MustCompile(`(?m)^\d\S*`).FindString(
		string(must.Get(os.ReadFile("../cmd/internal/release/RELEASES"))(t)))
	for name, text := range map[string]string{"kubernetes": kubernetes, "compose": compose} {
		for _, m := range regexp.MustCompile(`localhost/zlockd:([\d.]+)`).FindAllStringSubmatch(text, -1) {
			expect.Equal(t, m[1], release, "%s names the image of", name)
		}
	}
	label := at(set, "spec", "template", "metadata", "labels", "app")
	for name, o := range kinds {
		selector := at(o, "spec", "selector")
		if m := at(selector, "matchLabels"); m != nil {
			selector = m
		}
		expect.Equal(t, at(selector, "app"), label, "%s does", name)
	}
	if n := len(at(composed[0], "services").(map[string]any)); n != 3 || strings.Count(compose, "1=zlockd1:2888,2=zlockd2:2888,3=zlockd3:2888") != n {
		t.Errorf("%d services, or not all with the same peers", n)
	}
}
