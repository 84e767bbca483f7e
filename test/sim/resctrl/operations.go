// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import "strings"

// Operations returns the table of operations for a machine. After the last operation, only the root group is left, in the
// state that it had before the first operation.
func Operations(spec Spec) []Operation {
	var operations []Operation
	operations = append(operations, infoOperations(spec)...)
	operations = append(operations, directoryOperations...)
	switch {
	case strings.Contains(spec.Options, "cdp"):
		operations = append(operations, codeAndDataOperations...)
	case strings.Contains(spec.Options, "mba_MBps"):
		operations = append(operations, mbpsOperations...)
	default:
		operations = append(operations, schemataOperations...)
		operations = append(operations, exclusiveOperations...)
	}

	operations = append(operations, taskOperations...)
	return append(operations, limitOperations...)
}

func write(path, data string, then ...string) Operation {
	return Operation{Do: "write", Path: path, Data: data, Then: then}
}

func mkdir(path string, then ...string) Operation {
	return Operation{Do: "mkdir", Path: path, Then: then}
}

func remove(path string, then ...string) Operation {
	return Operation{Do: "remove", Path: path, Then: then}
}

func rename(from, to string, then ...string) Operation {
	return Operation{Do: "rename", Path: from, Data: to, Then: then}
}

func read(path string) Operation { return Operation{Do: "read", Path: path} }

