// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const gold = "qos.noderesource.dev/rdt.gold"

func goldClass(capacity uint64) class {
	return class{resource: "k8s.io/rdt", name: "gold", extended: gold, capacity: capacity}
}

// ids returns the IDs of the gold devices with the given numbers.
func ids(numbers ...int) []string {
	list := make([]string, len(numbers))
	for i, n := range numbers {
		list[i] = deviceID(gold, n)
	}
	return list
}

// numbers returns the numbers of gold devices as a text. The numbers of unhealthy devices are in parentheses.
func numbers(devices []device) string {
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = strings.TrimPrefix(d.id, "rdt.gold-")
		if !d.healthy {
			list[i] = "(" + list[i] + ")"
		}
	}
	return strings.Join(list, " ")
}

// held returns the usage if the containers of the class hold these devices, and no others.
func held(numbers ...int) usage { return usage{allocated: ids(numbers...), accounted: len(numbers)} }

func withUnaccounted(u usage, unaccounted int) usage {
	u.unaccounted = unaccounted
	return u
}

// TestPlan compares the numbers of the devices. The numbers of unhealthy devices are in parentheses.
func TestPlan(t *testing.T) {
	draining := goldClass(3)
	draining.draining = true
	for _, c := range []struct {
		name  string
		class class
		usage usage
		want  string
	}{
		{"an unused class lists its capacity", goldClass(3), usage{}, "0 1 2"},
		{"an allocated device counts towards the capacity", goldClass(3), held(1), "0 1 2"},
		{"an allocated device with a high number replaces a free one", goldClass(3), held(7), "0 1 7"},
		{"capacity below use leaves the allocated devices only", goldClass(1), held(1, 3), "1 3"},
		{"an unaccounted assignment makes the highest free device unhealthy", goldClass(3), withUnaccounted(usage{}, 1), "0 1 (2)"},
		{"an unaccounted assignment makes no allocated device unhealthy", goldClass(3), withUnaccounted(held(2), 1), "0 (1) 2"},
		{"more unaccounted assignments than free devices leave the allocated ones healthy", goldClass(3), withUnaccounted(held(0, 2), 5), "0 (1) 2"},
		{"more unaccounted assignments than capacity leave no healthy device", goldClass(2), withUnaccounted(usage{}, 5), "(0) (1)"},
		{"capacity below use and unaccounted assignments leave the allocated devices", goldClass(1), withUnaccounted(held(0, 1), 2), "0 1"},
		{"a draining class lists the allocated devices", draining, held(1), "1"},
		{"an unused draining class lists no device", draining, withUnaccounted(usage{}, 1), ""},
		{"a duplicate device is listed once", goldClass(3), usage{allocated: ids(1, 1), accounted: 1}, "0 1 2"},
		// Three devices are allocated. According to the assignments, one owner has such a device, and another owner has none, so one of
		// the three devices becomes unhealthy.
		{
			"while kubelet does not answer, an allocated device without an owner can be unhealthy, but stays listed",
			goldClass(3), usage{allocated: ids(0, 1, 2), accounted: 1, unaccounted: 1}, "0 1 (2)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := numbers(plan(c.class, c.usage)); got != c.want {
				t.Errorf("devices %q, want %q", got, c.want)
			}
		})
	}

	t.Run("an unlimited class has 1000 devices", func(t *testing.T) {
		if got := healthyOf(plan(goldClass(0), held(3))); len(got) != 1000 {
			t.Errorf("%d healthy devices, want 1000", len(got))
		}
	})
	t.Run("a huge capacity does not result in a huge message", func(t *testing.T) {
		if got := len(plan(goldClass(1<<60), usage{})); got != maxDevices {
			t.Errorf("%d devices, want %d", got, maxDevices)
		}
	})
	t.Run("allocated devices with unknown IDs are kept", func(t *testing.T) {
		got := plan(goldClass(2), usage{allocated: []string{"tray:7"}, accounted: 1})
		if diff := cmp.Diff([]device{{ids(0)[0], true}, {"tray:7", true}}, got, cmp.AllowUnexported(device{})); diff != "" {
			t.Errorf("devices differ (-want +got):\n%s", diff)
		}
	})
}

func healthyOf(devices []device) []string {
	var list []string
	for _, d := range devices {
		if d.healthy {
			list = append(list, d.id)
		}
	}
	return list
}

func TestPlanKeepsItsInvariantsForAnyUsage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		c := goldClass(uint64(1 + random.IntN(12)))
		c.draining = random.IntN(8) == 0
		u := usage{unaccounted: random.IntN(14)}
		for n := range 16 {
			if random.IntN(4) == 0 {
				u.allocated = append(u.allocated, ids(n)...)
			}
		}
		u.accounted = len(u.allocated)
		random.Shuffle(len(u.allocated), func(i, j int) { u.allocated[i], u.allocated[j] = u.allocated[j], u.allocated[i] })
		devices := plan(c, u)
		if err := checkInvariants(c, u, devices); err != nil {
			t.Fatalf("class %+v, usage %+v: %v; devices %s", c, u, err, numbers(devices))
		}
		if !slices.Equal(devices, plan(c, u)) {
			t.Fatalf("class %+v, usage %+v: a second call returns another list", c, u)
		}
	}
}

