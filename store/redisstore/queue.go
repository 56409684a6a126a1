package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/duetime/duetime/internal/release"
	"github.com/duetime/duetime/store"
)

// queue is what this process knows of a queue.
type queue struct {
	name string

	mu       sync.Mutex
	layout   *layout // nil: not known, or there is no such queue
	settings store.Settings
	release  *release.Schedule
	readAt   time.Time // when all this was read

	heads heads // of a queue with several shards
	ears  ears
}

// known is what this process knows of a queue at one moment.
type known struct {
	*layout
	settings store.Settings
	release  *release.Schedule
}

// refreshAfter is how old what a claim knows of the queue may be: a change of
// settings is seen within a second.
const refreshAfter = 900 * time.Millisecond

func (s *Store) queue(name string) *queue {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q = s.queues[name]; q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	return q
}

// know returns what is known of a queue, read from the server where nothing is;
// nil where there is no such queue.
func (s *Store) know(ctx context.Context, name string) (*known, error) {
	q := s.queue(name)
	q.mu.Lock()
	k := q.known()
	q.mu.Unlock()
	if k != nil {
		return k, nil
	}
	return s.reload(ctx, name)
}

// known is called under the mutex.
func (q *queue) known() *known {
	if q.layout == nil {
		return nil
	}
	return &known{q.layout, q.settings, q.release}
}

// reload reads a queue from the server; nil where there is none.
func (s *Store) reload(ctx context.Context, name string) (*known, error) {
	k, _, err := s.reloadBell(ctx, name)
	return k, err
}

