"""Dinic's algorithm, and fabrics built port by port: an independent check of port arithmetic."""

from collections import defaultdict, deque


class Network:
    """A directed graph with whole capacities."""

    def __init__(self) -> None:
        self.to: list[int] = []
        self.room: list[int] = []
        self.out: dict[int, list[int]] = defaultdict(list)
        self.ids: dict[object, int] = {}

    def node(self, name: object) -> int:
        return self.ids.setdefault(name, len(self.ids))

    def cable(self, one: object, other: object, capacity: int) -> None:
        """A link that carries `capacity` each way."""
        self.edge(one, other, capacity, capacity)

    def edge(self, one: object, other: object, capacity: int, back: int = 0) -> None:
        a, b = self.node(one), self.node(other)
        for source, target, room in ((a, b, capacity), (b, a, back)):
            self.out[source].append(len(self.to))
            self.to.append(target)
            self.room.append(room)

    def max_flow(self, source: object, sink: object) -> int:
        a, b = self.node(source), self.node(sink)
        total = 0
        while level := self._levels(a, b):
            tried = defaultdict(int)
            while pushed := self._push(a, b, level, tried):
                total += pushed
        return total

    def _levels(self, a: int, b: int) -> dict[int, int]:
        level, waiting = {a: 0}, deque([a])
        while waiting:
            here = waiting.popleft()
            for edge in self.out[here]:
                if self.room[edge] and self.to[edge] not in level:
                    level[self.to[edge]] = level[here] + 1
                    waiting.append(self.to[edge])
        return level if b in level else {}

    def _push(self, a: int, b: int, level: dict[int, int], tried: dict[int, int]) -> int:
        """One augmenting path along the levels, found depth first."""
        path: list[int] = []
        here = a
        while here != b:
            edges = self.out[here]
            while tried[here] < len(edges):
                edge = edges[tried[here]]
                if self.room[edge] and level.get(self.to[edge]) == level[here] + 1:
                    break
                tried[here] += 1
            else:
                if here == a:
                    return 0
                edge = path.pop()
                here = self.to[edge ^ 1]
                tried[here] += 1
                continue
            path.append(edge)
            here = self.to[edge]
        least = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= least
            self.room[edge ^ 1] += least
        return least


def spread(lower: list[object], up: int, upper: list[object]) -> dict[tuple[object, object], int]:
    """Cables from each lower switch, dealt out like cards."""
    cables: dict[tuple[object, object], int] = defaultdict(int)
    at = 0
    for switch in lower:
        for _ in range(up):
            cables[switch, upper[at % len(upper)]] += 1
            at += 1
    return cables


def ports_used(cables: dict[tuple[object, object], int], endpoints: dict[object, int]) -> dict:
    """Ports of each switch that something is plugged into."""
    used: dict[object, int] = defaultdict(int)
    for switch, n in endpoints.items():
        used[switch] += n
    for (one, other), n in cables.items():
        used[one] += n
        used[other] += n
    return used


def flow_between(
    cables: dict[tuple[object, object], int],
    senders: dict[object, int],
    receivers: dict[object, int],
) -> int:
    """What all senders can send to all receivers at once; both by the switch they hang on."""
    graph = Network()
    for (one, other), n in cables.items():
        graph.cable(one, other, n)
    for switch, n in senders.items():
        graph.edge("source", switch, n)
    for switch, n in receivers.items():
        graph.edge(switch, "sink", n)
    return graph.max_flow("source", "sink")
