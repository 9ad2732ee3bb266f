package recipe

import "errors"

// The errors of names and queues. They are package client's, which has them by
// the same names.
var (
	// ErrMixedLayout says that contenders of clients that cannot see each other
	// share the directory.
	ErrMixedLayout = errors.New("client: contenders of incompatible layouts in one directory")
	// ErrSequenceExhausted says that the directory's numbers are about to wrap,
	// or have, while clients contend that cannot order them. Let the directory
	// drain and remove it: numbering starts again at 0.
	ErrSequenceExhausted = errors.New(
		"client: sequence numbers exhausted; let the directory drain and remove it")
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = errors.New("client: invalid argument")
)
