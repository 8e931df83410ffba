// A fake kubelet's pod-resources service over a real gRPC server, with the kubelet's own types: `server SOCKET PODS`.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type server struct {
	v1.UnimplementedPodResourcesListerServer
	pods int
}

func (s server) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	answer := &v1.ListPodResourcesResponse{}
	for n := 0; n < s.pods; n++ {
		devices := &v1.ContainerDevices{
			ResourceName: "nvidia.com/gpu",
			DeviceIds:    []string{fmt.Sprintf("GPU-%d", n), fmt.Sprintf("other-%d", n)},
			Topology:     &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}},
		}
		claim := &v1.DynamicResource{ClaimName: "claim", ClaimNamespace: "red", ClaimResources: []*v1.ClaimResource{
			{DriverName: "gpu.nvidia.com", PoolName: "r01-u01", DeviceName: "gpu-0"}}}
		container := &v1.ContainerResources{
			Name: "main", CpuIds: []int64{0, 1, 300}, Devices: []*v1.ContainerDevices{devices},
			Memory:           []*v1.ContainerMemory{{MemoryType: "memory", Size: 1 << 40}},
			DynamicResources: []*v1.DynamicResource{claim},
		}
		answer.PodResources = append(answer.PodResources, &v1.PodResources{
			Name: fmt.Sprintf("train-%d", n), Namespace: "red", Containers: []*v1.ContainerResources{container}})
	}
	return answer, nil
}

func main() {
	pods, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, server{pods: pods})
	panic(s.Serve(listener))
}
