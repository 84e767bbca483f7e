// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestGuidesRequestClassesThatTheirFilesOffer compares the requests in each guide with the class file of the guide.
func TestGuidesRequestClassesThatTheirFilesOffer(t *testing.T) {
	requests := 0
	for _, guide := range strings.Split(read(t, "docs/how-to.md"), "\n## ")[1:] {
		title, _, _ := strings.Cut(guide, "\n")
		found := blocksOf("docs/how-to.md", guide)
		offered := offeredBy(t, found)
		for _, b := range found {
			if _, is := classFile(b); is || b.language != "yaml" {
				continue
			}
			for _, request := range requestsIn(b.text) {
				requests++
				if !offered[request] {
					t.Errorf("%q requests %s, and its class file offers %v", title, request, offered)
				}
			}
		}
	}

	if requests < 7 {
		t.Errorf("the guides have %d requests", requests)
	}
}

// offeredBy returns the classes of the class files in blocks: "RESOURCE.CLASS" as in limits and "RESOURCE=CLASS" as in
// annotations. Annotations for volumes have no resource.
func offeredBy(t *testing.T, found []block) map[string]bool {
	t.Helper()
	offered := map[string]bool{}
	for _, b := range found {
		text, is := classFile(b)
		if !is {
			continue
		}
		set := parsed(t, text)
		must(t, set.Err)
		for i := range set.Config.Resources {
			resource := &set.Config.Resources[i].Resource
			for _, class := range resource.Classes {
				extended, err := classes.ExtendedResource(resource.Name, class.Name)
				must(t, err)
				offered[extended], offered[resource.Name+"="+class.Name] = true, true
				if resource.Scope == classes.VolumeScope {
					offered["="+class.Name] = true
				}
			}
		}
	}

	return offered
}

// requestsIn returns the requests in a manifest, in the forms of offeredBy.
func requestsIn(manifest string) (requests []string) {
	for _, found := range regexp.MustCompile(`(?:requests\.)?(qos\.noderesource\.dev/[\w-]+\.[\w-]+): "?\d`).FindAllStringSubmatch(manifest, -1) {
		requests = append(requests, found[1])
	}
	for _, found := range regexp.MustCompile(`qos\.noderesource\.dev/pod: ([\w./-]+=[\w-]+)`).FindAllStringSubmatch(manifest, -1) {
		requests = append(requests, found[1])
	}
	for _, found := range regexp.MustCompile(`volumes\.qos\.noderesource\.dev/\w+: [\w./-]+(=[\w-]+)`).FindAllStringSubmatch(manifest, -1) {
		requests = append(requests, found[1])
	}
	for _, found := range regexp.MustCompile(`name: ([\w./-]+), default: ([\w-]+)`).FindAllStringSubmatch(manifest, -1) {
		requests = append(requests, found[1]+"="+found[2])
	}
	return requests
}
