// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	kinds := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	}
	if d.modifies {
		kinds = append(kinds, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	for _, kind := range kinds {
		rpc := &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{Type: rpc})
	}
	return response, nil
}

// CreateVolume returns a volume whose ID is the requested name, so that a repeated call returns the same volume.
func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	size := r.GetCapacityRange().GetRequiredBytes()
	if err := d.volumes.grow(r.GetName(), size); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), CapacityBytes: size}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := d.volumes.remove(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume makes the file larger. NodeExpandVolume then makes the loop device and the filesystem larger.
// If the file fail.VOLUME exists next to the file of the volume, ControllerExpandVolume refuses sizes above the size in
// fail.VOLUME, like a driver whose pool is full. If the file offline.VOLUME exists, it refuses attached volumes, like a
// driver that expands volumes only offline.
func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size := r.GetCapacityRange().GetRequiredBytes()
	most, err := d.volumes.most(r.GetVolumeId())
	switch {
	case err != nil:
		return nil, err
	case size > most:
		return nil, status.Errorf(codes.OutOfRange, "the pool has no room for %d bytes", size)
	}
	if err := d.volumes.checkOffline(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := d.volumes.grow(r.GetVolumeId(), size); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume writes the parameters of a VolumeAttributesClass to the file attributes.VOLUME next to the
// file of the volume. It refuses parameters other than iops, like a driver that does not know them.
func (d *driver) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	for name := range r.GetMutableParameters() {
		if name != "iops" {
			return nil, status.Errorf(codes.InvalidArgument, "parameter %q is unknown", name)
		}
	}
	if err := d.volumes.modify(r.GetVolumeId(), r.GetMutableParameters()["iops"]); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
