//go:build race

package redisstore

// raceDetector is on: the suite on a cluster takes over a minute, and has the
// groups in which goroutines meet. make test runs it whole without it.
const raceDetector = true
