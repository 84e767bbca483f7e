// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// cpu has the NUMA node and the L3 cache of a CPU, as in sysfs. They are empty for a CPU without one.
type cpu struct{ node, l3 string }

// sysfs returns the files of CPUs.
func sysfs(cpus ...cpu) map[string]string {
	files := map[string]string{}
	for i, c := range cpus {
		dir := fmt.Sprintf("devices/system/cpu/cpu%d/", i)
		files[dir+"cache/index0/level"], files[dir+"cache/index0/id"] = "1\n", fmt.Sprintln(i)
		if c.l3 != "" {
			files[dir+"cache/index3/level"], files[dir+"cache/index3/id"] = "3\n", c.l3+"\n"
		}
		if c.node != "" {
			files[dir+"node"+c.node+"/cpulist"] = ""
		}
	}
	return files
}

func TestDomainsAreTheCachesOfNUMANodes(t *testing.T) {
	for name, test := range map[string]struct {
		cpus []cpu
		want []domain
	}{
		"two sockets":                   {[]cpu{{"0", "0"}, {"0", "0"}, {"1", "1"}, {"1", "1"}}, []domain{{0, 0}, {1, 1}}},
		"several caches in a NUMA node": {[]cpu{{"0", "2"}, {"0", "10"}, {"0", "2"}}, []domain{{0, 2}, {0, 10}}},
		"several NUMA nodes of a cache": {[]cpu{{"0", "0"}, {"1", "0"}}, []domain{{0, 0}, {1, 0}}},
		"an ID of a cache on Arm":       {[]cpu{{"0", "4294967295"}}, []domain{{0, 4294967295}}},
		"a kernel without NUMA nodes":   {[]cpu{{"", "0"}, {"", "1"}}, nil},
		"a CPU without an L3 cache":     {[]cpu{{"0", ""}, {"1", ""}}, nil},
		"an offline and an online CPU":  {[]cpu{{"0", ""}, {"1", "1"}}, []domain{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			sys := fstest.MapFS{}
			for file, text := range sysfs(test.cpus...) {
				sys[file] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := readDomains(sys)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(domain{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAnIDOfACacheThatIsNoNumberIsAnError(t *testing.T) {
	sys := fstest.MapFS{"devices/system/cpu/cpu0/cache/index3/level": {Data: []byte("3\n")}, "devices/system/cpu/cpu0/cache/index3/id": {Data: []byte("?\n")}}
	if got, err := readDomains(sys); err == nil || !strings.Contains(err.Error(), "read the L3 caches: devices/system/cpu/cpu0/cache/index3/id: ") {
		t.Errorf("the domains are %v, and the error is %v", got, err)
	}
}

// twoDomains returns a directory with the sysfs of a machine with two NUMA nodes, each with an L3 cache.
func twoDomains(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range sysfs(cpu{"0", "0"}, cpu{"1", "1"}) {
		file = filepath.Join(dir, file)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

// devicesBy returns the devices that a driver publishes.
func devicesBy(t *testing.T, d *Driver, s nodecache.State) []resourcev1.Device {
	t.Helper()
	resources := must.Get(d.update(s, false))(t)
	return resources.Pools[node].Slices[0].Devices
}

// publishedBy returns the devices that a driver publishes, as "name=slots". Without a limit, there are 0 slots.
func publishedBy(t *testing.T, d *Driver, s nodecache.State) (list []string) {
	t.Helper()
	for _, device := range devicesBy(t, d, s) {
		slots := device.Capacity[Slots]
		list = append(list, device.Name+"="+slots.Value.String())
	}
	return list
}

func TestAClassHasADevicePerDomainIfItsValuesDifferOrOnRequest(t *testing.T) {
	one, two := []string{"rdt-gold=3"}, []string{"rdt-gold-numa0-l3-0=2", "rdt-gold-numa1-l3-1=1"}
	for name, test := range map[string]struct {
		values    map[string]string
		perDomain string
		noDomains bool
		capacity  uint64
		want      []string
	}{
		"the same share of each cache":     {values: map[string]string{"L3": "0=ff;1=ff", "MB": "0=50;1=50"}, capacity: 3, want: one},
		"a different share of one cache":   {values: map[string]string{"L3": "0=ff;1=f"}, capacity: 3, want: two},
		"a different share for data":       {values: map[string]string{"L3CODE": "0=f;1=f", "L3DATA": "0=ff;1=f"}, capacity: 3, want: two},
		"a different bandwidth":            {values: map[string]string{"L3": "0=f;1=f", "MB": "0=50;1=100"}, capacity: 3, want: two},
		"L2 caches are not domains":        {values: map[string]string{"L2": "0=ff;1=f"}, capacity: 3, want: one},
		"values of another kind":           {values: map[string]string{"io.max": "254:0 rbps=1;254:1 rbps=2"}, capacity: 3, want: one},
		"on request":                       {perDomain: "k8s.io/rdt", capacity: 3, want: two},
		"on request, by the short name":    {perDomain: "rdt", capacity: 3, want: two},
		"on request, for another resource": {perDomain: "vendor.example/rdt", capacity: 3, want: one},
		"on request, with one slot":        {perDomain: "k8s.io/rdt", capacity: 1, want: []string{"rdt-gold-numa0-l3-0=1"}},
		"on request, without a limit":      {perDomain: "k8s.io/rdt", want: []string{"rdt-gold-numa0-l3-0=0", "rdt-gold-numa1-l3-1=0"}},
		"a machine without domains":        {perDomain: "k8s.io/rdt", noDomains: true, capacity: 3, want: one},
	} {
		t.Run(name, func(t *testing.T) {
			gold := class("gold", test.capacity)
			gold.Values = test.values
			d := newDriver(t, t.TempDir(), nodecache.State{})
			d.options.PerDomain, d.options.SysDir = []string{test.perDomain}, t.TempDir()
			if !test.noDomains {
				d.options.SysDir = twoDomains(t)
			}
			if diff := cmp.Diff(test.want, publishedBy(t, d, state([]*qosv1alpha1.QOSResourceClassInfo{gold}))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheFlagPerDomainAcceptsOnlyNamesOfResources(t *testing.T) {
	for _, list := range [][]string{nil, {"rdt", "vendor.example/net"}, {"k8s.io/rdt"}, {"rtd"}, {"rdt", ""}} {
		o := DefaultOptions()
		o.NodeName, o.PerDomain = node, list
		valid := !slices.Contains(list, "rtd") && !slices.Contains(list, "")
		if err := o.Validate(); valid != (err == nil) || !valid && !strings.Contains(err.Error(), "--per-domain") {
			t.Errorf("--per-domain=%s: %v", strings.Join(list, ","), err)
		}
	}
}

// TestAttributesOfADomainAlsoHaveTheNamesOfOtherDrivers: matchAttribute needs the names of dra-driver-cpu and Kubernetes.
func TestAttributesOfADomainAlsoHaveTheNamesOfOtherDrivers(t *testing.T) {
	s := state([]*qosv1alpha1.QOSResourceClassInfo{class("gold", 3)})
	d := newDriver(t, t.TempDir(), nodecache.State{})
	d.options.PerDomain, d.options.SysDir = []string{"k8s.io/rdt"}, twoDomains(t)
	for i, device := range devicesBy(t, d, s) {
		got := map[string]int{}
		for name, value := range device.Attributes {
			if value.IntValue != nil {
				got[string(name)] = int(*value.IntValue)
			}
		}

		// The last two names are the driver's own. In domain i, the NUMA node and the L3 cache both have the number i.
		want := map[string]int{"resource.kubernetes.io/numaNode": i, "dra.cpu/cacheL3ID": i, "numaNode": i, "cacheL3ID": i}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", device.Name, diff)
		}
		// They are added to the attributes of the class.
		if a := device.Attributes; *a[attributeClass].StringValue != "gold" || *a[attributeResource].StringValue != "k8s.io/rdt" {
			t.Errorf("%s has the attributes %v", device.Name, a)
		}
	}
}

func TestNamesOfDomainsAreLabels(t *testing.T) {
	largest := domain{1023, 1<<32 - 1}
	for _, extended := range []string{"qos.noderesource.dev/rdt.gold", "vendor.example/" + strings.Repeat("x", 63), "qos.noderesource.dev/rdt." + strings.Repeat("y", 59)} {
		name := divide([]device{{name: deviceName(extended), divided: true}}, []domain{{0, 0}, largest})[1].name
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 || !strings.HasSuffix(name, "-numa1023-l3-4294967295") {
			t.Errorf("%s has the device name %s: %v", extended, name, problems)
		}
	}
}

// TestAClaimOfADomainGetsItsClassAndAnEarlierClaimKeepsItsSlot divides a class with four slots while a pod has a claim of the device
// for the whole node.
func TestAClaimOfADomainGetsItsClassAndAnEarlierClaimKeepsItsSlot(t *testing.T) {
	s := state([]*qosv1alpha1.QOSResourceClassInfo{class("gold", 4)})
	d := newDriver(t, t.TempDir(), s)
	c := claim("1", "rdt-gold")
	must.Get(d.prepareOne(t, c))(t)
	d.options.PerDomain, d.options.SysDir = []string{"k8s.io/rdt"}, twoDomains(t)
	published := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, publishedBy(t, d, s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	// The device of the first claim is no longer published, so the driver itself subtracts the slot, from the last domain.
	published("rdt-gold-numa0-l3-0=2", "rdt-gold-numa1-l3-1=1")
	devices, err := d.prepareOne(t, claim("2", "rdt-gold-numa1-l3-1"))
	if err != nil || devices["request-0"] != goldDevice {
		t.Errorf("the devices are %v, %v", devices, err)
	}
	// The scheduler subtracts the second claim, so the driver does not.
	published("rdt-gold-numa0-l3-0=2", "rdt-gold-numa1-l3-1=1")
	if err := d.unprepareOne(t, c); err != nil {
		t.Error(err)
	}
	published("rdt-gold-numa0-l3-0=2", "rdt-gold-numa1-l3-1=2")
}

// TestTheSlotsOfAllDomainsAreThoseThatAreFreeOnTheNode tries all small cases. The scheduler can allocate as many slots
// as are free on the node, and its allocations do not change the published slots.
func TestTheSlotsOfAllDomainsAreThoseThatAreFreeOnTheNode(t *testing.T) {
	tried := 0
	for capacity := uint64(1); capacity <= 5; capacity++ {
		for n := 1; n <= 3; n++ {
			list := divide([]device{{Pair: classes.Pair{Class: "gold"}, name: "gold", divided: true, capacity: capacity}}, []domain{{0, 0}, {0, 1}, {1, 1}}[:n])
			// Each device has 0 to 3 claims. Of the other slots, 0 to 3 are in use without a claim, and 0 to 2 by claims of a
			// device that is no longer published.
			for given := range 4 * 4 * 4 {
				for outside := range 4 * 3 {
					o, elsewhere := owners{others: outside % 4}, outside/4
					prepared, all := map[string]int{"former": elsewhere}, elsewhere
					for i := range list {
						prepared[list[i].name] = given >> (2 * i) & 3
						all += prepared[list[i].name]
					}
					tried++
					checkSlots(t, list, o, prepared, max(0, int64(capacity)-int64(all+o.others)))
				}
			}
		}
	}
	t.Logf("%d cases", tried)
}

// checkSlots checks that `want` slots of the devices are free, and that the published slots stay the same if the scheduler allocates one.
func checkSlots(t *testing.T, list []device, o owners, prepared map[string]int, want int64) {
	t.Helper()
	slots := slotsOfClass(list, o, prepared)
	free := int64(0)
	for i := range list {
		left := slots[i] - int64(prepared[list[i].name])
		free += max(0, left)
		if left <= 0 {
			continue
		}
		prepared[list[i].name]++
		if after := slotsOfClass(list, o, prepared); !slices.Equal(after, slots) {
			t.Errorf("%v outside, prepared %v: the slots change from %v to %v", o.others, prepared, slots, after)
		}
		prepared[list[i].name]--
	}
	if free != want {
		t.Errorf("%v outside, prepared %v: the slots are %v, with %d free, want %d", o.others, prepared, slots, free, want)
	}
}