// readQueue reads what is written of a queue, again while the server is not ready.
func (s *Store) readQueue(ctx context.Context, name string) ([]rueidis.RedisMessage, error) {
	var tries tries
	for {
		fields, err := s.client.Do(ctx, s.client.B().Hmget().Key(s.queueKey(name)).Field("layout", "settings", "bell").Build()).ToArray()
		if err == nil || kindOf(err) != notReady {
			return fields, err
		}
		if err := tries.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// reloadBell also returns the queue's bell.
func (s *Store) reloadBell(ctx context.Context, name string) (*known, string, error) {
	read := time.Now()
	fields, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, "", s.broken(ctx, err)
	}
	text, _ := fields[0].ToString()
	doc, _ := fields[1].ToString()
	bell, _ := fields[2].ToString()
	q := s.queue(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readAt = read
	if text == "" { // settings alone are of no use: PutSettings makes a layout first
		q.layout = nil
		return nil, bell, nil
	}
	if q.layout == nil || q.layout.text != text {
		l, err := s.parseLayout(name, text)
		if err != nil {
			return nil, "", err
		}
		q.layout = l
		q.heads = heads{}
		q.ears.moved()
	}
	settings := store.DefaultSettings()
	if doc != "" {
		if err := json.Unmarshal([]byte(doc), &settings); err != nil {
			return nil, "", fmt.Errorf("queue %q: settings: %w: %w", name, store.ErrCorrupt, err)
		}
	}
	r, err := release.Parse(settings.Release)
	if err != nil {
		return nil, "", fmt.Errorf("queue %q: %w", name, err)
	}
	q.settings, q.release = settings, r
	return q.known(), bell, nil
}

// register writes down that there is a queue, where that is not written, and
// reads it.
func (s *Store) register(ctx context.Context, name string) (*known, error) {
	b := s.client.B()
	for _, r := range s.client.DoMulti(ctx,
		b.Sadd().Key(s.registryKey()).Member(name).Build(),
		b.Hsetnx().Key(s.queueKey(name)).Field("layout").Value("1/"+strconv.Itoa(s.opts.Shards)).Build(),
	) {
		if err := r.Error(); err != nil {
			if full := fullError(err); full != nil {
				return nil, full
			}
			return nil, s.broken(ctx, err)
		}
	}
	return s.reload(ctx, name)
}

// relearn reads a queue again after a shard has said that its layout is another
// one. Where the queue is being moved from one layout to another, it makes sure
// that all old shards know, in case whoever began that did not get so far.
func (s *Store) relearn(ctx context.Context, name string) error {
	k, err := s.reload(ctx, name)
	if err != nil || k == nil || k.old == nil {
		return err
	}
	return s.fence(ctx, k)
}

func (s *Store) fence(ctx context.Context, k *known) error {
	calls := make([]call, len(k.old.shards))
	for i, sh := range k.old.shards {
		before, _, _ := strings.Cut(sh.layout, ">")
		calls[i] = call{s.scripts().fence, sh, []string{before}}
	}
	replies, err := s.run(ctx, calls)
	if err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// unmade stands for a queue that nobody has made: there is nothing in it.
func (s *Store) unmade(name string) *known {
	g, err := s.parseGrid(name, "1/1", "1/1")
	if err != nil {
		panic(err) // a mistake in this program
	}
	r, err := release.Parse(store.ReleaseImmediate)
	if err != nil {
		panic(err)
	}
	return &known{&layout{text: "1/1", grid: *g}, store.DefaultSettings(), r}
}

// retryLayout calls f until it does not say that the layout of a queue has
// changed.
func (s *Store) retryLayout(ctx context.Context, name string, f func() error) error {
	for tries := 0; ; tries++ {
		err := f()
		if err != errLayout {
			return err
		}
		if tries == 20 {
			return fmt.Errorf("redis: %w, again and again", errLayout)
		}
		if tries > 0 {
			if err := sleep(ctx, time.Duration(tries)*time.Millisecond); err != nil {
				return err
			}
		}
		if err := s.relearn(ctx, name); err != nil {
			return err
		}
	}
}

// Settings implements store.Store.
func (s *Store) Settings(ctx context.Context, name string) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.ops.RUnlock()
	k, err := s.reload(ctx, name)
	if err != nil {
		return store.Settings{}, err
	}
	if k == nil {
		return store.DefaultSettings(), nil
	}
	return k.settings, nil
}

// putSettings changes the document of a queue, if it has the version that the
// caller read.
const putSettings = `
local doc = redis.call('HGET', KEYS[1], 'settings')
local version = 0
if doc then
  version = cjson.decode(doc).Version
end
if version ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'settings', ARGV[2])
return 1
`

// PutSettings implements store.Store.
func (s *Store) PutSettings(ctx context.Context, name string, settings store.Settings) (store.Settings, error) {
	if err := store.CheckQueue(name); err != nil {
		return store.Settings{}, err
	}
	if err := settings.Check(); err != nil {
		return store.Settings{}, err
	}
	if _, err := release.Parse(settings.Release); err != nil {
		return store.Settings{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Settings{}, err
	}
	defer s.ops.RUnlock()
	k, err := s.reload(ctx, name)
	if err != nil {
		return store.Settings{}, err
	}
	if k == nil {
		if settings.Version != 0 {
			return store.Settings{}, store.ErrVersion
		}
		if _, err = s.register(ctx, name); err != nil {
			return store.Settings{}, err
		}
	}
	version := settings.Version
	settings.Version++
	doc, err := json.Marshal(settings)
	if err != nil {
		return store.Settings{}, err
	}
	done, err := s.client.Do(ctx, s.client.B().Eval().Script(putSettings).Numkeys(1).Key(s.queueKey(name)).
		Arg(strconv.FormatInt(version, 10), string(doc)).Build()).AsInt64()
	switch {
	case err != nil && fullError(err) != nil:
		return store.Settings{}, fullError(err)
	case err != nil:
		return store.Settings{}, s.broken(ctx, err)
	case done == 0:
		return store.Settings{}, store.ErrVersion
	}
	if err := s.retryLayout(ctx, name, func() error {
		k, err := s.reload(ctx, name)
		if err != nil || k == nil {
			return err
		}
		return s.pushSettings(ctx, name, k, k.all())
	}); err != nil {
		return store.Settings{}, err
	}
	s.ring(ctx, name)
	return settings, nil
}

// pushSettings gives shards the settings that scripts need.
func (s *Store) pushSettings(ctx context.Context, name string, k *known, shards []*shard) error {
	v := &k.settings
	paused := "0"
	if v.Paused {
		paused = "1"
	}
	args := []string{
		strconv.FormatInt(v.Version, 10), strconv.Itoa(v.MaxLost), strconv.Itoa(v.MaxAttempts), duration(v.Lease), paused,
	}
	calls := make([]call, len(shards))
	for i, sh := range shards {
		calls[i] = call{s.scripts().settings, sh, args}
	}
	replies, err := s.run(ctx, calls)
	if err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.ops.RUnlock()
	names, err := s.client.Do(ctx, s.client.B().Smembers().Key(s.registryKey()).Build()).AsStrSlice()
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	slices.Sort(names)
	return names, nil
}
