package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/duetime/duetime/store"
)

func TestTasksComeThroughUnchanged(t *testing.T) {
	at := time.Date(2027, 3, 1, 12, 0, 0, 250e6, time.UTC)
	for _, task := range []store.Task{
		{Queue: "q", ID: "a", State: store.StateScheduled, Due: at, Created: at},
		{
			Queue: "q", ID: "\"敏/..", State: store.StateLeased, Payload: []byte(" {\"a\": 1}\x00\xff"), Headers: map[string]string{"x": "<&>\u2028"},
			Due: store.MaxTime, Created: store.MinTime, Generation: 3, Failures: 4, Lost: 5, MaxAttempts: 6, LastError: "a\nb\tc", Worker: "w", LeaseUntil: at,
		},
		{Queue: "q", ID: "a", State: store.StateDead, Payload: []byte(`{"a":1}`), Due: at, Created: at},
	} {
		lease := store.Lease{Task: task, Receipt: "r", ClaimedAt: at.Add(123456)}
		result := store.ClaimResult{Tasks: []store.Lease{lease}, Next: at, Now: at.Add(1)}
		data, err := Encode(FromClaimResult(&result, PayloadAsBase64))
		if err != nil {
			t.Fatal(err)
		}
		var w ClaimResult
		if err := DecodeAnswer(data, &w); err != nil {
			t.Fatal(err)
		}
		got, err := w.Store()
		if err != nil || !reflect.DeepEqual(got, result) {
			t.Errorf("%v\n got %+v\nwant %+v\n%s", err, got, result, data)
		}
	}
}

func TestRequestsComeThroughUnchanged(t *testing.T) {
	for _, task := range []store.NewTask{
		{Queue: "q", ID: "a"},
		{Queue: "q", ID: "a", Payload: []byte("\xff"), Headers: map[string]string{"a": "b"}, Delay: 90*time.Minute + 1, MaxAttempts: 3, Conflict: store.ConflictReplace},
		{Queue: "q", ID: "a", Due: time.Date(2027, 3, 1, 12, 0, 0, 123456789, time.UTC)},
		{Queue: "q", ID: "a", Delay: 1<<63 - 1},
	} {
		data, err := Encode(FromNewTask(&task))
		if err != nil {
			t.Fatal(err)
		}
		var w NewTask
		if err := Decode(data, &w); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Store(); err != nil || !reflect.DeepEqual(got, task) {
			t.Errorf("%v\n got %+v\nwant %+v", err, got, task)
		}
	}
	for _, m := range []store.Settlement{
		{Receipt: "r", Action: store.Ack},
		{Receipt: "r", Action: store.Retry, Backoff: true, Error: "no"},
		{Receipt: "r", Action: store.Snooze, Delay: time.Nanosecond},
		{Receipt: "r", Action: store.Extend, Lease: time.Hour},
	} {
		w := FromSettlement(&m)
		if got, err := w.Store(); err != nil || got != m {
			t.Errorf("%v: got %+v, want %+v", err, got, m)
		}
	}
}

