// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func parse(c classFile) error {
	_, err := classes.Parse([]classes.File{{Name: "classes.yaml", Data: []byte(c.text())}}, config.OfflineKinds(), nil)
	return err
}

func TestEveryClassFileIsValidUnlessItIsMeantToBeWrong(t *testing.T) {
	random, c := rand.New(rand.NewPCG(1, 1)), firstClassFile()
	for number := range 500 {
		c = c.changed(random, number)
		if err := parse(c); err != nil {
			t.Fatalf("%v\n%s", err, c.text())
		}
		if wrong := c.broken(random, number); parse(wrong) == nil {
			t.Fatalf("a wrong class file is accepted: %q", wrong.wrong[:min(len(wrong.wrong), 80)])
		}
	}
}

// TestExpectedValuesFollowFromTheClassFile: gold has a half of the cache, 6 of 12 ways, and silver and bronze have the
// other half. Without gold, their half begins at the first way.
func TestExpectedValuesFollowFromTheClassFile(t *testing.T) {
	machine := Machine{Ways: 12, Domains: []int{0, 1}, Disks: []string{"254:16", "254:0"}}
	c := firstClassFile()
	e := c.expect(machine)
	want := map[string]string{
		"gold":   "L3:0=3f;1=3f\nMB:0=100;1=100",
		"silver": "L3:0=fc0;1=fc0\nMB:0=100;1=100",
		"bronze": "L3:0=fc0;1=fc0\nMB:0=20;1=20",
	}

	if diff := cmp.Diff(want, e.Schemata); diff != "" {
		t.Errorf("schemata (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"io.max": "254:0 rbps=1000\n254:16 rbps=1000\n"}, e.Limits[blockIO]["slow"]); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}

	c.gold, c.blockIO = false, false
	e = c.expect(machine)
	if got := e.Schemata["bronze"]; got != "L3:0=3f;1=3f\nMB:0=20;1=20" || e.Schemata["gold"] != "" || e.Limits[blockIO] != nil {
		t.Errorf("without gold and block I/O, the expected state is %v", e)
	}
}

func TestARequestMayBeRefusedForTheReasonsInTheClassFile(t *testing.T) {
	for _, test := range []struct {
		name    string
		classes map[string]string
		change  func(*classFile)
		want    []string
		must    bool
	}{
		{"nothing is requested", nil, func(*classFile) {}, nil, false},
		{"a class without capacity", map[string]string{rdt: "silver"}, func(*classFile) {}, nil, false},
		{"a bounded class", map[string]string{rdt: "gold"}, func(*classFile) {}, []string{classFull}, false},
		{"a class whose capacity was removed", map[string]string{rdt: "gold"}, func(c *classFile) { c.goldCapacity = 0 }, nil, false},
		{"a removed class", map[string]string{rdt: "gold"}, func(c *classFile) { c.gold = false }, []string{unknownClass}, true},
		{"a removed resource", map[string]string{podIO: "low"}, func(c *classFile) { c.podIO = false }, []string{unknownResource}, true},
		{"the system default", map[string]string{blockIO: ""}, func(*classFile) {}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := firstClassFile()
			test.change(&c)
			got, must := request{classes: test.classes}.may(c)
			if diff := cmp.Diff(test.want, got); diff != "" || must != test.must {
				t.Errorf("must be refused: %t, as one of (-want +got):\n%s", must, diff)
			}
		})
	}
}

func TestReasonsAreFoundInErrors(t *testing.T) {
	for text, want := range map[string]string{
		`pod default/a container main: class "gold" of k8s.io/rdt is full: 2 of 2 in use; available: bronze`:                     classFull,
		`class "platin" of k8s.io/rdt does not exist on this node; available: gold`:                                              unknownClass,
		`resource "x" does not exist on this node; available: none`:                                                              unknownResource,
		`pod default/a container main: the request has "rdt = gold", write resource=class, without spaces and with only one "="`: badRequest,
		`class "a" of k8s.io/rdt contradicts the allocated class "b"; ask for`:                                                   contradiction,
		`class "gold" of k8s.io/rdt is unavailable on this node: resctrl is not mounted`:                                         unavailable,
		// After a kill of the plugin, its calls to the simulated machine fail with EIO.
		`write /sys/fs/resctrl/qos-gold/tasks: input/output error`:                                        pluginKilled,
		`write /sys/fs/resctrl/qos-gold/tasks: device or resource busy`:                                   other,
		`pod default/a container extra: unknown QoS resource: "k8s.io/blockio"; this node has k8s.io/rdt`: unknownResource,
	} {
		if got := reasonOf(errors.New(text)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}

	if got := reasonOf(status.Error(codes.Unavailable, "it ends")); got != pluginAway {
		t.Errorf("the reason for a plugin that ends is %s", got)
	}
}

// TestInACalmNodeEveryFailureNeedsAPermittedReason: `calm` is false after a kill of the plugin or similar trouble, and
// `others` is true if other operations ran at the same time.
func TestInACalmNodeEveryFailureNeedsAPermittedReason(t *testing.T) {
	busy, full := errors.New("device or resource busy"), errors.New("x is full: 2")
	for _, test := range []struct {
		name         string
		operation    operation
		err          error
		calm, others bool
		want         string
	}{
		{name: "done", operation: operation{judged: true}, calm: true},
		{name: "success of an operation that must fail", operation: operation{judged: true, must: true, may: []string{unknownClass}}, calm: true,
			want: "should have been refused"},
		{name: "failure for a permitted reason", operation: operation{judged: true, may: []string{classFull}}, err: full, calm: true},
		{name: "failure for another reason", operation: operation{judged: true, may: []string{classFull}}, err: busy, calm: true,
			want: "failed for an unexpected reason: device or resource busy"},
		{name: "failure for another reason, after trouble", operation: operation{judged: true}, err: busy},
		{name: "failure of an operation that is not judged", operation: operation{}, err: busy, calm: true},
		{name: "a concurrent operation took the last slot", operation: operation{judged: true}, err: full, calm: true, others: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judge(&test.operation, test.err, test.calm, test.others)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestASoakThatMonitoredNoContainerFails(t *testing.T) {
	one := invariant.World{Kernel: invariant.Kernel{Groups: map[string]invariant.Group{"qos-gold": {Monitors: map[string][]int{"qos-c": nil}}}}}
	none := invariant.World{Kernel: invariant.Kernel{Groups: map[string]invariant.Group{"qos-gold": {Monitors: map[string][]int{"theirs": nil}}}}}
	for _, test := range []struct {
		name   string
		world  invariant.World
		rounds int
		want   error
	}{
		{"a monitored container", one, fewRounds + 1, nil},
		{"no monitored container", none, fewRounds + 1, ErrViolated},
		{"no monitored container in few rounds", none, fewRounds, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSummary(1)
			s.round = test.rounds
			s.monitors(test.world)
			if err := s.idle(); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
		})
	}
}

// bare is a site without a runtime and without a plugin.
type bare struct {
	Site
	machine *sim.Machine
	// classes is the text of the class file.
	classes string
}

func (b *bare) Host() invariant.FS { return b.machine }

func (b *bare) WriteClasses(text string) error {
	b.classes = text
	return nil
}

func (b *bare) Hangup() error { return nil }

func (b *bare) PluginRuns() (bool, error) { return false, nil }

func (b *bare) API() qosv1alpha1.NodeQOSClient { return nil }

func TestAWrongClassFileIsReplaced(t *testing.T) {
	site := &bare{}
	random := rand.New(rand.NewPCG(1, 1))
	s := &Soak{site: site, random: random, summary: newSummary(1), known: map[int]classFile{}, file: firstClassFile().broken(random, 2)}
	if err := s.correct(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.file.wrong != "" || site.classes != s.file.text() {
		t.Errorf("the class file is %q", site.classes)
	}
	site.classes = ""
	if err := s.correct(t.Context()); err != nil || site.classes != "" {
		t.Errorf("a valid class file was replaced: %v", err)
	}
}

func TestAMonitoringGroupThatIsLeftIsAViolation(t *testing.T) {
	for _, control := range []string{"", "/qos-gold", "/theirs"} {
		machine := sim.New(sim.Options{})
		s := &Soak{site: &bare{machine: machine}, summary: newSummary(1)}
		group := resctrl.MountPoint + control
		err := machine.Mount("resctrl", resctrl.MountPoint, "resctrl", "")
		if control != "" {
			err = errors.Join(err, machine.Mkdir(group))
		}
		if err := errors.Join(err, machine.Mkdir(group+"/mon_groups/theirs"), s.unmonitored()); err != nil {
			t.Fatalf("without a monitoring group of the plugin: %v", err)
		}
		if err := machine.Mkdir(group + "/mon_groups/qos-ended"); err != nil {
			t.Fatal(err)
		}
		if err := s.unmonitored(); !errors.Is(err, ErrViolated) {
			t.Errorf("with a monitoring group in %q, error is %v", control, err)
		}
	}
}

func TestResourcesThatHaveGrownAreAViolation(t *testing.T) {
	start := resources{goroutines: 10, descriptors: 10, memory: 1 << 10}
	for name, change := range map[string]func(*resources){
		"goroutines":  func(r *resources) { r.goroutines += moreGoroutines + 1 },
		"descriptors": func(r *resources) { r.descriptors += moreDescriptors + 1 },
		"memory":      func(r *resources) { r.memory += moreMemory + 1 },
	} {
		s := newSummary(1)
		s.warm, s.end = start, start
		if err := s.grown(); err != nil {
			t.Errorf("without growth, grown returned %v", err)
		}
		change(&s.end)
		if err := s.grown(); !errors.Is(err, ErrViolated) || !strings.Contains(err.Error(), name) {
			t.Errorf("more %s: %v", name, err)
		}
	}
}
