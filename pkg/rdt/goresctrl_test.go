// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	_ "unsafe" // for go:linkname

	"github.com/google/go-cmp/cmp"
	goresctrl "github.com/intel/goresctrl/pkg/rdt"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// goresctrlMounts is the file in which goresctrl looks for resctrl. goresctrl has no other setting for a fake resctrl.
//
//go:linkname goresctrlMounts github.com/intel/goresctrl/pkg/rdt.mountInfoPath
var goresctrlMounts string

// machines returns machines on which goresctrl supports memory bandwidth.
func machines() map[string]sim.Spec {
	wide := sim.IntelSpec()
	wide.L2, wide.Domains = nil, []int{0, 1, 2, 3}
	wide.L3 = &sim.Cache{Ways: 20, Shareable: 0xc0000, CLOSIDs: 16, Size: 20 << 20, MinBits: 1, CDP: true}
	twoBits := wide
	twoBits.L3 = &sim.Cache{Ways: 20, CLOSIDs: 16, Size: 20 << 20, MinBits: 2}
	twoBits.MB = nil
	noL3 := sim.IntelSpec()
	noL3.L2, noL3.L3 = nil, nil
	l2 := sim.IntelSpec()
	l2.L3, l2.L2 = nil, &sim.Cache{Ways: 16, CLOSIDs: 8, Size: 1 << 20, MinBits: 1, CDP: true}
	l2cdp := l2
	l2cdp.Options = "cdpl2"
	cdp := wide
	cdp.Options = "cdp"
	mbps := wide
	mbps.Options = "mba_MBps"
	return map[string]sim.Spec{"plain": sim.IntelSpec(), "wide": wide, "two bits": twoBits, "no L3": noL3,
		"L2": l2, "L2 CDP": l2cdp, "L3 CDP": cdp, "MBps": mbps}
}

// fakeTree returns a directory with those files of a machine that goresctrl reads.
func fakeTree(t *testing.T, spec sim.Spec) string {
	t.Helper()
	dir, fs := t.TempDir(), sim.New(spec)
	files := fstest.MapFS{"mounts": {Data: fmt.Appendf(nil, "resctrl %s resctrl rw,%s 0 0\n", dir, spec.Options)}}
	for path, text := range fs.Dump() {
		files[strings.TrimPrefix(path, sim.MountPoint+"/")] = &fstest.MapFile{Data: []byte(text)}
	}
	resources, err := fs.ReadDir(sim.MountPoint + "/info")
	must(t, err)
	for _, resource := range resources {
		names, _ := fs.ReadDir(sim.MountPoint + "/info/" + resource)
		for _, name := range names {
			path := "info/" + resource + "/" + name
			data, err := fs.ReadFile(sim.MountPoint + "/" + path)
			must(t, err)
			files[path] = &fstest.MapFile{Data: data}
		}
	}
	must(t, os.CopyFS(dir, files))
	return dir
}

// theirs returns the schemata that goresctrl writes for a configuration on the machine in `dir`, and removes them.
func theirs(t *testing.T, dir, config string) (groups map[string]string, err error) {
	t.Helper()
	old := goresctrlMounts
	goresctrlMounts = filepath.Join(dir, "mounts")
	defer func() { goresctrlMounts = old }()
	goresctrl.SetLogger(slog.New(slog.DiscardHandler))
	must(t, goresctrl.Initialize("qos-"))
	root, err := os.ReadFile(filepath.Join(dir, "schemata"))
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "schemata"))) // afterwards, the file exists only if goresctrl wrote it
	defer func() {
		made, _ := filepath.Glob(filepath.Join(dir, "qos-*"))
		for _, group := range made {
			must(t, os.RemoveAll(group))
		}
		must(t, os.WriteFile(filepath.Join(dir, "schemata"), root, 0o644))
	}()
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	if err := goresctrl.SetConfigFromData([]byte(config), true); err != nil {
		return nil, err
	}

	groups = map[string]string{}
	for _, pattern := range []string{"schemata", "qos-*/schemata"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		must(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			must(t, err)
			name, err := filepath.Rel(dir, filepath.Dir(path))
			must(t, err)
			groups[strings.TrimPrefix(name, ".")] = schemataOf(t, string(text)).String()
		}
	}
	return groups, nil
}

func infoOf(t testing.TB, spec sim.Spec) resctrl.Info {
	t.Helper()
	fs := sim.New(spec)
	tree, err := resctrl.Find(fs)
	must(t, err)
	m, err := readMachine(tree)
	must(t, err)
	return m.info
}

// ours returns the result of Resolve.
func ours(t testing.TB, spec sim.Spec, config string) (map[string]string, error) {
	t.Helper()
	parsed, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	resolution, err := Resolve(parsed, infoOf(t, spec))
	if err != nil {
		return nil, err
	}
	groups := map[string]string{}
	for name, schemata := range resolution.Groups {
		groups[name] = schemata.String()
	}
	return groups, nil
}

