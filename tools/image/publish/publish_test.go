// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/qos-nri/qos-nri-plugin/tools/image/child"
)

// startRegistry returns the name of an empty registry in this process.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/qos"
}

// build builds the program in testdata for amd64 and arm64, from a copy of the source in a new directory. It returns the
// directory of the two programs.
func build(t *testing.T) string {
	t.Helper()
	source, programs := t.TempDir(), t.TempDir()
	for from, to := range map[string]string{"../go.mod": "go.mod", "../go.sum": "go.sum", "testdata/plugin/main.go": "plugin/main.go"} {
		write(t, filepath.Join(source, to), string(must(os.ReadFile(from))(t)))
	}

	for _, arch := range []string{"amd64", "arm64"} {
		command := child.Command(t, "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(programs, "linux", arch)+"/", "./plugin")
		command.Dir, command.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}

	return programs
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// publish runs the command with the chart of the project, and returns what it printed.
func publish(t *testing.T, registry, programs string, more ...string) (string, error) {
	t.Helper()
	licence := filepath.Join(t.TempDir(), "LICENSE")
	write(t, licence, "all of it\n")
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"-registry", registry, "-programs", programs, "-platforms", "linux/amd64,linux/arm64", "-name", "qos-nri-plugin",
		"-version", "v1.2.3", "-revision", "abc", "-epoch", "1700000000", "-source", "https://git.example/qos", "-licenses", "Apache-2.0", "-documents", licence,
		"-entrypoint", "plugin", "-builder", "https://ci.example/1", "-public-key", filepath.Join(t.TempDir(), "cosign.pub"), "-chart", "../../../deploy/chart"}, more...), &out, io.Discard)
	return out.String(), err
}

// published returns the digest that the command printed for the image or the chart.
func published(t *testing.T, printed, kind string) name.Digest {
	t.Helper()
	for line := range strings.Lines(printed) {
		if text, found := strings.CutPrefix(line, kind+": "); found {
			return must(name.NewDigest(strings.TrimSpace(text)))(t)
		}
	}
	t.Fatalf("no %s in %q", kind, printed)
	return name.Digest{}
}

// TestTheIndexHasAnImageAndItsAttestationsForEachPlatform: as BuildKit does, the index has the attestations of an image
// after the image, with the platform unknown/unknown.
func TestTheIndexHasAnImageAndItsAttestationsForEachPlatform(t *testing.T) {
	printed := must(publish(t, startRegistry(t), build(t)))(t)
	digest := published(t, printed, "image")
	index := must(remote.Index(digest.Context().Tag("v1.2.3")))(t)
	manifest := must(index.IndexManifest())(t)

	var platforms []string
	for i, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		if i%2 == 1 {
			about := manifest.Manifests[i-1].Digest
			if descriptor.Annotations["vnd.docker.reference.digest"] != about.String() {
				t.Errorf("annotations of the attestations are %v", descriptor.Annotations)
			}
			checkAttestations(t, index, descriptor.Digest, about)
			continue
		}
		if image, err := index.Image(descriptor.Digest); err != nil || validate.Image(image) != nil {
			t.Errorf("the image for %s is not valid: %v, %v", descriptor.Platform, err, validate.Image(image))
		}
	}

	if !slices.Equal(platforms, []string{"linux/amd64", "unknown/unknown", "linux/arm64", "unknown/unknown"}) {
		t.Errorf("platforms are %v", platforms)
	}
}

// statement is an in-toto statement.
type statement struct {
	Subject       []struct{ Digest map[string]string }
	PredicateType string
	Predicate     json.RawMessage
}

// checkAttestations checks that an image has an SBOM and a provenance as its layers. The parameter `digest` names this image.
// The parameter `about` is the digest of the image that the SBOM and the provenance describe.
func checkAttestations(t *testing.T, index v1.ImageIndex, digest, about v1.Hash) {
	t.Helper()
	image := must(index.Image(digest))(t)
	layers, err := image.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d statements (%v), want 2", len(layers), err)
	}

	for i, layer := range layers {
		var s statement
		read(t, layer, &s)
		if len(s.Subject) != 1 || s.Subject[0].Digest["sha256"] != about.Hex {
			t.Errorf("the statement is about %v, want %s", s.Subject, about)
		}
		switch i {
		case 0:
			checkSBOM(t, s)
		case 1:
			checkProvenance(t, s)
		}
	}
}

func read(t *testing.T, layer v1.Layer, into any) {
	t.Helper()
	content := must(layer.Uncompressed())(t)
	defer content.Close()
	if err := json.NewDecoder(content).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func checkSBOM(t *testing.T, s statement) {
	t.Helper()
	var document spdx.Document
	if err := json.Unmarshal(s.Predicate, &document); err != nil || s.PredicateType != "https://spdx.dev/Document" {
		t.Fatalf("%s: %v", s.PredicateType, err)
	}

	var names, urls []string
	for _, p := range document.Packages {
		names = append(names, p.PackageName)
		for _, reference := range p.PackageExternalReferences {
			url, version, _ := strings.Cut(reference.Locator, "@")
			if version == "" {
				t.Errorf("%s has no version", reference.Locator)
			}
			urls = append(urls, url)
		}
	}

	if diff := cmp.Diff([]string{"plugin", "stdlib", "golang.org/x/sync"}, names); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"pkg:golang/stdlib", "pkg:golang/golang.org/x/sync"}, urls); diff != "" {
		t.Errorf("package URLs (-want +got):\n%s", diff)
	}

	if sum := document.Packages[2].PackageChecksums; len(sum) != 1 || len(sum[0].Value) != 64 {
		t.Errorf("checksums of the module are %v", sum)
	}

	if len(document.Relationships) != 3 {
		t.Errorf("relationships are %+v; want that the document describes the program, which depends on two packages", document.Relationships)
	}
}

func checkProvenance(t *testing.T, s statement) {
	t.Helper()
	var predicate struct {
		BuildDefinition struct {
			ResolvedDependencies []struct{ Digest map[string]string }
			InternalParameters   struct{ Settings map[string]string }
		}
		RunDetails struct{ Builder struct{ ID string } }
	}

	if err := json.Unmarshal(s.Predicate, &predicate); err != nil || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Fatalf("%s: %v", s.PredicateType, err)
	}

	definition := predicate.BuildDefinition
	if len(definition.ResolvedDependencies) != 1 || definition.ResolvedDependencies[0].Digest["gitCommit"] != "abc" ||
		definition.InternalParameters.Settings["-trimpath"] != "true" || predicate.RunDetails.Builder.ID != "https://ci.example/1" {
		t.Errorf("the provenance is %s", s.Predicate)
	}
}

// must returns the result of a call, and fails the test if the call failed.
func must[T any](result T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}
