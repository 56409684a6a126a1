package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duetime/duetime/internal/testserver"
)

// safe is a buffer that handlers may write to at once.
type safe struct {
	mu sync.Mutex
	bytes.Buffer
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(b)
}

func TestOrdersThatArePaidAreLeftAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out safe
	if err := run(ctx, &out, testserver.RabbitMQ(t, nil).URL(), time.Second); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if paid, cancelled := strings.Count(text, "is paid\n"), strings.Count(text, "was not paid: cancelled\n"); paid != orders/2 || cancelled != orders/2 {
		t.Errorf("%d paid, %d cancelled, want %d each:\n%s", paid, cancelled, orders/2, text)
	}
}