// sharedConfigs are configurations that goresctrl and Resolve must resolve alike.
var sharedConfigs = map[string]string{
	"nothing":        "",
	"empty sections": "options:\npartitions:\n",
	"partitions of 60 and 40 per cent": `
partitions:
  exclusive:
    l3Allocation: "60%"
    classes: {gold: {l3Allocation: "100%"}}
  shared:
    l3Allocation: "40%"
    mbAllocation: ["50%", "900MBps"]
    classes:
      bronze: {l3Allocation: "100%", mbAllocation: ["50%", "500MBps"]}
      iron: {l3Allocation: "50%"}
`,
	"everything by cache ID": `
partitions:
  a:
    l3Allocation: {all: 60%, 1: "0xff", 2: "0-7"}
    mbAllocation: {all: [100%, 5000MBps], 1: [80%, 4000MBps]}
    classes:
      one: {l3Allocation: {all: 100%, "0,3": 10%, 2: "0x70"}, mbAllocation: {all: [40%, 100MBps], 3: [1%, 7MBps]}}
      two:
  b:
    l3Allocation: {all: 40%, 1: "0xf00", 2: "8,9"}
    classes:
      system/default: {l3Allocation: "60%"}
      three: {l3Allocation: "50-60%"}
      four: {l3Allocation: "99-100%"}
      five: {l3Allocation: "1%"}
`,
	"code and data apart": `
partitions:
  a:
    l3Allocation: {"0,1": {unified: 60%, code: 70%, data: 50%}, "2,3": 40%}
    classes: {one: }
  b:
    l3Allocation: {"0,1": {unified: 40%, code: 30%, data: 50%}, "2,3": 60%}
    classes:
      two:
      "": {l3Allocation: {all: 100%, 3: {unified: 80%, code: 60%, data: 90%}}}
`,
	"L2 and L3, both optional": `
options: {l2: {optional: true}, l3: {optional: true}, mb: {optional: true}}
partitions:
  p:
    l2Allocation: {all: 30%, 1: 75%}
    l3Allocation: 21%
    mbAllocation: [66%, 70MBps]
    classes: {one: {l2Allocation: 50%, l3Allocation: 11%}}
  q:
    l2Allocation: {all: 20%, 1: {unified: 25%}}
    l3Allocation: 29%
    mbAllocation: [33%, 700MBps]
    classes: {two: {mbAllocation: [50%, 70MBps]}}
  r:
    l2Allocation: 50%
    l3Allocation: 7%
    classes: {three: {l2Allocation: "99%"}}
  s:
    l2Allocation: {all: 0%}
    l3Allocation: 1%
    classes: {four: }
`,
	"bandwidth only": `
partitions:
  p:
    mbAllocation: ["1%", "20MBps"]
    classes: {one: {mbAllocation: ["100%", "30MBps"], kubernetes: {denyPodAnnotation: true}}, two: {}}
`,
	"classes without anything": "partitions: {p: {classes: {one: , two: {}}}}",
	"an anchor":                "partitions: {p: {l3Allocation: &all 50%, classes: {one: {l3Allocation: *all}}}}",
	// Both goresctrl and Resolve refuse the following configurations.
	"a class in two partitions":     "partitions: {p: {classes: {one: }}, q: {classes: {one: }}}",
	"two root classes":              "partitions: {p: {classes: {'': }}, q: {classes: {system/default: }}}",
	"a class named ..":              "partitions: {p: {classes: {'..': }}}",
	"an unknown field":              "partitions: {p: {foo: bar}}",
	"cache IDs that are none":       "partitions: {p: {l3Allocation: {a: 100%}}}",
	"no unified":                    "partitions: {p: {l3Allocation: {all: {code: 100%, data: 50%}}, classes: {a: }}}",
	"code without data":             "partitions: {p: {l3Allocation: {all: {unified: 100%, code: 50%}}}}",
	"masks and per cent mixed":      "partitions: {p: {l3Allocation: '0xff'}, q: {l3Allocation: 50%}}",
	"a partition's mask with a gap": "partitions: {p: {l3Allocation: '0x2f'}}",
	"overlapping partitions":        "partitions: {p: {l3Allocation: '0xff'}, q: {l3Allocation: '0xff0'}}",
	"a partition with a range":      "partitions: {p: {l3Allocation: 50-100%}}",
	"one partition without L3":      "partitions: {p: {l3Allocation: 50%}, q: {classes: {a: }}}",
	"101 per cent":                  "partitions: {p: {l3Allocation: 101%}}",
	"more than all":                 "partitions: {p: {l3Allocation: 60%}, q: {l3Allocation: 60%}}",
	"a class beyond its partition":  "partitions: {p: {l3Allocation: '0xf0', classes: {a: {l3Allocation: '0x1f'}}}}",
	"a class without its partition": "partitions: {p: {classes: {a: {l3Allocation: 100%}}}}",
	"MB of a class only":            "partitions: {p: {classes: {a: {mbAllocation: [100%]}}}}",
	"MB that is no number":          "partitions: {p: {mbAllocation: [xyz%]}}",
	"no L3, and it is required":     "partitions: {p: {l3Allocation: 100%, classes: {a: {l3Allocation: 50%}}}}",
}

