package wire

import (
	"time"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// The bodies and answers of the calls about one task, leases and queues.
type (
	RescheduleBody struct {
		Delay *Duration `json:"delay,omitzero" doc:"Due after this time, by the store's clock." example:"30m"`
		DueAt *Time     `json:"due_at,omitzero" doc:"Due at this time." example:"2030-01-31T07:00:00Z"`
	}
	Rescheduled struct {
		Outcome string `json:"outcome" enum:"rescheduled"`
		Queue   string `json:"queue"`
		ID      string `json:"id"`
		DueAt   Time   `json:"due_at" format:"date-time"`
	}
	Cancelled struct {
		Outcome string `json:"outcome" enum:"cancelled"`
		Queue   string `json:"queue"`
		ID      string `json:"id"`
	}
	TaskPage struct {
		Tasks      []Task `json:"tasks"`
		NextCursor string `json:"next_cursor,omitzero" doc:"Give it as cursor for the next page; not there on the last page."`
	}
	ClaimBody struct {
		Max    *int      `json:"max,omitzero" minimum:"1" maximum:"10000" doc:"How many tasks at most; 1 where it is not given."`
		Lease  *Duration `json:"lease,omitzero" doc:"How long you may take before the task is given to another: 1ms to 24h; the queue's setting where it is not given. 0s: at most once, the task is gone as it is handed out." example:"30s"`
		Wait   *Duration `json:"wait,omitzero" doc:"How long to wait for a task to become due where none is: up to 60s." example:"20s"`
		Worker string    `json:"worker,omitzero" doc:"A name for people to see."`
		WaitID string    `json:"wait_id,omitzero" doc:"Names this claim while it waits, so that /v1/claims/end can end it: something that no other claim has, up to 64 bytes."`
	}
	EndClaims struct {
		WaitIDs []string `json:"wait_ids" maxItems:"10000"`
	}
	Ended struct {
		Ended int `json:"ended" doc:"How many of them were waiting."`
	}
	ReceiptsBody struct {
		Receipts []string `json:"receipts" maxItems:"10000"`
	}
	RetryBody struct {
		Receipts []string  `json:"receipts" maxItems:"10000"`
		Delay    *Duration `json:"delay,omitzero" doc:"Due again after this time; as the queue's backoff says where it is not given."`
		Error    string    `json:"error,omitzero" doc:"Why it failed; cut to 8 KiB."`
	}
	SnoozeBody struct {
		Receipts []string  `json:"receipts" maxItems:"10000"`
		Delay    *Duration `json:"delay" doc:"Due again after this time."`
	}
	BuryBody struct {
		Receipts []string `json:"receipts" maxItems:"10000"`
		Error    string   `json:"error,omitzero" doc:"Why; cut to 8 KiB."`
	}
	ExtendBody struct {
		Receipts []string  `json:"receipts" maxItems:"10000"`
		Lease    *Duration `json:"lease,omitzero" doc:"The lease ends after this time from now; the queue's setting where it is not given."`
	}
	SettleOutcomes struct {
		Outcomes []string       `json:"outcomes" doc:"In the order of the receipts: acked, retrying, snoozed, released, dead, extended; stale where the lease is over; refused where it is no receipt."`
		Errors   []ReceiptError `json:"errors,omitzero" doc:"Why receipts were refused."`
	}
	ReceiptError struct {
		Index int   `json:"index" doc:"Which receipt, from 0."`
		Error Error `json:"error"`
	}
	QueueList struct {
		Queues []string `json:"queues"`
	}
	Counts struct {
		Scheduled int64 `json:"scheduled"`
		Ready     int64 `json:"ready"`
		Leased    int64 `json:"leased"`
		Dead      int64 `json:"dead"`
	}
	Queue struct {
		Queue     string   `json:"queue"`
		Counts    Counts   `json:"counts"`
		OldestDue Time     `json:"oldest_due,omitzero" doc:"Of the ready tasks." format:"date-time"`
		NextDue   Time     `json:"next_due,omitzero" doc:"Of the scheduled tasks." format:"date-time"`
		Settings  Settings `json:"settings"`
	}
	RedriveBody struct {
		IDs []string `json:"ids,omitzero" maxItems:"10000" doc:"The dead tasks to bring back."`
		All bool     `json:"all,omitzero" doc:"All of the queue's dead tasks."`
	}
	PurgeBody struct {
		IDs   []string `json:"ids,omitzero" maxItems:"10000" doc:"The tasks to remove, in whatever state."`
		All   bool     `json:"all,omitzero" doc:"All of the queue's tasks."`
		State *string  `json:"state,omitzero" enum:"scheduled,ready,leased,dead" doc:"All that are in this state."`
	}
	Redriven struct {
		Redriven int `json:"redriven" doc:"How many."`
	}
	Purged struct {
		Purged int `json:"purged" doc:"How many."`
	}
	Capabilities struct {
		Name       string `json:"name"`
		Durability string `json:"durability"`
		MaxPayload int    `json:"max_payload"`
		Cancel     bool   `json:"cancel"`
		Reschedule bool   `json:"reschedule"`
		Get        bool   `json:"get"`
		List       bool   `json:"list"`
		UniqueIDs  bool   `json:"unique_ids"`
		Settings   bool   `json:"settings"`
		Release    bool   `json:"release"`
		Redrive    bool   `json:"redrive"`
		Purge      bool   `json:"purge"`

		Unordered     bool `json:"unordered,omitzero" doc:"Tasks are handed out as they come due, not exactly in the order of their due times."`
		Uncounted     bool `json:"uncounted,omitzero" doc:"How many tasks are scheduled is not known."`
		ProcessLeases bool `json:"process_leases,omitzero" doc:"Leases end when the server ends."`
	}
)

// Settings is a queue's settings in an answer.
type Settings struct {
	Version     int64    `json:"version" doc:"Goes up with each change; also in the ETag."`
	Paused      bool     `json:"paused"`
	MaxAttempts int      `json:"max_attempts"`
	MaxLost     int      `json:"max_lost"`
	Backoff     Backoff  `json:"backoff"`
	Lease       Duration `json:"lease"`
	Release     string   `json:"release"`
}

// Backoff is the delay before another attempt.
type Backoff struct {
	Initial Duration `json:"initial"`
	Max     Duration `json:"max"`
	Factor  float64  `json:"factor"`
	Jitter  float64  `json:"jitter"`
}

// FromSettings makes an answer of settings.
func FromSettings(s *store.Settings) Settings {
	return Settings{
		Version: s.Version, Paused: s.Paused, MaxAttempts: s.MaxAttempts, MaxLost: s.MaxLost,
		Backoff: Backoff{Initial: Duration(s.Backoff.Initial.String()), Max: Duration(s.Backoff.Max.String()), Factor: s.Backoff.Factor, Jitter: s.Backoff.Jitter},
		Lease:   Duration(s.Lease.String()), Release: s.Release,
	}
}

// Store is the inverse of FromSettings.
func (w *Settings) Store() (store.Settings, error) {
	s := store.Settings{Version: w.Version, Paused: w.Paused, MaxAttempts: w.MaxAttempts, MaxLost: w.MaxLost, Release: w.Release}
	s.Backoff.Factor, s.Backoff.Jitter = w.Backoff.Factor, w.Backoff.Jitter
	for _, d := range []struct {
		from Duration
		to   *time.Duration
	}{{w.Backoff.Initial, &s.Backoff.Initial}, {w.Backoff.Max, &s.Backoff.Max}, {w.Lease, &s.Lease}} {
		var err error
		if *d.to, err = timetext.Duration("settings", string(d.from)); err != nil {
			return s, err
		}
	}
	return s, nil
}
