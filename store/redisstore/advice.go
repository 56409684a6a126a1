package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// advise says which servers an error of opening the store came from, and, where
// the cause is a common one, what to do about it.
func (s *Store) advise(addr string, err error) error {
	if strings.Contains(err.Error(), permissions) {
		return fmt.Errorf("redis at %s: %w", addr, err)
	}
	if advice := s.advice(err); advice != "" {
		return fmt.Errorf("redis at %s: %s (%w)", addr, advice, err)
	}
	return fmt.Errorf("redis at %s: %w", addr, err)
}

// permissions is what to do about NOPERM.
const permissions = "the user lacks a permission: it needs the commands that docs/operations.md lists, +select for a database other than 0, and keys and channels that begin with the prefix (duetime: as a rule)"

// refusal adds to an error of the server what to do about it, where the cause may
// be one that nobody sees when the store is opened.
func refusal(err error) error {
	if strings.Contains(err.Error(), "NOPERM") {
		return fmt.Errorf("redis: %s (%w)", permissions, err)
	}
	return fmt.Errorf("redis: %w", err)
}

func (s *Store) advice(err error) string {
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	sentinel := s.opts.Sentinel != ""
	switch {
	case has("NOAUTH"):
		advice := "it asks for a password: write redis://:PASSWORD@HOST, or redis://USER:PASSWORD@HOST"
		if sentinel {
			advice += "; the sentinels' own are sentinel_user and sentinel_password in the query"
		}
		return advice
	case has("WRONGPASS") && s.opts.Username != "" && s.opts.Password == "":
		return "the URL has a user and no password; a password without a user is written redis://:PASSWORD@HOST"
	case has("WRONGPASS"):
		return "the user or the password is wrong; characters such as @ / # % in them are percent-encoded in a URL"
	case has("NOPERM"):
		return permissions
	case has("DB index is out of range"):
		return fmt.Sprintf("it has no database %d (its setting databases says how many it has; the first is 0)", s.opts.DB)
	case has("No such master"):
		return fmt.Sprintf("the sentinels watch no master called %q", s.opts.Sentinel)
	case has("unknown command") && strings.Contains(strings.ToLower(text), "sentinel"):
		return "it is no sentinel: name a sentinel's port (26379 as a rule), or write redis:// for a server alone"
	case has("unknown message type"):
		return "what answers there does not speak the protocol of Redis"
	case has("first record does not look like a TLS handshake"):
		return "it has no TLS: write redis:// rather than rediss://"
	case errors.Is(err, context.DeadlineExceeded) || has("i/o timeout"):
		if s.opts.TLS != nil {
			return "nothing answered; is there a firewall in between, or has it no TLS (then write redis://)?"
		}
		return "nothing answered; is there a firewall in between, or does it want TLS (then write rediss://)?"
	case (has("EOF") || has("connection reset")) && s.opts.TLS == nil:
		return "it hung up; does it want TLS (then write rediss://)?"
	}
	return ""
}