// infoOperations returns the operations that read the capabilities of the CPU.
func infoOperations(spec Spec) []Operation {
	operations := []Operation{read("info/last_cmd_status"), read("schemata"), read("size"), read("mode"), read("cpus"), read("cpus_list")}
	for _, s := range New(spec).live.schemas {
		files := []string{"num_closids", "min_bandwidth", "bandwidth_gran", "delay_linear"}
		if s.cache != nil {
			files = []string{"num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "sparse_masks"}
		}
		for _, file := range files {
			operations = append(operations, read("info/"+s.name+"/"+file))
		}
	}
	return append(operations, read("info/L3_MON/num_rmids"), read("info/L3_MON/mon_features"))
}

var directoryOperations = []Operation{
	mkdir("g1", "g1/schemata", "g1/mode", "g1/cpus", "g1/cpus_list", "g1/tasks", "g1/size"),
	{Do: "list", Path: "g1"},
	{Do: "list", Path: "nope"},
	{Do: "list", Path: "g1/schemata"},
	read("g1/nope"),
	read("g1/mon_groups"),
	read("g1"),
	mkdir("g1"),
	mkdir("info"),
	mkdir("schemata"),
	mkdir("g1/x"),
	mkdir("info/x"),
	mkdir("info/L3_MON/x"),
	mkdir("nope/x"),
	mkdir("a\nb"),
	mkdir("mon_data/x"),
	mkdir("g1/mon_groups/m1", "g1/mon_groups/m1/tasks"),
	mkdir("g1/mon_groups/m1"),
	mkdir("g1/mon_groups/mon_groups"),
	mkdir("g1/mon_groups/m1/x"),
	{Do: "list", Path: "g1/mon_groups"},
	{Do: "list", Path: "g1/mon_groups/m1"},
	remove("g1/mon_groups"),
	remove("info"),
	remove("mon_groups"),
	remove("schemata"),
	remove("g1/tasks"),
	remove("g1/mon_data"),
	remove("nope"),
	write("info/last_cmd_status", "x"),
	write("nope/schemata", "L3:0=f\n"),
	write("g1/nope", "x"),
	write("g1/mode", "foo\n"),
	write("g1/mode", "shareable"),
	write("g1/mode", "shareable\n"),
	write("g1/mode", "pseudo-locksetup\n"),
	write("g1/cpus", "1\n", "g1/cpus", "g1/cpus_list", "cpus", "cpus_list"),
	write("g1/cpus", "ff\n"),
	write("g1/cpus", "xyz\n"),
	write("cpus", "0\n"),
	write("g1/cpus", "0\n", "g1/cpus", "cpus"),
	write("cpus", "3\n", "g1/cpus", "cpus"),
	mkdir("g2"),
	rename("g1", "g9"),
	rename("g1/mon_groups/m1", "g2/m1"),
	rename("g1/mon_groups/m1", "g2/mon_groups/m2"),
	rename("g2/mon_groups/m2", "g2/mon_groups/m3"),
	rename("g2/mon_groups/nope", "g1/mon_groups/x"),
	remove("g2/mon_groups/m3"),
	remove("g2"),
	remove("g1", "g1/schemata"),
}

var schemataOperations = []Operation{
	mkdir("g1"),
	write("g1/schemata", "L3:0=f\n", "g1/schemata", "g1/size"),
	write("g1/schemata", "L3:0=f0f\n", "g1/schemata"),
	write("g1/schemata", "L3:0=0\n", "g1/schemata"),
	write("g1/schemata", "L3:0=1000\n"),
	write("g1/schemata", "L3:0=0x3\n", "g1/schemata"),
	write("g1/schemata", "L3:0=xyz\n"),
	write("g1/schemata", "L3:0=\n"),
	write("g1/schemata", "L3:0=f"),
	write("g1/schemata", "L3:9=f\n"),
	write("g1/schemata", "L3:a=f\n"),
	write("g1/schemata", "L3:0\n"),
	write("g1/schemata", "L9:0=f\n"),
	write("g1/schemata", "L3CODE:0=f\n"),
	write("g1/schemata", "L3:0=f;0=f\n"),
	write("g1/schemata", "L3:0=7\nL3:0=7\n", "g1/schemata"),
	write("g1/schemata", "L3:0=7\nL3:1=7\n", "g1/schemata"),
	write("g1/schemata", "L3\n"),
	write("g1/schemata", "L3:\n"),
	write("g1/schemata", "\n"),
	write("g1/schemata", "L3:0=f\n\n"),
	write("g1/schemata", "L3:0=f;\n"),
	write("g1/schemata", " L3 :0= f ;1= ff \n", "g1/schemata"),
	write("g1/schemata", "L3:0 =f\n"),
	write("g1/schemata", "L2:0=3\nL3:0=ff\nMB:0=50\n", "g1/schemata"),
	write("g1/schemata", "L3:0=1\nMB:0=xx\n", "g1/schemata"),
	write("g1/schemata", "MB:0=33;1=91\n", "g1/schemata", "g1/size"),
	write("g1/schemata", "MB:0=5\n", "g1/schemata"),
	write("g1/schemata", "MB:0=0\n", "g1/schemata"),
	write("g1/schemata", "MB:0=100;1=101\n", "g1/schemata"),
	write("g1/schemata", "MB:0=2048;1=2047\n", "g1/schemata"),
	write("g1/schemata", "MB:0=2049\n"),
	write("g1/schemata", "MB:0=-5\n"),
	write("g1/schemata", "MB:0=5x\n"),
	write("g1/schemata", "MB:0=99999999999\n"),
	write("g1/mode", "exclusive\n", "g1/mode"),
	remove("g1"),
}

var exclusiveOperations = []Operation{
	mkdir("g1"),
	write("schemata", "L3:0=ff0;1=ff0\nL2:0=ffff0;1=ffff0\n", "schemata"),
	write("g1/schemata", "L3:0=f;1=f\n"),
	write("g1/mode", "exclusive\n", "g1/mode"),
	write("g1/schemata", "L2:0=f;1=f\n"),
	write("g1/mode", "exclusive\n", "g1/mode"),
	write("g1/mode", "exclusive\n"),
	mkdir("g2", "g2/schemata"),
	write("g2/schemata", "L3:0=ff\n", "g2/schemata"),
	write("g2/schemata", "L3:0=f0\n", "g2/schemata"),
	write("schemata", "L3:0=fff\n"),
	write("g1/schemata", "L3:0=1f\n"),
	write("g1/schemata", "L3:0=c00\n"),
	write("g1/schemata", "L3:0=7\n", "g1/schemata"),
	mkdir("g3", "g3/schemata"),
	write("g2/schemata", "L3:0=7\n"),
	write("schemata", "L3:0=800\n"),
	mkdir("g4", "g4/schemata"),
	write("g1/mode", "shareable\n", "g1/mode"),
	write("g2/schemata", "L3:0=7\n", "g2/schemata"),
	remove("g4"),
	remove("g3"),
	remove("g2"),
	remove("g1"),
	write("schemata", "L3:0=fff;1=fff\nL2:0=fffff;1=fffff\n", "schemata"),
}

var codeAndDataOperations = []Operation{
	mkdir("g1"),
	write("g1/schemata", "L3:0=f\n"),
	write("g1/schemata", "L3CODE:0=f\n", "g1/schemata"),
	write("g1/schemata", "L3DATA:0=f0\nL3CODE:1=f\n", "g1/schemata"),
	write("g1/schemata", "L2CODE:0=f\nL2:0=ff\n", "g1/schemata"),
	write("schemata", "L3CODE:0=f00;1=f00\nL3DATA:0=f00;1=f00\nL2:0=f0000;1=f0000\n", "schemata"),
	write("g1/schemata", "L3CODE:0=f;1=f\nL3DATA:0=f0;1=f0\nL2:0=f;1=f\n", "g1/schemata"),
	write("g1/mode", "exclusive\n", "g1/mode"),
	mkdir("g2", "g2/schemata"),
	write("g2/schemata", "L3CODE:0=f0\n"),
	write("g2/schemata", "L3DATA:0=f\n"),
	write("g2/schemata", "L3DATA:0=f00\n", "g2/schemata"),
	remove("g2"),
	remove("g1"),
	write("schemata", "L3CODE:0=fff;1=fff\nL3DATA:0=fff;1=fff\nL2:0=fffff;1=fffff\n", "schemata"),
}

var mbpsOperations = []Operation{
	mkdir("g1", "g1/schemata"),
	write("g1/schemata", "MB:0=1234;1=5\n", "g1/schemata", "g1/size"),
	write("g1/schemata", "MB:0=0;1=4294967295\n", "g1/schemata"),
	write("g1/schemata", "MB:0=4294967296\n"),
	write("g1/schemata", "MB:0=77;0=78\n", "g1/schemata"),
	write("g1/schemata", "MB:0=99\nL3:0=f0f\n", "g1/schemata"),
	write("g1/schemata", "L3:0=f\nMB:1=x\n", "g1/schemata"),
	remove("g1"),
	mkdir("g2", "g2/schemata"),
	remove("g2"),
}

const taskGroups = "/proc/" + TaskMark + "/cpu_resctrl_groups"

var taskOperations = []Operation{
	mkdir("g1", taskGroups),
	mkdir("g2"),
	write("g1/tasks", "999999\n"),
	write("g1/tasks", "abc\n"),
	write("g1/tasks", "-1\n"),
	write("g1/tasks", "\n"),
	write("g1/tasks", TaskMark+"\n", "g1/tasks", taskGroups),
	write("g1/tasks", TaskMark, "g1/tasks"),
	write("g1/tasks", "999999,"+TaskMark+"\n"),
	write("g2/tasks", TaskMark+",999999\n", "g1/tasks", "g2/tasks", taskGroups),
	write("g1/tasks", TaskMark+"\n999999\n", taskGroups),
	mkdir("g1/mon_groups/m1"),
	write("g1/mon_groups/m1/tasks", TaskMark, "g1/mon_groups/m1/tasks", "g1/tasks", taskGroups),
	mkdir("g2/mon_groups/m2"),
	write("g2/mon_groups/m2/tasks", TaskMark),
	rename("g1/mon_groups/m1", "g2/mon_groups/m1", "g1/tasks", "g2/tasks", taskGroups),
	remove("g2/mon_groups/m1", "g2/tasks", taskGroups),
	rename("g2/mon_groups/m2", "g1/mon_groups/m2"),
	write("g1/tasks", TaskMark, taskGroups),
	write("g1/mon_groups/m2/tasks", TaskMark, taskGroups),
	remove("g1", taskGroups),
	write("g2/tasks", TaskMark, taskGroups),
	remove("g2", taskGroups),
}

var limitOperations = []Operation{
	mkdir("c1"), mkdir("c2"), mkdir("c3"), mkdir("c4"), mkdir("c5"), mkdir("c6"), mkdir("c7"), mkdir("c8"),
	remove("c2"), mkdir("c9", "c9/schemata"), mkdir("c10"),
	remove("c1"), remove("c3"), remove("c4"), remove("c5"), remove("c6"), remove("c7"), remove("c8"), remove("c9"), remove("c10"),
	read("schemata"),
}