// checkInvariants checks the devices that plan returns.
func checkInvariants(c class, u usage, devices []device) error {
	health := map[string]bool{}
	for _, d := range devices {
		if _, twice := health[d.id]; twice {
			return fmt.Errorf("%s is listed twice", d.id)
		}
		health[d.id] = d.healthy
	}

	for _, id := range u.allocated {
		if !health[id] {
			return fmt.Errorf("%s is allocated, but not listed as healthy", id)
		}
	}

	size := int(c.capacity)
	if c.draining {
		size = 0
	}

	if want := max(len(u.allocated), size); len(devices) != want {
		return fmt.Errorf("%d devices, want %d", len(devices), want)
	}

	if healthy, want := len(healthyOf(devices)), max(len(u.allocated), size-u.unaccounted); healthy != want {
		return fmt.Errorf("%d healthy devices, want %d", healthy, want)
	}

	return nil
}

// TestDevicesArePhasedOutInTwoSteps checks that an unwanted device first becomes unhealthy (in parentheses), and leaves the list after `ttl`.
func TestDevicesArePhasedOutInTwoSteps(t *testing.T) {
	const ttl = 5 * time.Second
	start := time.Unix(1000, 0)
	leaving := map[string]time.Time{}
	listed := plan(goldClass(4), usage{})
	for _, step := range []struct {
		at     time.Duration
		wanted []device
		want   string
		again  time.Duration // until the next device leaves the list, or 0
	}{
		{0, plan(goldClass(2), usage{}), "0 1 (2) (3)", ttl},
		{2 * time.Second, plan(goldClass(2), usage{}), "0 1 (2) (3)", 3 * time.Second},
		{3 * time.Second, plan(goldClass(2), held(3)), "0 (1) (2) 3", 2 * time.Second}, // one was allocated at the last moment
		{5 * time.Second, plan(goldClass(2), held(3)), "0 (1) 3", 3 * time.Second},
		{8 * time.Second, plan(goldClass(2), held(3)), "0 3", 0},
		{9 * time.Second, plan(goldClass(3), held(3)), "0 1 3", 0},
		{10 * time.Second, nil, "(0) (1) (3)", ttl},
		{15 * time.Second, nil, "", 0},
	} {
		var again time.Duration
		listed, again = phaseOut(listed, step.wanted, leaving, start.Add(step.at), ttl)
		if got := numbers(listed); got != step.want || again != step.again {
			t.Errorf("after %v: %q for %v, want %q for %v", step.at, got, again, step.want, step.again)
		}
	}

	if len(leaving) > 0 {
		t.Errorf("the map leaving has %v, want nothing", leaving)
	}
}

func TestNamesForKubeletAreValidAndUnique(t *testing.T) {
	long := "vendor.example/" + strings.Repeat("long-", 10) + "class"
	all := []string{gold, "qos.noderesource.dev/rdt.silver", "vendor.example/rdt.gold", "other.example/rdt.gold", long}
	t.Run("annotation keys are valid and unique", func(t *testing.T) {
		seen := map[string]bool{}
		for _, extended := range all {
			key := annotationKey(extended)
			if !strings.HasPrefix(key, classes.AllocatedKeyPrefix) || seen[key] {
				t.Errorf("key %q of %s lacks the prefix or is not unique", key, extended)
			}
			if problems := validation.IsQualifiedName(key); len(problems) > 0 {
				t.Errorf("key %q: %v", key, problems)
			}
			seen[key] = true
		}
	})
	t.Run("sockets have short, recognizable and unique names", func(t *testing.T) {
		for _, dir := range []string{"/var/lib/kubelet/device-plugins", "/" + strings.Repeat("d", 80)} {
			seen := map[string]bool{}
			for _, extended := range all {
				name, err := socketName(dir, extended)
				// The kernel accepts paths of sockets of up to 107 bytes.
				if err != nil || len(dir)+1+len(name) > 107 || !ourSocket.MatchString(name) || seen[name] {
					t.Errorf("socket %q of %s is too long, not recognizable or not unique; the error is %v", name, extended, err)
				}
				seen[name] = true
			}
		}
	})
	t.Run("a directory with too long a path is refused", func(t *testing.T) {
		if name, err := socketName("/"+strings.Repeat("d", 90), gold); err == nil {
			t.Errorf("got the socket %q, want an error", name)
		}
	})
}

func TestDevicesAreOrderedByNumber(t *testing.T) {
	list := []string{"tray:7", "rdt.gold-10", "rdt.gold-9"}
	slices.SortFunc(list, compareIDs)
	if diff := cmp.Diff([]string{"rdt.gold-9", "rdt.gold-10", "tray:7"}, list); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
}
