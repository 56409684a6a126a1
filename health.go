package duetime

import "time"

// Health says how a client's workers are getting on with its store.
type Health struct {
	// LastSuccess is when the store last answered a claim, of the queue where that
	// is longest ago. An idle queue has a claim a second, and a busy one as many as
	// it has hands for; one whose hands are all busy does not count. More than
	// a few seconds ago means that the store is in trouble.
	LastSuccess time.Time
	// LastError is why the last claim of such a queue failed; nil once one has
	// succeeded again.
	LastError error
}

// Health tells whether the workers of this client get answers from the store, for
// readiness checks.
func (c *Client) Health() Health {
	h := c.dispatcher.Health()
	return Health{LastSuccess: h.LastSuccess, LastError: h.LastError}
}
