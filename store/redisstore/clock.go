package redisstore

import "time"

// now is what the server's clock is thought to show. Scripts read the clock
// itself; this is for what can not be decided in them, and they check it.
func (s *Store) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(s.offset.Load())).UTC()
}

// sawClock notes what a reply says of the server's clock.
func (s *Store) sawClock(now time.Time) {
	offset := int64(now.Sub(time.Now().Round(0)))
	// What a reply took is in it; it is noted when it differs by more than that.
	if d := offset - s.offset.Load(); d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		s.offset.Store(offset)
	}
}
