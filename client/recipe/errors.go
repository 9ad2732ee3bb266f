package recipe

import "errors"

// The errors of names and queues. Package client has them under the same names.
var (
	// ErrMixedLayout says that the directory has contenders that cannot see each other.
	ErrMixedLayout = errors.New("client: contenders of incompatible layouts in one directory")
	// ErrSequenceExhausted says that the directory's numbers wrap soon, or have wrapped, while some contenders
	// cannot order such numbers. Wait until the directory is empty and remove it. Then the numbers start again
	// at 0.
	ErrSequenceExhausted = errors.New(
		"client: sequence numbers exhausted; let the directory drain and remove it")
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = errors.New("client: invalid argument")
)
