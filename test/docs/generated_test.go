// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of the pages")

// checkGenerated compares the generated part of a page with `want`, or writes want into the page. A page is generated from
// its first heading of the second level on.
func checkGenerated(t *testing.T, file, want string) {
	t.Helper()
	page := read(t, file)
	head, _, _ := strings.Cut(page, "\n## ")
	want = strings.TrimSpace(head) + "\n\n" + strings.TrimSpace(want) + "\n"

	if *update {
		must(t, os.WriteFile(repository+"/"+file, []byte(want), 0o600))
	} else if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("run: go test ./test/docs -run %s -update; (-want +page):\n%s", t.Name(), diff)
	}
}

// cell returns a text as the cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

// sentence returns a text with a capital letter at the beginning and a full stop at the end.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}
