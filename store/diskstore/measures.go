package diskstore

import "github.com/duetime/duetime/store"

var _ store.Measurer = (*Store)(nil)

// Measures implements store.Measurer.
func (s *Store) Measures() []store.Measure {
	return []store.Measure{
		{Name: "set_aside_total", Help: "Damaged records that were set aside.", Counter: true, Value: float64(s.SetAside())},
	}
}
