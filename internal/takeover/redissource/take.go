package redissource

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/duetime/duetime/internal/takeover"
	"github.com/duetime/duetime/store"
)

// The statuses of take.lua.
const (
	statusGone = iota
	statusTaken
	statusNoField
	statusTooLong
	statusLater
	statusBefore
)

// Rewind implements takeover.Source.
func (s *Source) Rewind() {
	s.offset, s.cursor, s.ahead, s.last = 0, 0, nil, false
	s.left, s.first = 0, nil
}

// Take implements takeover.Source.
func (s *Source) Take(ctx context.Context) (entries []takeover.Entry, more bool, err error) {
	if len(s.ahead) == 0 {
		if s.last {
			return nil, false, nil
		}
		if err := s.read(ctx); err != nil {
			return nil, false, err
		}
	}
	members := s.ahead[:min(len(s.ahead), s.opts.slice)]
	if len(members) == 0 {
		return nil, !s.last, nil
	}
	args := append([]string{s.token, s.lockTime()}, s.mode()...)
	args = append(args, strconv.Itoa(s.opts.MaxPayload), strconv.Itoa(sliceBytes))
	answer, err := s.scripts.take.Exec(ctx, s.client, s.takeKeys(), append(args, members...)).ToArray()
	if err != nil {
		return nil, false, s.failed(err)
	}
	if len(answer) != 3*len(members) {
		return nil, false, fmt.Errorf("redis: a script gave %d values for %d entries", len(answer), len(members))
	}
	var later []string
	var back []takeover.Entry
	for i, member := range members {
		status, _ := answer[3*i].AsInt64()
		score, _ := answer[3*i+1].ToString()
		payload, _ := answer[3*i+2].ToString()
		switch status {
		case statusTaken:
			e, err := s.entry(member, score, payload)
			if err != nil { // its score was changed since it was looked at
				back = append(back, e)
				s.leave(member, err.Error())
				continue
			}
			entries = append(entries, e)
		case statusNoField:
			s.leave(member, fmt.Sprintf("has no field in %q", s.opts.Hash))
		case statusTooLong:
			s.leave(member, fmt.Sprintf("its payload is longer than %d bytes", s.opts.MaxPayload))
		case statusLater:
			later = append(later, member)
		}
	}
	if len(back) > 0 {
		if err := s.PutBack(ctx, back); err != nil {
			return nil, false, err
		}
	}
	s.ahead = append(later, s.ahead[len(members):]...)
	return entries, len(s.ahead) > 0 || !s.last, nil
}

// leave notes that an entry stays.
func (s *Source) leave(member, why string) {
	s.left++
	s.offset++
	if len(s.first) < firstLeft {
		s.first = append(s.first, takeover.Left{ID: member, Why: why})
	}
}

// read reads the next members that can be taken into ahead.
func (s *Source) read(ctx context.Context) error {
	if err := s.keep(ctx); err != nil {
		return err
	}
	if s.opts.Keep {
		answer, err := s.client.Do(ctx, s.client.B().Zscan().Key(s.opts.ZSet).Cursor(s.cursor).Count(sliceEntries).Build()).AsScanEntry()
		if err != nil {
			return serverError(err)
		}
		for i := 0; i+1 < len(answer.Elements); i += 2 {
			if !s.good(answer.Elements[i], answer.Elements[i+1]) {
				continue
			}
			s.ahead = append(s.ahead, answer.Elements[i])
		}
		s.cursor = answer.Cursor
		s.last = s.cursor == 0
		return nil
	}
	// What is left stays before what is taken: it is passed over by its number.
	// Others may remove entries meanwhile, so that some are missed; the next pass
	// finds them.
	page, err := s.client.Do(ctx, s.client.B().Zrange().Key(s.opts.ZSet).Min(strconv.FormatInt(s.offset, 10)).
		Max(strconv.FormatInt(s.offset+sliceEntries-1, 10)).Withscores().Build()).AsZScores()
	if err != nil {
		return serverError(err)
	}
	s.last = len(page) < sliceEntries
	for _, z := range page {
		if s.good(z.Member, scoreText(z.Score)) {
			s.ahead = append(s.ahead, z.Member)
		}
	}
	return nil
}

// good says that an entry may become a task; one that may not is left.
func (s *Source) good(member, score string) bool {
	if s.skip[member] {
		s.offset++ // it is counted already
		return false
	}
	err := store.CheckID(member)
	if err == nil {
		_, _, err = s.opts.times(score)
	}
	if err != nil {
		s.leave(member, err.Error())
	}
	return err == nil
}

// scoreText writes a score as people do.
func scoreText(score float64) string {
	if math.Abs(score) < 1e18 {
		return strconv.FormatFloat(score, 'f', -1, 64)
	}
	return strconv.FormatFloat(score, 'g', -1, 64)
}
