'use strict';

/**
 * A small publish/subscribe bus with wildcards, priorities and a replay log.
 */

const MAX_LOG = 100;

function matches(pattern, topic) {
  if (pattern === '*') {
    return true;
  }
  const wanted = pattern.split('.');
  const actual = topic.split('.');
  if (wanted.length !== actual.length) {
    return false;
  }
  for (let i = 0; i < wanted.length; i += 1) {
    if (wanted[i] !== '*' && wanted[i] !== actual[i]) {
      return false;
    }
  }
  return true;
}

class EventBus {
  constructor() {
    this.handlers = [];
    this.log = [];
    this.nextId = 1;
  }

  on(pattern, callback, priority = 0) {
    if (typeof callback !== 'function') {
      throw new TypeError('callback must be a function');
    }
    const handler = { id: this.nextId, pattern, callback, priority, once: false };
    this.nextId += 1;
    this.handlers.push(handler);
    this.handlers.sort((a, b) => b.priority - a.priority || a.id - b.id);
    return () => this.off(handler.id);
  }

  once(pattern, callback, priority = 0) {
    const stop = this.on(pattern, callback, priority);
    const handler = this.handlers.find((entry) => entry.id === this.nextId - 1);
    handler.once = true;
    return stop;
  }

  off(id) {
    const before = this.handlers.length;
    this.handlers = this.handlers.filter((handler) => handler.id !== id);
    return this.handlers.length < before;
  }

  emit(topic, payload) {
    const event = { topic, payload, at: Date.now() };
    this.remember(event);
    let delivered = 0;
    for (const handler of [...this.handlers]) {
      if (!matches(handler.pattern, topic)) {
        continue;
      }
      if (handler.once) {
        this.off(handler.id);
      }
      try {
        handler.callback(event);
        delivered += 1;
      } catch (error) {
        this.reportError(error, event);
      }
    }
    return delivered;
  }

  remember(event) {
    this.log.push(event);
    if (this.log.length > MAX_LOG) {
      this.log.shift();
    }
  }

  replay(pattern, callback) {
    const past = this.log.filter((event) => matches(pattern, event.topic));
    past.forEach((event) => callback(event));
    return past.length;
  }

  reportError(error, event) {
    if (event.topic === 'bus.error') {
      return;
    }
    this.emit('bus.error', { message: error.message, topic: event.topic });
  }

  clear() {
    this.handlers = [];
    this.log = [];
  }
}

module.exports = { EventBus, matches };
