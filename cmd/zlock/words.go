package main

import (
	"encoding/binary"
	"io"
	"strconv"
)

// A message between zlock and its guard is a list of words, which need not be UTF-8. Both processes
// have just started and exchange a few messages: a codec that studies types first, as that of JSON,
// would cost more than the messages.

// sendWords writes a message in one piece: its length, and then each word behind its own.
func sendWords(w io.Writer, words []string) error {
	b := make([]byte, 4, 4<<10)
	for _, word := range words {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(word))), word...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := w.Write(b)
	return err
}

// readWords reads a message, which has a word at least.
func readWords(r io.Reader) (words []string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	for len(b) >= 4 {
		end := 4 + binary.BigEndian.Uint32(b)
		words, b = append(words, string(b[4:end])), b[end:]
	}
	return words, nil
}

// word writes a number as a word, and number reads it.
func word[N ~int | ~int64 | ~uint32](n N) string { return strconv.FormatInt(int64(n), 10) }

func number[N ~int | ~int64 | ~uint32](word string) N {
	n, _ := strconv.ParseInt(word, 10, 64)
	return N(n)
}
