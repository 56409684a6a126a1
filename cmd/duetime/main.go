// Command duetime schedules, looks after and runs delayed tasks, and serves them
// over HTTP. duetime --help lists what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	_ "time/tzdata" // release settings name time zones, also on machines that have none

	"github.com/duetime/duetime/store"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once, as if none were caught.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program, but for the process around it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	err := a.command().Run(ctx, args)
	if err == nil {
		return exitDone
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	status := exitFailed
	var usage *usageError
	var input *store.InputError
	if errors.As(err, &input) {
		// It says it all: which operation it was is known to whoever typed it.
		err, status = input, exitUsage
	} else if errors.As(err, &usage) {
		status = exitUsage
	}
	if m := noHelpTopic.FindStringSubmatch(err.Error()); m != nil {
		err, status = usagef("there is no command %q; duetime --help lists them", m[1]), exitUsage
	}
	fmt.Fprintln(stderr, "duetime:", oneLine(strings.TrimPrefix(err.Error(), "duetime: ")))
	return status
}

// noHelpTopic is how the library speaks of commands that do not exist, where help
// is asked for.
var noHelpTopic = regexp.MustCompile(`^No help topic for '(.*?)'`)

// usageError is what the user has to write differently.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// errReported is returned by commands that have said what is wrong themselves,
// such as one of several ids that is not there.
var errReported = errors.New("failed, and said so")

// oneLine keeps a message in one line, so that each line of standard error is
// one message.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
