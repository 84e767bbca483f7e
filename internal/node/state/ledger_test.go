// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// holder returns the Holding of a container "main". Its class of k8s.io/rdt is the parameter `class`. For
// k8s.io/blockio, it has the system default.
func holder(id, pod, class string) Holding {
	return Holding{Holding: classes.Holding{
		Holder:      classes.Holder{ID: id, PodUID: "uid-" + pod, Container: "main", PodNamespace: "default", PodName: pod},
		Assignments: []classes.Assignment{{Resource: classes.RDTResource, Class: class}, {Resource: classes.BlockIOResource}},
	}}
}

// twoSlots returns a catalog in which class gold has two slots, and class bronze is unlimited.
func twoSlots() *classes.Catalog {
	of := []classes.Class{{Name: "gold", Capacity: 2}, {Name: "bronze"}}
	return classes.NewCatalog([]classes.Offer{
		{Resource: classes.Resource{Name: classes.RDTResource, Scope: classes.ContainerScope, Classes: of}},
		{Resource: classes.Resource{Name: classes.BlockIOResource, Scope: classes.ContainerScope, Classes: of}},
	})
}

func admit(t *testing.T, l *ledger, holdings ...Holding) {
	t.Helper()
	for _, h := range holdings {
		if err := l.Admit(twoSlots(), h); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullClassIsRefusedWithTheAvailableClasses(t *testing.T) {
	l := newLedger()
	admit(t, l, holder("1", "b", "gold"), holder("2", "a", "gold"))
	err := l.Admit(twoSlots(), holder("3", "web", "gold"))
	want := `pod default/web container main: class "gold" of k8s.io/rdt is full: 2 of 2 in use; available: bronze`
	if !errors.Is(err, classes.ErrClassFull) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if _, ok := l.Get("3"); ok || l.InUse("rdt", "gold") != 2 {
		t.Error("the refused holder is in the ledger")
	}
	l.Release("1")
	admit(t, l, holder("3", "web", "gold"))
}

func TestFullClassErrorHasFreeSlotsOfOtherClassesButNoHolders(t *testing.T) {
	c := classes.NewCatalog([]classes.Offer{{Resource: classes.Resource{Name: classes.RDTResource, Scope: classes.ContainerScope, Classes: []classes.Class{
		{Name: "gold", Capacity: 2}, {Name: "silver", Capacity: 3}, {Name: "copper", Capacity: 1}, {Name: "bronze"},
	}}}})

	l := newLedger()
	for i := range 5 { // Adopt accepts more containers than the capacity
		l.Adopt(holder(fmt.Sprint(i), fmt.Sprint("p", i), "gold"))
	}

	l.Adopt(holder("s", "secret", "silver"))
	l.Adopt(holder("c", "secret", "copper"))
	err := l.Admit(c, holder("new", "web", "gold"))
	want := `pod default/web container main: class "gold" of k8s.io/rdt is full: 5 of 2 in use; available: silver (2 of 3 free), bronze`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestRestartedContainerDoesNotCompeteWithItsPredecessor(t *testing.T) {
	l := newLedger()
	// gold has two slots: both containers of pod a share one, and pod b has the other
	admit(t, l, holder("1", "a", "gold"), holder("2", "b", "gold"), holder("1-again", "a", "gold"))
	if got := l.InUse(classes.RDTResource, "gold"); got != 2 {
		t.Errorf("%d slots are in use, want 2", got)
	}

	l.Release("1")
	if got := l.InUse(classes.RDTResource, "gold"); got != 2 {
		t.Errorf("after the predecessor was released, %d slots are in use, want 2", got)
	}

	l.Release("1-again")
	l.Release("1-again") // a second release changes nothing
	if got := l.InUse(classes.RDTResource, "gold"); got != 1 {
		t.Errorf("after the predecessor and its successor were released, %d slots are in use, want 1", got)
	}
}

func TestAVolumeOccupiesASlotOfItsOwn(t *testing.T) {
	l := newLedger()
	for _, path := range []string{"c1:/a", "c1:/b", "c2:/a"} { // the container c2 is the restarted container c1
		h := holder(path, "a", "gold")
		_, h.Volume, _ = strings.Cut(path, ":")
		l.Adopt(h)
	}
	if got := l.InUse("rdt", "gold"); got != 2 {
		t.Errorf("%d slots are in use, want 2", got)
	}
}

// TestOfHoldersThatBelongTogetherAllOrNoneAreAdmitted requests the admission of three holders to a class with two slots.
func TestOfHoldersThatBelongTogetherAllOrNoneAreAdmitted(t *testing.T) {
	l := newLedger()
	if err := l.Admit(twoSlots(), holder("1", "a", "gold"), holder("2", "b", "gold"), holder("3", "c", "gold")); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("the error is %v, want ErrClassFull", err)
	}
	if got := l.InUse("rdt", "gold"); got != 0 {
		t.Errorf("after the refused admission, %d slots are in use, want 0", got)
	}
}

func TestAdmissionIsAllOrNothing(t *testing.T) {
	l := newLedger()
	both := holder("3", "c", "gold")
	both.Assignments = []classes.Assignment{{Resource: classes.BlockIOResource, Class: "gold"}, {Resource: classes.RDTResource, Class: "gold"}}
	admit(t, l, holder("1", "a", "gold"), holder("2", "b", "gold"))
	if err := l.Admit(twoSlots(), both); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("the error is %v, want ErrClassFull", err)
	}
	if got := l.InUse(classes.BlockIOResource, "gold"); got != 0 {
		t.Errorf("after the refused admission, %d slots of the block I/O class are in use, want 0", got)
	}
}

func TestUnknownClassesAreRefusedUnlessTheOwnerHasThem(t *testing.T) {
	l := newLedger()
	gone := holder("1", "a", "old")
	if err := l.Admit(twoSlots(), gone); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("the error is %v, want ErrUnknownClass", err)
	}
	other := holder("2", "b", "gold")
	other.Assignments = []classes.Assignment{{Resource: "v.example/none", Class: "x"}}
	if err := l.Admit(twoSlots(), other); !errors.Is(err, classes.ErrUnknownResource) {
		t.Errorf("the error is %v, want ErrUnknownResource", err)
	}
	l.Adopt(gone) // accepts a class that does not exist
	gone.ID = "1-again"
	admit(t, l, gone)
}

