// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// conforming returns a resource of each kind, by the kind's field. A new kind needs a row. The classes a and b of a resource have different
// effects. A row such as "linux in scope pod" replaces the row of its kind in this scope.
func conforming() map[string]string {
	return map[string]string{
		"rdt":      `rdt: {partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: "50%"}, b: {l3Allocation: "25%"}}}}}`,
		"blockio":  `blockio: {Classes: {a: [{Devices: [/dev/vda], ThrottleReadBps: 50M}], b: [{Devices: [/dev/vda], ThrottleReadBps: 1M}]}}`,
		"volumeio": `volumeio: {classes: {a: {maxReadBps: 50M}, b: {maxReadBps: 1M}}}`,
		"external": `external: {}`,
		"linux":    `linux: {classes: {a: {pids: {max: 100}, memory: {low: 1Mi}}, b: {pids: {max: 50}}}}`,

		"linux in scope pod": `linux: {classes: {a: {cpu: {idle: true}}, b: {cpu: {idle: false}}}}`,
	}
}

// conformingToo returns further resources of a kind, whose classes set other values.
func conformingToo() map[string][]string {
	return map[string][]string{"linux": {
		`linux: {classes: {a: {memory: {min: 1Mi}}, b: {memory: {min: 2Mi}}}}`,
		`linux: {classes: {a: {memory: {high: 64Mi}}, b: {memory: {high: max}}}}`,
		`linux: {classes: {a: {memory: {swapMax: 0}}, b: {memory: {swapMax: 1Gi}}}}`,
		`linux: {classes: {a: {memory: {oomGroup: true}}, b: {memory: {oomGroup: false, low: 1Mi}}}}`,
	}}
}

const conformanceResource = "vendor.example/conforming"

func conformanceFile(scope classes.Scope, capacity int, section string, names ...string) string {
	listed := make([]string, len(names))
	for i, name := range names {
		listed[i] = fmt.Sprintf("{name: %s, capacity: %d}", name, capacity)
	}
	return fmt.Sprintf("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: %s\n  scope: %s\n  classes: [%s]\n  %s\n",
		conformanceResource, scope, strings.Join(listed, ", "), section)
}

// conformance is one kind in one scope, on a simulated machine.
type conformance struct {
	*machineRig
	scope   classes.Scope
	section string
}

// run makes a holder of a class, and returns its ID.
func (c *conformance) run(t *testing.T, pod, class string) (id string, err error) {
	t.Helper()
	request := map[string]string{classes.PodKey: conformanceResource + "=" + class}
	id, err = c.RunPod(t.Context(), nriruntime.PodConfig{Name: pod, Annotations: request})
	if err != nil || c.scope == classes.PodScope {
		return id, err
	}
	return c.machineRig.run(t, id)
}

// wantClass compares the class that the backend reads from the kernel, and the reported class, with the wanted class.
func (c *conformance) wantClass(t *testing.T, id, want string) {
	t.Helper()
	e, known := c.node.Get(id)
	if !known || e.ObservedClass(conformanceResource) != want {
		t.Errorf("the class is reported as %q, want %q", e.ObservedClass(conformanceResource), want)
	}
	resource := c.node.Live().Resources[conformanceResource]
	got, err := resource.Observe(t.Context(), e.Holder, want)
	if err != nil || !got.Known || got.Class != want {
		t.Errorf("the backend observes %+v, %v, want class %q", got, err, want)
	}
}

// TestEachKindConformsToTheContract calls testConformance for each kind, in each of its scopes, with each of its resources.
func TestEachKindConformsToTheContract(t *testing.T) {
	kinds := newMachineRigWith(t, machineFiles).kinds
	for _, kind := range kinds {
		if conforming()[kind.Field] == "" {
			t.Errorf("kind %s has no resource in conforming()", kind.Field)
			continue
		}
		for _, scope := range kind.Scopes {
			if scope == classes.VolumeScope {
				continue // a volume needs a mount; volumes_test.go has these tests
			}
			name := kind.Field + " in scope " + string(scope)
			sections := slices.Concat(conformingToo()[kind.Field], []string{conforming()[kind.Field]})
			if only := conforming()[name]; only != "" { // a row for this scope replaces the other resources
				sections = []string{only}
			}
			for _, section := range sections {
				t.Run(name, func(t *testing.T) { testConformance(t, scope, section) })
			}
		}
	}
}

