package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress shows on a terminal how far something is that takes a while, in one
// line that is written over and over. On anything else it writes nothing. It is
// for one goroutine.
type progress struct {
	w     io.Writer // nil: nothing is shown
	width func() int
	now   func() time.Time

	start, last time.Time
	begun       int64 // what was done when it began
	drawn       bool
}

// newProgress shows on w if that is a terminal.
func newProgress(w io.Writer) *progress {
	p := &progress{now: time.Now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
		p.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				width = 80
			}
			return width
		}
	}
	return p
}

const (
	redrawEvery = 100 * time.Millisecond
	barWidth    = 24
)

// show says that done of total are done; a total that is not known is 0. The note
// may be empty.
func (p *progress) show(done, total int64, note string) {
	if p.w == nil {
		return
	}
	now := p.now()
	if p.start.IsZero() {
		p.start, p.begun = now, done
	} else if now.Sub(p.last) < redrawEvery {
		return
	}
	p.last, p.drawn = now, true
	var b strings.Builder
	if total > 0 {
		full := int(min(done, total) * barWidth / total)
		fmt.Fprintf(&b, "[%s%s] %3d%%  %s of %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), min(done, total)*100/total, number(done), number(total))
	} else {
		b.WriteString(number(done))
	}
	if elapsed := now.Sub(p.start); elapsed > time.Second && done > p.begun {
		rate := float64(done-p.begun) / elapsed.Seconds()
		fmt.Fprintf(&b, ", %s/s", number(int64(rate)))
		if done < total {
			fmt.Fprintf(&b, ", %s left", span(int64(float64(total-done)/rate*1000)))
		}
	}
	if note != "" {
		b.WriteString("  " + note)
	}
	// A line that is too long would wrap, and could not be written over.
	line := []rune(b.String())
	if width := p.width(); width > 1 && len(line) >= width {
		line = line[:width-1]
	}
	fmt.Fprintf(p.w, "\r%s\x1b[K", string(line))
}

// clear takes the line away, so that something else can be written.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn, p.last = false, time.Time{}
	}
}
