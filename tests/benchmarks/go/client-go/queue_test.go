// Package clientgo measures client-go's work queue: the workloads of tests/benchmarks/src/bin/queue.rs, by the same names.
package clientgo

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Number of keys that the benchmarks of both peers add before the first get.
const keys = 1000

func ints() []int {
	all := make([]int, keys)
	for i := range all {
		all[i] = i
	}
	return all
}

func strings() []string {
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprintf("namespace-%d/name-%d", i%10, i)
	}
	return all
}

// addGetDone adds all keys, then gets and finishes each.
func addGetDone[T comparable](b *testing.B, q workqueue.TypedInterface[T], all []T) {
	defer q.ShutDown()
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range all {
			q.Add(key)
		}
		for range all {
			key, _ := q.Get()
			q.Done(key)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/key")
}

func plain[T comparable]() workqueue.TypedInterface[T] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{})
}

func measured[T comparable]() workqueue.TypedInterface[T] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: "q", MetricsProvider: provider{}})
}

func BenchmarkInts(b *testing.B)            { addGetDone(b, plain[int](), ints()) }
func BenchmarkStrings(b *testing.B)         { addGetDone(b, plain[string](), strings()) }
func BenchmarkIntsMeasured(b *testing.B)    { addGetDone(b, measured[int](), ints()) }
func BenchmarkStringsMeasured(b *testing.B) { addGetDone(b, measured[string](), strings()) }

// One key at a time, as in a controller without a backlog.
func BenchmarkOneByOne(b *testing.B) {
	q, all := plain[string](), strings()
	defer q.ShutDown()
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range all {
			q.Add(key)
			key, _ := q.Get()
			q.Done(key)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/key")
}

// Two goroutines add separate batches of a thousand keys and continue when a batch is done; two get and finish.
func BenchmarkContended(b *testing.B) {
	q := plain[int]()
	var pending [2]sync.WaitGroup
	for range 2 {
		go func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(key)
				pending[key/keys].Done()
			}
		}()
	}
	b.ReportAllocs()
	b.ResetTimer()
	var adders sync.WaitGroup
	for adder := range pending {
		adders.Go(func() {
			for range b.N {
				pending[adder].Add(keys)
				for key := range keys {
					q.Add(adder*keys + key)
				}
				pending[adder].Wait()
			}
		})
	}
	adders.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N*keys), "ns/key")
	q.ShutDown()
}

// Two goroutines add without waiting, two get and finish: nearly every added key is already queued.
func BenchmarkFlooded(b *testing.B) {
	q, all := plain[string](), strings()
	for range 2 {
		go func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(key)
			}
		}()
	}
	b.ReportAllocs()
	b.SetParallelism(1)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			q.Add(all[i%len(all)])
		}
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/key")
	q.ShutDown()
}

// Delays longer than the benchmark.
func BenchmarkDelayed(b *testing.B) {
	all := strings()
	q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{})
	defer q.ShutDown()
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range all {
			q.AddAfter(key, time.Hour)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/key")
}
