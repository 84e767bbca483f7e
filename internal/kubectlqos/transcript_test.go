// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

var update = flag.Bool("update", false, "write what the commands answer now into the transcripts and docs/kubectl.md; then review the diff")

const prompt = "$ kubectl qos "

// replay runs the commands of a transcript, and returns the transcript with their present output.
func (r *rig) replay(t *testing.T, transcript string) string {
	t.Helper()
	for _, command := range []string{"top usage", "blame", "recommend"} {
		if strings.Contains(transcript, prompt+command) {
			r.withPlugins(t) // the other transcripts do not show the plugins' pods
			break
		}
	}

	var played strings.Builder
	for line := range strings.Lines(transcript) {
		command, is := strings.CutPrefix(line, prompt)
		if !is {
			continue
		}
		got := r.run(t, wordsOf(command)...)
		played.WriteString(line + got.Out + got.Errors)
		if !strings.HasSuffix(played.String(), "\n") {
			played.WriteByte('\n') // the output of a template may lack a line break at its end
		}
	}

	return played.String()
}

// wordsOf returns the words of a command. It leaves out the comment at the end, which begins with two spaces and "#".
func wordsOf(command string) []string {
	command, _, _ = strings.Cut(command, "  #")
	return strings.Fields(command)
}

func TestCommandsAnswerAsInTheTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data := must.Get(os.ReadFile(file))(t)
			got := newRig(t, "nodes.yaml", "pods.yaml").replay(t, string(data))
			if *update {
				must.Do(t, os.WriteFile(file, []byte(got), 0o600))
			}
			if diff := cmp.Diff(string(data), got); diff != "" {
				t.Errorf("answers differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDocumentationShowsWhatCommandsAnswer replays those console blocks of docs/kubectl.md that begin with prompt.
func TestDocumentationShowsWhatCommandsAnswer(t *testing.T) {
	file := "../../docs/kubectl.md"
	data := must.Get(os.ReadFile(file))(t)
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```")
	found := 0
	got := blocks.ReplaceAllStringFunc(string(data), func(block string) string {
		text := blocks.FindStringSubmatch(block)[1]
		if !strings.HasPrefix(text, prompt) {
			return block
		}
		found++
		return "```console\n" + newRig(t, "nodes.yaml", "pods.yaml").replay(t, text) + "```"
	})

	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o600))
	}

	if diff := cmp.Diff(string(data), got); diff != "" || found == 0 {
		t.Errorf("%d examples, and answers differ (-want +got):\n%s", found, diff)
	}
}

// TestDocumentationShowsWhatIsConverted converts the first block of each pair of YAML blocks in docs/kubectl.md, and
// compares the result with the second block.
func TestDocumentationShowsWhatIsConverted(t *testing.T) {
	data := must.Get(os.ReadFile("../../docs/kubectl.md"))(t)
	_, section, _ := strings.Cut(string(data), "\n## Convert and quota\n")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, -1)
	for i, c := range []struct{ name, command string }{{"a pod", "convert"}, {"a quota", "quota"}, {"a claim", "convert"}, {"a pod by claims", "convert --claims"}} {
		t.Run(c.name, func(t *testing.T) {
			if len(blocks) < 2*i+2 {
				t.Fatalf("there are %d blocks", len(blocks))
			}
			file := writeFile(t, t.TempDir(), "a.yaml", blocks[2*i][1])
			wantAnswer(t, answer{Out: blocks[2*i+1][1]}, newRig(t, "nodes.yaml", "pods.yaml").run(t, append(strings.Fields(c.command), "-q", "-f", file)...))
		})
	}
}
