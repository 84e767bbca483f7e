// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"os"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/must"
	"github.com/qos-nri/qos-nri-plugin/test/nobody"
)

func TestADirectoryWithoutPermissionIsLoggedOnceWithTheRemedy(t *testing.T) {
	for _, test := range []struct {
		name string
		mode os.FileMode
		want string // the part of the error that follows the path of the directory
	}{
		{"unreadable", 0, " cannot be read: permission denied; run as its owner, usually root, or correct --kubelet-dir"},
		{"not writable", 0o555, ": permission denied; mount the directory writable, and run as its owner, usually root"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			dir := r.kubelet.PluginsDir()
			must.Do(t, os.MkdirAll(dir, 0o755))

			for path, mode := range map[string]os.FileMode{r.kubelet.Root(): 0o755, dir: test.mode} {
				must.Do(t, os.Chmod(path, mode))
			}

			r.plugin.ready(offered(1))
			root := nobody.Become(t)
			r.run()
			r.soon("the problem is logged", func() bool { return strings.Contains(r.log.String(), dir+test.want) })
			if err := r.publisher.Healthy(); err == nil || !strings.HasSuffix(err.Error(), dir+test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Healthy returned %v, want one line that ends with %q", err, dir+test.want)
			}

			root()
			must.Do(t, os.Chmod(dir, 0o755))

			r.startKubelet()
			r.awaitGold(1, 1)
			if n := strings.Count(r.log.String(), dir+test.want); n != 1 {
				t.Errorf("the problem was logged %d times:\n%s", n, r.log)
			}
		})
	}
}