func TestErrorsComeThroughUnchanged(t *testing.T) {
	input := store.NewInputError("id", "x", "is wrong")
	got := FromError(fmt.Errorf("schedule: %w", input)).Store()
	var back *store.InputError
	if !errors.As(got, &back) || *back != *input {
		t.Errorf("%v, want %v", got, input)
	}
	for _, want := range []error{store.ErrFull, store.ErrUnsupported, store.ErrVersion} {
		if got := FromError(fmt.Errorf("doing: %w", want)).Store(); !errors.Is(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if FromError(nil).Store() != nil {
		t.Error("an error from none")
	}
}

func TestSettingsPatch(t *testing.T) {
	def := store.DefaultSettings()
	changed := store.Settings{
		Version: 4, Paused: true, MaxAttempts: 1, MaxLost: 2, Lease: time.Minute, Release: "every 5s",
		Backoff: store.Backoff{Initial: 2 * time.Second, Max: 3 * time.Hour, Factor: 1.5, Jitter: 0.25},
	}
	put := FromSettingsPut(&changed)
	data, err := Encode(put)
	if err != nil {
		t.Fatal(err)
	}
	var patch SettingsPatch
	if err := Decode(data, &patch); err != nil {
		t.Fatal(err)
	}
	got := def
	got.Version = 4
	if err := patch.Apply(&got); err != nil || got != changed {
		t.Errorf("%v: got %+v, want %+v", err, got, changed)
	}
	for text, want := range map[string]func(*store.Settings){
		`{}`:                               func(*store.Settings) {},
		`{"paused":null}`:                  func(s *store.Settings) { s.Paused = false },
		`{"backoff":null}`:                 func(s *store.Settings) { s.Backoff = def.Backoff },
		`{"backoff":{}}`:                   func(*store.Settings) {},
		`{"backoff":{"initial":"PT5S"}}`:   func(s *store.Settings) { s.Backoff.Initial = 5 * time.Second },
		`{"backoff":{"max":null}}`:         func(s *store.Settings) { s.Backoff.Max = def.Backoff.Max },
		`{"release":null,"lease":"250ms"}`: func(s *store.Settings) { s.Release, s.Lease = "immediate", 250*time.Millisecond },
	} {
		var patch SettingsPatch
		if err := Decode([]byte(text), &patch); err != nil {
			t.Fatal(text, err)
		}
		got, w := changed, changed
		want(&w)
		if err := patch.Apply(&got); err != nil || got != w {
			t.Errorf("%s: %v: got %+v, want %+v", text, err, got, w)
		}
	}
}

// FuzzDecode: whatever comes, the answer is a task or an InputError whose texts
// are short and can be written as JSON.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","delay":5}`, `{"headers":{"a":{}}}`, `{"payload":{"x":[1,{"y":"\ud800"}]}}`, `{"payload_base64":"!"}`, `{"id":"a","id":"b"}`,
		`{"a~1/b":1}`, "{\"id\":\"\xff\"}", `{"due_at":[]} `, `null`, ``, `{"tasks":[{"delay":1e999999}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{new(NewTask), new(ScheduleBatch), new(SettingsPatch), new(ClaimBody)} {
			err := Decode(data, v)
			var input *store.InputError
			if err != nil && (!errors.As(err, &input) || input.Field == "" || input.Problem == "") {
				t.Fatalf("%q: %v", data, err)
			}
			if input != nil && (len(input.Field) > 2000 || len(input.Value) > 400 || len(input.Problem) > 1000) {
				t.Fatalf("%d bytes give %d, %d and %d of message", len(data), len(input.Field), len(input.Value), len(input.Problem))
			}
			if err != nil {
				if _, err := Encode(FromError(err)); err != nil {
					t.Fatal(err)
				}
			} else if task, ok := v.(*NewTask); ok && task.Payload != nil {
				before := strings.TrimSpace(string(task.Payload))
				once := string(Compact(task.Payload))
				if !IsJSON([]byte(once)) {
					t.Fatalf("%q became %q", before, once)
				}
			}
		}
	})
}

func TestErrorsSayWhatHelps(t *testing.T) {
	for _, c := range []struct {
		body        string
		field, text string // the whole of Error, but for its cut
	}{
		{`{"tasks":[{"foo":1}]}`, "tasks[0].foo", `tasks[0].foo: is not a known field; known are queue, id, payload, payload_base64, delay, due_at, max_attempts, headers, on_conflict`},
		{`{"tasks":[{"id":"a","id":"b"}]}`, "tasks[0].id", `tasks[0].id: is given twice`},
		{`{"tasks":[{"id":"ab\ud800c","delay":"1s"}]}`, "tasks[0].id", `tasks[0].id (a string): is no valid JSON at byte 19: half a surrogate pair (\ud800 to \udfff) is no character`},
		{`{"tasks":[{"payload":["\ud800"]}]}`, "tasks[0].payload[0]", `tasks[0].payload[0] (a string): is no valid JSON at byte 23: half a surrogate pair (\ud800 to \udfff) is no character; give bytes that are not Unicode text as payload_base64`},
	} {
		err := Decode([]byte(c.body), new(ScheduleBatch))
		var input *store.InputError
		if !errors.As(err, &input) || input.Field != c.field || err.Error() != c.text {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}

func TestErrorsAreShort(t *testing.T) {
	for _, body := range []string{
		`{"payload":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
		`{"payload":` + strings.Repeat(`{"aaaaaaaa":`, 5000) + `{"x":1,"x":2}`,
		`{"` + strings.Repeat("k", 5000) + `":1}`,
		`{"id":"` + strings.Repeat("k", 5000) + `\ud800"}`,
	} {
		if err := Decode([]byte(body), new(NewTask)); err == nil || len(err.Error()) > 600 {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}
