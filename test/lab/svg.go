// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes in the picture, in pixels.
const (
	nameWidth   = 250
	columnWidth = 170
	barWidth    = 110
	rowHeight   = 26
	headHeight  = 70
)

// picturedColumns is the maximum number of columns in the picture. A page has no room for more.
const picturedColumns = 4

// SVG returns the scene as a picture. It has a row for each situation that was measured, and a bar for each value of
// the first columns. The longest bar of a column is the highest value.
func (s *Scene) SVG() string {
	columns := s.Columns[:min(len(s.Columns), picturedColumns)]
	rows, _ := s.measured()
	width, height := nameWidth+columnWidth*len(columns)+20, headHeight+rowHeight*len(rows)+14
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="13">`+"\n<title>%[3]s</title>\n", width, height, escaped(s.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#fafbfc"/>`+"\n", width, height)
	text := func(x, y int, style, content string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, style, escaped(content))
	}

	text(16, 26, `fill="#123" font-weight="600"`, s.Title)
	for i, column := range columns {
		text(nameWidth+columnWidth*i, 54, `fill="#345"`, column)
	}

	for r, row := range rows {
		y := headHeight + rowHeight*r
		text(16, y+13, `fill="#123"`, row.Name)
		for i, v := range row.Values[:len(columns)] {
			x, length := nameWidth+columnWidth*i, 0
			if highest := highest(rows, i); highest > 0 {
				length = int(v / highest * barWidth)
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="16" rx="2" fill="%s"/>`+"\n", x, y, max(length, 1), color(i))
			text(x+max(length, 1)+5, y+13, `fill="#345"`, number(v))
		}
	}

	b.WriteString("</svg>\n")
	return b.String()
}

func highest(rows []Row, column int) float64 {
	highest := 0.0
	for _, r := range rows {
		highest = max(highest, r.Values[column])
	}
	return highest
}

func color(column int) string {
	colors := []string{"#7aa6d8", "#d8897a", "#86b97e", "#b9a4d6"}
	return colors[column%len(colors)]
}

func escaped(text string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		panic(err) // a strings.Builder returns no error
	}
	return b.String()
}
