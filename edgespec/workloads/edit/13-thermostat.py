"""A thermostat with a schedule: what should the heating do now?"""

from dataclasses import dataclass, field

HYSTERESIS = 0.5
FROST_LIMIT = 5.0
MAX_TARGET = 28.0


@dataclass
class Slot:
    """From this minute of the day on, keep this temperature."""

    start: int
    target: float


@dataclass
class Thermostat:
    slots: list = field(default_factory=list)
    away: bool = False
    heating: bool = False

    def add_slot(self, clock, target):
        hours, minutes = clock.split(":")
        start = int(hours) * 60 + int(minutes)
        if not 0 <= start < 24 * 60:
            raise ValueError(f"no such time: {clock}")
        if target > MAX_TARGET:
            raise ValueError(f"{target} degrees is too warm")
        self.slots.append(Slot(start, target))
        self.slots.sort(key=lambda slot: slot.start)

    def target_at(self, minute):
        """The temperature wanted at a minute of the day; the last slot of the day reaches into the next."""
        if self.away or not self.slots:
            return FROST_LIMIT
        wanted = self.slots[-1].target
        for slot in self.slots:
            if slot.start <= minute:
                wanted = slot.target
        return wanted

    def update(self, minute, measured):
        """Switch the heating for one reading and return whether it is on."""
        wanted = self.target_at(minute)
        if measured < wanted - HYSTERESIS:
            self.heating = True
        elif measured > wanted + HYSTERESIS:
            self.heating = False
        return self.heating


def simulate(thermostat, readings):
    """Return the minutes at which the heating is switched, with its new state."""
    switched = []
    before = thermostat.heating
    for minute, measured in readings:
        now = thermostat.update(minute, measured)
        if now != before:
            switched.append((minute, now))
        before = now
    return switched
