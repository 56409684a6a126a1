package svgchart

import "fmt"

// Bar is one row of a bar chart.
type Bar struct {
	Name            string
	Value, Min, Max float64 // the whisker goes from Min to Max
	Marked          bool    // drawn in another colour
}

// Bars is a chart of bars that lie one above the other, from 0 on.
type Bars struct {
	Title string
	Unit  string
	Rows  []Bar
}

const (
	barsWidth  = 760.0
	barsNames  = 290.0
	barsValues = 110.0
	barRow     = 24.0
)

// SVG draws it.
func (c Bars) SVG() []byte {
	height := marginTop + barRow*float64(len(c.Rows)) + 30
	d := begin(barsWidth, height, c.Title)
	most := 0.0
	for _, r := range c.Rows {
		most = max(most, r.Value, r.Max)
	}
	if most == 0 {
		most = 1
	}
	place := func(v float64) float64 { return barsNames + v/most*(barsWidth-barsNames-barsValues) }
	for i, r := range c.Rows {
		y := marginTop + barRow*float64(i)
		fill := "#999999"
		if r.Marked {
			fill = colour(0)
		}
		d.text(barsNames-8, y+14, "end", "", r.Name)
		fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", barsNames, y+3, place(r.Value)-barsNames, barRow-7, fill)
		if r.Max > r.Min {
			d.line(place(r.Min), y+barRow/2-0.5, place(r.Max), y+barRow/2-0.5, "#222222")
		}
		d.text(place(max(r.Value, r.Max))+6, y+14, "start", "", Number(r.Value))
	}
	d.text(barsNames, height-12, "start", "", c.Unit)
	return d.end()
}
