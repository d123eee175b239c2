// Command go_allocator answers the lines of `dray allocate` with the upstream structured allocator, so that both can be
// compared on the same inputs. As in kube-scheduler, an allocator is made for every pod from all slices and the allocated
// state; nodes are tried one after another.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type line struct {
	ID              json.RawMessage                `json:"id,omitempty"`
	Features        map[string]bool                `json:"features"`
	Node            *v1.Node                       `json:"node"`
	Nodes           []*v1.Node                     `json:"nodes"`
	Classes         []*resourceapi.DeviceClass     `json:"classes"`
	Slices          []*resourceapi.ResourceSlice   `json:"slices"`
	AllocatedClaims []*resourceapi.ResourceClaim   `json:"allocatedClaims"`
	Claims          []*resourceapi.ResourceClaim   `json:"claims"`
	Pods            [][]*resourceapi.ResourceClaim `json:"pods"`
	Rotate          bool                           `json:"rotate"`
}

type answer struct {
	ID            json.RawMessage                `json:"id,omitempty"`
	OK            bool                           `json:"ok"`
	Results       []resourceapi.AllocationResult `json:"results,omitempty"`
	Error         string                         `json:"error,omitempty"`
	NodeError     bool                           `json:"nodeError,omitempty"`
	Scheduled     int                            `json:"scheduled,omitempty"`
	Unschedulable int                            `json:"unschedulable,omitempty"`
	Micros        int64                          `json:"micros"`
	LastMicros    int64                          `json:"lastMicros,omitempty"`
	LoadMicros    int64                          `json:"loadMicros,omitempty"`
	HeapBytes     uint64                         `json:"heapBytes,omitempty"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s not found", name)
}

// cluster is what stays the same from pod to pod, and what is taken.
type cluster struct {
	features structured.Features
	classes  classes
	slices   []*resourceapi.ResourceSlice
	state    structured.AllocatedState
	cache    *cel.Cache
	limit    time.Duration
}

func newCluster(in *line, limit time.Duration) *cluster {
	c := &cluster{features: features(in.Features), classes: classes{}, slices: in.Slices, limit: limit}
	for _, class := range in.Classes {
		c.classes[class.Name] = class
	}
	c.state = structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	c.cache = cel.NewCache(10, cel.Features{
		EnableConsumableCapacity: c.features.ConsumableCapacity, EnableListTypeAttributes: c.features.ListTypeAttributes})
	for _, claim := range in.AllocatedClaims {
		if claim.Status.Allocation != nil {
			c.take(claim.Status.Allocation)
		}
	}
	return c
}

func features(given map[string]bool) structured.Features {
	on := func(name string) bool {
		value, ok := given[name]
		return value || !ok
	}
	return structured.Features{
		AdminAccess:             on("AdminAccess"),
		CompatibilityGroups:     on("CompatibilityGroups"),
		ConsumableCapacity:      on("ConsumableCapacity"),
		DerivedAttributes:       on("DerivedAttributes"),
		DeviceBindingAndStatus:  on("DeviceBindingAndStatus"),
		DeviceTaints:            on("DeviceTaints"),
		FractionalCapacityRange: on("FractionalCapacityRange"),
		ListTypeAttributes:      on("ListTypeAttributes"),
		OptionalNodeOperations:  on("OptionalNodeOperations"),
		PartitionableDevices:    on("PartitionableDevices"),
		PrioritizedList:         on("PrioritizedList"),
	}
}

func (c *cluster) take(allocation *resourceapi.AllocationResult) {
	for _, result := range allocation.Devices.Results {
		if result.AdminAccess != nil && *result.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		if result.ShareID == nil || !c.features.ConsumableCapacity {
			c.state.AllocatedDevices.Insert(id)
			continue
		}
		c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
		if result.ConsumedCapacity != nil {
			c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
}

// defaulted does what the API server does to a claim before a scheduler sees it.
func defaulted(claims []*resourceapi.ResourceClaim) {
	fill := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	for _, claim := range claims {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			if request.Exactly != nil {
				fill(&request.Exactly.AllocationMode, &request.Exactly.Count)
			}
			for j := range request.FirstAvailable {
				fill(&request.FirstAvailable[j].AllocationMode, &request.FirstAvailable[j].Count)
			}
		}
	}
}

// try puts the claims of one pod on the first node that takes them, from node number `from` on.
func (c *cluster) try(nodes []*v1.Node, from int, claims []*resourceapi.ResourceClaim) (int, []resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, c.features, c.state, c.classes, c.slices, c.cache)
	if err != nil {
		return 0, nil, err
	}
	var nodeError error
	for i := range nodes {
		number := (from + i) % len(nodes)
		results, err := allocator.Allocate(ctx, nodes[number], claims)
		switch {
		case errors.Is(err, structured.ErrFailedAllocationOnNode):
			nodeError = err
		case err != nil:
			return 0, nil, err
		case results != nil:
			return number, results, nil
		}
	}
	return 0, nil, nodeError
}

func one(in *line, limit time.Duration) answer {
	c := newCluster(in, limit)
	defaulted(in.Claims)
	began := time.Now()
	_, results, err := c.try([]*v1.Node{in.Node}, 0, in.Claims)
	out := answer{ID: in.ID, OK: err == nil && results != nil, Results: results, Micros: time.Since(began).Microseconds()}
	if err != nil {
		out.Error, out.NodeError = err.Error(), errors.Is(err, structured.ErrFailedAllocationOnNode)
	}
	return out
}

func many(in *line, limit time.Duration) answer {
	c := newCluster(in, limit)
	out := answer{ID: in.ID, OK: true}
	for _, claims := range in.Pods {
		defaulted(claims)
	}
	next := 0
	began := time.Now()
	for _, claims := range in.Pods {
		podBegan := time.Now()
		from := 0
		if in.Rotate {
			from = next
		}
		number, results, err := c.try(in.Nodes, from, claims)
		out.LastMicros = time.Since(podBegan).Microseconds()
		if err != nil {
			out.Error = err.Error()
		}
		if results == nil {
			out.Unschedulable++
			continue
		}
		out.Scheduled++
		next = (number + 1) % len(in.Nodes)
		for i := range results {
			c.take(&results[i])
		}
	}
	out.Micros = time.Since(began).Microseconds()
	return out
}

// heap is what is reachable now, or 0 where nobody asked: it costs a collection.
func heap(wanted bool) uint64 {
	if !wanted {
		return 0
	}
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func main() {
	limit := flag.Duration("pod-timeout", 20*time.Second, "give up on a pod after this time")
	memory := flag.Bool("memory", false, "report the memory that each line's objects take")
	flag.Parse()
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		raw, readErr := in.ReadBytes('\n')
		if len(raw) > 1 {
			var parsed line
			before := heap(*memory)
			began := time.Now()
			if err := json.Unmarshal(raw, &parsed); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			load := time.Since(began).Microseconds()
			raw = nil
			var result answer
			if parsed.Pods != nil {
				result = many(&parsed, *limit)
			} else {
				result = one(&parsed, *limit)
			}
			result.LoadMicros = load
			if after := heap(*memory); after > before {
				result.HeapBytes = after - before
			}
			if err := out.Encode(result); err != nil {
				os.Exit(1)
			}
			runtime.KeepAlive(&parsed)
		}
		if readErr != nil {
			return
		}
	}
}
