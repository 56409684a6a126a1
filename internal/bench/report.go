package bench

import (
	"runtime"
	"slices"
	"time"

	"github.com/duetime/duetime/store"
)

// ReportVersion is that of Report's JSON: it changes when a field goes or changes
// its meaning.
const ReportVersion = 1

// Report is what was measured.
type Report struct {
	Version    int       `json:"version"`
	Store      string    `json:"store"`
	Durability string    `json:"durability"`
	Date       time.Time `json:"date"`
	Seconds    float64   `json:"seconds"` // that it took
	Machine    Machine   `json:"machine"`
	Settings   Settings  `json:"settings"`

	Figures       []Figure       `json:"figures"`
	Distributions []Distribution `json:"distributions"`
	Skipped       []Skipped      `json:"skipped"`
}

// Machine is where this program ran. A server may run elsewhere.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"` // empty where it is not known
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

// Settings are the options that figures depend on.
type Settings struct {
	Repeats  int     `json:"repeats"`
	Tasks    int     `json:"tasks"`
	Seconds  float64 `json:"length_seconds"`
	Batch    int     `json:"batch"`
	Workers  int     `json:"workers"`
	Rate     int     `json:"rate"`
	Window   float64 `json:"window_seconds"`
	Herd     int     `json:"herd"`
	Payload  int     `json:"payload_bytes"`
	IDLength int     `json:"id_bytes"`
}

// Figure is one number, measured several times.
type Figure struct {
	Job     Job       `json:"job"`
	Name    string    `json:"name"`  // for programs: lower case, and stays
	Label   string    `json:"label"` // for people
	Unit    string    `json:"unit"`  // tasks/s, ms, µs/task, bytes/task, ratio, tasks
	Backlog int       `json:"backlog,omitempty"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Values  []float64 `json:"values"` // in the order in which they were measured
}

func (f *Figure) summarize() {
	if len(f.Values) == 0 {
		return
	}
	s := slices.Sorted(slices.Values(f.Values))
	f.Min, f.Max = s[0], s[len(s)-1]
	f.Median = (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Skipped is a job that was not done.
type Skipped struct {
	Job Job    `json:"job"`
	Why string `json:"why"`
}

// Find returns the figure of a name, for a backlog if it has one, or nil.
func (r *Report) Find(name string, backlog int) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Name == name && r.Figures[i].Backlog == backlog {
			return &r.Figures[i]
		}
	}
	return nil
}

func newReport(o *Options, caps store.Capabilities) *Report {
	return &Report{
		Version: ReportVersion, Store: caps.Name, Durability: caps.Durability,
		Date: time.Now().UTC().Truncate(time.Second), Machine: ThisMachine(),
		Settings: Settings{
			Repeats: o.Repeats, Tasks: o.Tasks, Seconds: o.Length.Seconds(), Batch: o.Batch, Workers: o.Workers,
			Rate: o.Rate, Window: o.Window.Seconds(), Herd: o.Herd, Payload: o.Payload, IDLength: len(taskID(0)),
		},
		// Not null in JSON.
		Figures: []Figure{}, Distributions: []Distribution{}, Skipped: []Skipped{},
	}
}

// ThisMachine describes the machine that the program runs on.
func ThisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
}
