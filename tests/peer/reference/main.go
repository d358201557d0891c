// Reference answers clusters of `karpenter plan --offline` as Karpenter's own provisioner would: its
// cluster state, its check of pods and its scheduler, over a client that holds the objects in memory.
//
//	reference < documents
//
// A document is {"name", "cluster", "instanceTypes", "runs"}: the object of a cluster file, the list
// of an instance types file in the KWOK provider's format, and how often to ask, for ties are broken
// by chance. An answer is one line of JSON for each document, in their order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	provisioningscheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/pod"
)

// reservationID is the label that tells reservations apart; the KWOK provider has none.
const reservationID = "example.com/reservation-id"

// Document is one cluster.
type Document struct {
	Name              string
	Cluster           Cluster
	InstanceTypes     json.RawMessage
	Runs              int
	IgnorePreferences bool
}

// Cluster is what a cluster file holds.
type Cluster struct {
	NodePools              []*karpenter.NodePool
	NodeClaims             []*karpenter.NodeClaim
	Nodes                  []*corev1.Node
	Pods                   []*corev1.Pod
	BoundPods              []*corev1.Pod
	DaemonSetPods          []*corev1.Pod
	Namespaces             []*corev1.Namespace
	PersistentVolumes      []*corev1.PersistentVolume
	PersistentVolumeClaims []*corev1.PersistentVolumeClaim
	StorageClasses         []*storagev1.StorageClass
	CSINodes               []*storagev1.CSINode
	VolumeAttachments      []*storagev1.VolumeAttachment
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget
}

// Answer is what came of a document, once for each run.
type Answer struct {
	Name string `json:"name"`
	Runs []Run  `json:"runs"`
}

// Run is one plan. Unschedulable holds the reason by pod, of ignored pods too.
type Run struct {
	NodeClaims    []Claim             `json:"nodeClaims"`
	ExistingNodes map[string][]string `json:"existingNodes"`
	Unschedulable map[string]string   `json:"unschedulable"`
	Error         string              `json:"error,omitempty"`
}

// Claim is a NodeClaim that would be launched.
type Claim struct {
	NodePool      string   `json:"nodePool"`
	Pods          []string `json:"pods"`
	InstanceTypes []string `json:"instanceTypes"`
	Requirements  []string `json:"requirements"`
}

func main() {
	log.SetLogger(logr.Discard())
	cloudprovider.ReservationIDLabel = reservationID
	cloudprovider.ReservedCapacityLabels.Insert(reservationID)
	wellKnown := karpenter.WellKnownLabels.Clone()
	documents, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var document Document
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fail("reading a document: %v", err)
		}
		answer := Answer{Name: document.Name}
		for range max(document.Runs, 1) {
			karpenter.WellKnownLabels = wellKnown.Clone()
			answer.Runs = append(answer.Runs, solveSafely(&document))
		}
		if err := answers.Encode(answer); err != nil {
			fail("%s: %v", document.Name, err)
		}
	}
}

// solveSafely keeps one document that the reference cannot bear from ending the others.
func solveSafely(document *Document) (run Run) {
	defer func() {
		if trouble := recover(); trouble != nil {
			run = Run{Error: fmt.Sprintf("panic: %v", trouble)}
		}
	}()
	run, err := solve(document)
	if err != nil {
		return Run{Error: err.Error()}
	}
	return run
}

func solve(document *Document) (Run, error) {
	cluster := completed(&document.Cluster)
	preferences := options.PreferencePolicyRespect
	if document.IgnorePreferences {
		preferences = options.PreferencePolicyIgnore
	}
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), &options.Options{
		PreferencePolicy:  preferences,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		CPURequests:       1000,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
		IgnoreDRARequests: true,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true},
	})
	provider, err := newProvider(ctx, document.InstanceTypes)
	if err != nil {
		return Run{}, err
	}
	clock := clocktesting.NewFakeClock(latest(cluster))
	store := clientOf(cluster)
	known := state.NewCluster(clock, store, provider)
	if err := fillState(ctx, store, known, cluster); err != nil {
		return Run{}, err
	}
	recorder := &recorder{messages: map[string]string{}}
	provisioner := provisioning.NewProvisioner(store, recorder, provider, known, clock, nil)
	asked, err := askedFor(ctx, store, known)
	if err != nil {
		return Run{}, err
	}
	results, err := provisioner.Schedule(ctx)
	if err != nil {
		return Run{}, err
	}
	return runOf(results, asked, recorder), nil
}

