package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/duetime/duetime/internal/bench"
)

func tempDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "duetime-compare-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// result is a figure of one contestant.
type result struct {
	Group, Job, Name, Setting string
	Ours, Fast                bool
	Values                    map[string][]float64 // by the figure's name, in the order of the runs
	Late                      *bench.Distribution  `json:",omitempty"`
	Why                       string               `json:",omitempty"` // there are no values
}

func (r *result) title() string { return (&contestant{name: r.Name, setting: r.Setting}).title() }

func (r *result) median(figure string) float64 {
	v := slices.Sorted(slices.Values(r.Values[figure]))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// piece is what one group's run leaves in the folder of results.
type piece struct {
	Group    string
	Date     time.Time
	Commit   string
	Machine  bench.Machine
	Versions []string
	Tasks    int
	Repeats  int
	Window   float64
	Results  []result
	Alone    *bench.Report `json:",omitempty"` // our store's herd and backlog
}

func measureAll(ctx context.Context, o *options, only, jobs []string) error {
	for _, g := range groups() {
		if only != nil && !slices.Contains(only, g.name) {
			continue
		}
		if slices.Equal(jobs, []string{"alone"}) && g.single == nil {
			continue
		}
		if err := measureGroup(ctx, o, &g, jobs); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

func measureGroup(ctx context.Context, o *options, g *group, jobs []string) error {
	wanted := func(job string) bool { return jobs == nil || slices.Contains(jobs, job) }
	p := piece{
		Group: g.name, Date: time.Now().UTC().Truncate(time.Minute), Commit: commit(), Machine: bench.ThisMachine(), Versions: versions(ctx),
		Tasks: o.tasks, Repeats: o.repeats, Window: o.window.Seconds(),
	}
	for _, job := range g.jobs {
		if !wanted(job) {
			continue
		}
		results, err := measureJob(ctx, o, g, job)
		p.Results = results
		err = errors.Join(err, p.write(o.results, job))
		if err != nil {
			return err
		}
		p.Results = nil
	}
	if g.single != nil && wanted("alone") {
		report, err := measureAlone(ctx, o, g)
		if err != nil {
			return err
		}
		p.Alone = report
		return p.write(o.results, "alone")
	}
	return nil
}

func (p *piece) write(dir, job string) error {
	text, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.Group+"-"+job+".json"), text, 0o644)
}

// measureJob lets the contestants take turns, so that what else the machine does
// hits them alike. Those who take no part in a turn are idle, with their servers.
func measureJob(ctx context.Context, o *options, g *group, job string) ([]result, error) {
	type entry struct {
		system system
		result result
		late   *bench.Histogram
	}
	var entries []*entry
	defer func() {
		for _, e := range entries {
			if e.system != nil {
				e.system.close()
			}
		}
	}()
	for i := range g.within {
		c := &g.within[i]
		if c.jobs != nil && !slices.Contains(c.jobs, job) {
			continue
		}
		e := &entry{late: bench.NewHistogram(), result: result{
			Group: g.name, Job: job, Name: c.name, Setting: c.setting, Ours: c.ours, Fast: c.fast, Values: map[string][]float64{},
		}}
		entries = append(entries, e)
		s, err := c.open(ctx)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s is left out: %v\n", g.name, c.title(), err)
			e.result.Why = err.Error()
			continue
		}
		e.system = s
	}
	repeats := o.repeats
	if job == jobLate { // its runs are long, and have thousands of values each
		repeats = min(repeats, 2)
	}
	if job == jobMemory {
		repeats = 1
	}
turns:
	for run := -1; run < repeats; run++ {
		for i := range entries {
			e := entries[(i+max(run, 0))%len(entries)]
			if e.system == nil || run < 0 && job == jobMemory {
				continue
			}
			size := 1.0
			if run < 0 {
				size = 0.05
			}
			runtime.GC()
			out, err := runJob(ctx, o, job, e.system, size)
			if err != nil {
				if ctx.Err() != nil { // what was measured by then is kept
					break turns
				}
				fmt.Fprintf(os.Stderr, "%s, %s: %s: %v\n", g.name, job, e.result.title(), err)
				e.result.Why = err.Error()
				e.system.close()
				e.system = nil
				continue
			}
			if run < 0 {
				continue
			}
			var shown []string
			for name, v := range out.values {
				e.result.Values[name] = append(e.result.Values[name], v)
				shown = append(shown, fmt.Sprintf("%s %.4g", name, v))
			}
			if out.late != nil {
				e.late.Merge(out.late)
			}
			slices.Sort(shown)
			fmt.Fprintf(os.Stderr, "%s, %s: %s: %s\n", g.name, job, e.result.title(), strings.Join(shown, ", "))
		}
	}
	var results []result
	for _, e := range entries {
		if e.late.Count() > 0 {
			d := e.late.Distribution(bench.Lateness, job, e.result.title())
			e.result.Late = &d
		}
		if len(e.result.Values) == 0 && e.result.Why == "" {
			e.result.Why = "interrupted"
		}
		results = append(results, e.result)
	}
	return results, ctx.Err()
}

// measureAlone is what only our own figures can be compared with: a herd against the
// drain, and operations beside a backlog.
func measureAlone(ctx context.Context, o *options, g *group) (*bench.Report, error) {
	s, err := g.single(ctx)
	if err != nil {
		return nil, err
	}
	sys := s.(*ours)
	if sys.end != nil {
		defer sys.end()
	}
	jobs := []bench.Job{bench.Herd, bench.Backlog}
	report, err := bench.Run(ctx, sys.store, bench.Options{
		Jobs: jobs, Herd: o.tasks, Repeats: o.repeats, Backlog: backlogs(o.backlog),
		Progress: func(done, total int64, note string) {
			fmt.Fprintf(os.Stderr, "%s, alone: %d of %d, %s\n", g.name, done, total, note)
		},
	})
	if report == nil {
		return nil, err
	}
	if err != nil { // what was measured by then is kept
		fmt.Fprintf(os.Stderr, "%s, alone: %v\n", g.name, err)
		if ctx.Err() != nil {
			return nil, err
		}
	}
	return report, nil
}

func backlogs(most int) []int {
	var list []int
	for _, n := range []int{10_000, 1_000_000, 10_000_000} {
		if n < most {
			list = append(list, n)
		}
	}
	return append(list, most)
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// versions of the servers, as they tell them.
func versions(ctx context.Context) []string {
	var list []string
	for _, command := range [][]string{
		{"redis-server", "--version"}, {"mariadbd", "--version"}, {"beanstalkd", "-v"}, {"psql", "--version"}, {"dpkg-query", "-W", "-f", "rabbitmq-server ${Version}", "rabbitmq-server"},
	} {
		path, err := exec.LookPath(command[0])
		if err != nil {
			path = filepath.Join("/usr/sbin", command[0])
		}
		out, err := exec.CommandContext(ctx, path, command[1:]...).CombinedOutput()
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		list = append(list, cmp.Or(strings.TrimPrefix(line, "/usr/sbin/"), command[0]))
	}
	return list
}

func readResults(dir string) ([]piece, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var list []piece
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var p piece
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there are no results in %s", dir)
	}
	return list, nil
}
