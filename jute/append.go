package jute

import "encoding/binary"

// AppendBool appends a bool as one byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendInt appends a 32-bit integer.
func AppendInt(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendLong appends a 64-bit integer.
func AppendLong(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendBuffer appends a byte buffer; nil is written as null.
func AppendBuffer(b, v []byte) []byte {
	if v == nil {
		return AppendInt(b, -1)
	}
	return append(AppendInt(b, int32(len(v))), v...)
}

// AppendString appends a string. Strings in replies are never null.
func AppendString(b []byte, s string) []byte {
	return append(AppendInt(b, int32(len(s))), s...)
}

// AppendStrings appends a vector of strings.
func AppendStrings(b []byte, list []string) []byte {
	b = AppendInt(b, int32(len(list)))
	for _, s := range list {
		b = AppendString(b, s)
	}
	return b
}

// BeginFrame appends room for the length of a frame, and returns the offset that EndFrame needs.
func BeginFrame(b []byte) (frame []byte, at int) {
	return append(b, 0, 0, 0, 0), len(b)
}

// EndFrame writes the length of all bytes that were appended since BeginFrame returned `at`.
func EndFrame(b []byte, at int) {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
}