// TestReservedSlotsAreOccupiedUntilTheyAreSettled checks that a reserved slot counts as occupied until Settle or
// Release is called. The class gold has two slots. The holder with the reservation has changed from gold to bronze.
func TestReservedSlotsAreOccupiedUntilTheyAreSettled(t *testing.T) {
	gold := []classes.Assignment{{Resource: classes.RDTResource, Class: "gold"}}
	for name, end := range map[string]func(l *ledger){
		"settled":  func(l *ledger) { l.Settle("1", classes.RDTResource) },
		"released": func(l *ledger) { l.Release("1") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			admit(t, l, holder("1", "a", "gold"), holder("2", "b", "gold"))
			l.Reserve("1", gold)
			l.Adopt(holder("1", "a", "bronze"))
			l.Settle("1", classes.BlockIOResource) // does not end the reservation of another resource
			if err := l.Admit(twoSlots(), holder("3", "c", "gold")); !errors.Is(err, classes.ErrClassFull) {
				t.Errorf("an admission to a class without a free slot returned %v, want ErrClassFull", err)
			}
			if end(l); l.InUse("rdt", "gold") != 1 {
				t.Errorf("after the reservation has ended, %d slots are in use, want 1", l.InUse("rdt", "gold"))
			}
			admit(t, l, holder("3", "c", "gold"))
		})
	}
}

func TestHoldersAreInStableOrder(t *testing.T) {
	l := newLedger()
	for _, i := range rand.Perm(20) {
		l.Adopt(holder(fmt.Sprintf("%02d", i), fmt.Sprint("p", i/10), "bronze"))
	}
	var ids []string
	for _, h := range l.Where(func(*Holding) bool { return true }) {
		ids = append(ids, h.ID)
	}
	if len(ids) != 20 || !slices.IsSorted(ids) {
		t.Errorf("got %v", ids)
	}
}

// model is a simple ledger with which the tests compare Ledger. It counts its holders at each check.
type model map[string]Holding

func (m model) inUse(class string) int {
	owners := map[qos.Subject]bool{}
	for _, h := range m {
		if h.Assignments[0].Class == class {
			owners[h.Subject()] = true
		}
	}
	return len(owners)
}

// admits reports whether `h` may have its class. Only "gold" is limited, to two slots.
func (m model) admits(h Holding) bool {
	if h.Assignments[0].Class != "gold" {
		return true
	}
	for _, other := range m {
		if other.Subject() == h.Subject() && other.Assignments[0].Class == "gold" {
			return true
		}
	}
	return m.inUse("gold") < 2
}

