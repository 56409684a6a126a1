package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/store"
)

// call is one script on one shard.
type call struct {
	script *script
	shard  *shard
	args   []string // what comes after the three that all scripts have
}

// reply is what a call brought: a message, or an error of the server that says
// that nothing was done.
type reply struct {
	word   string                 // where the script answered with a word
	values []rueidis.RedisMessage // else
	err    error
}

// patience is how long a call is repeated that the server did not carry out
// because it was not ready: loading, failing over, moving a slot.
const patience = 30 * time.Second

// run carries out calls, those on one shard in order, and returns a reply for
// each. An error means that the outcome of some is not known.
func (s *Store) run(ctx context.Context, calls []call) ([]reply, error) {
	replies := make([]reply, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	full := false // with the text of the script, as the server has not seen it
	var tries tries
	for {
		results, err := s.send(ctx, calls, todo, full)
		if err != nil {
			return nil, err
		}
		again := todo[:0]
		unknown := false
		for k, i := range todo {
			m, err := results[k].ToMessage()
			if err == nil {
				replies[i] = readReply(&m)
				continue
			}
			switch kindOf(err) {
			case noScript:
				unknown = true
				again = append(again, i)
			case notReady:
				again = append(again, i)
			case refused:
				replies[i].err = err
			default:
				return nil, s.broken(ctx, err)
			}
		}
		if len(again) == 0 {
			return replies, nil
		}
		todo = again
		if !unknown {
			s.counts.again.Add(int64(len(again)))
		}
		if unknown && !full {
			full = true
			continue
		}
		_, err = results[len(results)-1].ToMessage()
		if err := tries.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// tries are those of one call that the server was not ready for.
type tries struct {
	deadline time.Time
	pause    time.Duration
}

// wait returns when it is time to try again, or an error when there has been enough
// of that. cause is what the server said.
func (t *tries) wait(ctx context.Context, cause error) error {
	if now := time.Now(); t.deadline.IsZero() {
		t.deadline, t.pause = now.Add(patience), time.Millisecond
	} else if now.After(t.deadline) {
		return fmt.Errorf("redis did not become ready in %v: %w", patience, cause)
	}
	err := sleep(ctx, t.pause)
	t.pause = min(2*t.pause, 100*time.Millisecond)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func readReply(m *rueidis.RedisMessage) reply {
	if m.IsArray() {
		values, _ := m.ToArray()
		return reply{values: values}
	}
	word, _ := m.ToString()
	return reply{word: word}
}

func (s *Store) send(ctx context.Context, calls []call, todo []int, full bool) ([]rueidis.RedisResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	commands := make(rueidis.Commands, len(todo))
	origin := *s.origin.Load()
	for k, i := range todo {
		c := &calls[i]
		head := [3]string{c.shard.layout, s.how, origin}
		if full {
			commands[k] = s.client.B().Eval().Script(c.script.text).Numkeys(numKeys).Key(c.shard.keys[:]...).Arg(head[:]...).Arg(c.args...).Build()
		} else {
			commands[k] = s.client.B().Evalsha().Sha1(c.script.sha).Numkeys(numKeys).Key(c.shard.keys[:]...).Arg(head[:]...).Arg(c.args...).Build()
		}
	}
	if s.opts.WaitReplicas > 0 && calls[todo[0]].script.promised {
		of := make([]call, len(todo))
		for k, i := range todo {
			of[k] = calls[i]
		}
		return s.sendAndWait(ctx, of, commands)
	}
	if len(commands) == 1 {
		return []rueidis.RedisResult{s.client.Do(ctx, commands[0])}, nil
	}
	return s.client.DoMulti(ctx, commands...), nil
}

// kind is what an error of the server means for a call.
type kind int

const (
	lost     kind = iota // it is not known what was done
	noScript             // nothing: the server does not know the script
	notReady             // nothing, but it may be soon
	refused              // nothing
)

func kindOf(err error) kind {
	re, ok := rueidis.IsRedisErr(err)
	if !ok {
		return lost
	}
	text := re.Error()
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "NOSCRIPT":
		return noScript
	case "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "READONLY":
		return notReady
	case "OOM", "MISCONF", "NOREPLICAS", "NOAUTH", "NOPERM", "WRONGPASS":
		return refused
	}
	// An error inside a script carries the server's own as its text.
	if strings.Contains(text, "OOM command not allowed") || strings.Contains(text, "MISCONF ") || strings.Contains(text, "NOREPLICAS ") {
		return refused
	}
	if strings.Contains(text, "READONLY ") {
		return notReady
	}
	return lost
}

// broken is the error of a call whose outcome is not known.
func (s *Store) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return store.ErrClosed
	}
	return refusal(err)
}

// fullError is the error of a task that the server had no room for.
func fullError(err error) error {
	text := err.Error()
	if strings.Contains(text, "OOM command not allowed") {
		return fmt.Errorf("%w: redis: %s", store.ErrFull, text)
	}
	return nil
}

// asFull is err where it says that there is no room, else nil.
func asFull(err error) error {
	if errors.Is(err, store.ErrFull) {
		return err
	}
	return nil
}

// number reads an integer of a reply.
func (r *reply) number(i int) int64 {
	n, _ := r.values[i].AsInt64()
	return n
}

func (r *reply) text(i int) string {
	t, _ := r.values[i].ToString()
	return t
}

// now is the server's clock, which all replies begin with.
func (r *reply) now() time.Time {
	return time.Unix(r.number(0), r.number(1)*1000).UTC()
}

func (r *reply) woke() bool { return r.number(2) != 0 }

// check turns the two words that all scripts may answer with, and an error, into
// errors.
func (r *reply) check() error {
	switch {
	case r.err != nil:
		if full := fullError(r.err); full != nil {
			return full
		}
		return refusal(r.err)
	case r.word == "layout":
		return errLayout
	case r.values == nil:
		return fmt.Errorf("redis: a script answered %q", r.word)
	}
	return nil
}

// errLayout says that a shard belongs to another layout than the one known here.
var errLayout = errors.New("the queue's shards were changed")

// duration is a delay or lease as scripts read it: milliseconds, with
// microseconds where there are any; what is finer is rounded up.
func duration(d time.Duration) string {
	us := d.Microseconds()
	if d%time.Microsecond > 0 {
		us++
	}
	if us%1000 == 0 {
		return strconv.FormatInt(us/1000, 10)
	}
	return fmt.Sprintf("%d.%03d", us/1000, us%1000)
}

func fromMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
