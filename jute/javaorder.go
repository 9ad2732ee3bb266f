package jute

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// ZooKeeper keeps some lists in Java's hash sets, and clients print them in that order. It is the order of
// the buckets; it is the same for the same elements in a table of the same size.

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

// SortByBucket sorts the elements of a Java hash table of that many buckets, a power of two.
// Elements of one bucket keep their order.
func SortByBucket[T any](list []T, buckets int, hash func(T) int32) {
	slices.SortStableFunc(list, func(a, b T) int {
		return cmp.Compare(Bucket(hash(a), buckets), Bucket(hash(b), buckets))
	})
}

// Bucket returns where a Java hash table of that many buckets keeps an element with this hash
// code.
func Bucket(hash int32, buckets int) uint32 {
	h := uint32(hash)
	return (h ^ h>>16) & uint32(buckets-1)
}

// GrownTable returns the number of buckets of a Java hash table that grew to n elements one by one.
func GrownTable(n int) int {
	buckets := 16
	for n > buckets/4*3 {
		buckets *= 2
	}
	return buckets
}

// CopiedTable returns how many buckets the copy of a set of n elements has.
func CopiedTable(n int) int {
	buckets := 1
	for buckets < n*4/3+1 {
		buckets *= 2
	}
	return buckets
}
