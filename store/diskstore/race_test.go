//go:build race

package diskstore

// raceDetector is on: the engine beneath is ten times slower, so that the
// heaviest tests do less. make test runs them in full without it.
const raceDetector = true
