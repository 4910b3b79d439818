package ratelimit

import (
	"errors"
	"sync"
	"time"
)

// ErrLimited is returned when a client has used up its tokens.
var ErrLimited = errors.New("rate limit exceeded")

// Limiter hands out tokens to clients, refilled at a steady rate.
type Limiter struct {
	mu      sync.Mutex
	burst   float64
	perSec  float64
	buckets map[string]*bucket
	now     func() time.Time
}

type bucket struct {
	tokens float64
	seen   time.Time
}

// New returns a limiter of perSec requests a second, with bursts of up to burst.
func New(perSec, burst float64) *Limiter {
	return &Limiter{
		burst:   burst,
		perSec:  perSec,
		buckets: make(map[string]*bucket),
		now:     time.Now,
	}
}

// Allow takes one token of the client, or returns ErrLimited.
func (l *Limiter) Allow(client string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b, ok := l.buckets[client]
	if !ok {
		b = &bucket{tokens: l.burst, seen: now}
		l.buckets[client] = b
	}
	b.tokens += now.Sub(b.seen).Seconds() * l.perSec
	if b.tokens > l.burst {
		b.tokens = l.burst
	}
	b.seen = now
	if b.tokens < 1 {
		return ErrLimited
	}
	b.tokens--
	return nil
}

// Forget drops the clients that have not been seen for a while.
func (l *Limiter) Forget(age time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := 0
	for client, b := range l.buckets {
		if l.now().Sub(b.seen) > age {
			delete(l.buckets, client)
			dropped++
		}
	}
	return dropped
}
