package clientgo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// Number of pods and of events in flight, as in tests/benchmarks/src/scenarios/informer.rs.
const (
	pods     = 10_000
	underWay = 10
)

func pod(number, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "default",
		Name:            fmt.Sprintf("pod-%d", number),
		UID:             "u",
		ResourceVersion: fmt.Sprint(version),
	}}
}

// decoded returns a pod as a client receives it: decoded from the JSON of an event.
func decoded(number, version int) runtime.Object {
	format := `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"pod-%d","uid":"u","resourceVersion":"%d"}}`
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), fmt.Appendf(nil, format, number, version))
	if err != nil {
		panic(err)
	}
	return object
}

// feed is a source that lists once and then returns the events of a channel.
type feed struct{ watcher *watch.FakeWatcher }

// listed is a source that does not support initial events of a watch: client-go would otherwise wait indefinitely for
// the bookmark that ends them.
type listed struct{ *cache.ListWatch }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func (f feed) source() listed {
	return listed{&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(pods)}}
			for number := range pods {
				list.Items = append(list.Items, *pod(number, number+1))
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return f.watcher, nil
		},
	}}
}

// withInformer runs drive with a synced informer, its handler's events and that many readers that list continuously.
func withInformer(b *testing.B, readers int, drive func(send func(number, version int), told <-chan struct{})) {
	f := feed{watch.NewFakeWithChanSize(1, false)}
	informer := cache.NewSharedIndexInformerWithOptions(f.source(), &corev1.Pod{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	told := make(chan struct{}, underWay)
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, _ any) { told <- struct{}{} },
	})
	if err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { informer.Run(stop) })
	for !handle.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	for range readers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := cache.ListAllByNamespace(informer.GetIndexer(), "default", labels.Everything(), func(any) {}); err != nil {
					panic(err)
				}
			}
		})
	}
	drive(func(number, version int) { f.watcher.Modify(decoded(number, version)) }, told)
	close(stop)
	running.Wait()
}

// events measures the time per event with ten events in flight.
func events(b *testing.B, readers int) {
	withInformer(b, readers, func(send func(number, version int), told <-chan struct{}) {
		b.ReportAllocs()
		version, waiting := pods, 0
		for b.Loop() {
			if waiting == underWay {
				<-told
				waiting--
			}
			version++
			send(version*7919%pods, version)
			waiting++
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/key")
		for range waiting {
			<-told
		}
	})
}

// wait measures the time of a single event from the source to the handler, for the slowest of a hundred.
func wait(b *testing.B, readers int) {
	withInformer(b, readers, func(send func(number, version int), told <-chan struct{}) {
		var took []time.Duration
		b.ReportAllocs()
		version := pods
		for b.Loop() {
			version++
			begun := time.Now()
			send(version*7919%pods, version)
			<-told
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns/key")
	})
}

func BenchmarkEvents0(b *testing.B)  { events(b, 0) }
func BenchmarkEvents10(b *testing.B) { events(b, 10) }
func BenchmarkEvents80(b *testing.B) { events(b, 80) }
func BenchmarkWait0(b *testing.B)    { wait(b, 0) }
func BenchmarkWait10(b *testing.B)   { wait(b, 10) }
func BenchmarkWait80(b *testing.B)   { wait(b, 80) }
