package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/duetime/duetime/internal/bench"
	"github.com/duetime/duetime/internal/svgchart"
)

// page is docs/benchmarks.md in the making.
type page struct {
	bytes.Buffer
	pieces []piece
	docs   string
	sizes  []string
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

var jobTitles = map[string]string{
	jobSingle: fmt.Sprintf("Scheduling by single calls of %d goroutines, tasks/s", singleProducers),
	jobBatch:  fmt.Sprintf("Scheduling by calls for %d of %d goroutines, tasks/s", batchSize, batchProducers),
	jobDrain:  "Tasks that are due, handed out and done, tasks/s",
	jobLate:   fmt.Sprintf("Lateness in the handler at %d tasks/s, ms", lateRate),
	jobMemory: "Memory of a task that waits, bytes",
}

// find returns a job's results in a group, or nil.
func (p *page) find(group, job string) []result {
	for _, piece := range p.pieces {
		for i := range piece.Results {
			if piece.Group == group && piece.Results[i].Job == job {
				return piece.Results
			}
		}
	}
	return nil
}

func (p *page) alone(group string) *bench.Report {
	for _, piece := range p.pieces {
		if piece.Group == group && piece.Alone != nil {
			return piece.Alone
		}
	}
	return nil
}

func writePage(pieces []piece, docs, note string) error {
	p := &page{pieces: pieces, docs: docs}
	if err := os.MkdirAll(filepath.Join(docs, "benchmarks"), 0o755); err != nil {
		return err
	}
	p.begin(note)
	p.targets()
	for _, g := range groups() {
		if err := p.group(&g); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), p.Bytes(), 0o644)
}

func (p *page) begin(note string) {
	first := p.pieces[0]
	m := first.Machine
	var commits []string
	for _, piece := range p.pieces {
		if !slices.Contains(commits, piece.Commit) {
			commits = append(commits, piece.Commit)
		}
	}
	p.say("# Benchmarks\n")
	p.say("This page is written by a program: `make benchmarks`. It measures duetime's stores beside what people use")
	p.say("for the same thing, in one run on one machine; the systems of a table take turns, each with a server of its")
	p.say("own. Your machine, network and tasks are others: `duetime bench --store URL` measures your store.\n")
	p.say("%s, at commit %s. %d cores (%s), shared by client and server, %s/%s, %s, everything on 127.0.0.1.", first.Date.Format("2 January 2006"), strings.Join(commits, ", "), m.CPUs, cmp.Or(m.CPU, "unnamed"), m.OS, m.Arch, m.Go)
	p.say("Servers: %s.\n", strings.Join(first.Versions, "; "))
	if note != "" {
		p.say("%s\n", note)
	}
	p.conditions()
	p.say("- Payloads have %d bytes, ids 20. Each row is the median of its runs, with the least and the most, after a", payloadBytes)
	p.say("  warm-up that is not counted.")
	p.say("- *Scheduled* tasks are due in an hour. A *drain* is timed from the first handler to the last task that is done")
	p.say("  with, and includes the lease and the ack where the system has them; the handler does nothing. The sorted set")
	p.say("  has neither: what it took is lost if the process dies. asynq has no call for many tasks.")
	p.say("- *Lateness*: all tasks are scheduled before the first is due, at random times. It is the start of the handler")
	p.say("  minus the time that the producer asked for, by one clock. Tasks that came *early* are counted apart.")
	p.say("- Rows in bold are duetime. Others come with their defaults and, where that is faster, with settings for speed.")
	p.say("  Redis syncs its append-only file every second; MariaDB and PostgreSQL sync every commit.\n")
}

// conditions says how much was measured, which pieces may have different.
func (p *page) conditions() {
	seen := map[string]bool{}
	for _, piece := range p.pieces {
		for _, r := range piece.Results {
			runs := 0
			for _, v := range r.Values {
				runs = max(runs, len(v))
			}
			if seen[piece.Group+r.Job] || runs == 0 {
				continue
			}
			seen[piece.Group+r.Job] = true
			size := fmt.Sprintf("up to %s tasks", svgchart.Number(float64(piece.Tasks)))
			if r.Job == jobLate {
				size = fmt.Sprintf("%g s", piece.Window)
			}
			p.sizes = append(p.sizes, fmt.Sprintf("%s/%s %d × %s", piece.Group, r.Job, runs, size))
		}
	}
	p.say("- Runs of each row: %s.", strings.Join(p.sizes, "; "))
}

