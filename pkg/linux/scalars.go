// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// maxEcho is the number of bytes of a wrong value that an error repeats.
const maxEcho = 64

func quote(text string) string { return strconv.Quote(printable.Text(text, maxEcho)) }

// scalar returns the text of a field, or "" if it is missing or is reported as wrong. The parameter `want` describes what it must be.
func scalar(f *classes.Field, want string) string {
	switch {
	case f == nil:
	case !f.IsScalar():
		f.Report("must be %s", want)
	default:
		return f.Scalar()
	}
	return ""
}

func truth(f *classes.Field) bool {
	text := scalar(f, "true or false")
	if text != "" && text != "true" && text != "false" {
		f.Report("must be true or false, not %s", quote(text))
	}
	return text == "true"
}

// oneOf returns the word of a field. If the field is missing or wrong, it returns the first word.
func oneOf(f *classes.Field, words ...string) string {
	want := "one of " + strings.Join(words, ", ")
	text := scalar(f, want)
	switch {
	case slices.Contains(words, text):
		return text
	case text != "":
		f.Report("must be %s, not %s", want, quote(text))
	}
	return words[0]
}

// integer returns a number in a range.
func integer(f *classes.Field, least, most int64) (number int64, ok bool) {
	want := "a whole number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
	text := scalar(f, want)
	if text == "" {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < least || number > most {
		f.Report("must be %s, not %s", want, quote(text))
		return 0, false
	}
	return number, true
}

// percent returns the number before a "%". `is` reports whether the text has a "%". `ok` is false if the number is reported as wrong.
func percent(f *classes.Field, text string) (number int64, is, ok bool) {
	digits, is := strings.CutSuffix(text, "%")
	if !is {
		return 0, false, false
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number < 1 || number > 100 {
		f.Report("must be from 1%% to 100%%, not %s", quote(text))
		return 0, true, false
	}
	return number, true, true
}

// size returns a number of bytes, e.g. of 64Mi.
func size(f *classes.Field, text string) (bytes int64, ok bool) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() < 0 || quantity.CmpInt64(math.MaxInt64) >= 0 {
		f.Report("must be a size like 512Mi, a share of the memory limit like 80%%, or max, not %s", quote(text))
		return 0, false
	}
	return quantity.Value(), true
}

// duration returns a number of microseconds, e.g. of 20ms.
func duration(f *classes.Field, text string) (micros int64, ok bool) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Microsecond || d > time.Second {
		f.Report("must be a share of the CPU limit like 50%%, or a time from 1us to 1s like 20ms, not %s", quote(text))
		return 0, false
	}
	return d.Microseconds(), true
}
