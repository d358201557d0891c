// Peer solves the documents of benchmarks/inputs.py with Karpenter's scheduler, as its provisioner
// would, and prints what came of each as one line of JSON.
//
//	peer < documents      solve; nothing but topology, scheduler and solution is timed
//	peer -random 42       print the first 607 numbers of Go's math/rand for a seed
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	provisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const randomLength = 607

// Document is one problem.
type Document struct {
	Case              string
	WellKnown         []string
	ReservationLabel  string
	NodePools         []Pool
	InstanceTypes     []InstanceType
	Templates         []corev1.PodTemplateSpec
	Pods              []int
	Daemons           []corev1.PodTemplateSpec
	Nodes             []Node
	IgnorePreferences bool
}

// Node runs already, with pods of these templates.
type Node struct {
	Name        string
	Labels      map[string]string
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	Pods        []int
}

// Pool is a NodePool of a problem.
type Pool struct {
	Name         string
	Weight       int32
	Labels       map[string]string
	Requirements []Requirement
	Limits       corev1.ResourceList
}

// InstanceType is one kind of machine.
type InstanceType struct {
	Name         string
	Requirements []Requirement
	Offerings    []Offering
	Capacity     corev1.ResourceList
	Overhead     corev1.ResourceList
}

// Offering is one way to buy a machine.
type Offering struct {
	Zone                string
	CapacityType        string
	Price               float64
	Available           bool
	Reservation         string
	ReservationCapacity int
}

// Requirement says which values a label may have.
type Requirement struct {
	Key      string
	Operator corev1.NodeSelectorOperator
	Values   []string
}

// Row is what came of a problem. Cost5 and Cost15 price each claim at its 5th and 15th cheapest
// type, or the last one when it has fewer.
type Row struct {
	Case         string   `json:"case"`
	Pods         int      `json:"pods"`
	Pending      int      `json:"pending"`
	Nodes        int      `json:"nodes"`
	Cost         float64  `json:"cost"`
	Cost5        float64  `json:"cost_5th"`
	Cost15       float64  `json:"cost_15th"`
	Seconds      float64  `json:"seconds"`
	SetupSeconds float64  `json:"setup_seconds"`
	CPUSeconds   float64  `json:"cpu_seconds"`
	PeakRSSMiB   float64  `json:"peak_rss_mib"`
	Workers      int      `json:"workers"`
	Processors   int      `json:"processors"`
	Errors       []string `json:"errors,omitempty"`

	OnRunningNodes int `json:"on_running_nodes"`
}

func main() {
	seed := flag.Int64("random", 0, "print the first numbers of Go's math/rand for this `seed`")
	workers := flag.Int("workers", 5, "how many goroutines try nodes for a pod, as in the reference's own benchmark")
	flag.Parse()
	log.SetLogger(logr.Discard())
	if *seed != 0 {
		printRandom(*seed)
		return
	}
	documents := json.NewDecoder(os.Stdin)
	rows := json.NewEncoder(os.Stdout)
	for {
		var document Document
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fail("reading a document: %v", err)
		}
		row, err := solve(&document, *workers)
		if err != nil {
			fail("%s: %v", document.Case, err)
		}
		if err := rows.Encode(row); err != nil {
			fail("%s: %v", document.Case, err)
		}
	}
}