func testConformance(t *testing.T, scope classes.Scope, section string) {
	start := func(t *testing.T) *conformance {
		t.Helper()
		r := newMachineRigWith(t, conformanceFile(scope, 1, section, "a", "b"))
		return &conformance{r, scope, section}
	}
	mustRun := func(t *testing.T, c *conformance) string {
		t.Helper()
		id, err := c.run(t, "first", "a")
		must(t, err)
		return id
	}

	t.Run("a holder is in its class, and a second one is refused", func(t *testing.T) {
		c := start(t)
		c.wantClass(t, mustRun(t, c), "a")
		_, err := c.run(t, "second", "a")
		if want := `class "a" of ` + conformanceResource + " is full: 1 of 1 in use"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})

	t.Run("a class changes and is left", func(t *testing.T) {
		c := start(t)
		id := mustRun(t, c)
		for _, class := range []string{"b", classes.SystemDefault, "a"} {
			c.change(t, id, conformanceResource, class)
			c.wantClass(t, id, class)
		}
	})

	t.Run("a class outlives the plugin", func(t *testing.T) {
		c := start(t)
		id := mustRun(t, c)
		c.startNewWith(t, conformanceFile(scope, 1, section, "a", "b"))
		c.wantClass(t, id, "a")
		if _, err := c.run(t, "second", "a"); err == nil {
			t.Error("a second holder got the slot")
		}
	})

	t.Run("a removed class stays with its holder, and others do not get it", func(t *testing.T) {
		c := start(t)
		id := mustRun(t, c)
		c.mustConfigure(t, conformanceFile(scope, 1, section, "b"))
		c.wantClass(t, id, "a")
		if _, err := c.run(t, "second", "a"); !strings.Contains(fmt.Sprint(err), "available: b") {
			t.Errorf("a holder of a removed class: %v", err)
		}
	})

	t.Run("the same adjustment results each time", func(t *testing.T) {
		c := start(t)
		resource := c.node.Live().Resources[conformanceResource]
		for _, from := range []string{classes.SystemDefault, "a", "b"} {
			first, err := resource.Adjust(classes.Holder{}, from, "a")
			again, errAgain := resource.Adjust(classes.Holder{}, from, "a")
			if err != nil || errAgain != nil || !reflect.DeepEqual(first, again) {
				t.Errorf("from class %q: %v, %v, and then %v, %v", from, first, err, again, errAgain)
			}
		}
	})
}

// TestTheLimitsThatAKindReportsCanBeMeasured: Promises returns the limits of a class, and writes nothing. A limit has either
// a bound on a measure of its kind, or the reason why it cannot be compared with the usage (Unknown).
func TestTheLimitsThatAKindReportsCanBeMeasured(t *testing.T) {
	promising := map[string]bool{}
	for _, kind := range newMachineRigWith(t, machineFiles).kinds {
		scope := kind.Scopes[0]
		for _, section := range append(conformingToo()[kind.Field], conforming()[kind.Field]) {
			if scope == classes.VolumeScope {
				continue
			}
			r := newMachineRigWith(t, conformanceFile(scope, 1, section, "a", "b"))
			resource := r.node.Live().Resources[conformanceResource]
			promiser, is := resource.Backend.(classes.Promiser)
			if !is {
				continue
			}
			r.host.intercept(func(op, path string) error {
				t.Errorf("Promises makes a change: %s %s", op, path)
				return nil
			})
			if none := promiser.Promises(classes.Holder{}, classes.SystemDefault); len(none) > 0 {
				t.Errorf("the system default of %s promises %+v", kind.Field, none)
			}
			if none := promiser.Promises(classes.Holder{}, "no-such-class"); len(none) > 0 {
				t.Errorf("an unknown class of %s promises %+v", kind.Field, none)
			}
			for _, p := range promiser.Promises(classes.Holder{}, "a") {
				promising[kind.Field] = true
				// kind.Measures need not have a value that is no counter, e.g. memory_bytes of linux
				measured := !p.Use.Cumulative() || slices.ContainsFunc(kind.Measures, func(m classes.Measure) bool { return m.Name == p.Use.Measure })
				// a limit has either a bound or a reason, and the tolerance is a fraction of the bound
				if !measured || p.Name == "" || p.Bound <= 0 == (p.Unknown == "") || p.Tolerance <= 0 || p.Tolerance >= 1 {
					t.Errorf("class a of %s promises %+v", kind.Field, p)
				}
			}
			r.host.heal()
		}
	}
	if want := map[string]bool{"rdt": true, "blockio": true, "linux": true}; !reflect.DeepEqual(promising, want) {
		t.Errorf("kinds that promise something: %v, want %v", promising, want)
	}
}

func TestABackendWithoutAConfigurationWritesNothing(t *testing.T) {
	r := newMachineRigWith(t, machineFiles)
	for _, kind := range r.kinds {
		t.Run(kind.Field, func(t *testing.T) {
			scope := kind.Scopes[0]
			text := conformanceFile(scope, 0, conforming()[kind.Field], "a", "b")
			config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, r.kinds, nil)
			must(t, err)
			r.host.intercept(func(op, path string) error { return fmt.Errorf("%s %s", op, path) }) // each change of the machine fails
			defer r.host.heal()

			backend := kind.New(conformanceResource, scope)
			var unavailable *classes.Unavailable
			if drift, err := backend.Repair(t.Context()); len(drift.Found) > 0 || err != nil && !errors.As(err, &unavailable) {
				t.Errorf("a repair before the first configuration: %v, %v", drift, err)
			}
			if err := backend.Check(t.Context(), config.Resources[0].Backend); err != nil {
				t.Errorf("a check writes, or fails: %v", err)
			}
			for range 2 {
				if err := backend.Withdraw(t.Context()); err != nil {
					t.Errorf("a withdrawal without a configuration: %v", err)
				}
			}
			if err := backend.Release(t.Context(), func(string) bool { return false }); err != nil {
				t.Errorf("a release without a configuration: %v", err)
			}
		})
	}
}
