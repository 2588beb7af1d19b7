"""Requests and the regions they go to: each has gateway workers and replicas of its own.

Whoever sends a request to a region knows how full each one is now; `policy.region` chooses. What
goes to another region than its client's is on its way for half a round trip, both ways.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ridgeline.serving.policy.region import Reachable, region_for
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.front import Front
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.setup import Region, Tenant
from ridgeline.timeline import NS, Timeline


class Regions:
    """`send` a request to one; `may_come` says whether a model will have a replica in one."""

    def __init__(
        self,
        regions: Iterable[Region],
        tenants: Iterable[Tenant],
        fronts: Sequence[Front],
        timeline: Timeline,
        chances: Chances,
        may_come: Callable[[str, str], bool],
    ) -> None:
        self._regions = {region.name: region for region in regions}
        self._first = next(iter(self._regions))
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._fronts: Mapping[str, Sequence[Front]] = {
            name: [front for front in fronts if front.region == name] for name in self._regions
        }
        self._on_way: Counter[tuple[str, str]] = Counter()  # by region and model
        self._timeline = timeline
        self._chances = chances
        self._may_come = may_come

    def of(self, region: str) -> Sequence[Front]:
        """Its gateway workers."""
        return self._fronts[region]

    def send(self, asked: Asked) -> None:
        """Its client asks now."""
        if len(self._regions) == 1:
            self._ask(asked, self._first)
            return
        tenant = self._tenants.get(asked.tenant)
        home = tenant.home if tenant and tenant.home in self._regions else self._first
        reachable = [self._seen(name, home, asked.model) for name in self._regions]
        chosen = region_for(reachable, tenant.residency if tenant else None)
        if chosen.region is None:
            asked.end, asked.reason = End.UNREADY, chosen.reason
            asked.done_ns = self._timeline.now_ns
            asked.client.ended(asked)
            return
        asked.away_ns = round(self._away_s(home, chosen.region) / 2 * NS)
        if not asked.away_ns:
            self._ask(asked, chosen.region)
            return
        asked.travels = True
        self._on_way[chosen.region, asked.model] += 1
        turn = rank(Kind.ARRIVAL, asked.number)
        at_ns = self._timeline.now_ns + asked.away_ns
        self._timeline.at(at_ns, turn, self._reach, (asked, chosen.region))

    def _reach(self, what: tuple[Asked, str]) -> None:
        asked, region = what
        self._on_way[region, asked.model] -= 1
        if asked.end is End.OPEN:  # else its client has left
            asked.travels = False
            self._ask(asked, region)

    def _ask(self, asked: Asked, region: str) -> None:
        fronts = self._fronts[region]
        place = 0
        if len(fronts) > 1:
            place = self._chances.bits("worker", asked.number) % len(fronts)
        fronts[place].ask(asked, may_come=self._may_come(asked.model, region))

    def _seen(self, name: str, home: str, model: str) -> Reachable:
        fronts = self._fronts[name]
        load, slots = (sum(some) for some in zip(*(one.load(model) for one in fronts), strict=True))
        away_s = self._away_s(home, name)
        load += self._on_way[name, model]
        return Reachable(name, away_s, load, slots, is_up=not fronts[0].is_lost)

    def _away_s(self, home: str, region: str) -> float:
        """A round trip; where only one of the two says how long it is, it is as long both ways."""
        there, back = self._regions[home].away_s, self._regions[region].away_s
        return 0.0 if home == region else there.get(region, back.get(home, 0.0))