func solve(document *Document, workers int) (*Row, error) {
	karpenter.WellKnownLabels.Insert(document.WellKnown...)
	cloudprovider.ReservationIDLabel = document.ReservationLabel
	cloudprovider.ReservedCapacityLabels.Insert(document.ReservationLabel)
	sold := machines(document.InstanceTypes)
	pools, instanceTypes := []*karpenter.NodePool{}, map[string][]*cloudprovider.InstanceType{}
	for _, asked := range document.NodePools {
		pools = append(pools, nodePool(asked))
		instanceTypes[asked.Name] = sold
	}
	slices.SortStableFunc(pools, func(a, b *karpenter.NodePool) int {
		return int(*b.Spec.Weight - *a.Spec.Weight)
	})
	pods := pendingPods(document)
	daemons := daemonPods(document.Daemons)
	preferences := options.PreferencePolicyRespect
	solving := []provisioning.Options{
		provisioning.NumConcurrentReconciles(workers),
		provisioning.DisableReservedCapacityFallback,
		provisioning.MinValuesPolicy(options.MinValuesPolicyStrict),
	}
	if document.IgnorePreferences {
		preferences = options.PreferencePolicyIgnore
		solving = append(solving, provisioning.IgnorePreferences)
	}
	ctx := options.ToContext(
		injection.WithControllerName(context.Background(), "provisioner"),
		&options.Options{
			PreferencePolicy:  preferences,
			MinValuesPolicy:   options.MinValuesPolicyStrict,
			IgnoreDRARequests: true,
			FeatureGates:      options.FeatureGates{ReservedCapacity: true},
		},
	)
	store := &memory{Client: fake.NewClientBuilder().Build(), nodes: map[string]*corev1.Node{}}
	cluster := state.NewCluster(clock.RealClock{}, store, nil)
	if err := run(ctx, document, store, cluster); err != nil {
		return nil, err
	}
	nodes := cluster.DeepCopyNodes().Active()
	recorder := events.NewRecorder(&record.FakeRecorder{})
	runtime.GC()

	usedBefore, started := cpuSeconds(), time.Now()
	topology, err := provisioning.NewTopology(ctx, store, cluster, nodes, pools, instanceTypes, pods, solving...)
	if err != nil {
		return nil, err
	}
	scheduler := provisioning.NewScheduler(
		ctx, store, pools, cluster, nodes, topology, instanceTypes, daemons, recorder, clock.RealClock{}, nil, nil, solving...,
	)
	setUp := time.Since(started)
	results, err := scheduler.Solve(ctx, pods)
	took, used := time.Since(started), cpuSeconds()-usedBefore
	if err != nil {
		return nil, err
	}

	row := &Row{
		Case:         document.Case,
		Pods:         len(pods),
		Pending:      len(results.PodErrors),
		Nodes:        len(results.NewNodeClaims),
		Seconds:      took.Seconds(),
		SetupSeconds: setUp.Seconds(),
		CPUSeconds:   used,
		PeakRSSMiB:   peakRSSMiB(),
		Workers:      workers,
		Processors:   runtime.GOMAXPROCS(0),
	}
	for _, node := range results.ExistingNodes {
		row.OnRunningNodes += len(node.Pods)
	}
	for pod, err := range results.PodErrors {
		if len(row.Errors) < 3 {
			row.Errors = append(row.Errors, fmt.Sprintf("%s: %v", pod.Name, err))
		}
	}
	for _, claim := range results.NewNodeClaims {
		prices := prices(claim)
		if len(prices) == 0 {
			return nil, fmt.Errorf("a claim that nothing can be bought for")
		}
		row.Cost += prices[0]
		row.Cost5 += prices[min(5, len(prices))-1]
		row.Cost15 += prices[min(15, len(prices))-1]
	}
	return row, nil
}

// prices returns what the claim's types cost at least, cheapest first.
func prices(claim *provisioning.NodeClaim) []float64 {
	var found []float64
	for _, instanceType := range claim.InstanceTypeOptions {
		if sold := instanceType.Offerings.Available().Compatible(claim.Requirements); len(sold) > 0 {
			found = append(found, sold.Cheapest().Price)
		}
	}
	slices.Sort(found)
	return found
}

func nodePool(asked Pool) *karpenter.NodePool {
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: asked.Name, UID: types.UID(asked.Name)}}
	pool.Spec.Weight = &asked.Weight
	pool.Spec.Limits = karpenter.Limits(asked.Limits)
	pool.Spec.Template.Labels = asked.Labels
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{
		Group: "benchmark.example", Kind: "NodeClass", Name: "default",
	}
	for _, r := range asked.Requirements {
		pool.Spec.Template.Spec.Requirements = append(
			pool.Spec.Template.Spec.Requirements,
			karpenter.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values},
		)
	}
	return pool
}

func machines(asked []InstanceType) []*cloudprovider.InstanceType {
	made := make([]*cloudprovider.InstanceType, 0, len(asked))
	for _, a := range asked {
		requirements := scheduling.NewRequirements()
		for _, r := range a.Requirements {
			requirements.Add(scheduling.NewRequirement(r.Key, r.Operator, r.Values...))
		}
		var offerings cloudprovider.Offerings
		for _, o := range a.Offerings {
			told := map[string]string{
				corev1.LabelTopologyZone:       o.Zone,
				karpenter.CapacityTypeLabelKey: o.CapacityType,
			}
			if o.Reservation != "" {
				told[cloudprovider.ReservationIDLabel] = o.Reservation
			}
			offerings = append(offerings, &cloudprovider.Offering{
				Requirements:        scheduling.NewLabelRequirements(told),
				Price:               o.Price,
				Available:           o.Available,
				ReservationCapacity: o.ReservationCapacity,
			})
		}
		made = append(made, &cloudprovider.InstanceType{
			Name:         a.Name,
			Requirements: requirements,
			Offerings:    offerings,
			Capacity:     a.Capacity,
			Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: a.Overhead},
		})
	}
	return made
}

