package wire

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/duetime/duetime/internal/timetext"
	"github.com/duetime/duetime/store"
)

// SettingsPatch is a change of settings, as a merge patch (RFC 7396): what is
// not there stays, and null brings the default back.
type SettingsPatch struct {
	Paused      Patch[bool]         `json:"paused,omitzero" doc:"Claims get nothing."`
	MaxAttempts Patch[int]          `json:"max_attempts,omitzero" doc:"Failures, then dead: 1 to 1,000,000."`
	MaxLost     Patch[int]          `json:"max_lost,omitzero" doc:"Leases run out, then dead: 1 to 1,000,000."`
	Backoff     Patch[BackoffPatch] `json:"backoff,omitzero" doc:"The delay before another attempt."`
	Lease       Patch[Duration]     `json:"lease,omitzero" doc:"Of claims that do not say: 1ms to 24h."`
	Release     Patch[string]       `json:"release,omitzero" doc:"When due tasks are let out: immediate, every 5s, or a cron expression such as CRON_TZ=Asia/Shanghai 0 0 7 * * *."`
}

// BackoffPatch is a change of the backoff.
type BackoffPatch struct {
	Initial Patch[Duration] `json:"initial,omitzero"`
	Max     Patch[Duration] `json:"max,omitzero"`
	Factor  Patch[float64]  `json:"factor,omitzero"`
	Jitter  Patch[float64]  `json:"jitter,omitzero"`
}

// Patch is a field of a merge patch: not there, null, or a value.
type Patch[T any] struct {
	Given bool
	Null  bool
	Value T
}

// Set is a field with a value.
func Set[T any](v T) Patch[T] { return Patch[T]{Given: true, Value: v} }

// Plain is the type of the value, for schemas.
func (Patch[T]) Plain() reflect.Type { return reflect.TypeFor[T]() }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *Patch[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	p.Given = true
	if d.PeekKind() == 'n' {
		p.Null = true
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, &p.Value)
}

// MarshalJSONTo implements json.MarshalerTo.
func (p Patch[T]) MarshalJSONTo(e *jsontext.Encoder) error {
	if p.Null {
		return e.WriteToken(jsontext.Null)
	}
	return json.MarshalEncode(e, p.Value)
}

func (p Patch[T]) apply(to *T, def T) {
	if p.Null {
		*to = def
	} else if p.Given {
		*to = p.Value
	}
}

// Apply changes settings. The error is a *store.InputError; the store checks
// the values.
func (p *SettingsPatch) Apply(s *store.Settings) error {
	def := store.DefaultSettings()
	p.Paused.apply(&s.Paused, def.Paused)
	p.MaxAttempts.apply(&s.MaxAttempts, def.MaxAttempts)
	p.MaxLost.apply(&s.MaxLost, def.MaxLost)
	p.Release.apply(&s.Release, def.Release)
	b := p.Backoff.Value
	if p.Backoff.Null {
		s.Backoff = def.Backoff
	}
	b.Factor.apply(&s.Backoff.Factor, def.Backoff.Factor)
	b.Jitter.apply(&s.Backoff.Jitter, def.Backoff.Jitter)

	w, d := FromSettings(s), FromSettings(&def)
	p.Lease.apply(&w.Lease, d.Lease)
	b.Initial.apply(&w.Backoff.Initial, d.Backoff.Initial)
	b.Max.apply(&w.Backoff.Max, d.Backoff.Max)
	var err error
	if s.Lease, err = timetext.Duration("settings.lease", string(w.Lease)); err != nil {
		return err
	}
	if s.Backoff.Initial, err = timetext.Duration("settings.backoff.initial", string(w.Backoff.Initial)); err != nil {
		return err
	}
	s.Backoff.Max, err = timetext.Duration("settings.backoff.max", string(w.Backoff.Max))
	return err
}

// FromSettingsPut is a patch that sets everything.
func FromSettingsPut(s *store.Settings) SettingsPatch {
	w := FromSettings(s)
	return SettingsPatch{
		Paused: Set(w.Paused), MaxAttempts: Set(w.MaxAttempts), MaxLost: Set(w.MaxLost), Lease: Set(w.Lease), Release: Set(w.Release),
		Backoff: Set(BackoffPatch{Initial: Set(w.Backoff.Initial), Max: Set(w.Backoff.Max), Factor: Set(w.Backoff.Factor), Jitter: Set(w.Backoff.Jitter)}),
	}
}
