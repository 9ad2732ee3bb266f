package jute

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// The reference keeps some lists in Java's hash sets, and clients print them as
// they come. The order is that of the buckets; it is the same wherever the same
// things are in a table of the same size.

// JavaHash is Java's String.hashCode.
func JavaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if hi, lo := utf16.EncodeRune(r); hi != '�' {
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	return h
}

// SortByBucket sorts what a Java hash table of that many buckets, a power of
// two, holds. Things of one bucket stay in the order they were in.
func SortByBucket[T any](list []T, buckets int, hash func(T) int32) {
	slices.SortStableFunc(list, func(a, b T) int {
		return cmp.Compare(Bucket(hash(a), buckets), Bucket(hash(b), buckets))
	})
}

// Bucket is where a Java hash table of that many buckets keeps what has this
// hash code.
func Bucket(hash int32, buckets int) uint32 {
	h := uint32(hash)
	return (h ^ h>>16) & uint32(buckets-1)
}

// GrownTable is how many buckets a Java hash table has that grew to n things
// one by one.
func GrownTable(n int) int {
	buckets := 16
	for n > buckets/4*3 {
		buckets *= 2
	}
	return buckets
}

// CopiedTable is how many buckets the copy of a set of n things has.
func CopiedTable(n int) int {
	buckets := 1
	for buckets < n*4/3+1 {
		buckets *= 2
	}
	return buckets
}
