package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/duetime/duetime/internal/wire"
	"github.com/duetime/duetime/store"
)

const codeMethod = wire.CodeMethod

// problem is an RFC 9457 problem document. Its type is about:blank, which need
// not be said; the code tells kinds of problem apart.
type problem struct {
	Title  string `json:"title" doc:"The status in words."`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"What is wrong: the field, its value and the limit, in a sentence."`
	wire.Error
}

// failure is an error that knows how it is answered.
type failure struct {
	status int
	err    *wire.Error
	allow  string // methods, with 405
}

func (f *failure) Error() string {
	if f.err.Field == "" {
		return f.err.Problem
	}
	return (&store.InputError{Field: f.err.Field, Value: f.err.Value, Problem: f.err.Problem}).Error()
}

func wireError(code, field, value, text string) *wire.Error {
	e := wire.FromError(store.NewInputError(field, value, "%s", text))
	e.Code = code
	return e
}

func notFound(field, value, text string) *failure {
	return &failure{status: http.StatusNotFound, err: wireError(wire.CodeNotFound, field, value, text)}
}

func conflict(field, value, text string) *failure {
	return &failure{status: http.StatusConflict, err: wireError(wire.CodeLeased, field, value, text)}
}

func tooLarge(field string, size any, text string, args ...any) *failure {
	e := wire.FromError(store.NewInputError(field, size, text, args...))
	e.Code = wire.CodeTooLarge
	return &failure{status: http.StatusRequestEntityTooLarge, err: e}
}

// asFailure decides how an error is answered:
//
//	400 what was given is wrong         413 it is too large
//	412 settings changed meanwhile      501 the store can not do it
//	503 the store can not be reached    507 the store is full
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	e := wire.FromError(err)
	status := http.StatusServiceUnavailable
	switch e.Code {
	case wire.CodeInput:
		status = http.StatusBadRequest
		var input *store.InputError
		if errors.As(err, &input) && isSize(input) {
			e.Code, status = wire.CodeTooLarge, http.StatusRequestEntityTooLarge
		}
	case wire.CodeFull:
		status = http.StatusInsufficientStorage
	case wire.CodeUnsupported:
		status = http.StatusNotImplemented
	case wire.CodeVersion:
		status = http.StatusPreconditionFailed
	default:
		if errors.Is(err, store.ErrCorrupt) {
			status = http.StatusInternalServerError
			break
		}
		// What the store says may hold addresses and passwords: that is for the log.
		e.Code, e.Problem = wire.CodeUnavailable, "the store can not be reached or has failed; it is not known whether the request was carried out, and it is safe to repeat"
		if errors.Is(err, store.ErrClosed) || errors.Is(err, context.Canceled) {
			e.Problem = "the server is shutting down; the request is safe to repeat"
		}
	}
	return &failure{status: status, err: e}
}

// isSize says whether a value was refused for being too large, rather than
// wrong.
func isSize(e *store.InputError) bool {
	return (e.Field == "payload" || e.Field == "batch" || e.Field == "headers") && strings.Contains(e.Problem, "the limit is")
}
