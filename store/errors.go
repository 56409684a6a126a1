package store

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// When a store is opened.
var (
	// ErrInUse: the store's directory is open elsewhere, in another process as a
	// rule.
	ErrInUse = errors.New("store is in use")
)

// When a store is used.
var (
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrFull: there is no room (disk, memory). Nothing was stored; try again
	// later. Operations that free room still work.
	ErrFull = errors.New("store is full")
	// ErrCorrupt: what the store reads is not what it wrote.
	ErrCorrupt = errors.New("stored data is damaged")
	// ErrUnsupported: the store can not do this; see Capabilities.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrVersion: the settings were changed since they were read.
	ErrVersion = errors.New("settings were changed by someone else: read them again")
)

// InputError says what is wrong with something the caller gave: the field, the
// value, and the limit it broke.
type InputError struct {
	Field   string // such as "id", "delay", "settings.lease"
	Value   string // as given, shortened
	Problem string // what is wrong with it, and the limit
}

func (e *InputError) Error() string {
	if e.Value == "" { // the field itself is what is wrong
		return e.Field + ": " + e.Problem
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Problem)
}

// NewInputError makes an InputError, for checks that are made outside this
// package. Strings are quoted and shortened; other values are printed.
func NewInputError(field string, value any, problem string, args ...any) *InputError {
	return inputError(field, value, problem, args...)
}

func inputError(field string, value any, problem string, args ...any) *InputError {
	var v string
	switch x := value.(type) {
	case string:
		v = quoteShort(x)
	case []byte:
		v = fmt.Sprintf("(%d bytes)", len(x))
	default:
		v = fmt.Sprint(x)
	}
	if len(args) > 0 {
		problem = fmt.Sprintf(problem, args...)
	}
	return &InputError{Field: field, Value: v, Problem: problem}
}

func quoteShort(s string) string {
	const limit = 60
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// Unsupported returns an error that wraps ErrUnsupported and names the store
// and the operation.
func Unsupported(storeName, operation string) error {
	return fmt.Errorf("%s store: %s: %w", storeName, operation, ErrUnsupported)
}
