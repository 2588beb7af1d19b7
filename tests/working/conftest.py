"""A topic of its own for these tests, so that they stand on nobody's plans."""

# ruff: noqa: B008 - parameters are declared where a topic takes them
from collections.abc import Iterator
from typing import Any

import pytest

from ridgeline.physics.law import LAWS, law
from ridgeline.quantity import Number, Provenance, choose, given, largest
from ridgeline.topics import TOPICS, Answer, amount, choice, count, flag, numbers, topic


@pytest.fixture
def pump() -> Iterator[str]:
    """A made-up topic with a knee, a chooser, a condition, and options that may not matter."""

    @law
    def flow_s(work_bytes: Number, rate_bytes_per_s: Number, rounds: Number = 2.0) -> Number:
        """Time of so many rounds.

        Source: a made-up law whose source is so long that it can only stand below the tree.
        """
        return rounds * work_bytes / rate_bytes_per_s

    @topic("pump", subject="test")
    def pump(
        size_bytes: Number = amount("4 GB", "GB", "Size.", least="1 kB"),
        batch: Number = count(4, "Batch.", noun="steps", most=1000),
        share: Number = amount("0.5", "", "Share.", most="1", interval=("0.4", "0.9")),
        delay_s: Number = amount("1 s", "s", "Delay."),
        spare: Number = amount("1 s", "s", "Is never looked at."),
        mode: Any = choice("fast", ("fast", "slow", "broken"), "Mode."),
        extra: Any = flag(False, "Extra."),
        sizes: Any = numbers("1,2", "", "Some sizes."),
    ) -> Answer:
        """How long a pump runs."""
        from ridgeline.errors import SpecError

        if mode == "broken":
            raise SpecError("it is broken", where="mode", remedy="fast")
        rate = given(
            "2 GB/s", name="pump-9.rate_bytes_per_s", provenance=Provenance.DATASHEET,
            source="Pump 9: a data sheet with a long name, page 4, read on a day in November",
        )  # fmt: skip
        if mode == "slow":
            rate = (rate / 2).named("slow_bytes_per_s")
        moving = flow_s(size_bytes, rate)
        computing = (batch * given("0.5 s", name="one_s", source="a stopwatch")).named(
            "computing_s"
        )
        step = largest(moving=moving, computing=computing).named("step_s")
        total = choose(extra and batch > 8, step + delay_s, step, why="there is an extra round")
        return Answer(
            "{total_s} for {batch} with {share}",
            {"total_s": total.named("total_s"), "used": (step * share).named("used_s"),
             "sum": sum(sizes, start=given(0.0, "")).named("sum")},
            table=({"mode": mode, "time": step},),
            notes=("Folklore says otherwise.",),
        )  # fmt: skip

    yield "pump"
    del TOPICS["pump"], LAWS["flow_s"]