// askedFor names the pods that the provisioner asks about: those that wait and those of nodes that go.
func askedFor(ctx context.Context, store client.Client, known *state.Cluster) ([]string, error) {
	var pods corev1.PodList
	if err := store.List(ctx, &pods); err != nil {
		return nil, err
	}
	var names []string
	for i := range pods.Items {
		if pod.IsProvisionable(&pods.Items[i]) {
			names = append(names, key(&pods.Items[i]))
		}
	}
	going, err := known.DeepCopyNodes().Deleting().CurrentlyReschedulablePods(
		ctx, store, clocktesting.NewFakeClock(time.Now()), &recorder{messages: map[string]string{}},
	)
	for _, p := range going {
		names = append(names, key(p))
	}
	return names, err
}

func runOf(results provisioningscheduling.Results, asked []string, recorder *recorder) Run {
	run := Run{ExistingNodes: map[string][]string{}, Unschedulable: map[string]string{}}
	placed := map[string]bool{}
	keys := func(pods []*corev1.Pod) []string {
		names := make([]string, 0, len(pods))
		for _, p := range pods {
			names = append(names, key(p))
			placed[key(p)] = true
		}
		return names
	}
	for _, claim := range results.NewNodeClaims {
		found := Claim{NodePool: claim.NodePoolName, Pods: keys(claim.Pods)}
		for _, instanceType := range claim.InstanceTypeOptions {
			found.InstanceTypes = append(found.InstanceTypes, instanceType.Name)
		}
		slices.Sort(found.InstanceTypes)
		for _, requirement := range claim.Requirements {
			found.Requirements = append(found.Requirements, requirement.String())
		}
		slices.Sort(found.Requirements)
		run.NodeClaims = append(run.NodeClaims, found)
	}
	for _, node := range results.ExistingNodes {
		if len(node.Pods) > 0 {
			run.ExistingNodes[node.Name()] = keys(node.Pods)
		}
	}
	for p, err := range results.PodErrors {
		run.Unschedulable[key(p)] = err.Error()
	}
	for _, name := range asked {
		if _, ok := run.Unschedulable[name]; !ok && !placed[name] {
			run.Unschedulable[name] = "ignored: " + recorder.messages[name]
		}
	}
	return run
}

// fillState tells the state of every object, as its controllers would.
func fillState(ctx context.Context, store client.Client, known *state.Cluster, cluster *Cluster) error {
	for _, claim := range cluster.NodeClaims {
		known.UpdateNodeClaim(claim.DeepCopy())
	}
	for _, node := range cluster.Nodes {
		if err := known.UpdateNode(ctx, node.DeepCopy()); err != nil {
			return err
		}
	}
	var daemonSets appsv1.DaemonSetList
	if err := store.List(ctx, &daemonSets); err != nil {
		return err
	}
	for i := range daemonSets.Items {
		if err := known.UpdateDaemonSet(ctx, &daemonSets.Items[i]); err != nil {
			return err
		}
	}
	var pods corev1.PodList
	if err := store.List(ctx, &pods); err != nil {
		return err
	}
	for i := range pods.Items {
		// A pod of a node that nobody knows waits for its node; its event is handled then.
		if err := known.UpdatePod(ctx, &pods.Items[i]); err != nil && pods.Items[i].Spec.NodeName == "" {
			return err
		}
	}
	return nil
}

func latest(cluster *Cluster) time.Time {
	newest := time.Unix(0, 0)
	for _, pods := range [][]*corev1.Pod{cluster.Pods, cluster.BoundPods} {
		for _, p := range pods {
			if p.CreationTimestamp.After(newest) {
				newest = p.CreationTimestamp.Time
			}
		}
	}
	return newest
}

