"""The search for the fastest settings, on made-up times."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from edgespec.profile import Choice, Forced, RuntimeProfile, Space, Trial, flash_for, search, search_space

Times = Callable[[Choice], tuple[float, float]]
START = Choice(buffers="auto", flash_attn="off", threads=4, gpu_layers=0)


def space(forced: Forced | None = None, **options: object) -> Space:
    """Of a CPU with 4 cores, 8 hyper-threads and AMX."""
    machine = {
        "cores": 4,
        "logical": 8,
        "working": ("auto", "repack", "none"),
        "distinct": ("auto", "repack", "none"),
        "gpu": False,
        **options,
    }
    return search_space(forced or Forced(), **machine)  # type: ignore[arg-type]  # as above


@dataclass
class Clock:
    """Measures as told. slow_at: numbers of measurements, from 0, when the machine is busy: all takes `slow` times."""

    times: Times
    broken: Callable[[Choice], bool] = lambda _: False
    slow_at: tuple[int, ...] = ()
    slow: float = 1.9
    asked: list[Choice] = field(default_factory=list)

    def __call__(self, choice: Choice, beat: float) -> Trial:
        self.asked.append(choice)
        if self.broken(choice):
            return Trial(choice, None, None, "no memory")
        busy = self.slow if len(self.asked) - 1 in self.slow_at else 1
        short, long = (busy * ms for ms in self.times(choice))
        return Trial(choice, short, long if short < beat else None)


def law(**faster: float) -> Times:
    """10 and 20 ms, times the factor of each named setting: law(none=0.5) is twice as fast with buffers "none"."""

    def times(choice: Choice) -> tuple[float, float]:
        names = (choice.buffers, choice.flash_attn, f"threads{choice.threads}", f"gpu{choice.gpu_layers}")
        factor = math.prod(faster.get(name, 1.0) for name in names)
        return 10 * factor, 20 * factor

    return times


def best(times: Times, where: Space | None = None) -> Choice:
    return search(where or space(), Clock(times)).choice


def test_defaults_stay_where_nothing_is_faster() -> None:
    found = search(space(), Clock(law()))
    assert found.choice == START
    assert found.best == Trial(START, 10, 20)
    tried = {trial.choice for trial in found.trials}
    assert tried == {
        START,
        *(replace(START, threads=n) for n in (8, 3, 2)),
        replace(START, flash_attn="on"),
        *(replace(START, buffers=b) for b in ("repack", "none")),  # type: ignore[arg-type]  # Buffers
    }


@pytest.mark.parametrize(
    ("faster", "expected"),
    [
        ({"on": 0.8}, {"flash_attn": "on"}),
        ({"threads8": 0.8}, {"threads": 8}),
        ({"threads3": 0.9, "threads2": 0.8}, {"threads": 2}),
        ({"none": 0.8}, {"buffers": "none"}),
        ({"repack": 0.8, "none": 0.9}, {"buffers": "repack"}),
        ({"on": 0.9, "threads3": 0.9, "none": 0.9}, {"flash_attn": "on", "threads": 3, "buffers": "none"}),
        ({"on": 0.98, "threads8": 0.98, "none": 0.98}, {}),  # 2% is noise
    ],
)
def test_each_setting_is_chosen_by_its_time(faster: dict[str, float], expected: dict[str, object]) -> None:
    assert best(law(**faster)) == replace(START, **expected)  # type: ignore[arg-type]  # fields of Choice


def test_a_setting_counts_by_both_contexts() -> None:
    def times(choice: Choice) -> tuple[float, float]:
        return (9.0, 40.0) if choice.flash_attn == "on" else (10.0, 20.0)  # a little faster, and then much slower

    assert best(times) == START
    assert best(lambda c: (9.0, 20.5) if c.flash_attn == "on" else (10.0, 20.0)).flash_attn == "on"


def test_a_long_context_is_not_measured_where_the_short_one_has_lost() -> None:
    found = search(space(), Clock(law(threads2=3.0)))
    by_choice = {trial.choice: trial for trial in found.trials}
    assert by_choice[replace(START, threads=2)].long_ms is None
    assert by_choice[replace(START, threads=3)].long_ms == 20


def test_a_default_that_was_measured_on_a_busy_machine_is_measured_again() -> None:
    clock = Clock(law(), slow_at=(0,))
    found = search(space(), clock)
    assert found.choice == START
    assert clock.asked.count(START) == 2
    assert found.best == Trial(START, 10, 20)


def test_what_seems_very_slow_is_measured_again() -> None:
    library = replace(START, flash_attn="on")
    clock = Clock(law(on=0.9), slow_at=(1,), slow=8)
    found = search(space(), clock)
    assert clock.asked[:3] == [START, library, library]
    assert found.library == Trial(library, 9, 18)
    assert found.choice == library
    slow = Clock(law(threads2=5))
    assert search(space(), slow).choice == START
    assert slow.asked.count(replace(START, threads=2)) == 2  # and no more often
    late = Clock(law(), slow_at=(1,), slow=8)
    search(space(), late, spent=lambda: len(late.asked) >= 2)
    assert late.asked == [START, library]


def test_a_choice_that_cannot_be_loaded_is_left_out() -> None:
    clock = Clock(law(none=0.1, repack=0.5), broken=lambda c: c.buffers == "none")
    found = search(space(), clock)
    assert found.choice == replace(START, buffers="repack")
    failed = [trial for trial in found.trials if trial.error]
    assert [(t.choice.buffers, t.short_ms, t.long_ms, t.ms) for t in failed] == [("none", None, None, math.inf)]


def test_a_default_that_cannot_be_loaded_gives_way_to_what_can() -> None:
    found = search(space(), Clock(law(), broken=lambda c: c.buffers == "auto"))
    assert found.choice.buffers == "repack"


def test_nothing_can_be_loaded() -> None:
    found = search(space(), Clock(law(), broken=lambda _: True))
    assert found.choice == START
    assert found.best is not None
    assert found.best.error == "no memory"


def test_a_gpu_takes_all_layers_where_that_is_faster() -> None:
    gpu = space(gpu=True)
    found = search(gpu, Clock(law(**{"gpu-1": 0.1})))
    assert found.choice == Choice(buffers="auto", flash_attn="on", threads=4, gpu_layers=-1)
    # With everything on the GPU, the CPU's threads and buffers do not matter: they are not tried.
    assert {(t.choice.threads, t.choice.buffers) for t in found.trials} == {(4, "auto")}
    assert best(law(**{"gpu-1": 3.0, "off": 0.9, "threads3": 0.9}), gpu) == replace(START, threads=3)


def test_a_gpu_without_room_is_left_out() -> None:
    found = search(space(gpu=True), Clock(law(**{"gpu-1": 0.1, "on": 2.0}), broken=lambda c: c.gpu_layers != 0))
    assert found.choice == START
    assert found.trials[0].error == "no memory"


def test_no_new_choice_once_the_time_is_spent() -> None:
    clock = Clock(law(on=0.5, threads2=0.5))
    found = search(space(), clock, spent=lambda: len(clock.asked) >= 2)
    # What llama.cpp does by default is measured whatever it takes; it won, and so the start is measured again.
    assert clock.asked == [START, replace(START, flash_attn="on"), START]
    assert found.choice.flash_attn == "on"


def test_the_librarys_defaults_are_told() -> None:
    library = replace(START, flash_attn="on")
    found = search(space(), Clock(law(on=2.0)))
    assert found.library == Trial(library, 20, 40)  # the long one too, though the short one has lost
    kept = search(space(Forced(flash_attn="off")), Clock(law()))
    assert kept.library == Trial(START, 10, 20)


def test_forced_settings_are_the_only_ones_tried() -> None:
    for forced in (
        Forced(buffers="repack"),
        Forced(flash_attn="on"),
        Forced(threads=7),
        Forced(gpu_layers=0),
        Forced(gpu_layers=12),
        Forced(buffers="none", threads=1),
    ):
        clock = Clock(law(auto=0.5, off=0.5, threads4=0.5, **{"gpu-1": 0.5}))
        search(space(forced, gpu=True), clock)
        for name in ("buffers", "flash_attn", "threads", "gpu_layers"):
            value = getattr(forced, name)
            assert value is None or {getattr(c, name) for c in clock.asked} == {value}


def test_a_search_is_settled_when_all_is_forced() -> None:
    forced = Forced(buffers="auto", flash_attn="off", threads=2)
    assert space(forced).settled
    assert not space(forced, gpu=True).settled
    assert space(replace(forced, gpu_layers=3), gpu=True).settled
    for name in ("buffers", "flash_attn", "threads"):
        assert not space(replace(forced, **{name: None})).settled  # type: ignore[arg-type]  # None is what it takes
    # One core, and a file whose layouts and caches are all one: nothing to choose either.
    assert space(Forced(kv_type="q8_0"), cores=1, logical=1, distinct=("auto",)).settled


@pytest.mark.parametrize(
    ("cores", "logical", "expected"),
    [(1, 1, (1,)), (2, 2, (2, 1)), (2, 4, (2, 4, 1)), (8, 16, (8, 16, 7, 4)), (4, 4, (4, 3, 2))],
)
def test_thread_counts(cores: int, logical: int, expected: tuple[int, ...]) -> None:
    assert space(cores=cores, logical=logical).threads == expected


def test_candidates_that_make_no_difference_are_not_in_the_space() -> None:
    assert space(distinct=("auto", "none")).buffers == ("auto", "none")
    assert space(working=("repack", "none")).buffers == ("repack", "none")
    assert space(working=("repack", "none"), distinct=("auto",)).buffers == ("repack",)
    assert space(Forced(buffers="none"), distinct=("auto",)).buffers == ("none",)
    assert space(Forced(kv_type="q4_0")).flash_attn == ("on",)
    assert space(Forced(kv_type="f32")).flash_attn == ("off", "on")
    assert space(gpu=True).flash_attn == ("on", "off")
    assert space(Forced(gpu_layers=0), gpu=True).flash_attn == ("off", "on")


def test_the_choice_is_never_slower_than_the_start_or_than_noise_allows() -> None:
    random_ = random.Random(1)
    for _ in range(300):
        table: dict[Choice, tuple[float, float]] = {}

        def times(choice: Choice, table: dict[Choice, tuple[float, float]] = table) -> tuple[float, float]:
            short = random_.uniform(5, 20)
            return table.setdefault(choice, (short, short * random_.uniform(1, 3)))

        found: RuntimeProfile = search(space(gpu=random_.random() < 0.5), Clock(times))
        chosen = found.best
        assert chosen is not None
        assert chosen.ms <= found.trials[0].ms
        assert found.library is not None
        assert chosen.ms <= found.library.ms / 0.97 + 1e-9
        assert chosen.long_ms is not None


def measured_for(off: tuple[float, float | None], on: tuple[float, float | None]) -> RuntimeProfile:
    """off, on: a step behind a short and a long text, without and with flash attention."""
    start, flash = replace(START, flash_attn="off"), replace(START, flash_attn="on")
    other = replace(flash, threads=1)  # says nothing about the choice
    return RuntimeProfile(start, None, (Trial(start, *off), Trial(flash, *on), Trial(other, 1.0, 1.0)))


def test_flash_attention_pays_where_enough_requests_share_a_cache() -> None:
    """Twice as dear for one: then for six, since each of several rows costs less without it."""
    profile = measured_for((10.0, 12.0), (10.0, 14.0))
    assert [flash_for(profile, n) for n in (1, 2, 4, 5, 6, 8)] == ["off", "off", "off", "off", "on", "on"]
    cheap = measured_for((10.0, 12.0), (10.0, 12.1))
    assert [flash_for(cheap, n) for n in (1, 2, 3, 4)] == ["off", "off", "on", "on"]


def test_flash_attention_stays_as_chosen_where_it_was_not_measured_both_ways() -> None:
    assert flash_for(measured_for((10.0, 12.0), (30.0, None)), 8) == "off"
    assert flash_for(RuntimeProfile(replace(START, flash_attn="on")), 8) == "on"
