// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func TestParseSchemata(t *testing.T) {
	for name, test := range map[string]struct{ text, want, err string }{
		"as the kernel pads it":         {"    MB:0=  100;1=   40\n    L2:0=fffff;1=fffff\n    L3:0=00fff;1=0000f\n", "L2:0=fffff;1=fffff\nL3:0=fff;1=f\nMB:0=100;1=40\n", ""},
		"code and data":                 {"L3DATA:0=f\nL3CODE:0=f0\n", "L3CODE:0=f0\nL3DATA:0=f\n", ""},
		"slow memory of AMD":            {"SMBA:0=2048\nL3:0=f\n", "L3:0=f\n", ""},
		"per cent of a cache":           {"L3:1=f\nL3_MAX:1=100;2=100\n", "L3:1=f\n", ""},
		"a comment":                     {"# MB_HW:0=1\nL3:1=f\n", "L3:1=f\n", ""},
		"lines with unknown values":     {"MB_HW:0=a/b\nL3_PRIO:x\nNEW\nNEW\nL3:1=f\n", "L3:1=f\n", ""},
		"a large cache ID":              {"L3:4294967295=f\n", "L3:4294967295=f\n", ""},
		"being set up for pseudo-lock":  {"MB:uninitialized\nL3:uninitialized\n", "", ""},
		"nothing":                       {"", "", ""},
		"no value":                      {"L3:0", "", "not of the form ID=VALUE"},
		"a line twice":                  {"L3:0=f\nL3:1=f", "", "second line for L3"},
		"a domain twice":                {"L3:0=f;0=f", "", "domain 0 appears twice"},
		"a value that is no number":     {"MB:0=f", "", "value of domain 0"},
		"a domain that is not a number": {"MB:x=1", "", "domain"},
	} {
		t.Run(name, func(t *testing.T) {
			schemata, err := ParseSchemata([]byte(test.text))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(test.want, schemata.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseSchemata(f *testing.F) {
	for _, spec := range machines() {
		text, _ := sim.New(spec).ReadFile(sim.MountPoint + "/schemata")
		f.Add(text)
	}

	f.Add([]byte("L3:uninitialized\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		schemata, err := ParseSchemata(data)
		if err != nil {
			return
		}
		again, err := ParseSchemata([]byte(schemata.String()))
		if err != nil || again.String() != schemata.String() {
			t.Errorf("%q becomes %q becomes %q, %v", data, schemata, again, err)
		}
	})
}

// TestParseInfo reads the directory info of several CPUs. `want` has, for each cache, the mask, the minimum number of bits and
// whether masks may have gaps, and for the bandwidth its unit, minimum, granularity and maximum.
func TestParseInfo(t *testing.T) {
	noSparseFile := sim.AMDSpec()
	noSparseFile.NoSparseFile = true
	cdp := sim.IntelSpec()
	cdp.Options = "cdp"
	for name, test := range map[string]struct {
		spec sim.Spec
		want string
	}{
		"Intel":               {sim.IntelSpec(), "8 closids, L2 fffff/1/false, L3 fff/1/false, MB % 10 10 100"},
		"Intel with CDP":      {cdp, "8 closids, L2 fffff/1/false, L3CODE fff/1/false, L3DATA fff/1/false, MB % 10 10 100"},
		"mba_MBps":            {machines()["MBps"], "8 closids, L3 fffff/1/false, MB MBps 0 1 4294967295"},
		"AMD":                 {sim.AMDSpec(), "8 closids, L2 fffff/0/true, L3 fff/0/true, MB 1/8 GB/s 0 1 2048"},
		"AMD on older Linux":  {noSparseFile, "8 closids, L2 fffff/0/true, L3 fff/0/true, MB 1/8 GB/s 0 1 2048"},
		"bandwidth, no cache": {machines()["no L3"], "8 closids, MB % 10 10 100"},
	} {
		t.Run(name, func(t *testing.T) {
			info := infoOf(t, test.spec)
			texts := []string{fmt.Sprintf("%d closids", info.CLOSIDs)}
			for _, level := range []string{L2, L3} {
				for _, schema := range info.Schemas(level) {
					cache := info.Caches[schema]
					texts = append(texts, fmt.Sprintf("%s %x/%d/%v", schema, cache.Mask, cache.MinBits, cache.Sparse))
				}
			}

			if b := info.Bandwidth; b != nil {
				texts = append(texts, fmt.Sprintf("MB %s %d %d %d", b.Unit, b.Min, b.Granularity, b.Max))
			}

			if diff := cmp.Diff(test.want, strings.Join(texts, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTheUnitOfMemoryBandwidthIsReadFromTheKernel adds the files with which newer kernels describe the values of MB. A value is a
// multiple of unit * scale / resolution, and the unit "all" is the whole bandwidth. Only per cent and 1/8 GB/s are known.
func TestTheUnitOfMemoryBandwidthIsReadFromTheKernel(t *testing.T) {
	for name, test := range map[string]struct {
		spec                    sim.Spec
		unit, scale, resolution string
		max                     string
		want                    BandwidthUnit // "" if the bandwidth cannot be used
		wantMax                 uint64
	}{
		"per cent":                {sim.ArmSpec(8), "all", "1", "100", "100", Percent, 100},
		"per cent on another CPU": {sim.AMDSpec(), "all", "1", "100", "100", Percent, 100},
		"1/8 GB/s":                {sim.AMDSpec(), "GBps", "1", "8", "4096", EighthGBps, 4096},
		"1/8 GB/s on another CPU": {sim.IntelSpec(), "GBps", "1", "8", "4096", EighthGBps, 4096},
		"a group has more than the described maximum": {sim.AMDSpec(), "GBps", "1", "8", "5", EighthGBps, 2048},
		"a resolution of 1/1000":                      {sim.IntelSpec(), "all", "1", "1000", "5", "", 0},
		"another scale":                               {sim.AMDSpec(), "GBps", "2", "8", "5", "", 0},
		"a unit that is not known":                    {sim.AMDSpec(), "furlongs", "1", "8", "5", "", 0},
		"no description":                              {sim.IntelSpec(), "", "", "", "", Percent, 100},
	} {
		t.Run(name, func(t *testing.T) {
			spec := test.spec
			if test.unit != "" {
				const of = "info/MB/resource_schemata/MB/"
				spec.Unknown.Files = map[string]string{
					of + "unit": test.unit + "\n", of + "scale": test.scale + "\n", of + "resolution": test.resolution + "\n", of + "min": "15\n", of + "max": test.max + "\n",
					"info/L3/resource_schemata/L3/type": "bitmap\n", "info/MB/resource_schemata/MB_HLIM/unit": "all\n",
				}
			}
			got := BandwidthInfo{}
			if b := infoOf(t, spec).Bandwidth; b != nil {
				got = *b
			}
			if got.Unit != test.want || got.Max != test.wantMax {
				t.Errorf("the unit is %q up to %d, want %q up to %d", got.Unit, got.Max, test.want, test.wantMax)
			}
			if test.unit != "" && test.want != "" && got.Min != 15 {
				t.Errorf("the minimum is %d, want 15", got.Min)
			}
		})
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add("fff", "1", "16", "0", "10", "10", "MB:0=100;1=100", false)
	f.Add("fff", "0", "16", "1", "0", "1", "MB:0=2048;1=2048", false)
	f.Add("fffff", "2", "8", "x", "10", "0", "MB:0=4294967295", true)
	f.Add("0", "-1", "", "", "18446744073709551615", "18446744073709551615", "", true)
	f.Fuzz(func(t *testing.T, mask, least, closids, sparse, minimum, gran, root string, mbps bool) {
		schemata, err := ParseSchemata([]byte(root))
		if err != nil {
			return
		}
		info, err := ParseInfo(map[string][]byte{
			"L3/cbm_mask": []byte(mask), "L3/min_cbm_bits": []byte(least), "L3/num_closids": []byte(closids),
			"L3/shareable_bits": []byte(mask), "L3/sparse_masks": []byte(sparse),
			"MB/min_bandwidth": []byte(minimum), "MB/bandwidth_gran": []byte(gran), "MB/num_closids": []byte(closids),
		}, schemata, mbps)
		if err == nil && (info.Caches["L3"].Mask == 0 || info.Bandwidth.Granularity == 0 || info.Bandwidth.Max == 0) {
			t.Errorf("ParseInfo accepts an empty mask, or a granularity or maximum of 0: %+v %+v", info, info.Bandwidth)
		}
	})
}

func FuzzParseTasks(f *testing.F) {
	f.Add([]byte("1\n22\n333\n"))
	f.Add([]byte("-1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tids, err := ParseTasks(data)
		if err == nil && slices.ContainsFunc(tids, func(tid int) bool { return tid < 0 }) {
			t.Errorf("the IDs in %q are parsed as %v, want none below 0", data, tids)
		}
	})
}

func TestParseTaskGroup(t *testing.T) {
	for text, want := range map[string]string{
		"res:/\nmon:\n": "", "res:qos-gold\nmon:\n": "qos-gold", "res:/qos-gold\nmon:m\n": "qos-gold", "res:g\nmon:m\n": "g",
	} {
		if got, _, err := ParseTaskGroup([]byte(text)); got != want || err != nil {
			t.Errorf("the group in %q is %q, with the error %v", text, got, err)
		}
	}
	if _, _, err := ParseTaskGroup([]byte("res:\nmon:\n")); !errors.Is(err, ErrUnmounted) {
		t.Errorf("while resctrl is not mounted, the error is %v, want ErrUnmounted", err)
	}
	if _, _, err := ParseTaskGroup([]byte("0::/\n")); err == nil {
		t.Error("a line of /proc/PID/cgroup is accepted, want an error")
	}
}

func FuzzParseTaskGroup(f *testing.F) {
	f.Add([]byte("res:/\nmon:\n"))
	f.Add([]byte("res:qos-gold\nmon:m\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if group, _, err := ParseTaskGroup(data); strings.Contains(group, "\n") || errors.Is(err, ErrUnmounted) && group != "" {
			t.Errorf("the group in %q is %q, with the error %v", data, group, err)
		}
	})
}

func machines() map[string]sim.Spec {
	noL3 := sim.IntelSpec()
	noL3.L2, noL3.L3 = nil, nil
	mbps := sim.IntelSpec()
	mbps.L2, mbps.Options = nil, "mba_MBps"
	mbps.L3 = &sim.Cache{Ways: 20, Shareable: 0xc0000, CLOSIDs: 16, Size: 20 << 20, MinBits: 1, CDP: true}
	return map[string]sim.Spec{"plain": sim.IntelSpec(), "AMD": sim.AMDSpec(), "no L3": noL3, "MBps": mbps}
}

func infoOf(t testing.TB, spec sim.Spec) Info {
	t.Helper()
	tree, err := Find(sim.New(spec))
	if err != nil {
		t.Fatal(err)
	}
	info, _, err := tree.Read()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func FuzzParseCounter(f *testing.F) {
	for _, text := range []string{"0\n", "18446744073709551615\n", "Unavailable\n", "-1", "1e9", "\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, ok := ParseCounter(data)
		text := strings.TrimSpace(string(data))
		if again, err := strconv.ParseFloat(text, 64); ok && (err != nil || again != value || value < 0 || strings.ContainsAny(text, "eExX+-_nN")) {
			t.Errorf("the counter %q is parsed as %v", data, value)
		}
	})
}

func FuzzParseAssignments(f *testing.F) {
	f.Add([]byte("mbm_total_bytes:0=e;1=_\nmbm_local_bytes:0=_;1=_\n"))
	f.Add([]byte("mbm_reads:0=e\nmbm_total_bytes:x=e;;1;65536=e\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for counter := range ParseAssignments(data) {
			if counter.Event != MBMTotal && counter.Event != MBMLocal || !strings.Contains(string(data), string(counter.Event)) {
				t.Errorf("the counter %+v is read in %q", counter, data)
			}
		}
	})
}
