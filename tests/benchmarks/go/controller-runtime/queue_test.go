// Package controllerruntime measures controller-runtime's priority queue: the workloads of tests/benchmarks/src/bin/queue.rs,
// by the same names. The first is upstream's own BenchmarkAddGetDone.
package controllerruntime

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Number of keys that upstream's benchmark adds before the first get.
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

func addGetDone[T comparable](b *testing.B, q priorityqueue.PriorityQueue[T], all []T) {
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

func BenchmarkInts(b *testing.B)            { addGetDone(b, priorityqueue.New[int](""), ints()) }
func BenchmarkStrings(b *testing.B)         { addGetDone(b, priorityqueue.New[string](""), strings()) }
func BenchmarkIntsMeasured(b *testing.B)    { addGetDone(b, priorityqueue.New[int]("ints"), ints()) }
func BenchmarkStringsMeasured(b *testing.B) { addGetDone(b, priorityqueue.New[string]("strings"), strings()) }

// One key at a time, as in a controller without a backlog.
func BenchmarkOneByOne(b *testing.B) {
	q, all := priorityqueue.New[string](""), strings()
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
	q := priorityqueue.New[int]("")
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
	q, all := priorityqueue.New[string](""), strings()
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
	q, all := priorityqueue.New[string](""), strings()
	defer q.ShutDown()
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range all {
			q.AddWithOpts(priorityqueue.AddOpts{After: time.Hour}, key)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/key")
}
