// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		rpc := &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{Type: rpc})
	}
	return response, nil
}

// NodeStageVolume attaches the volume. Unless the volume has mode Block, NodeStageVolume mounts the volume's filesystem
// at the staging path.
func (d *driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := d.volumes.grow(r.GetVolumeId(), smallest); err != nil { // this node has no file if the driver of another node has created the volume
		return nil, err
	}

	isBlock := r.GetVolumeCapability().GetBlock() != nil
	if !isBlock {
		if err := d.volumes.format(ctx, r.GetVolumeId()); err != nil {
			return nil, err
		}
	}

	device, err := d.volumes.attach(ctx, r.GetVolumeId())
	if err != nil || isBlock {
		return &csi.NodeStageVolumeResponse{}, err
	}

	if err := os.MkdirAll(r.GetStagingTargetPath(), 0o750); err != nil {
		return nil, err
	}

	return &csi.NodeStageVolumeResponse{}, mount(device, r.GetStagingTargetPath(), 0)
}

// NodeUnstageVolume detaches the volume.
func (d *driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, d.volumes.detach(ctx, r.GetVolumeId())
}

// NodePublishVolume mounts the staged filesystem, or the device of a volume of mode Block, for a pod.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := r.GetTargetPath()
	if r.GetVolumeCapability().GetBlock() == nil {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, mount(r.GetStagingTargetPath(), target, unix.MS_BIND)
	}

	device, err := d.volumes.device(r.GetVolumeId())
	if err != nil {
		return nil, err
	}

	file, err := os.OpenFile(target, os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	return &csi.NodePublishVolumeResponse{}, errors.Join(file.Close(), mount(device, target, unix.MS_BIND))
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.GetTargetPath())
}

// NodeExpandVolume makes the loop device and the filesystem larger. If the file key.VOLUME exists next to the file of
// the volume, NodeExpandVolume needs a secret whose value "key" is the content of this file, like a driver for
// encrypted volumes.
func (d *driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := d.volumes.unlock(r.GetVolumeId(), r.GetSecrets()["key"]); err != nil {
		return nil, err
	}
	device, err := d.volumes.attach(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := execute(ctx, "losetup", "-c", device); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodeExpandVolumeResponse{}, nil
	}
	return &csi.NodeExpandVolumeResponse{}, execute(ctx, "resize2fs", device)
}

// mount does nothing if there is a mount at `target`, because the kubelet repeats calls.
func mount(source, target string, flags uintptr) error {
	if mounted, err := mountinfo.Mounted(target); err != nil || mounted {
		return err
	}
	return unix.Mount(source, target, "ext4", flags, "")
}

// unmount does nothing if there is no mount at `path`.
func unmount(path string) error {
	err := unix.Unmount(path, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
