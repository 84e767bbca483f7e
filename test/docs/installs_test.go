// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// firstPages are the pages that a newcomer follows from the first command to the last.
var firstPages = []string{"README.md", "docs/start.md"}

// TestFirstPagesRequestClassesThatTheyInstall compares the classes that a section of the first pages requests or shows with the class
// files that the section installs or checks.
func TestFirstPagesRequestClassesThatTheyInstall(t *testing.T) {
	for _, page := range firstPages {
		requests := 0
		for _, section := range strings.Split(read(t, page), "\n## ")[1:] {
			title, _, _ := strings.Cut(section, "\n")
			offered := offeredBy(t, installedBy(t, page, section))
			for _, request := range shownIn(section) {
				requests++
				if !offered[request] {
					t.Errorf("%s, %q shows %s, and its class files offer %v", page, title, request, slices.Sorted(maps.Keys(offered)))
				}
			}
		}
		if requests < 2 {
			t.Errorf("%s shows %d classes", page, requests)
		}
	}
}

// installedBy returns the blocks of a section, and the class files that the commands of the section name, install or run.
func installedBy(t *testing.T, page, section string) []block {
	t.Helper()
	found := blocksOf(page, section)
	files := map[string]bool{}
	for _, b := range found {
		for _, command := range commandsOf(b) {
			if strings.HasPrefix(strings.Join(command, " "), "make demo") {
				_, demo, _ := strings.Cut(read(t, "test/demo/story.go"), "const classes = `")
				demo, _, _ = strings.Cut(demo, "`")
				found = append(found, block{"test/demo/story.go", "yaml", strings.ReplaceAll(demo, "DEVICES", "/dev/vda")})
			}
			for i, word := range command {
				if i > 0 && command[i-1] == "-k" {
					maps.Copy(files, kustomized(t, word).classFiles)
				}
				if strings.HasPrefix(word, "config/") {
					files[word] = true
				}
			}
		}
	}
	for file := range files {
		found = append(found, block{file, "yaml", read(t, file)})
	}
	return found
}

// shownIn returns the classes that a text requests or shows, in the forms of offeredBy.
func shownIn(text string) (shown []string) {
	shown = append(shown, regexp.MustCompile(`qos\.noderesource\.dev/(?:rdt|blockio)\.[\w-]+`).FindAllString(text, -1)...)
	for _, found := range regexp.MustCompile(`\b(rdt|blockio)=([\w-]+)`).FindAllStringSubmatch(text, -1) {
		shown = append(shown, "k8s.io/"+found[1]+"="+found[2])
	}
	for _, found := range regexp.MustCompile(`class "([\w-]+)" of ([\w./-]+)`).FindAllStringSubmatch(text, -1) {
		shown = append(shown, found[2]+"="+found[1])
	}
	for _, found := range regexp.MustCompile(`/sys/fs/resctrl/qos-([\w-]+)`).FindAllStringSubmatch(text, -1) {
		shown = append(shown, "k8s.io/rdt="+found[1])
	}
	return shown
}

// commandsOf returns the commands of a console block, and nothing for another block.
func commandsOf(b block) [][]string {
	if b.language != "console" {
		return nil
	}
	return commands(b)
}

// installation is what a kustomization installs: its class files, and its objects as "kind/name".
type installation struct {
	classFiles, objects map[string]bool
}

// kustomized reads a kustomization and those that it includes.
func kustomized(t *testing.T, directory string) installation {
	t.Helper()
	var content struct {
		Resources          []string
		ConfigMapGenerator []struct{ Files []string }
	}
	must(t, yaml.Unmarshal([]byte(read(t, path.Join(directory, "kustomization.yaml"))), &content))

	all := installation{map[string]bool{}, map[string]bool{}}
	for _, generator := range content.ConfigMapGenerator {
		for _, file := range generator.Files {
			all.classFiles[path.Join(directory, file)] = true
		}
	}
	for _, resource := range content.Resources {
		file := path.Join(directory, resource)
		if info, err := os.Stat(path.Join(repository, file)); err == nil && info.IsDir() {
			below := kustomized(t, file)
			maps.Copy(all.classFiles, below.classFiles)
			maps.Copy(all.objects, below.objects)
			continue
		}
		maps.Copy(all.objects, objectsIn(t, read(t, file)))
	}
	return all
}

// objectsIn returns the objects of a manifest as "kind/name", in lower case.
func objectsIn(t *testing.T, manifest string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		must(t, yaml.Unmarshal([]byte(document), &object))
		found[strings.ToLower(object.Kind)+"/"+object.Metadata.Name] = true
	}
	return found
}

// TestFirstPagesMakeWhatTheirCommandsUse follows the commands of the first pages in their order. A program, an image or
// an object must exist before a command uses it.
func TestFirstPagesMakeWhatTheirCommandsUse(t *testing.T) {
	for _, page := range firstPages {
		used := 0
		for _, section := range strings.Split(read(t, page), "\n## ")[1:] {
			title, _, _ := strings.Cut(section, "\n")
			made := map[string]bool{}
			for _, b := range blocksOf(page, section) {
				for _, command := range commandsOf(b) {
					needs := neededBy(command)
					used += len(needs)
					for _, need := range needs {
						if !made[need] {
							t.Errorf("%s, %q: %q needs %s, and no command before it makes that", page, title, strings.Join(command, " "), need)
						}
					}
					maps.Copy(made, madeBy(t, command))
				}
			}
		}
		if used < 5 {
			t.Errorf("the commands of %s use %d things", page, used)
		}
	}
}

// neededBy returns what a command uses.
func neededBy(words []string) (needs []string) {
	line := strings.Join(words, " ")
	for pattern, need := range map[string]string{
		`(^| )bin/qos-nri-plugin`: "the programs", `(^| )bin/kubectl-qos`: "the programs", `kubectl qos`: "the programs",
		`bin/image\.tar`: "the image's archive", `kubectl apply -k deploy/`: "the image on the nodes", `helm install`: "the image on the nodes",
		`(^| )qos-nri-plugin`: "the programs", // installed from bin/
	} {
		if regexp.MustCompile(pattern).MatchString(line) {
			needs = append(needs, need)
		}
	}
	for _, found := range regexp.MustCompile(`\b(?:rollout status|wait|exec|logs) (?:(\w+)/)?([\w-]+)`).FindAllStringSubmatch(line, -1) {
		if words[0] == "kubectl" {
			kind := found[1]
			if kind == "" {
				kind = "pod"
			}
			needs = append(needs, fmt.Sprintf("%s/%s", strings.Replace(kind, "ds", "daemonset", 1), found[2]))
		}
	}
	return needs
}

// madeBy returns what exists after a command.
func madeBy(t *testing.T, words []string) map[string]bool {
	t.Helper()
	made := map[string]bool{}
	line := strings.Join(words, " ")
	if words[0] == "make" {
		made["the programs"] = slices.Contains(words, "build")
		made["the image's archive"] = slices.Contains(words, "image")
	}
	maps.DeleteFunc(made, func(_ string, is bool) bool { return !is })
	if strings.HasPrefix(line, "kind load image-archive") || strings.HasPrefix(line, "skopeo copy") {
		made["the image on the nodes"] = true
	}
	for i, word := range words {
		if i > 0 && words[i-1] == "-k" {
			maps.Copy(made, kustomized(t, word).objects)
		}
		if i > 0 && words[i-1] == "-f" && strings.HasPrefix(word, "deploy/") {
			maps.Copy(made, objectsIn(t, read(t, word)))
		}
	}
	return made
}
