// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// allocation is a class that is allocated to a claim, for one request of the claim.
type allocation struct {
	classes.Pair

	Request string     `json:"request"`
	Device  string     `json:"device"`
	ShareID *types.UID `json:"shareID,omitempty"`
}

// prepared has the allocations of a claim.
type prepared struct {
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	Pods        []types.UID  `json:"pods"` // for which the claim was reserved when it was prepared
	Allocations []allocation `json:"allocations"`
	// Reported is the outcome in the status of the claim.
	Reported string `json:"reported,omitempty"`
}

// record has the prepared claims by UID. A claim is in the file before the kubelet may start a container with it. So a
// driver that was restarted counts the claim, and prepares it again even if its class was removed. A record is not safe
// for concurrent use.
type record struct {
	path   string
	claims map[types.UID]prepared
}

// openRecord reads the file. If there is no file, no claim is prepared.
func openRecord(path string) (*record, error) {
	r := &record{path: path, claims: map[types.UID]prepared{}}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return nil, fmt.Errorf("read the prepared claims: %w", err)
	}
	if err := json.Unmarshal(data, &r.claims); err != nil {
		return nil, fmt.Errorf("read the prepared claims in %s: %w; drain the node, and remove the file", path, err)
	}
	return r, nil
}

// add records a claim. If the file cannot be written, add changes nothing.
func (r *record) add(uid types.UID, claim prepared) error {
	claims := maps.Clone(r.claims)
	claims[uid] = claim
	return r.replace(claims)
}

// report records the outcome in the status of a claim, if the claim is still recorded.
func (r *record) report(uid types.UID, outcome string) error {
	claim, recorded := r.claims[uid]
	if !recorded {
		return nil
	}
	claim.Reported = outcome
	return r.add(uid, claim)
}

// remove removes a claim, if it is recorded.
func (r *record) remove(uid types.UID) error {
	if _, recorded := r.claims[uid]; !recorded {
		return nil
	}
	claims := maps.Clone(r.claims)
	delete(claims, uid)
	return r.replace(claims)
}

func (r *record) replace(claims map[types.UID]prepared) error {
	data, err := json.Marshal(claims)
	if err == nil {
		err = writeFile(r.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record the prepared claims: %w", err)
	}
	r.claims = claims
	return nil
}

// counts returns the number of prepared allocations.
func (r *record) counts() preparedCounts {
	counts := preparedCounts{}
	for _, claim := range r.claims {
		for _, a := range claim.Allocations {
			if counts[a.Pair] == nil {
				counts[a.Pair] = map[string]int{}
			}
			counts[a.Pair][a.Device]++
		}
	}
	return counts
}

// writeFile replaces a file. After a crash of the machine, it has either the old or the new content.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	unfinished := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new") // no other process writes this file
	err := writeSynced(unfinished, data, mode)
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(unfinished))
	}

	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func writeSynced(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}