// completed copies a cluster and fills in what an API server and its controllers would.
func completed(given *Cluster) *Cluster {
	cluster := &Cluster{}
	encoded, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(encoded, cluster)
	}
	if err != nil {
		fail("copying a cluster: %v", err)
	}
	for _, pool := range cluster.NodePools {
		pool.UID = orUID(pool.UID, "pool", pool.Name)
		pool.StatusConditions().SetTrue(karpenter.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpenter.ConditionTypeNodeClassReady)
	}
	for _, claim := range cluster.NodeClaims {
		claim.UID = orUID(claim.UID, "claim", claim.Name)
	}
	for _, pods := range [][]*corev1.Pod{cluster.Pods, cluster.BoundPods, cluster.DaemonSetPods} {
		for _, p := range pods {
			p.Namespace = orDefault(p.Namespace, "default")
			p.UID = orUID(p.UID, p.Namespace, p.Name)
			completePod(p)
		}
	}
	for _, claim := range cluster.PersistentVolumeClaims {
		claim.Namespace = orDefault(claim.Namespace, "default")
	}
	for _, budget := range cluster.PodDisruptionBudgets {
		budget.Namespace = orDefault(budget.Namespace, "default")
	}
	completeNamespaces(cluster)
	return cluster
}

func completePod(p *corev1.Pod) {
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			for name, amount := range containers[i].Resources.Limits {
				if _, asked := containers[i].Resources.Requests[name]; asked {
					continue
				}
				if containers[i].Resources.Requests == nil {
					containers[i].Resources.Requests = corev1.ResourceList{}
				}
				containers[i].Resources.Requests[name] = amount
			}
		}
	}
	if p.Spec.NodeName != "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return
	}
	if len(p.Spec.SchedulingGates) == 0 {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		})
	}
}

func completeNamespaces(cluster *Cluster) {
	known := map[string]*corev1.Namespace{}
	for _, namespace := range cluster.Namespaces {
		known[namespace.Name] = namespace
	}
	for _, pods := range [][]*corev1.Pod{cluster.Pods, cluster.BoundPods} {
		for _, p := range pods {
			if known[p.Namespace] == nil {
				known[p.Namespace] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}
				cluster.Namespaces = append(cluster.Namespaces, known[p.Namespace])
			}
		}
	}
	for name, namespace := range known {
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		namespace.Labels[corev1.LabelMetadataName] = name
	}
}

func daemonSetOf(p *corev1.Pod) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec,
			},
		},
	}
}

func clientOf(cluster *Cluster) client.Client {
	var objects []client.Object
	add := func(object client.Object) {
		object.SetResourceVersion("")
		if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
			object.SetFinalizers([]string{"example.com/held"}) // the client refuses such objects without
		}
		objects = append(objects, object)
	}
	addAll(add, cluster.NodePools)
	addAll(add, cluster.NodeClaims)
	addAll(add, cluster.Nodes)
	addAll(add, cluster.Pods)
	addAll(add, cluster.BoundPods)
	addAll(add, cluster.Namespaces)
	addAll(add, cluster.PersistentVolumes)
	addAll(add, cluster.PersistentVolumeClaims)
	addAll(add, cluster.StorageClasses)
	addAll(add, cluster.CSINodes)
	addAll(add, cluster.VolumeAttachments)
	addAll(add, cluster.PodDisruptionBudgets)
	for _, p := range cluster.DaemonSetPods {
		add(daemonSetOf(p))
	}
	for _, pool := range cluster.NodePools {
		ref := pool.Spec.Template.Spec.NodeClassRef
		class := &v1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}
		if !slices.ContainsFunc(objects, func(o client.Object) bool {
			_, ok := o.(*v1alpha1.KWOKNodeClass)
			return ok && o.GetName() == ref.Name
		}) {
			add(class)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...)
	return withIndices(builder).WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build()
}

// get asks for volumes as an API server reads such a question: they have no namespace.
func get(
	ctx context.Context, store client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	if _, ok := object.(*corev1.PersistentVolume); ok {
		key.Namespace = ""
	}
	return store.Get(ctx, key, object, opts...)
}