// group writes a group's tables and pictures.
func (p *page) group(g *group) error {
	said := false
	for _, job := range jobNames() {
		results := p.find(g.name, job)
		if results == nil {
			continue
		}
		if !said {
			p.say("## %s\n", g.title)
			said = true
		}
		p.say("### %s\n", jobTitles[job])
		if job == jobLate {
			p.latenessTable(results)
		} else {
			p.rateTable(results, job)
		}
		if err := p.picture(g, job, results); err != nil {
			return err
		}
	}
	if r := p.alone(g.name); r != nil {
		if !said {
			p.say("## %s\n", g.title)
		}
		return p.aloneTables(g, r)
	}
	return nil
}

func figureOf(job string) string {
	if job == jobMemory {
		return "bytes"
	}
	return "rate"
}

func row(r *result) string {
	if r.Ours {
		return "**" + r.title() + "**"
	}
	return r.title()
}

func (p *page) rateTable(results []result, job string) {
	figure := figureOf(job)
	p.say("| system | median | least | most |")
	p.say("| --- | ---: | ---: | ---: |")
	for i := range results {
		r := &results[i]
		if v := r.Values[figure]; len(v) > 0 {
			p.say("| %s | %s | %s | %s |", row(r), svgchart.Number(r.median(figure)), svgchart.Number(slices.Min(v)), svgchart.Number(slices.Max(v)))
		} else {
			p.say("| %s | not measured: %s | | |", row(r), oneLine(r.Why))
		}
	}
	p.say("")
}

func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return cmp.Or(line, "left out")
}

func (p *page) latenessTable(results []result) {
	p.say("| system | p50 | p90 | p99 | most | early |")
	p.say("| --- | ---: | ---: | ---: | ---: | ---: |")
	for i := range results {
		r := &results[i]
		if len(r.Values["p50"]) == 0 {
			p.say("| %s | not measured: %s | | | | |", row(r), oneLine(r.Why))
			continue
		}
		early := "0"
		if r.Late != nil && r.Late.Early > 0 {
			early = fmt.Sprintf("%d of %d", r.Late.Early, r.Late.Early+r.Late.Count)
		}
		p.say("| %s | %s | %s | %s | %s | %s |", row(r), svgchart.Number(r.median("p50")), svgchart.Number(r.median("p90")),
			svgchart.Number(r.median("p99")), svgchart.Number(r.median("max")), early)
	}
	p.say("")
}

func (p *page) picture(g *group, job string, results []result) error {
	var svg []byte
	if job == jobLate {
		var series []svgchart.Series
		for i := range results {
			if d := results[i].Late; d != nil {
				series = append(series, svgchart.Series{Name: results[i].title(), Points: bench.LatenessPoints(*d)})
			}
		}
		svg = bench.LatenessChart(jobTitles[job], series)
	} else {
		c := svgchart.Bars{Title: jobTitles[job]}
		for i := range results {
			if v := results[i].Values[figureOf(job)]; len(v) > 0 {
				c.Rows = append(c.Rows, svgchart.Bar{Name: results[i].title(), Value: results[i].median(figureOf(job)), Min: slices.Min(v), Max: slices.Max(v), Marked: results[i].Ours})
			}
		}
		svg = c.SVG()
	}
	return p.embed(g.name+"-"+job+".svg", jobTitles[job], svg)
}

func (p *page) embed(file, title string, svg []byte) error {
	p.say("![%s](benchmarks/%s)\n", title, file)
	return os.WriteFile(filepath.Join(p.docs, "benchmarks", file), svg, 0o644)
}

// aloneTables is what our own store's figures are compared with itself.
func (p *page) aloneTables(g *group, r *bench.Report) error {
	p.say("### A herd, and a backlog\n")
	p.say("| what | tasks that wait | median | least | most | unit |")
	p.say("| --- | ---: | ---: | ---: | ---: | --- |")
	for _, f := range r.Figures {
		backlog := ""
		if f.Backlog > 0 {
			backlog = svgchart.Number(float64(f.Backlog))
		}
		p.say("| %s | %s | %s | %s | %s | %s |", f.Label, backlog, svgchart.Number(f.Median), svgchart.Number(f.Min), svgchart.Number(f.Max), f.Unit)
	}
	p.say("")
	if svg := r.BacklogChart(); svg != nil {
		return p.embed(g.name+"-backlog.svg", "What a task costs beside others that wait", svg)
	}
	return nil
}
