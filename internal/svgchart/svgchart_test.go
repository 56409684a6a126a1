package svgchart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// elements parses a drawing, which must be well formed, and returns its elements.
func elements(t *testing.T, svg []byte) (list []xml.StartElement, text string) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return list, text
		}
		if err != nil {
			t.Fatalf("not well formed: %v\n%s", err, svg)
		}
		switch x := token.(type) {
		case xml.StartElement:
			list = append(list, x)
		case xml.CharData:
			text += string(x)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		t.Fatalf("%q is no place in a picture", s)
	}
	return v
}

func TestLines(t *testing.T) {
	svg := Lines{
		Title: "a < b & c", X: Axis{Label: "tasks", Log: true}, Y: Axis{Label: "µs", Log: true},
		Series: []Series{
			{"one", []Point{{1, 10}, {10, 100}, {100, 1000}}},
			{"zero is not drawn", []Point{{1, 0}, {10, 20}}},
		},
	}.SVG()
	list, text := elements(t, svg)
	var lines [][]string
	for _, e := range list {
		if e.Name.Local == "polyline" {
			lines = append(lines, strings.Fields(attribute(e, "points")))
		}
	}
	if len(lines) != 2 || len(lines[0]) != 3 || len(lines[1]) != 1 {
		t.Fatalf("lines of 3 and 1 points wanted, got %q", lines)
	}
	// Equal factors are equal steps, to the right and upwards.
	var x, y [3]float64
	for i, p := range lines[0] {
		px, py, _ := strings.Cut(p, ",")
		x[i], y[i] = number(t, px), number(t, py)
	}
	if math.Abs((x[1]-x[0])-(x[2]-x[1])) > 0.2 || x[1] <= x[0] {
		t.Errorf("x at %v", x)
	}
	if math.Abs((y[1]-y[0])-(y[2]-y[1])) > 0.2 || y[1] >= y[0] {
		t.Errorf("y at %v", y)
	}
	for _, want := range []string{"a < b & c", "tasks", "µs", "one", "1,000"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in it", want)
		}
	}
}

func TestLinesOfNothing(t *testing.T) {
	for _, log := range []bool{false, true} {
		for _, series := range [][]Series{nil, {{Name: "none"}}, {{"one point", []Point{{5, 5}}}}, {{"flat", []Point{{1, 0}, {2, 0}}}}} {
			svg := Lines{X: Axis{Log: log}, Y: Axis{Log: log}, Series: series}.SVG()
			elements(t, svg)
			if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
				t.Errorf("%+v: %s", series, svg)
			}
		}
	}
}

func TestBars(t *testing.T) {
	list, text := elements(t, Bars{Title: "rates", Unit: "tasks/s", Rows: []Bar{
		{Name: "ours", Value: 200_000, Min: 190_000, Max: 210_000, Marked: true},
		{Name: "theirs", Value: 100_000, Min: 100_000, Max: 100_000},
	}}.SVG())
	var widths []float64
	for _, e := range list[3:] { // behind the background
		if e.Name.Local == "rect" {
			widths = append(widths, number(t, attribute(e, "width")))
		}
	}
	if len(widths) != 2 || math.Abs(widths[0]-2*widths[1]) > 0.2 {
		t.Errorf("widths %v, want the first twice the second", widths)
	}
	if !strings.Contains(text, "200,000") || !strings.Contains(text, "theirs") {
		t.Errorf("text %q", text)
	}
	elements(t, Bars{}.SVG())
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0123: "0.012", 0.5: "0.50", 1.234: "1.23", 12.34: "12.3", 123.4: "123",
		1234: "1,230", 123456: "123,000", 1234567: "1,230,000", -5000: "-5,000", 999.6: "1,000",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "-" {
		t.Errorf("not a number is %q", got)
	}
}
