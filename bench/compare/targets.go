package main

import (
	"fmt"
	"strings"

	"github.com/duetime/duetime/internal/svgchart"
)

// side names a result: the one of a job whose title begins so.
type side struct{ group, job, title, figure string }

// target is a ratio, or a bound, that the project has set itself.
type target struct {
	what    string
	ours    []side // the best of these
	theirs  []side // the best of these; nil: the bound is absolute
	against string
	ratio   float64 // at least; with an absolute bound, at most
	unit    string
}

func targetsOf() []target {
	rate := func(group, job, title string) side { return side{group, job, title, "rate"} }
	return []target{
		{"redis: Schedule, single calls", []side{rate("redis", jobSingle, "duetime")}, []side{rate("redis", jobSingle, "asynq")}, "asynq", 3, ""},
		{"redis: ScheduleMany by 100", []side{rate("redis", jobBatch, "duetime")}, []side{rate("redis", jobBatch, "sorted set")}, "plain Lua by 100", 0.9, ""},
		{"redis: drain, with lease and ack", []side{rate("redis", jobDrain, "duetime")}, []side{rate("redis", jobDrain, "asynq")}, "asynq at its fastest", 10, ""},
		{"redis: lateness p50", []side{{"redis", jobLate, "duetime", "p50"}}, nil, "", 0.3, "ms"},
		{"redis: lateness p99", []side{{"redis", jobLate, "duetime", "p99"}}, nil, "", 1.5, "ms"},
		{"redis: memory of a task", []side{{"redis", jobMemory, "duetime", "bytes"}}, nil, "", 330, "bytes"},
		{"disk: single calls, every Schedule synced", []side{rate("disk", jobSingle, "duetime")}, []side{rate("disk", jobSingle, "beanstalkd, every put synced")}, "beanstalkd -f0", 12, ""},
		{"disk: drain in process", []side{rate("disk", jobDrain, "duetime")}, []side{rate("disk", jobDrain, "beanstalkd, binlog")}, "beanstalkd with binlog", 3, ""},
		{"disk: lateness p50", []side{{"disk", jobLate, "duetime", "p50"}}, nil, "", 0.1, "ms"},
		{"disk: lateness p99", []side{{"disk", jobLate, "duetime", "p99"}}, nil, "", 1, "ms"},
		{"server: batches of 100, 8 connections", []side{rate("server", jobBatch, "duetime")}, []side{rate("server", jobBatch, "beanstalkd, binlog")}, "beanstalkd pipelined, with binlog", 2, ""},
		{"server: single calls, 64 connections", []side{rate("server", jobSingle, "duetime serve, one POST")}, []side{rate("server", jobSingle, "net/http")}, "a net/http JSON echo", 0.5, ""},
		{"server: drain by claims of 100", []side{rate("server", jobDrain, "duetime serve, 100 hands")}, []side{rate("server", jobDrain, "beanstalkd")}, "beanstalkd", 2, ""},
		{"mysql: Schedule, single calls", []side{rate("mysql", jobSingle, "duetime")}, []side{rate("mysql", jobSingle, "a table")}, "one INSERT a call", 3, ""},
		{"mysql: drain, with lease and ack", []side{rate("mysql", jobDrain, "duetime")}, []side{rate("mysql", jobDrain, "River"), rate("mysql", jobDrain, "a table")}, "the better of River and SKIP LOCKED + DELETE", 1.5, ""},
		{"mysql: lateness p99", []side{{"mysql", jobLate, "duetime", "p99"}}, nil, "", 10, "ms"},
		{"tiered: Schedule tasks of an hour ahead", []side{rate("tiered", jobSingle, "duetime tieredstore")}, []side{rate("tiered", jobSingle, "duetime mysqlstore")}, "mysqlstore in the same run", 0.9, ""},
		{"tiered: drain", []side{rate("tiered", jobDrain, "duetime tieredstore")}, []side{rate("tiered", jobDrain, "duetime redisstore")}, "redisstore in the same run", 0.4, ""},
		{"rabbit: Schedule with confirms", []side{rate("rabbit", jobSingle, "duetime")}, []side{rate("rabbit", jobSingle, "published straight")}, "published straight, with confirms", 0.5, ""},
	}
}

// best is the best value of the sides; 0 where none was measured.
func (p *page) best(sides []side, least bool) (best float64) {
	for _, s := range sides {
		results := p.find(s.group, s.job)
		for i := range results {
			if !strings.HasPrefix(results[i].title(), s.title) {
				continue
			}
			if v := results[i].median(s.figure); v > 0 && (best == 0 || v > best != least) {
				best = v
			}
		}
	}
	return best
}

// targets writes what was aimed at and what was reached, reached or not.
func (p *page) targets() {
	p.say("## Targets\n")
	p.say("| what | aim | against | reached | |")
	p.say("| --- | ---: | --- | ---: | --- |")
	for _, t := range targetsOf() {
		absolute := t.theirs == nil
		ours := p.best(t.ours, absolute)
		aim := fmt.Sprintf("≥ %g ×", t.ratio)
		if absolute {
			aim = fmt.Sprintf("≤ %g %s", t.ratio, t.unit)
		}
		reached, verdict := "not measured", ""
		switch {
		case ours == 0:
		case absolute:
			reached, verdict = svgchart.Number(ours)+" "+t.unit, met(ours <= t.ratio)
		default:
			if theirs := p.best(t.theirs, false); theirs > 0 {
				reached = fmt.Sprintf("%.2f × (%s to %s)", ours/theirs, svgchart.Number(ours), svgchart.Number(theirs))
				verdict = met(ours/theirs >= t.ratio)
			}
		}
		p.say("| %s | %s | %s | %s | %s |", t.what, aim, t.against, reached, verdict)
	}
	p.herds()
	p.say("")
	p.say("The targets were set from figures of an idle machine of this kind. One that is missed is left here as such.\n")
}

func met(yes bool) string {
	if yes {
		return "met"
	}
	return "missed"
}

// herds are the targets that compare a store with itself.
func (p *page) herds() {
	for _, group := range []string{"redis", "disk"} {
		r := p.alone(group)
		if r == nil {
			p.say("| %s: herd in one millisecond, and the cost of a backlog | see the run | itself | not measured | |", group)
			continue
		}
		if f := r.Find("herd_against_drain", 0); f != nil {
			p.say("| %s: herd of %d, last out | ≤ 1.2 × | its own drain | %.2f × | %s |", group, r.Settings.Herd, f.Median, met(f.Median <= 1.2))
		}
		if f := r.Find("herd_other_p99", 0); f != nil {
			p.say("| %s: herd, another queue's p99 | ≤ 20 ms | | %s ms | %s |", group, svgchart.Number(f.Median), met(f.Median <= 20))
		}
		most := 0
		for _, f := range r.Figures {
			if f.Backlog > most {
				most = f.Backlog
			}
		}
		for _, name := range []string{"claim", "ack", "cancel"} {
			small, large := r.Find("backlog_"+name, 10_000), r.Find("backlog_"+name, most)
			if small == nil || large == nil || most == 10_000 {
				continue
			}
			ratio := large.Median / small.Median
			p.say("| %s: %s beside %s tasks | ≤ 1.25 × | itself beside 10,000 | %.2f × | %s |", group, name, svgchart.Number(float64(most)), ratio, met(ratio <= 1.25))
		}
	}
}
