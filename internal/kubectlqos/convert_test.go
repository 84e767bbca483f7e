// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// kepPod is a pod with the fields of the KEP, and stockPod is the same pod for a cluster without these fields.
const kepPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  qosResources:
  - name: network # which
    class: fast
  containers:
  - name: main
    resources:
      qosResources:
      - name: rdt
        class: gold
`

const stockPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations:
    qos.noderesource.dev/pod: qos.noderesource.dev/network=fast
spec:
  # which
  containers:
  - name: main
    resources:
      limits:
        qos.noderesource.dev/rdt.gold: 1
`

// withNetwork is the result of the conversion of kepPod if the conversion knows that the resource network has pod scope.
var withNetwork = stockPod + "        qos.noderesource.dev/network.fast: 1\n"

const networkNotes = `note: resource network has no domain, but Kubernetes requires one here; the name becomes qos.noderesource.dev/network
`

const unknownNote = `note: the scope of qos.noderesource.dev/network is unknown, so the pod requests the class by annotation, and the scheduler does not see annotations; pass --class-files or --from-cluster
`

const networkNode = `apiVersion: qos.noderesource.dev/v1alpha1
kind: NodeQOSResources
metadata: {name: node-1}
status:
  qosResources:
    containerQOSResources:
    - {name: k8s.io/rdt, mutable: true, classes: [{name: gold, inUse: 0}, {name: bronze, inUse: 0}]}
    podQOSResources:
    - {name: qos.noderesource.dev/network, mutable: false, classes: [{name: fast, inUse: 0}, {name: slow, inUse: 0}]}
`

const classFile = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {partitions: {all: {l3Allocation: "100%", classes: {gold: {}, bronze: {}}}}}
- name: qos.noderesource.dev/network
  scope: pod
  blockio: {Classes: {fast: [{Weight: "400"}], slow: [{Weight: "100"}]}}
