// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import "log/slog"

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
