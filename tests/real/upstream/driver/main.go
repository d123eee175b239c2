// A DRA driver on the upstream library, and an exporter on the upstream client: what others would run against a kubelet.
//
//	driver serve   KUBECONFIG NODE ROOT [v1|v1beta1]   publish two devices, prepare and unprepare claims, say how devices are
//	driver exports SOCKET [NAMESPACE NAME]             print what the pod resources socket says, as JSON
//
// Each call that the driver gets is one line on stdout: prepare CLAIM, unprepare CLAIM. The health of its devices is the text in
// ROOT/health: "Healthy", or "Unhealthy" and why.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const name = "gpu.tests.example.com"

type driver struct{ node, root string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if os.Args[1] == "serve" {
		err = serve(ctx, os.Args[2], os.Args[3], os.Args[4], append(os.Args[5:], "")[0])
	} else {
		err = exports(ctx, os.Args[2], os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, kubeconfig, node, root, version string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(root, "plugins", name)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, &driver{node, root},
		kubeletplugin.DriverName(name),
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(root, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.NodeV1(version != "v1beta1"),
		kubeletplugin.NodeV1beta1(version != "v1"),
		kubeletplugin.HealthV1(version != "v1beta1"),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, published(node)); err != nil {
		return err
	}
	for ctx.Err() == nil && helper.RegistrationStatus() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if status := helper.RegistrationStatus(); status != nil {
		fmt.Println("registered", status.PluginRegistered, status.Error)
	}
	<-ctx.Done()
	return nil
}

func published(node string) resourceslice.DriverResources {
	model := "Upstream"
	devices := []resourceapi.Device{}
	for _, device := range []string{"gpu-0", "gpu-1"} {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}}
		devices = append(devices, resourceapi.Device{Name: device, Attributes: attributes})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		fmt.Println("prepare", claim.Name)
		if claim.Annotations["tests.example.com/prepare"] == "fail" {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: fmt.Errorf("claim %s is not to be prepared", claim.Name)}
			continue
		}
		var prepared []kubeletplugin.Device
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver == name {
				id := fmt.Sprintf("tests.example.com/gpu=%s-%s", claim.UID, result.Device)
				prepared = append(prepared, kubeletplugin.Device{
					Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, CDIDeviceIDs: []string{id},
				})
			}
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: prepared}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		fmt.Println("unprepare", claim.Name)
		results[claim.UID] = nil
	}
	return results, nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
}

func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	last := "-"
	for {
		text, _ := os.ReadFile(filepath.Join(d.root, "health"))
		if now := strings.TrimSpace(string(text)); now != last {
			last = now
			status, message, _ := strings.Cut(last, " ")
			var devices []kubeletplugin.DeviceHealth
			for _, device := range []string{"gpu-0", "gpu-1"} {
				devices = append(devices, kubeletplugin.DeviceHealth{
					PoolName: d.node, DeviceName: device, Health: kubeletplugin.HealthStatus(status), Message: message,
					LastUpdated: time.Now(), HealthCheckTimeout: time.Hour,
				})
			}
			select {
			case <-ctx.Done():
				return nil
			case reports <- kubeletplugin.DeviceHealthReport{Devices: devices}:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func exports(ctx context.Context, socket string, pod []string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := podresources.NewPodResourcesListerClient(connection)
	told := map[string]any{}
	if len(pod) == 2 {
		told["get"], err = client.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: pod[0], PodName: pod[1]})
	} else {
		if told["list"], err = client.List(ctx, &podresources.ListPodResourcesRequest{}); err == nil {
			told["allocatable"], err = client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
		}
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}
