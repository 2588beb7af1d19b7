"""What `ridgeline simulate serving` answers: one run, several, a comparison, or a limit.

Each gives plain values; `simulate_text` prints them for people, `serving.simulate.page` draws them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ridgeline.errors import SpecError

if TYPE_CHECKING:
    from ridgeline.serving.simulate.log import Tick
    from ridgeline.serving.simulate.outcome import Outcome
    from ridgeline.serving.simulate.report import Slo
    from ridgeline.serving.simulate.setup import Serving
    from ridgeline.serving.simulate.traffic import Traffic
    from ridgeline.spec import Platform


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one platform, under so many seeds."""

    platform: "Platform"
    setup: "Serving"
    traffic: "Traffic"
    seeds: range
    tick: "Tick"

    @property
    def slo(self) -> "Slo | None":
        """What is promised to all who ask; SpecError where those are several things."""
        promises = {promised(self.platform, name) for name in self.traffic.models}
        if len(promises) > 1:
            raise SpecError(
                f"{', '.join(self.traffic.models)} are asked at once and promise different things",
                where="models[].slo",
                remedy="the same slo for each of them, or one run, which tells them apart",
            )
        return promises.pop()

    @property
    def is_loop(self) -> bool:
        """Whether its clients wait for answers."""
        return self.traffic.loop is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is told, and the runs that were looked at over time, by name, for pictures."""

    told: dict[str, Any]
    drawn: "dict[str, Outcome]"


def promised(platform: "Platform", model: str) -> "Slo | None":
    """The SLO of a model of the spec."""
    from ridgeline.serving.simulate.report import Slo

    slo = next((one.slo for one in platform.models if one.name == model), None)
    return None if slo is None else Slo(slo.ttft, slo.tpot, slo.attainment)


def one_run(asked: Question, events: Path | None) -> Answer:
    """One run, with each event in a file where one is wanted."""
    from ridgeline.serving.simulate.log import Log
    from ridgeline.serving.simulate.series import Series
    from ridgeline.serving.simulate.world import simulate
    from ridgeline.workload import Trace

    clients = asked.traffic.clients(asked.setup.seed)
    series = Series(keeps_prompts=not isinstance(asked.traffic.source, Trace))
    if events is None:
        outcome = simulate(asked.setup, clients, Log(tick=asked.tick), series)
    else:
        with events.open("w", encoding="utf-8") as file:
            log = Log(lambda line: _print(file, line), asked.tick)
            outcome = simulate(asked.setup, clients, log, series)
    told = _told(asked, outcome)
    return Answer({"seed": asked.setup.seed, **told}, {"": outcome})


def _told(asked: Question, outcome: "Outcome") -> dict[str, Any]:
    from ridgeline.serving.simulate.report import by, by_class, by_model, kept, report

    def slo_of(model: str) -> "Slo | None":
        return promised(asked.platform, model)

    differ = len({slo_of(name) for name in asked.traffic.models}) > 1
    told = report(outcome, None if differ else asked.slo, is_loop=asked.is_loop)
    parts = {
        "models": by_model(outcome, asked.setup, slo_of),
        "tenants": by(outcome, "tenant", slo_of),
        "classes": by_class(outcome, asked.setup, slo_of),
    }
    told |= {name: part for name, part in parts.items() if len(part) > 1}
    if differ:
        told["slo"] = kept(outcome, slo_of)
    told["oracle"] = _oracle(asked, outcome)
    told["holds"] = bool(told["stable"] and all(_keep(asked, parts["models"])))
    return told


def _keep(asked: Question, models: dict[str, Any]) -> list[bool]:
    """Of each model with a promise, whether it is kept."""
    wanted = ((promised(asked.platform, name), told) for name, told in models.items())
    return [told["slo"]["attainment"] >= slo.attainment for slo, told in wanted if slo is not None]


def _oracle(asked: Question, outcome: "Outcome") -> dict[str, float] | None:
    from ridgeline.serving.simulate.oracle import oracle

    series = outcome.series
    assert series is not None, "a run that was looked at"
    engines = {one.name: one.engine for one in asked.setup.models}
    most = sum(
        int(series.looks(kind).seen["blocks"].max()) * engines[kind].block_tokens
        for kind in series.kinds
    )
    sizes = {one.served: one.engine.block_tokens for one in asked.setup.models}
    bound = oracle(outcome, asked.traffic, most, sizes)
    return None if bound is None else asdict(bound)


def many_runs(asked: Question) -> Answer:
    """One run for each seed, and what they say together."""
    from ridgeline.serving.simulate.intervals import interval
    from ridgeline.serving.simulate.stability import balance_of
    from ridgeline.serving.simulate.study import figures, runs

    outcomes = runs(asked.setup, asked.traffic, asked.seeds, looked_at=True, tick=asked.tick)
    rows = [figures(one, asked.slo) for one in outcomes]
    told = {name: interval([row[name] for row in rows]) for name in rows[0] if _in_all(name, rows)}
    steady = sum(balance_of(one, is_loop=asked.is_loop).is_stable for one in outcomes)
    slo = asked.slo
    kept = slo is None or told["within the SLO (share)"].mean >= slo.attainment
    return Answer(
        {
            "seeds": list(asked.seeds),
            "stable": steady,
            "slo": None if slo is None else asdict(slo),
            "figures": {name: asdict(one) for name, one in told.items()},
            "digests": [one.digest for one in outcomes],
            "holds": bool(kept and steady == len(asked.seeds)),
        },
        {f"seed {asked.seeds[0]}": outcomes[0]},
    )


def _in_all(name: str, rows: list[dict[str, float]]) -> bool:
    return all(name in row for row in rows)


def compared(names: Sequence[str], asked: Sequence[Question]) -> Answer:
    """Several platforms under the same requests."""
    from ridgeline.serving.simulate.report import over_time
    from ridgeline.serving.simulate.stability import balance_of
    from ridgeline.serving.simulate.study import compare, runs
    from ridgeline.serving.simulate.verdict import verdict

    if any(one.slo != asked[0].slo for one in asked):
        raise SpecError(
            "the SLO is the measure: it has to be the same in all", where="--compare",
            remedy="another key, or specs with the same slo",
        )  # fmt: skip
    every = [
        runs(one.setup, one.traffic, one.seeds, looked_at=True, tick=one.tick) for one in asked
    ]
    steady = [
        [balance_of(one, is_loop=asked[0].is_loop).is_stable for one in some] for some in every
    ]
    rows = compare(every, asked[0].slo)
    verdicts = [
        verdict((names[0], name), rows, place, (all(steady[0]), all(steady[place + 1])))
        for place, name in enumerate(names[1:])
    ]
    told = {
        "seeds": list(asked[0].seeds),
        "names": list(names),
        "stable": [sum(one) for one in steady],
        "slo": None if asked[0].slo is None else asdict(asked[0].slo),
        "compared": [
            {**asdict(one), "apart": [gap.is_apart() for gap in one.differences]} for one in rows
        ],
        "verdicts": verdicts,
        "bound": {
            name: over_time(some[0])["bound"]["all"]
            for name, some in zip(names, every, strict=True)
        },
        "digests": [[one.digest for one in some] for some in every],
        "holds": True,
    }
    return Answer(told, {name: some[0] for name, some in zip(names, every, strict=True)})


def found(asked: Question, what: str) -> Answer:
    """The highest rate, or the fewest replicas, that keep the SLO."""
    from ridgeline.serving.simulate.search import find_rate, find_replicas

    if asked.slo is None:
        raise SpecError(
            "is missing",
            where=f"models {asked.traffic.model}.slo",
            remedy="slo: {ttft: 1s, tpot: 50ms}",
        )
    given = (asked.setup, asked.traffic, asked.slo, asked.seeds)
    try:
        limit = asdict(
            find_rate(*given, tick=asked.tick)
            if what == "rate"
            else find_replicas(*given, tick=asked.tick)
        )
    except ValueError as error:
        raise SpecError(
            str(error), where=f"--find {what}", remedy="another workload or SLO"
        ) from error
    told = {"seeds": list(asked.seeds), "find": what, "found": limit, "holds": True}
    return Answer(told, {})


def _print(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")
