package jute_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

func TestJavaHash(t *testing.T) {
	for s, want := range map[string]int32{"": 0, "a": 97, "/locks/a": 646420907, "ü": 252, "😀": 1772899,
		"digest": -1331913276} {
		got := jute.JavaHash(s)
		expect.Equal(t, got, want, "JavaHash(%q) = %d", s, got)
	}
}

func TestTables(t *testing.T) {
	for n, want := range map[int][2]int{0: {16, 1}, 1: {16, 2}, 2: {16, 4}, 3: {16, 8}, 12: {16, 32}, 13: {
		32, 32}, 24: {32, 64}, 25: {64, 64}} {
		expect.Equal(t, [2]int{jute.GrownTable(n), jute.CopiedTable(n)}, want, "tables of %d", n)
	}
}

func TestSortByBucket(t *testing.T) {
	list := []int32{33, 17, 2, 1, 16}
	jute.SortByBucket(list, 16, func(v int32) int32 { return v })
	want := []int32{16, 33, 17, 1, 2}
	expect.List(t, list, want)
}
