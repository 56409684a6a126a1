//go:build race

package remotestore_test

// raceDetector is on: the HTTP between the suite and the store costs several times as much, and has the
// groups in which goroutines meet. make test runs it whole without it.
const raceDetector = true
