// Package svgchart draws the few kinds of chart that measurements need, as SVG that
// stands alone: no script, no style sheet, no font but the reader's.
package svgchart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// colours are told apart by people who see few colours, too (after Okabe and Ito).
var colours = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"}

func colour(i int) string { return colours[i%len(colours)] }

// drawing collects elements.
type drawing struct{ bytes.Buffer }

func begin(width, height float64, title string) *drawing {
	d := new(drawing)
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(d, "<title>%s</title>\n", escape(title))
	// A background, for readers whose page is dark.
	fmt.Fprintf(d, `<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", width, height)
	d.text(width/2, 20, "middle", `font-size="15"`, title)
	return d
}

func (d *drawing) end() []byte {
	d.WriteString("</svg>\n")
	return d.Bytes()
}

// text puts text at a place; anchor is start, middle or end of it.
func (d *drawing) text(x, y float64, anchor, attributes, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#222222" %s>%s</text>`+"\n", x, y, anchor, attributes, escape(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, stroke string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke)
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

// Number is a number as charts and tables show it: three figures that count, and
// thousands apart.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a == 0:
		return "0"
	case a >= 999.5:
		p := math.Pow(10, math.Floor(math.Log10(a))-2)
		return thousands(int64(math.Round(v/p) * p))
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.0995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
