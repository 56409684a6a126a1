// Package lint holds no code but tests: the promises that the project makes
// about its own source, such as which package may import which.
package lint
