package storetest_test

import (
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// importMutants are wrong about what is imported.
func importMutants() []mutation {
	return []mutation{
		{"an import loses the counters", "import model", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				for i := range tasks {
					tasks[i].Failures, tasks[i].Lost = 0, 0
				}
				return m.Store.(store.Importer).Import(ctx, tasks)
			},
		}},
		{"an import takes the dead for living", "import model", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				for i := range tasks {
					if tasks[i].State == store.StateDead {
						tasks[i].State = store.StateReady
					}
				}
				return m.Store.(store.Importer).Import(ctx, tasks)
			},
		}},
		{"an import overwrites what is dead", "import model", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				for i := range tasks {
					r, err := m.Store.Get(ctx, []store.Key{{Queue: tasks[i].Queue, ID: tasks[i].ID}})
					if err == nil && r[0].Task != nil && r[0].Task.State == store.StateDead && tasks[i].State != store.StateLeased {
						_, _ = m.Store.Cancel(ctx, []store.CancelRequest{{Queue: tasks[i].Queue, ID: tasks[i].ID}})
					}
				}
				return m.Store.(store.Importer).Import(ctx, tasks)
			},
		}},
		{"an import goes in backwards", "import", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				slices.Reverse(tasks)
				r, err := m.Store.(store.Importer).Import(ctx, tasks)
				slices.Reverse(r)
				return r, err
			},
		}},
		{"an import hands out a millisecond early", "import", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				for i := range tasks {
					if tasks[i].Due.After(m.clock()) {
						tasks[i].Due = tasks[i].Due.Add(-time.Millisecond)
					}
				}
				return m.Store.(store.Importer).Import(ctx, tasks)
			},
		}},
		{"a crash loses what was imported", "import", mutant{
			onImport: func(m *mutant, tasks []store.Task) ([]store.Result, error) {
				for _, t := range tasks {
					m.tasks = append(m.tasks, store.NewTask{Queue: t.Queue, ID: t.ID})
				}
				return m.Store.(store.Importer).Import(ctx, tasks)
			},
			onCrash: func(m *mutant) {
				for _, t := range m.tasks {
					_, _ = m.Store.Cancel(ctx, []store.CancelRequest{{Queue: t.Queue, ID: t.ID}})
				}
			},
		}},
		{"an import of due tasks wakes nobody", "import", mutant{
			onWake: func(m *mutant, queue string) (<-chan struct{}, func()) {
				return make(chan struct{}), func() {}
			},
		}},
	}
}
