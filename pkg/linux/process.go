// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// rlimit is a resource limit of a process.
type rlimit struct {
	// `name` is the name in the OCI runtime specification. `title` is the name in /proc/PID/limits (fs/proc/base.c,
	// lnames).
	name, title string
}

// rlimits has all resource limits by their names in class files, which are those of prlimit(1).
func rlimits() map[string]rlimit {
	return map[string]rlimit{
		"as": {"RLIMIT_AS", "Max address space"}, "core": {"RLIMIT_CORE", "Max core file size"},
		"cpu": {"RLIMIT_CPU", "Max cpu time"}, "data": {"RLIMIT_DATA", "Max data size"},
		"fsize": {"RLIMIT_FSIZE", "Max file size"}, "locks": {"RLIMIT_LOCKS", "Max file locks"},
		"memlock": {"RLIMIT_MEMLOCK", "Max locked memory"}, "msgqueue": {"RLIMIT_MSGQUEUE", "Max msgqueue size"},
		"nice": {"RLIMIT_NICE", "Max nice priority"}, "nofile": {"RLIMIT_NOFILE", "Max open files"},
		"nproc": {"RLIMIT_NPROC", "Max processes"}, "rss": {"RLIMIT_RSS", "Max resident set"},
		"rtprio": {"RLIMIT_RTPRIO", "Max realtime priority"}, "rttime": {"RLIMIT_RTTIME", "Max realtime timeout"},
		"sigpending": {"RLIMIT_SIGPENDING", "Max pending signals"}, "stack": {"RLIMIT_STACK", "Max stack size"},
	}
}

func rlimitNames() []string { return sortedKeys(rlimits()) }

// policies has the CPU scheduling policies by name, with their numbers in the kernel (include/uapi/linux/sched.h).
func policies() map[string]int {
	return map[string]int{"other": 0, "fifo": 1, "rr": 2, "batch": 3, "idle": 5}
}

func policyNames() []string { return []string{"other", "batch", "idle", "fifo", "rr"} }

// schedulerText returns the text of classes.SettingScheduler. It leaves out the nice value of a policy with a priority.
func schedulerText(policy int, nice, priority int64) string {
	names := map[int]string{0: "SCHED_OTHER", 1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH", 5: "SCHED_IDLE", 6: "SCHED_DEADLINE"}
	if priority > 0 {
		nice = 0
	}
	return words("policy", names[policy], "nice", strconv.FormatInt(nice, 10), "priority", strconv.FormatInt(priority, 10))
}

// ioClasses has the classes of I/O priorities by name, with their numbers in the kernel (include/uapi/linux/ioprio.h).
func ioClasses() map[string]int { return map[string]int{"realtime": 1, "best-effort": 2, "idle": 3} }

func ioClassNames() []string { return []string{"best-effort", "idle", "realtime"} }

// ioPriorityText returns the text of classes.SettingIOPriority.
func ioPriorityText(class, level int) string {
	names := map[int]string{1: "IOPRIO_CLASS_RT", 2: "IOPRIO_CLASS_BE", 3: "IOPRIO_CLASS_IDLE"}
	return words("class", names[class], "priority", strconv.Itoa(level))
}

// process reads the properties of a process from the kernel.
type process struct {
	fs  FS
	pid int
}

// read returns the text of a setting of the process. The error for a process that has ended is classes.ErrEnded.
func (p process) read(setting classes.Setting) (string, error) {
	var file string
	var parse func(content string) (string, error)
	switch setting.Name {
	case classes.SettingOOMScoreAdj:
		file, parse = "oom_score_adj", func(content string) (string, error) { return strings.TrimSpace(content), nil }
	case classes.SettingRlimit:
		file, parse = "limits", func(content string) (string, error) { return parseLimits(content, setting.Key) }
	case classes.SettingScheduler:
		file, parse = "stat", parseStat
	case classes.SettingMemoryPolicy:
		file, parse = "numa_maps", parseNUMA
	case classes.SettingIOPriority:
		priority, err := p.fs.IOPriority(p.pid)
		return ioPriorityText(priority>>13&7, priority&7), p.ended(err)
	default:
		return "", fmt.Errorf("%s cannot be read from the kernel", setting)
	}

	data, err := p.file(file)
	if err != nil {
		return "", err
	}
	return parse(string(data))
}

// opener is an FS that can read the beginning of a file.
type opener interface {
	Open(path string) (io.ReadCloser, error)
}

// file returns the content of a file of /proc/PID. It reads only the beginning of a long file: for each line of numa_maps, the kernel
// walks through memory.
func (p process) file(name string) ([]byte, error) {
	file := fmt.Sprintf("/proc/%d/%s", p.pid, name)
	fs, ok := p.fs.(opener)
	if !ok {
		data, err := p.fs.ReadFile(file)
		return data, p.ended(err)
	}

	opened, err := fs.Open(file)
	if err != nil {
		return nil, p.ended(err)
	}
	defer func() { _ = opened.Close() }()
	data := make([]byte, 4096) // all other files are shorter
	n, err := io.ReadFull(opened, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data[:n], p.ended(err)
}

func (p process) ended(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d %w", p.pid, classes.ErrEnded)
	}
	return err
}

// parseLimits returns the text of a resource limit from the content of /proc/PID/limits.
func parseLimits(limits, name string) (string, error) {
	title := ""
	for _, limit := range rlimits() {
		if limit.name == name {
			title = limit.title
		}
	}
	for line := range strings.Lines(limits) {
		rest, found := strings.CutPrefix(line, title+" ")
		fields := strings.Fields(rest)
		if title == "" || !found || len(fields) < 2 {
			continue
		}
		soft, softErr := parseLimit(fields[0])
		hard, hardErr := parseLimit(fields[1])
		return rlimitText(soft, hard), errors.Join(softErr, hardErr)
	}
	return "", fmt.Errorf("/proc/PID/limits has no %s", name)
}

func parseLimit(text string) (uint64, error) {
	if text == unlimited {
		return math.MaxUint64, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// parseStat returns the text of the scheduling policy from the content of /proc/PID/stat.
func parseStat(stat string) (string, error) {
	const nice, priority, policy = 19, 40, 41 // as in the page proc_pid_stat of section 5
	var numbers []int64
	for _, field := range []int{policy, nice, priority} {
		number, err := strconv.ParseInt(cgroup.StatField([]byte(stat), field), 10, 64)
		if err != nil {
			return "", fmt.Errorf("field %d of /proc/PID/stat: %w", field, err)
		}
		numbers = append(numbers, number)
	}
	return schedulerText(int(numbers[0]), numbers[1], numbers[2]), nil
}

// sameText reports whether a process has the value that a class sets. For a resource limit of a process that is not
// starting, it compares only the hard limit, because programs raise their soft limits: e.g. each Go program raises its
// soft limit of open files.
func sameText(setting classes.Setting, has, wanted string, starting bool) bool {
	if setting.Name != classes.SettingRlimit || starting {
		return has == wanted
	}
	return wordOf(has, "hard") == wordOf(wanted, "hard")
}
