//go:build !race

package remotestore_test

const raceDetector = false