`

const oneRDT = "spec: {containers: [{resources: {qosResources: [{name: rdt, class: gold}]}}]}\n"

const oneRDTAfter = "spec: {containers: [{resources: {limits: {qos.noderesource.dev/rdt.gold: 1}}}]}\n"

// fileRun has the input of a command that reads files. In arguments and answers, "DIR" stands for the directory with the files.
type fileRun struct {
	stdin io.Reader
	files map[string]string
	args  []string
}

func (c fileRun) run(t *testing.T) (answer, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range c.files {
		writeFile(t, dir, name, text)
	}

	r := newRig(t)
	r.add(t, networkNode)
	r.stdin = c.stdin
	var args []string
	for _, arg := range c.args {
		args = append(args, strings.ReplaceAll(arg, "DIR", dir))
	}
	got := r.run(t, args...)
	got.Out, got.Errors = strings.ReplaceAll(got.Out, dir, "DIR"), strings.ReplaceAll(got.Errors, dir, "DIR")
	return got, dir
}

// writeFile writes a file with the mode 0640, and returns its path.
func writeFile(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), 0o640))
	return path
}

func TestConvertPrints(t *testing.T) {
	null := must.Get(os.Open(os.DevNull))(t) // counts as a terminal, because it is a character device
	t.Cleanup(func() { _ = null.Close() })
	for _, test := range []struct {
		name string
		run  fileRun
		want answer
	}{
		{
			"standard input, as a post-renderer",
			fileRun{stdin: strings.NewReader(kepPod), args: []string{"convert"}},
			answer{0, stockPod, networkNotes + unknownNote},
		},
		{
			"a file, without notes",
			fileRun{files: map[string]string{"a.yaml": kepPod}, args: []string{"convert", "-q", "-f", "DIR/a.yaml"}},
			answer{0, stockPod, ""},
		},
		{
			"with the scopes and classes of class files",
			fileRun{files: map[string]string{"a.yaml": kepPod, "c.yaml": classFile}, args: []string{"convert", "DIR/a.yaml", "--class-files", "DIR/c.yaml"}},
			answer{0, withNetwork, networkNotes},
		},
		{
			"with the scopes and classes of the cluster",
			fileRun{stdin: strings.NewReader(kepPod), args: []string{"convert", "--from-cluster", "-"}},
			answer{0, withNetwork, networkNotes},
		},
		{
			"a directory as one stream, without its subdirectories",
			fileRun{
				files: map[string]string{"d/b.yml": "# two\n---\n" + oneRDT, "d/a.yaml": oneRDT, "d/c.json": `{"x": 1}`, "d/e/f.yaml": "f: 1\n", "d/README.md": "no"},
				args:  []string{"convert", "-f", "DIR/d"},
			},
			answer{0, oneRDTAfter + "# two\n---\n" + oneRDTAfter + "---\n" + `{"x": 1}` + "\n", ""},
		},
		{
			"a directory with its subdirectories, each file once",
			fileRun{
				files: map[string]string{"d/a.yaml": "a: 1\n", "d/e/f.yaml": oneRDT},
				args:  []string{"convert", "-R", "DIR/d", "-f", "DIR/d/a.yaml"},
			},
			answer{0, "a: 1\n---\n" + oneRDTAfter, ""},
		},
		{
			"each note once",
			fileRun{
				files: map[string]string{"a.yaml": kepPod, "b.yaml": kepPod},
				args:  []string{"convert", "--from-cluster", "DIR/a.yaml", "DIR/b.yaml"},
			},
			answer{0, withNetwork + "---\n" + withNetwork, networkNotes},
		},
		{
			"all problems and no manifest, if there are problems",
			fileRun{
				files: map[string]string{"a.yaml": "qosResources: []\n", "b.yaml": oneRDT, "c.yaml": strings.Replace(kepPod, "gold", "g/d", 1)},
				args:  []string{"convert", "DIR/a.yaml", "DIR/b.yaml", "DIR/c.yaml"},
			},
			answer{program.ExitProblems, "", "DIR/a.yaml:1: qosResources: is not supported here; move it to the resources of a container, " +
				"or to the spec of a pod, next to its containers\n" +
				"DIR/c.yaml:13: Pod web: spec.containers[0].resources.qosResources[0]: class \"g/d\": must not contain \"/\"\n" +
				"Error: there are 2 problems; nothing was written\n"},
		},
		{
			"an error if a file does not exist",
			fileRun{args: []string{"convert", "DIR/none.yaml"}},
			answer{program.ExitProblems, "", "Error: stat DIR/none.yaml: no such file or directory\n"},
		},
		{
			"an error if a directory has no manifests",
			fileRun{files: map[string]string{"d/e/f.yaml": "f: 1\n"}, args: []string{"convert", "DIR/d"}},
			answer{program.ExitProblems, "", "Error: DIR/d has no *.yaml, *.yml or *.json; pass another directory, or use --recursive\n"},
		},
		{
			"the errors of class files",
			fileRun{files: map[string]string{"c.yaml": "kind: Pod\n"}, args: []string{"convert", "--class-files", "DIR/c.yaml"}},
			answer{program.ExitProblems, "", "Error: DIR/c.yaml:1: apiVersion: is missing; write apiVersion: qos.noderesource.dev/v1alpha1; " +
				"DIR/c.yaml:1: kind: is \"Pod\"; only QOSClassConfig is known\n"},
		},
		{
			"the usage, if standard input is a terminal",
			fileRun{stdin: null, args: []string{"convert"}},
			answer{program.ExitUsage, "", "Error: usage: no FILE is given, and standard input is a terminal; use -f; see \"kubectl qos convert --help\"\n"},
		},
		{
			"an error if standard input is to be changed in place",
			fileRun{args: []string{"convert", "-i", "-"}},
			answer{program.ExitUsage, "", "Error: usage: --in-place cannot change standard input; see \"kubectl qos convert --help\"\n"},
		},
		{
			"an error if both sources of classes are given",
			fileRun{args: []string{"convert", "--from-cluster", "--class-files", "x", "-"}},
			answer{program.ExitUsage, "", "Error: usage: --class-files and --from-cluster cannot be used together; see \"kubectl qos convert --help\"\n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := test.run.run(t)
			wantAnswer(t, test.want, got)
		})
	}
}

// filesIn returns the content of each file in a directory, by name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	files := map[string]string{}
	for _, entry := range entries {
		text := must.Get(os.ReadFile(filepath.Join(dir, entry.Name())))(t)
		files[entry.Name()] = string(text)
	}

	return files
}

func TestConvertChangesFilesInPlace(t *testing.T) {
	unchanged := writeFile(t, t.TempDir(), "b.yaml", "b: 1\n")
	before := must.Get(os.Stat(unchanged))(t)
	got, dir := fileRun{
		files: map[string]string{"a.yaml": oneRDT, "b.yaml": "b: 1\n"},
		args:  []string{"convert", "-i", "DIR", unchanged},
	}.run(t)

	if after, err := os.Stat(unchanged); err != nil || !os.SameFile(before, after) {
		t.Errorf("a file with nothing to convert was rewritten (%v)", err)
	}

	wantAnswer(t, answer{}, got)
	if diff := cmp.Diff(map[string]string{"a.yaml": oneRDTAfter, "b.yaml": "b: 1\n"}, filesIn(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v (%v), not that of the old file", info.Mode(), err)
	}
}

func TestConvertChangesNoFileWhenOneHasAProblem(t *testing.T) {
	files := map[string]string{"a.yaml": oneRDT, "b.yaml": "qosResources: []\n"}
	got, dir := fileRun{files: files, args: []string{"convert", "-i", "DIR"}}.run(t)
	if got.Code != program.ExitProblems {
		t.Errorf("the exit code is %d", got.Code)
	}
	if diff := cmp.Diff(files, filesIn(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestConvertChangesNoFileWhenOneCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "a.yaml", oneRDT)
	m := must.Get(readManifests([]string{path}, false, nil))(t)
	m = append(m, manifest{name: "gone", path: filepath.Join(dir, "none", "gone.yaml"), text: []byte(oneRDT)})
	if err := replaceFiles(m, [][]byte{[]byte(oneRDTAfter), []byte(oneRDTAfter)}); err == nil || !strings.Contains(err.Error(), "gone: ") {
		t.Errorf("the error is %v", err)
	}

	if diff := cmp.Diff(map[string]string{"a.yaml": oneRDT}, filesIn(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestConvertChangesTheFileToWhichALinkLeads(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link.yaml")
	writeFile(t, dir, "a.yaml", oneRDT)
	must.Do(t, os.Symlink("a.yaml", link))
	got, _ := fileRun{args: []string{"convert", "-i", link}}.run(t)
	wantAnswer(t, answer{}, got)
	if target, err := os.Readlink(link); err != nil || target != "a.yaml" {
		t.Errorf("the link leads to %q (%v)", target, err)
	}

	if got := filesIn(t, dir)["a.yaml"]; got != oneRDTAfter {
		t.Errorf("the file has %q", got)
	}
}

func TestConvertFollowsNoLinkOutOfADirectory(t *testing.T) {
	dir, outside := t.TempDir(), writeFile(t, t.TempDir(), "outside.yaml", oneRDT)
	must.Do(t, os.Symlink(outside, filepath.Join(dir, "link.yaml")))
	got, _ := fileRun{args: []string{"convert", "-i", dir}}.run(t)
	wantAnswer(t, answer{Code: program.ExitProblems, Errors: "Error: " + dir + " has only symbolic links, and links in a directory are not followed; pass the files themselves\n"}, got)
	writeFile(t, dir, "a.yaml", oneRDT)
	got, _ = fileRun{args: []string{"convert", "-i", "-R", dir}}.run(t)
	wantAnswer(t, answer{}, got)
	if diff := cmp.Diff(map[string]string{"a.yaml": oneRDTAfter, "link.yaml": oneRDT}, filesIn(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	t.Run("but follows a link that is named itself", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		must.Do(t, os.Symlink(dir, link))
		got, _ := fileRun{args: []string{"convert", link}}.run(t)
		wantAnswer(t, answer{Out: oneRDTAfter}, got)
	})
}
