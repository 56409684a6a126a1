package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// sayAgain is how often the log says at most that the same thing fails.
	sayAgain = 30 * time.Second
	// manyFailures is how many kinds of failures are told apart.
	manyFailures = 100
)

// repeats keeps the log readable while something fails again and again, such as every
// call while the store is away: the first is said at once, and then how many there
// were, now and then. It is safe for use by any number of goroutines.
type repeats struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*repeated
}

type repeated struct {
	level slog.Level
	text  string
	attrs []any // of the last one
	said  time.Time
	more  int // since it was said
}

// say says that something failed. Those with the same text and key are the same,
// whatever numbers are in the key: errors of connections have their ports.
func (r *repeats) say(level slog.Level, text, key string, attrs ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key = text + "\x00" + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, key)
	k := r.kinds[key]
	if k == nil && len(r.kinds) >= manyFailures {
		key = "" // of all the others
		k = r.kinds[key]
	}
	if k == nil {
		if r.kinds == nil {
			r.kinds = make(map[string]*repeated)
		}
		k = &repeated{level: level, text: text, said: r.now()}
		r.kinds[key] = k
		r.log.Log(context.Background(), level, text, attrs...)
		return
	}
	k.more++
	k.attrs = attrs
}

// tell says how many there were since they were said last. It is called each second.
func (r *repeats) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for key, k := range r.kinds {
		if now.Sub(k.said) < sayAgain {
			continue
		}
		if k.more == 0 {
			delete(r.kinds, key)
			continue
		}
		r.log.Log(context.Background(), k.level, k.text, append(k.attrs, "times", k.more, "within", now.Sub(k.said).Round(time.Second).String())...)
		k.said, k.more = now, 0
	}
}
