// An operator as people write them with controller-runtime: it makes the Jobs of a JobSet, counts them in its status, and
// leaves only after it has cleaned up. One of several replicas works; a lease says which.
//
//	operator -kubeconfig FILE -name NAME
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

const (
	finalizer = "operators.dray.dev/clean-up"
	index     = "operators.dray.dev/owner"
)

type reconciler struct {
	client.Client
	recorder events.EventRecorder
	name     string
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var set jobset.JobSet
	if err := r.Get(ctx, request.NamespacedName, &set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !set.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.cleanUp(ctx, &set)
	}
	if controllerutil.AddFinalizer(&set, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &set)
	}
	for _, replicated := range set.Spec.ReplicatedJobs {
		for number := range replicated.Replicas {
			if err := r.ensure(ctx, &set, &replicated, number); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	return ctrl.Result{}, r.tell(ctx, &set)
}

func (r *reconciler) ensure(ctx context.Context, set *jobset.JobSet, replicated *jobset.ReplicatedJob, number int32) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: fmt.Sprintf("%s-%s-%d", set.Name, replicated.Name, number)}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, job, func() error {
		if job.ResourceVersion == "" {
			job.Spec = *replicated.Template.Spec.DeepCopy()
		}
		job.Labels = map[string]string{jobset.JobSetNameKey: set.Name, jobset.ReplicatedJobNameKey: replicated.Name}
		return controllerutil.SetControllerReference(set, job, r.Scheme())
	})
	if done == controllerutil.OperationResultCreated {
		r.recorder.Eventf(set, job, corev1.EventTypeNormal, "Created", "CreateJob", "%s made job %s", r.name, job.Name)
	}
	return err
}

func (r *reconciler) tell(ctx context.Context, set *jobset.JobSet) error {
	var jobs batchv1.JobList
	if err := r.List(ctx, &jobs, client.InNamespace(set.Namespace), client.MatchingFields{index: set.Name}); err != nil {
		return err
	}
	before := set.DeepCopy()
	set.Status.ReplicatedJobsStatus = nil
	finished := true
	for _, replicated := range set.Spec.ReplicatedJobs {
		status := jobset.ReplicatedJobStatus{Name: replicated.Name}
		for _, job := range jobs.Items {
			if job.Labels[jobset.ReplicatedJobNameKey] != replicated.Name {
				continue
			}
			if job.Status.CompletionTime != nil {
				status.Succeeded++
			} else {
				status.Active++
			}
		}
		finished = finished && status.Succeeded == replicated.Replicas
		set.Status.ReplicatedJobsStatus = append(set.Status.ReplicatedJobsStatus, status)
	}
	if finished {
		set.Status.TerminalState = string(jobset.JobSetCompleted)
		meta.SetStatusCondition(&set.Status.Conditions, metav1.Condition{
			Type: string(jobset.JobSetCompleted), Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", Message: r.name})
	}
	return r.Status().Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *reconciler) cleanUp(ctx context.Context, set *jobset.JobSet) error {
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name + "-cleaned"}}
	if err := r.Create(ctx, note); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if controllerutil.RemoveFinalizer(set, finalizer) {
		return client.IgnoreNotFound(r.Update(ctx, set))
	}
	return nil
}

func owner(object client.Object) []string {
	if found := metav1.GetControllerOf(object); found != nil && found.Kind == "JobSet" {
		return []string{found.Name}
	}
	return nil
}

func run() error {
	name := flag.String("name", "operator", "what it calls itself")
	config := flag.Lookup("kubeconfig").Value.String
	flag.Parse()
	ctrl.SetLogger(zap.New())
	rest, err := clientcmd.BuildConfigFromFlags("", config())
	if err != nil {
		return err
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, jobset.AddToScheme} {
		if err := add(known); err != nil {
			return err
		}
	}
	short := func(seconds int) *time.Duration { d := time.Duration(seconds) * time.Second; return &d }
	manager, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme: known, Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "operators.dray.dev",
		LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true, LeaseDuration: short(6), RenewDeadline: short(4),
		RetryPeriod: short(1),
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err := manager.GetFieldIndexer().IndexField(ctx, &batchv1.Job{}, index, owner); err != nil {
		return err
	}
	made := &reconciler{manager.GetClient(), manager.GetEventRecorder(*name), *name}
	if err := ctrl.NewControllerManagedBy(manager).For(&jobset.JobSet{}).Owns(&batchv1.Job{}).Complete(made); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
