package jute

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// ZooKeeper keeps some lists in Java's hash sets, and clients print them in the order of the buckets. This
// order depends only on the elements and on the number of buckets.

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

// SortByBucket sorts the elements as a Java hash table with this number of buckets does. The number is a
// power of two. Elements of one bucket keep their order.
func SortByBucket[T any](list []T, buckets int, hash func(T) int32) {
	slices.SortStableFunc(list, func(a, b T) int {
		return cmp.Compare(Bucket(hash(a), buckets), Bucket(hash(b), buckets))
	})
}

// Bucket returns the bucket in which a Java hash table with this number of buckets keeps an element with this
// hash code.
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

// CopiedTable returns the number of buckets of a copy of a Java hash set with n elements.
func CopiedTable(n int) int {
	buckets := 1
	for buckets < n*4/3+1 {
		buckets *= 2
	}
	return buckets
}