func pendingPods(document *Document) []*corev1.Pod {
	created := metav1.NewTime(time.Now().Truncate(time.Second))
	pods := make([]*corev1.Pod, 0, len(document.Pods))
	for number, template := range document.Pods {
		pod := podOf(&document.Templates[template], fmt.Sprintf("pod-%d", number))
		pod.CreationTimestamp = created
		pod.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number))
		pods = append(pods, pod)
	}
	return pods
}

// run tells the state and the client of the nodes that run, and of their pods.
func run(ctx context.Context, document *Document, store *memory, cluster *state.Cluster) error {
	for _, asked := range document.Nodes {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Labels: asked.Labels},
			Spec:       corev1.NodeSpec{ProviderID: "peer://" + asked.Name},
			Status:     corev1.NodeStatus{Capacity: asked.Capacity, Allocatable: asked.Allocatable},
		}
		claim := &karpenter.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Labels: asked.Labels},
			Status: karpenter.NodeClaimStatus{
				ProviderID: node.Spec.ProviderID, NodeName: asked.Name, Capacity: asked.Capacity, Allocatable: asked.Allocatable,
			},
		}
		for _, condition := range []string{
			karpenter.ConditionTypeLaunched, karpenter.ConditionTypeRegistered, karpenter.ConditionTypeInitialized,
		} {
			claim.StatusConditions().SetTrue(condition)
		}
		store.nodes[asked.Name] = node
		cluster.UpdateNodeClaim(claim)
		if err := cluster.UpdateNode(ctx, node); err != nil {
			return err
		}
		for number, template := range asked.Pods {
			pod := podOf(&document.Templates[template], fmt.Sprintf("%s-%d", asked.Name, number))
			pod.UID = types.UID(pod.Name)
			pod.Spec.NodeName = asked.Name
			pod.Status.Phase = corev1.PodRunning
			store.pods = append(store.pods, pod)
			if err := cluster.UpdatePod(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// memory answers for pods and nodes like a controller's cache: by copies of what it holds.
type memory struct {
	client.Client
	nodes map[string]*corev1.Node
	pods  []*corev1.Pod
}

func (m *memory) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	wanted, ok := object.(*corev1.Node)
	if !ok {
		return m.Client.Get(ctx, key, object, options...)
	}
	node, ok := m.nodes[key.Name]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	node.DeepCopyInto(wanted)
	return nil
}

func (m *memory) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	wanted, ok := list.(*corev1.PodList)
	if !ok {
		return m.Client.List(ctx, list, options...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	wanted.Items = nil
	for _, pod := range m.pods {
		if (asked.Namespace == "" || asked.Namespace == pod.Namespace) &&
			(asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(pod.Labels))) &&
			(asked.FieldSelector == nil || asked.FieldSelector.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName})) {
			wanted.Items = append(wanted.Items, *pod.DeepCopy())
		}
	}
	return nil
}

func daemonPods(templates []corev1.PodTemplateSpec) []*corev1.Pod {
	var pods []*corev1.Pod
	for number := range templates {
		pods = append(pods, podOf(&templates[number], fmt.Sprintf("agent-%d", number)))
	}
	return pods
}

func podOf(template *corev1.PodTemplateSpec, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name = name
	return pod
}

func cpuSeconds() float64 {
	usage := rusage()
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func peakRSSMiB() float64 { return float64(rusage().Maxrss) / 1024 }

func rusage() syscall.Rusage {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("reading the use of resources: %v", err)
	}
	return usage
}

func printRandom(seed int64) {
	source, ok := rand.NewSource(seed).(rand.Source64)
	if !ok {
		fail("this Go's source of random numbers has no 64 bits")
	}
	for range randomLength {
		fmt.Printf("%016x\n", source.Uint64())
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "peer: "+format+"\n", arguments...)
	os.Exit(1)
}
