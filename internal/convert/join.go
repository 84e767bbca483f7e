// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"strings"
)

// Join makes one stream of documents of several texts; a single one stays as it is.
func Join(texts [][]byte) []byte {
	if len(texts) == 1 {
		return texts[0]
	}
	var out bytes.Buffer
	for _, text := range texts {
		text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		newline := newSource(text).newline
		if out.Len() > 0 {
			out.WriteString(separator(text, newline))
		}
		out.Write(text)
		if !bytes.HasSuffix(text, []byte("\n")) {
			out.WriteString(newline)
		}
	}
	return out.Bytes()
}

// separator begins a document, unless the text does so.
func separator(text []byte, newline string) string {
	for line := range bytes.Lines(text) {
		switch line := strings.TrimRight(string(line), " \t\r\n"); {
		case isMarker(line):
			return ""
		case strings.HasPrefix(line, "%"):
			return "..." + newline
		case line != "" && !strings.HasPrefix(strings.TrimLeft(line, " \t"), "#"):
			return "---" + newline
		}
	}
	return "---" + newline
}