// TestEveryFieldOfGoresctrlIsRead sets each field of a configuration of goresctrl. ParseConfig must know each of them. The only
// class is named "0", like the key of each map, and it has denyPodAnnotation.
func TestEveryFieldOfGoresctrlIsRead(t *testing.T) {
	var theirs goresctrl.Config
	fill(reflect.ValueOf(&theirs).Elem())
	text, err := yaml.Marshal(theirs)
	must(t, err)

	config := parse(t, string(text))
	if diff := cmp.Diff(map[string]bool{"l2": true, "l3": true, "mb": true}, config.optional); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0"}, config.denials); diff != "" {
		t.Error(diff)
	}
}

// fill sets every field of a configuration.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Map:
		entry := reflect.New(v.Type().Elem()).Elem()
		fill(entry)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("0"), entry)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetString("50%")
	}
}

func TestConfigurationsResolveAsInGoresctrl(t *testing.T) {
	for machine, spec := range machines() {
		dir := fakeTree(t, spec)
		for name, config := range sharedConfigs {
			t.Run(machine+"/"+name, func(t *testing.T) { sameAsGoresctrl(t, dir, spec, config) })
		}
	}
}

// sameAsGoresctrl checks that goresctrl and Resolve resolve a configuration alike. It returns true if Resolve accepts the
// configuration. Resolve may also refuse settings that goresctrl accepts but does not use or check.
func sameAsGoresctrl(t *testing.T, dir string, spec sim.Spec, config string) (taken bool) {
	t.Helper()
	want, wantErr := theirs(t, dir, config)
	got, err := ours(t, spec, config)
	switch {
	case spec.L3 == nil && strings.Contains(config, "partitions: {p: {l3Allocation: '0x2f'}}"):
		// Without an L3 cache, goresctrl still checks the mask. Resolve ignores the setting.
	case wantErr != nil && err == nil && !strings.Contains(wantErr.Error(), "panic"):
		t.Errorf("goresctrl refuses a configuration that Resolve accepts: %v", wantErr)
	case wantErr == nil && err != nil && !ignoredByGoresctrl(err):
		t.Errorf("goresctrl accepts a configuration that Resolve refuses: %v", err)
	case wantErr == nil && err == nil:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-goresctrl +ours:\n%s\nconfig: %s", diff, config)
		}
	}
	return err == nil
}

func ignoredByGoresctrl(err error) bool {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		stricter := strings.Contains(line, "this machine does not support the setting") || // the partition has the setting, but no class has it
			strings.Contains(line, "too few for the partitions") ||
			strings.Contains(line, "a partition has no range in per cent") // goresctrl checks this only if the machine has L3
		if !stricter {
			return false
		}
	}
	return true
}

func TestRandomConfigurationsResolveAsInGoresctrl(t *testing.T) {
	random := rand.New(rand.NewPCG(3008, 1))
	compared := 0
	for _, name := range []string{"wide", "two bits", "L3 CDP", "MBps"} {
		spec := machines()[name]
		dir := fakeTree(t, spec)
		for range 35 {
			if sameAsGoresctrl(t, dir, spec, randomConfig(random)) {
				compared++
			}
		}
	}
	if compared < 35 {
		t.Errorf("only %d of 140 random configurations were valid, want at least 35", compared)
	}
}

// randomConfig returns a well-formed configuration, which may request more than the machine has.
func randomConfig(random *rand.Rand) string {
	percent := func(limit int) string { return fmt.Sprintf("%d%%", 1+random.IntN(limit)) }
	bandwidth := func() string { return fmt.Sprintf("[%d%%, %dMBps]", random.IntN(101), random.IntN(20000)) }
	share := func() string {
		switch random.IntN(5) {
		case 0:
			low := 1 + random.IntN(100)
			return fmt.Sprintf("%d-%d%%", low, low+random.IntN(101-low))
		case 1:
			return fmt.Sprintf("'0x%x'", (1<<(1+random.IntN(4))-1)<<random.IntN(3))
		case 2:
			return fmt.Sprintf("{all: %s, 1: %s, '2-3': %s}", percent(100), percent(100), percent(100))
		case 3:
			return fmt.Sprintf("{all: {unified: %s, code: %s, data: %s}}", percent(100), percent(100), percent(100))
		}
		return percent(100)
	}
	var text strings.Builder
	text.WriteString("options: {mb: {optional: true}}\npartitions:\n")
	partitions, class := 1+random.IntN(5), 0
	for p := range partitions {
		fmt.Fprintf(&text, "  p%d:\n    l3Allocation: {all: %s, 2: %s}\n    mbAllocation: %s\n    classes:\n",
			random.IntN(100)*10+p, percent(120/partitions), percent(100/partitions), bandwidth())
		for range 1 + random.IntN(3) {
			fmt.Fprintf(&text, "      c%d: {l3Allocation: %s, mbAllocation: %s}\n", class, share(), bandwidth())
			class++
		}
	}
	return text.String()
}
