//go:build !race

package diskstore

const raceDetector = false
