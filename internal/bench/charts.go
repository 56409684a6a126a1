package bench

import (
	"fmt"

	"github.com/duetime/duetime/internal/svgchart"
)

// Chart is a picture and the name of the file it is for.
type Chart struct {
	File string
	SVG  []byte
}

// Charts draws what the report has to be drawn: the distribution of lateness, and
// what operations cost against the backlog.
func (r *Report) Charts() []Chart {
	var list []Chart
	var series []svgchart.Series
	for _, d := range r.Distributions {
		series = append(series, svgchart.Series{Name: d.Label, Points: LatenessPoints(d)})
	}
	if len(series) > 0 {
		list = append(list, Chart{"lateness.svg", LatenessChart(fmt.Sprintf("Lateness, %s store, %d tasks/s", r.Store, r.Settings.Rate), series)})
	}
	if c := r.BacklogChart(); c != nil {
		list = append(list, Chart{"backlog.svg", c})
	}
	return list
}

// LatenessPoints are a distribution's points as LatenessChart wants them.
func LatenessPoints(d Distribution) []svgchart.Point {
	var points []svgchart.Point
	for _, q := range d.Points {
		if q.Percent < 100 {
			points = append(points, svgchart.Point{X: rarity(q.Percent), Y: q.MS})
		}
	}
	return points
}

// rarity is how many tasks there are to one that is later: the scale on which p90,
// p99 and p99.9 are equally far apart.
func rarity(percent float64) float64 { return 100 / (100 - percent) }

// LatenessChart draws distributions of lateness.
func LatenessChart(title string, series []svgchart.Series) []byte {
	var ticks []svgchart.Tick
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		ticks = append(ticks, svgchart.Tick{At: rarity(p), Name: fmt.Sprintf("%g %%", p)})
	}
	return svgchart.Lines{
		Title: title, Series: series,
		X: svgchart.Axis{Label: "so many of the tasks are at most so late", Log: true, Ticks: ticks},
		Y: svgchart.Axis{Label: "ms", Log: true},
	}.SVG()
}

// BacklogChart draws what operations cost against the backlog; nil where that was
// not measured.
func (r *Report) BacklogChart() []byte {
	var series []svgchart.Series
	find := func(name string) *svgchart.Series {
		for i := range series {
			if series[i].Name == name {
				return &series[i]
			}
		}
		series = append(series, svgchart.Series{Name: name})
		return &series[len(series)-1]
	}
	for _, f := range r.Figures {
		if f.Job == Backlog && f.Unit == perTask {
			s := find(f.Label)
			s.Points = append(s.Points, svgchart.Point{X: float64(f.Backlog), Y: f.Median})
		}
	}
	if len(series) == 0 {
		return nil
	}
	return svgchart.Lines{
		Title: fmt.Sprintf("What a task costs beside others that wait, %s store", r.Store), Series: series,
		X: svgchart.Axis{Label: "tasks that wait", Log: true},
		Y: svgchart.Axis{Label: "µs for a task"},
	}.SVG()
}
