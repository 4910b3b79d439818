// Package jobs runs queued work on a fixed number of workers.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultRetries is how often a failed job is tried again.
const DefaultRetries = 2

// ErrClosed is returned by Submit once the pool is shut down.
var ErrClosed = errors.New("jobs: pool is closed")

// Job is one piece of work with a name for the logs.
type Job struct {
	Name string
	Run  func(ctx context.Context) error
}

// Result says how one job ended.
type Result struct {
	Name     string
	Attempts int
	Elapsed  time.Duration
	Err      error
}

// Pool owns the workers and the queue between them.
type Pool struct {
	wg       sync.WaitGroup
	submitMu sync.Mutex
	queue    chan Job
	closed   bool
	resultMu sync.Mutex
	results  []Result
}

// NewPool starts the given number of workers.
func NewPool(ctx context.Context, workers, depth int) (*Pool, error) {
	if workers < 1 {
		return nil, fmt.Errorf("jobs: %d workers, need at least 1", workers)
	}
	p := &Pool{queue: make(chan Job, depth)}
	for i := 0; i < workers; i++ {
		p.wg.Add(1)
		go p.work(ctx)
	}
	return p, nil
}

// Submit puts a job in the queue and waits while the queue is full.
func (p *Pool) Submit(ctx context.Context, job Job) error {
	p.submitMu.Lock()
	defer p.submitMu.Unlock()
	if p.closed {
		return ErrClosed
	}
	select {
	case p.queue <- job:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops taking jobs, waits for the workers and returns all results.
func (p *Pool) Close() []Result {
	p.submitMu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.submitMu.Unlock()
	p.wg.Wait()
	return p.results
}

func (p *Pool) work(ctx context.Context) {
	defer p.wg.Done()
	for job := range p.queue {
		result := attempt(ctx, job)
		p.resultMu.Lock()
		p.results = append(p.results, result)
		p.resultMu.Unlock()
	}
}

func attempt(ctx context.Context, job Job) Result {
	start := time.Now()
	result := Result{Name: job.Name}
	for result.Attempts <= DefaultRetries {
		result.Attempts++
		result.Err = job.Run(ctx)
		if result.Err == nil || ctx.Err() != nil {
			break
		}
	}
	result.Elapsed = time.Since(start)
	return result
}
