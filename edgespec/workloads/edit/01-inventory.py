"""Stock keeping for a small warehouse: items, shelves and reorder rules."""

from dataclasses import dataclass, field


class StockError(Exception):
    """Raised when a stock movement is not possible."""


@dataclass
class Item:
    sku: str
    name: str
    price_cents: int
    quantity: int = 0
    reorder_level: int = 5
    tags: set[str] = field(default_factory=set)

    def value(self):
        return self.price_cents * self.quantity

    def is_low(self):
        return self.quantity <= self.reorder_level


class Inventory:
    """All items of one warehouse, looked up by their stock keeping unit."""

    def __init__(self, name):
        self.name = name
        self._items = {}
        self._history = []

    def __len__(self):
        return len(self._items)

    def __contains__(self, sku):
        return sku in self._items

    def register(self, item):
        if item.sku in self._items:
            raise StockError(f"{item.sku} is already registered in {self.name}")
        self._items[item.sku] = item

    def find(self, sku):
        try:
            return self._items[sku]
        except KeyError:
            raise StockError(f"{sku} is not stocked in {self.name}") from None

    def receive(self, sku, count):
        if count <= 0:
            raise StockError("a delivery needs at least one piece")
        item = self.find(sku)
        item.quantity += count
        self._history.append(("in", sku, count))
        return item.quantity

    def ship(self, sku, count):
        if count <= 0:
            raise StockError("a shipment needs at least one piece")
        item = self.find(sku)
        if item.quantity < count:
            raise StockError(f"only {item.quantity} of {sku} left, {count} wanted")
        item.quantity -= count
        self._history.append(("out", sku, count))
        return item.quantity

    def low_items(self):
        low = [item for item in self._items.values() if item.is_low()]
        return sorted(low, key=lambda item: item.quantity)

    def total_value(self):
        total = 0
        for item in self._items.values():
            total += item.value()
        return total

    def tagged(self, tag):
        return [item for item in self._items.values() if tag in item.tags]

    def report(self):
        lines = [f"Warehouse {self.name}: {len(self)} items"]
        for sku in sorted(self._items):
            item = self._items[sku]
            mark = "!" if item.is_low() else " "
            lines.append(f"{mark} {sku:<10} {item.name:<24} {item.quantity:>6}")
        lines.append(f"Total value: {self.total_value() / 100:.2f}")
        return "\n".join(lines)


if __name__ == "__main__":
    depot = Inventory("North")
    depot.register(Item("BLT-08", "Hex bolt 8 mm", 12, 400, 100, {"metal"}))
    depot.register(Item("GLV-M", "Work gloves, medium", 450, 3))
    depot.ship("BLT-08", 320)
    print(depot.report())
