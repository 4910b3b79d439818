"""A least-recently-used cache with optional expiry, built on a linked list."""

import time


class _Node:
    __slots__ = ("key", "value", "expires", "before", "after")

    def __init__(self, key, value, expires):
        self.key = key
        self.value = value
        self.expires = expires
        self.before = None
        self.after = None


class LRUCache:
    """Keeps at most `capacity` entries and drops the one unused for longest."""

    def __init__(self, capacity, clock=time.monotonic):
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self.capacity = capacity
        self.clock = clock
        self.hits = 0
        self.misses = 0
        self._nodes = {}
        self._head = _Node(None, None, None)
        self._tail = _Node(None, None, None)
        self._head.after = self._tail
        self._tail.before = self._head

    def __len__(self):
        return len(self._nodes)

    def _unlink(self, node):
        node.before.after = node.after
        node.after.before = node.before

    def _push_front(self, node):
        node.before = self._head
        node.after = self._head.after
        self._head.after.before = node
        self._head.after = node

    def _is_expired(self, node):
        return node.expires is not None and node.expires <= self.clock()

    def get(self, key, default=None):
        """Return the value of `key` and mark it as used, or `default`."""
        node = self._nodes.get(key)
        if node is None:
            self.misses += 1
            return default
        if self._is_expired(node):
            self.remove(key)
            self.misses += 1
            return default
        self._unlink(node)
        self._push_front(node)
        self.hits += 1
        return node.value

    def put(self, key, value, ttl=None):
        expires = None if ttl is None else self.clock() + ttl
        node = self._nodes.get(key)
        if node is not None:
            node.value = value
            node.expires = expires
            self._unlink(node)
            self._push_front(node)
            return
        if len(self._nodes) >= self.capacity:
            self._evict()
        node = _Node(key, value, expires)
        self._nodes[key] = node
        self._push_front(node)

    def remove(self, key):
        """Forget `key`; return whether it was there."""
        node = self._nodes.pop(key, None)
        if node is None:
            return False
        self._unlink(node)
        return True

    def _evict(self):
        oldest = self._tail.before
        self._unlink(oldest)
        del self._nodes[oldest.key]

    def purge(self):
        expired = [key for key, node in self._nodes.items() if self._is_expired(node)]
        for key in expired:
            self.remove(key)
        return len(expired)

    def keys(self):
        node = self._head.after
        while node is not self._tail:
            yield node.key
            node = node.after

    def hit_rate(self):
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
