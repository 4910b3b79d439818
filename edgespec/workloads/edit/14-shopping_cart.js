'use strict';

const TAX_RATE = 0.19;
const FREE_SHIPPING_FROM = 5000;
const SHIPPING = 495;

class Cart {
  constructor() {
    this.lines = new Map();
    this.coupon = null;
  }

  add(article, quantity = 1) {
    if (quantity <= 0) {
      throw new RangeError(`quantity is ${quantity}`);
    }
    const line = this.lines.get(article.id);
    if (line) {
      line.quantity += quantity;
    } else {
      this.lines.set(article.id, { article, quantity });
    }
    return this;
  }

  remove(id, quantity = Infinity) {
    const line = this.lines.get(id);
    if (!line) {
      return false;
    }
    line.quantity -= quantity;
    if (line.quantity <= 0) {
      this.lines.delete(id);
    }
    return true;
  }

  get subtotal() {
    let cents = 0;
    for (const { article, quantity } of this.lines.values()) {
      cents += article.cents * quantity;
    }
    return cents;
  }

  get discount() {
    if (!this.coupon || this.subtotal < this.coupon.from) {
      return 0;
    }
    return Math.round(this.subtotal * this.coupon.share);
  }

  get shipping() {
    return this.subtotal >= FREE_SHIPPING_FROM || this.lines.size === 0 ? 0 : SHIPPING;
  }

  get total() {
    const net = this.subtotal - this.discount + this.shipping;
    return Math.round(net * (1 + TAX_RATE));
  }
}

module.exports = { Cart };
