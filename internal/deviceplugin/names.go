// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// maxSocketPath is the length of the longest path of a unix socket, in bytes, without the terminating zero byte
	// (sun_path in unix(7)).
	maxSocketPath = 107
	// maxSocketName limits the length of a socket's name, so that directory listings stay readable.
	maxSocketName = 64
	// maxKeyName is the length of the longest annotation key in bytes, without the key's prefix.
	maxKeyName = 63

	socketPrefix = "qos-shim-"
	socketSuffix = ".sock"
)

// ourSocket matches the names that socketName returns.
var ourSocket = regexp.MustCompile(`^qos-shim-[A-Za-z0-9._-]*-[0-9a-f]{8}\.sock$`)

func base(extended string) string {
	return extended[strings.LastIndexByte(extended, '/')+1:]
}

func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// socketName returns the name of a class's socket in `dir`. The name has a readable beginning and a unique end, and is
// short enough for the kernel.
func socketName(dir, extended string) (string, error) {
	end := "-" + digest(extended) + socketSuffix
	room := min(maxSocketName, maxSocketPath-len(dir)-1) - len(socketPrefix) - len(end)
	if room < 0 {
		return "", fmt.Errorf("the path %s is too long for a directory of sockets: the path of a socket can have at most %d bytes; choose a shorter --kubelet-dir",
			filepath.Clean(dir), maxSocketPath)
	}

	name := base(extended)
	return socketPrefix + name[:min(room, len(name))] + end, nil
}

// annotationKey returns the key of a container annotation. The annotation names a class that kubelet has allocated. Each
// class has its own key, so a container to which kubelet allocates two classes of one resource has two annotations. The
// plugin refuses such a container.
func annotationKey(extended string) string {
	name, ours := strings.CutPrefix(extended, classes.Domain+"/")
	if !ours {
		end := "-" + digest(extended)
		name = base(extended)
		name = name[:min(maxKeyName-len(end), len(name))] + end
	}
	return classes.AllocatedKeyPrefix + name
}

func deviceID(extended string, number int) string {
	return base(extended) + "-" + strconv.Itoa(number)
}

// compareIDs orders device IDs by their number. IDs without a number are last.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(deviceNumber(a), deviceNumber(b)), strings.Compare(a, b))
}

func deviceNumber(id string) int {
	number, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil || number < 0 {
		return math.MaxInt
	}
	return number
}
