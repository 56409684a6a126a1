package testserver_test

import (
	"errors"
	"testing"

	"github.com/duetime/duetime/internal/testserver"
)

// do is Do for commands that must succeed.
func do(t *testing.T, r *testserver.RedisServer, args ...any) any {
	t.Helper()
	answer, err := r.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

func TestRedis(t *testing.T) {
	t.Parallel()
	r := testserver.Redis(t, &testserver.RedisOptions{AOF: true, Password: "secret", Config: []string{"--appendfsync", "always"}})
	do(t, r, "SET", "a", "1")
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := do(t, r, "GET", "a"); got != "1" {
		t.Errorf("after a kill a = %v, want 1", got)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Do("PING"); err == nil {
		t.Error("a server that was stopped answers")
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	conn, err := testserver.DialRedis(r.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var refused testserver.RedisError
	if _, err := conn.Do("GET", "a"); !errors.As(err, &refused) {
		t.Errorf("without the password: %v, want a refusal", err)
	}
}

func TestRedisAnswers(t *testing.T) {
	t.Parallel()
	r := testserver.Redis(t, nil)
	list, ok := do(t, r, "EVAL", "return {1, 'two', false, {redis.error_reply('ERR four')}, ''}", 0).([]any)
	if !ok || len(list) != 5 || list[0] != int64(1) || list[1] != "two" || list[2] != nil || list[4] != "" {
		t.Fatalf("got %#v", list)
	}
	if inner, ok := list[3].([]any); !ok || len(inner) != 1 || inner[0] != testserver.RedisError("ERR four") {
		t.Errorf("got %#v", list[3])
	}
	if do(t, r, "SET", "key", []byte("a\r\nb\x00")); do(t, r, "GET", "key") != "a\r\nb\x00" {
		t.Error("bytes do not come back")
	}
}
