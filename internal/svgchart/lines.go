package svgchart

import (
	"fmt"
	"math"
	"strings"
)

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Series is one line and its name.
type Series struct {
	Name   string
	Points []Point // in order of X
}

// Axis is what runs along one side.
type Axis struct {
	Label string
	Log   bool // by factors of ten: only values above 0 are drawn
	Ticks []Tick
}

// Tick is a place on an axis that has a name.
type Tick struct {
	At   float64
	Name string
}

// Lines is a chart of lines.
type Lines struct {
	Title  string
	X, Y   Axis
	Series []Series
}

const (
	linesWidth, linesHeight = 760.0, 420.0
	marginLeft, marginRight = 70.0, 20.0
	marginTop               = 40.0
	marginBottom            = 55.0
	legendRow               = 18.0
)

// scale maps values of an axis to a stretch of the picture.
type scale struct {
	from, to float64 // of the values, as they are drawn
	at, end  float64 // of the picture
	log      bool
}

func (s scale) place(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.at + (v-s.from)/(s.to-s.from)*(s.end-s.at)
}

func newScale(a Axis, low, high, at, end float64) scale {
	s := scale{from: low, to: high, at: at, end: end, log: a.Log}
	if a.Log {
		s.from, s.to = math.Log10(low), math.Log10(high)
	}
	if s.to-s.from < 1e-9 {
		s.to = s.from + 1
	}
	return s
}

// SVG draws it.
func (c Lines) SVG() []byte {
	height := linesHeight + legendRow*math.Ceil(float64(len(c.Series))/2)
	d := begin(linesWidth, height, c.Title)
	left, right, top, bottom := marginLeft, linesWidth-marginRight, marginTop, linesHeight-marginBottom

	lowX, highX, lowY, highY := c.bounds()
	x := newScale(c.X, lowX, highX, left, right)
	y := newScale(c.Y, lowY, highY, bottom, top)
	for _, t := range ticks(c.X, lowX, highX) {
		d.line(x.place(t.At), top, x.place(t.At), bottom, "#dddddd")
		d.text(x.place(t.At), bottom+16, "middle", "", t.Name)
	}
	for _, t := range ticks(c.Y, lowY, highY) {
		d.line(left, y.place(t.At), right, y.place(t.At), "#dddddd")
		d.text(left-6, y.place(t.At)+4, "end", "", t.Name)
	}
	d.line(left, bottom, right, bottom, "#222222")
	d.line(left, top, left, bottom, "#222222")
	d.text((left+right)/2, bottom+36, "middle", "", c.X.Label)
	d.text(18, (top+bottom)/2, "middle", fmt.Sprintf(`transform="rotate(-90 18 %.1f)"`, (top+bottom)/2), c.Y.Label)

	for i, s := range c.Series {
		var path []string
		for _, p := range s.Points {
			if c.drawn(p) {
				path = append(path, fmt.Sprintf("%.1f,%.1f", x.place(p.X), y.place(p.Y)))
			}
		}
		fmt.Fprintf(d, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colour(i), strings.Join(path, " "))
		if len(path) < 30 { // few enough to be told apart
			for _, p := range path {
				px, py, _ := strings.Cut(p, ",")
				fmt.Fprintf(d, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`+"\n", px, py, colour(i))
			}
		}
		lx, ly := left+float64(i%2)*(right-left)/2, linesHeight-4+legendRow*float64(i/2)
		fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="14" height="4" fill="%s"/>`+"\n", lx, ly-6, colour(i))
		d.text(lx+20, ly, "start", "", s.Name)
	}
	return d.end()
}

func (c Lines) drawn(p Point) bool {
	return !(c.X.Log && p.X <= 0) && !(c.Y.Log && p.Y <= 0) && !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0)
}

// bounds is what the axes have to show: whole powers of ten where they are
// logarithmic, and 0 with the others.
func (c Lines) bounds() (lowX, highX, lowY, highY float64) {
	lowX, lowY = math.Inf(1), math.Inf(1)
	highX, highY = math.Inf(-1), math.Inf(-1)
	for _, s := range c.Series {
		for _, p := range s.Points {
			if c.drawn(p) {
				lowX, highX = min(lowX, p.X), max(highX, p.X)
				lowY, highY = min(lowY, p.Y), max(highY, p.Y)
			}
		}
	}
	if lowX > highX { // nothing to draw
		lowX, highX, lowY, highY = 1, 10, 1, 10
	}
	if c.Y.Log {
		lowY, highY = math.Pow(10, math.Floor(math.Log10(lowY))), math.Pow(10, math.Ceil(math.Log10(highY)))
		if lowY == highY {
			highY *= 10
		}
	} else {
		lowY, highY = min(0, lowY), max(highY*1.05, lowY+1e-6)
	}
	return lowX, highX, lowY, highY
}

func ticks(a Axis, low, high float64) []Tick {
	if a.Ticks != nil {
		var seen []Tick
		for _, t := range a.Ticks {
			if t.At >= low && t.At <= high {
				seen = append(seen, t)
			}
		}
		return seen
	}
	var list []Tick
	if a.Log {
		for e := math.Ceil(math.Log10(low) - 1e-9); e <= math.Log10(high)+1e-9; e++ {
			v := math.Pow(10, e)
			list = append(list, Tick{v, Number(v)})
		}
		return list
	}
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for (high-low)/step < 4 {
		step /= 2
	}
	for v := math.Ceil(low/step) * step; v <= high+step*1e-9; v += step {
		list = append(list, Tick{v, Number(v)})
	}
	return list
}
