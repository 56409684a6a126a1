package store

// Measure is one number that a store can tell of itself.
type Measure struct {
	Name    string // such as "wakeups_heard_total": lower case and underscores, a counter's ends in "_total"
	Help    string // a sentence
	Counter bool   // it only grows, while the store is open
	Value   float64
}

// Measurer is what a store has that counts what only it can know, such as damaged
// records that it set aside. Find it with [As]. Servers show it to whoever watches
// them.
type Measurer interface {
	// Measures returns what the store counts now, always the same names in the
	// same order. It is cheap, does not go over a network, and is safe for
	// concurrent use, after Close too.
	Measures() []Measure
}

// Degrader is what a store has that can do without a part of itself. Find it with
// [As]. Servers say so where they are asked whether they are ready.
type Degrader interface {
	// Degraded says in a few words what the store does without at the moment, and is
	// empty where all is well. It is cheap, does not go over a network, and is safe
	// for concurrent use.
	Degraded() string
}