func withIndices(builder *fake.ClientBuilder) *fake.ClientBuilder {
	return builder.
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string {
			return []string{o.(*corev1.Node).Spec.ProviderID}
		}).
		WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
		}).
		WithIndex(&karpenter.NodeClaim{}, "status.providerID", func(o client.Object) []string {
			return []string{o.(*karpenter.NodeClaim).Status.ProviderID}
		}).
		WithIndex(&karpenter.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) []string {
			return []string{o.(*karpenter.NodeClaim).Spec.NodeClassRef.Group}
		}).
		WithIndex(&karpenter.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) []string {
			return []string{o.(*karpenter.NodeClaim).Spec.NodeClassRef.Kind}
		}).
		WithIndex(&karpenter.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) []string {
			return []string{o.(*karpenter.NodeClaim).Spec.NodeClassRef.Name}
		}).
		WithIndex(&karpenter.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) []string {
			return []string{o.(*karpenter.NodePool).Spec.Template.Spec.NodeClassRef.Group}
		}).
		WithIndex(&karpenter.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) []string {
			return []string{o.(*karpenter.NodePool).Spec.Template.Spec.NodeClassRef.Kind}
		}).
		WithIndex(&karpenter.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) []string {
			return []string{o.(*karpenter.NodePool).Spec.Template.Spec.NodeClassRef.Name}
		})
}

func addAll[T client.Object](add func(client.Object), objects []T) {
	for _, object := range objects {
		add(object)
	}
}

func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func orUID(uid types.UID, parts ...string) types.UID {
	if uid == "" {
		return types.UID(strings.Join(parts, "/"))
	}
	return uid
}

// recorder keeps the last message about each pod.
type recorder struct {
	lock     sync.Mutex
	messages map[string]string
}

func (r *recorder) Publish(published ...events.Event) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, event := range published {
		if p, ok := event.InvolvedObject.(*corev1.Pod); ok {
			r.messages[key(p)] = event.Message
		}
	}
}

// provider sells what an instance types file lists, by the KWOK provider's reading of it.
type provider struct {
	instanceTypes []*cloudprovider.InstanceType
}

func newProvider(ctx context.Context, listed json.RawMessage) (*provider, error) {
	file, err := os.CreateTemp("", "instance-types-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(listed); err != nil {
		return nil, err
	}
	named := kwokoptions.ToContext(ctx, &kwokoptions.Options{InstanceTypesFilePath: file.Name()})
	instanceTypes, err := kwok.ConstructInstanceTypes(named)
	if err != nil {
		return nil, err
	}
	// The KWOK provider sells everything; a file may describe a shortage nevertheless.
	var written []struct {
		Offerings []struct{ Available *bool }
	}
	if err := json.Unmarshal(listed, &written); err != nil {
		return nil, err
	}
	for i, entry := range written {
		for j, offering := range entry.Offerings {
			instanceTypes[i].Offerings[j].Available = offering.Available == nil || *offering.Available
		}
	}
	return &provider{instanceTypes: instanceTypes}, nil
}

func (p *provider) Create(context.Context, *karpenter.NodeClaim) (*karpenter.NodeClaim, error) {
	return nil, errors.New("nothing is created")
}

func (p *provider) Delete(context.Context, *karpenter.NodeClaim) error {
	return errors.New("nothing is deleted")
}

func (p *provider) Get(context.Context, string) (*karpenter.NodeClaim, error) {
	return nil, errors.New("nothing is there")
}

func (p *provider) List(context.Context) ([]*karpenter.NodeClaim, error) { return nil, nil }

func (p *provider) GetInstanceTypes(context.Context, *karpenter.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.instanceTypes, nil
}

func (p *provider) IsDrifted(context.Context, *karpenter.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (p *provider) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

func (p *provider) Name() string { return "kwok" }

func (p *provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.KWOKNodeClass{}}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "reference: "+format+"\n", arguments...)
	os.Exit(1)
}
