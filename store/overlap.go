package store

// Overlapper is what a store has whose calls do not wait for each other, such as
// one behind a connection on which many may be on their way at once. Find it with
// [As].
type Overlapper interface {
	// Overlap is how many calls of one method are worth making at the same time,
	// where each has a share of what is to be done: with more than one the
	// store does not idle while its last answer is read and the next call is
	// made. 1 is what every other store is taken for.
	Overlap() int
}
