// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup_test

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// A cgroup loses its limits of disk 8:0, and gets a limit of disk 8:16 and a weight.
func ExampleValues_ChangeTo() {
	layout, state := iocgroup.LayoutOf(2), iocgroup.Values{}
	if err := layout.Parse(state, iocgroup.IOMax, []byte("8:0 rbps=1000000 wbps=max riops=max wiops=max\n")); err != nil {
		fmt.Println(err)
		return
	}

	wanted := iocgroup.Values{
		{Device: iocgroup.Device{Major: 8, Minor: 16}}: {iocgroup.WriteIOPS: 100},
		{File: iocgroup.IOWeight}:                      {iocgroup.IOWeight.Convert(500)},
	}
	for _, write := range layout.Writes(state.ChangeTo(wanted)) {
		fmt.Printf("%s: %s\n", write.File, write.Data)
	}
	// Output:
	// io.max: 8:0 rbps=max wbps=max riops=max wiops=max
	// io.max: 8:16 rbps=max wbps=max riops=max wiops=100
	// io.weight: default 4950
}