// step applies one operation to the ledger and to the model. It returns an error if only one of them refuses the
// operation. The function pick(n) chooses a number below n.
func (m model) step(l *ledger, c *classes.Catalog, pick func(n int) int) error {
	class := []string{"gold", "gold", "bronze", ""}[pick(4)]
	h := holder(fmt.Sprint("id", pick(12)), fmt.Sprint("pod", pick(5)), class)
	known, exists := m[h.ID]
	switch pick(8) {
	case 0:
		l.Adopt(h)
		m[h.ID] = h
	case 1, 2:
		l.Release(h.ID)
		delete(m, h.ID)
	case 3, 4:
		if !exists {
			return nil
		}
		h.PodUID, h.PodName = known.PodUID, known.PodName
		err := l.Admit(c, h)
		if allowed := m.admits(h); (err == nil) != allowed {
			return fmt.Errorf("change %s to %q: allowed %v, but %w", h.ID, class, allowed, err)
		} else if allowed {
			m[h.ID] = h
		}
	default:
		err := l.Admit(c, h)
		if allowed := m.admits(h); (err == nil) != allowed {
			return fmt.Errorf("admit %s to %q: allowed %v, but %w", h.ID, class, allowed, err)
		} else if allowed {
			m[h.ID] = h
		}
	}

	return nil
}

// compare returns an error if a ledger differs from the model.
func (m model) compare(l *ledger) error {
	if gold, bronze := l.InUse("rdt", "gold"), l.InUse("rdt", "bronze"); gold != m.inUse("gold") || bronze != m.inUse("bronze") {
		return fmt.Errorf("%d gold, %d bronze, want %d, %d", gold, bronze, m.inUse("gold"), m.inUse("bronze"))
	}
	if got := len(l.Where(func(*Holding) bool { return true })); got != len(m) {
		return fmt.Errorf("%d holders, want %d", got, len(m))
	}
	for _, h := range m {
		var want []string
		for id, other := range m {
			if other.PodUID == h.PodUID {
				want = append(want, id)
			}
		}
		var got []string
		for _, member := range l.InGroup(group{podUID: h.PodUID}, func(*Holding) bool { return true }) {
			got = append(got, member.ID)
		}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("pod %s has holders %q, want %q", h.PodUID, got, want)
		}
	}
	return nil
}

// empty releases all holders. It returns an error if the ledger still has occupied slots.
func (m model) empty(l *ledger) error {
	for id := range m {
		l.Release(id)
	}
	if len(l.slots)+len(l.groups) != 0 {
		return fmt.Errorf("slots without an owner: %v; groups without a holder: %v", l.slots, l.groups)
	}
	return nil
}

func TestLedgerAgreesWithASimpleModel(t *testing.T) {
	c := twoSlots()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, m := newLedger(), model{}
		for range 400 {
			if err := errors.Join(m.step(l, c, random.IntN), m.compare(l)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := m.empty(l); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzLedger compares the ledger with the model. Each byte of the input decides one choice in the model's steps.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 1, 0, 5, 0, 2, 1, 5, 0, 3, 2, 5}) // three pods for the two slots of gold
	f.Add([]byte{0, 1, 0, 5, 0, 2, 0, 5, 0, 1, 0, 1}) // a container starts, its successor starts, and the first container ends
	f.Add([]byte{0, 1, 0, 5, 2, 1, 0, 3, 3, 1, 0, 4}) // changes of class
	f.Fuzz(func(t *testing.T, choices []byte) {
		pick := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			first := choices[0]
			choices = choices[1:]
			return int(first) % n
		}

		l, c, m := newLedger(), twoSlots(), model{}
		for len(choices) > 0 {
			if err := errors.Join(m.step(l, c, pick), m.compare(l)); err != nil {
				t.Fatal(err)
			}
		}

		if err := m.empty(l); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAContainerIsInOneGroupWithItsVolumes also has a pod whose UID is its ID, because the runtime reports no UID.
func TestAContainerIsInOneGroupWithItsVolumes(t *testing.T) {
	l := newLedger()
	for _, h := range []classes.Holder{
		{ID: "pod", PodUID: "pod"},
		{ID: "c1", PodUID: "pod", Container: "main"},
		{ID: "c1:/a", PodUID: "pod", Container: "main", ContainerID: "c1", Volume: "/a"},
		{ID: "c2", PodUID: "pod", Container: "other"},
	} {
		l.Adopt(Holding{Holding: classes.Holding{Holder: h}})
	}

	for g, want := range map[group][]string{
		{podUID: "pod"}: {"pod", "c1", "c1:/a", "c2"}, {containerID: "c1"}: {"c1", "c1:/a"}, {containerID: "pod"}: {"pod"},
	} {
		var got []string
		for _, h := range l.InGroup(g, func(*Holding) bool { return true }) {
			got = append(got, h.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the group %v has %q, want %q", g, got, want)
		}
	}
}

func BenchmarkAdmitAndRelease(b *testing.B) {
	l, c := newLedger(), twoSlots()
	for i := range 250 {
		l.Adopt(holder(fmt.Sprint(i), fmt.Sprint(i), "bronze"))
	}
	h := holder("new", "new", "gold")
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Admit(c, h); err != nil {
			b.Fatal(err)
		}
		l.Release(h.ID)
	}
}
