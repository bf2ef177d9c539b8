// Command cache is client-go's shared informer as a program that caches Pods, in its best public configuration:
// WatchList, and objects reduced by a transform.
//
// It takes a kubeconfig, a media type (json or protobuf) and a representation, prints "synced <number of Pods>",
// frees memory, prints "idle", and keeps its cache until its standard input ends.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: cache <kubeconfig> json|protobuf full|slim|metadata")
	}
	informer, err := informerOf(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan struct{})
	go informer.Run(stop)
	for !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("synced", len(informer.GetStore().ListKeys()))
	// In favor of this peer: without the call, the garbage of the list stays resident for minutes.
	debug.FreeOSMemory()
	fmt.Println("idle")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
	close(stop)
}

func informerOf(kubeconfig, media, representation string) (cache.SharedIndexInformer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	if media == "protobuf" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	if representation == "metadata" {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		pods := metadatainformer.NewSharedInformerFactoryWithOptions(client, 0, metadatainformer.WithTransform(strip))
		return pods.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer(), nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	transforms := map[string]cache.TransformFunc{"full": strip, "slim": slim}
	transform, known := transforms[representation]
	if !known {
		return nil, fmt.Errorf("unknown representation %s", representation)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	return factory.Core().V1().Pods().Informer(), nil
}

func strip(object any) (any, error) {
	if object, ok := object.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return object, nil
}

// slim keeps the metadata, the node, the phase, the addresses and the conditions.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	return &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: pod.ObjectMeta,
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:      pod.Status.Phase,
			Conditions: pod.Status.Conditions,
			HostIP:     pod.Status.HostIP,
			PodIP:      pod.Status.PodIP,
			PodIPs:     pod.Status.PodIPs,
		},
	}, nil
}
