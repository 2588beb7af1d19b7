"""What must be true after a run, whatever was killed: each oracle gives its findings, or none.

They know the rules and not the code: what a request used is worked out here anew from the replicas'
durable logs. Only the replay of decisions calls the policy, for that is its claim.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from chaos_attack import Evidence
from chaos_platform import WEIGHTS
from chaos_traffic import INPUT_TOKENS, MOST_TOKENS, Asked

from ridgeline.serving.policy.route import Route, View, route
from ridgeline.serving.policy.states import State

Findings = list[str]
_FAILED = (500, 502, 503)
#: A client hears of a death a little later.
_HEARD_S = 5.0


def findings(evidence: Evidence) -> dict[str, Findings]:
    """Every oracle that has something to say."""
    said = {name: oracle(evidence) for name, oracle in ORACLES.items()}
    return {name: found for name, found in said.items() if found}


def ledger_equals_logs(evidence: Evidence) -> Findings:
    """(a) For each request id, what is charged is what a replica counted durably."""
    charged = {row.request_id: row for row in evidence.entries}
    asked = {one.id: one for one in evidence.asked if one.id}
    found = []
    for name in sorted(charged.keys() | evidence.logs.keys()):
        problem = _of_one(evidence, name, charged.get(name), asked.get(name))
        if problem:
            found.append(f"{name}: {problem}; {_about(evidence, name, asked.get(name))}")
    return found


def _of_one(evidence: Evidence, name: str, entry: Any, asked: Asked | None) -> str:
    attempts = evidence.logs.get(name)
    if attempts is None:
        return f"charged by {entry.basis}, and no replica knows it"
    # An attempt that never came to a replica's log gave nothing; then what was streamed counts.
    is_last = max(attempts) >= _dispatched(evidence, name)
    inputs, outputs = _used(attempts)
    if entry is None:
        nothing = not is_last and (asked is None or not asked.tokens)
        return "" if nothing else f"{inputs} + {outputs} tokens are logged, and nobody was charged"
    if entry.basis == "streamed":
        low = 0 if asked is None else asked.tokens
        is_right = not is_last and low <= entry.output_tokens <= outputs
        return "" if is_right else f"charged {entry.output_tokens} as streamed of {outputs}"
    if (entry.input_tokens, entry.output_tokens) != (inputs, outputs):
        told = f"{entry.input_tokens} + {entry.output_tokens} tokens by {entry.basis}"
        return f"charged {told}, logged are {inputs} + {outputs}"
    cached = min(attempts[max(attempts)].cached_tokens, inputs)
    if entry.cached_tokens != cached:
        return f"charged {entry.cached_tokens} as cached, logged are {cached}"
    return ""


def _used(attempts: dict[int, Any]) -> tuple[int, int]:
    """The sum rule: the last attempt decides, and what it had in its prompt was said before."""
    first, last = attempts[min(attempts)], attempts[max(attempts)]
    said = max(0, last.prompt_tokens - first.prompt_tokens)
    return last.prompt_tokens - said, said + last.completion_tokens


def _dispatched(evidence: Evidence, name: str) -> int:
    """How many attempts were made, as far as anybody knows."""
    noted = [death.attempts.get(name, 0) for death in evidence.deaths]
    detail = evidence.decisions.get(name)
    return max([*noted, len(detail["decisions"]) if detail else 0])


def charged_what_was_told(evidence: Evidence) -> Findings:
    """(a, c) Once for what a client got, by the usage it was told; never for a refusal."""
    charged = Counter(row.request_id for row in evidence.entries)
    rows = {row.request_id: row for row in evidence.entries}
    found = [f"{name}: charged {times} times" for name, times in charged.items() if times > 1]
    for one in evidence.asked:
        row = rows.get(one.id)
        if one.wire.status in (400, 429):
            if row is not None or one.id in evidence.logs:
                found.append(f"{one}: it was refused, and ran or was charged")
        elif (one.tokens or one.end in ("answered", "done")) and row is None:
            found.append(f"{one}: nobody was charged")
        elif row is not None and row.output_tokens < one.tokens:
            found.append(f"{one}: charged for {row.output_tokens} tokens only")
        elif one.usage and (row.input_tokens, row.output_tokens) != one.usage:
            found.append(f"{one}: told {one.usage}, charged otherwise")
    return found


def money_adds_up(evidence: Evidence) -> Findings:
    """(a) What each tenant's budget has spent is the sum of its entries; nothing is held."""
    found = []
    for subject, account in sorted(evidence.accounts.items()):
        kind, _, name = subject.partition(":")
        held = account.held_usd, account.held_output_tokens, account.open
        if any(held):
            found.append(f"{subject}: still holds {held}")
        spent = sum(row.usd for row in evidence.entries if kind == "tenant" and row.tenant == name)
        if kind == "tenant" and account.spent_usd != spent:
            found.append(f"{subject}: spent {account.spent_usd}, its entries are {spent}")
    return found


def nothing_reserved(evidence: Evidence) -> Findings:
    """(b) No reservation is left."""
    return [
        f"{row.request_id}: reserved by {row.worker}, ended {row.ended_ns}, status {row.status}"
        for row in evidence.reservations
    ]


def streams_end(evidence: Evidence) -> Findings:
    """(c) In [DONE] or an error event where the worker lived, else in a broken connection."""
    deaths = [death for death in evidence.deaths if death.of_worker]
    found = [f"{one}" for one in evidence.asked if one.end in ("silent", "hung", "")]
    for one in evidence.asked:
        if one.end == "broken":
            by_id = any(one.id in death.attempts for death in deaths)
            by_time = not one.id and any(
                one.began_s - _HEARD_S < death.at_s < one.ended_s for death in deaths
            )
            if not (by_id or by_time):
                found.append(f"{one}: its worker lived")
    for death in deaths:
        for one in death.streams:
            was_told = one.wire.done or one.wire.error_event or one.end == "left"
            if one.end != "broken" and not was_told:
                found.append(f"{one}: {death.victim} was killed under it")
    return found


def nothing_in_flight(evidence: Evidence) -> Findings:
    """(d) Every counter of what runs is zero."""
    return [f"{name}: {count:g}" for name, count in evidence.in_flight.items() if count]


def served_by_weight(evidence: Evidence) -> Findings:
    """(e) Two tenants that queue are apart by the bound of turns at most, in each worker's life.

    The bound is worked out from the sizes of requests: the largest input, and the output still to
    come of all that one tenant may run at a worker, twice as heavy; and errors of estimates.
    """
    bound = gap_bound(evidence)
    found = [
        f"worker {one.worker}: counters {one.counters} are apart by more than {bound:g}"
        for one in evidence.samples
        if abs(one.counters[0] - one.counters[1]) > bound
    ]
    apart = abs(service(evidence, "alpha") - service(evidence, "beta"))
    if apart > service_bound(evidence):
        found.append(f"service is apart by {apart:.0f} weighed tokens, {_services(evidence)}")
    return found


def gap_bound(evidence: Evidence) -> float:
    """How far two counters may be apart at one worker, for the smaller weight."""
    at_once = evidence.slots
    largest = INPUT_TOKENS + at_once * 2 * MOST_TOKENS
    return (largest + 2 * at_once * INPUT_TOKENS) / min(WEIGHTS.values())


def service_bound(evidence: Evidence) -> float:
    """The same for what was served: the bound in each life, and what still ran at its end.

    Turns say nothing of times in which not both queued (a client that is slow to ask again): what
    was served in their share of all looks may be anybody's.
    """
    running = evidence.slots * (INPUT_TOKENS + 2 * MOST_TOKENS) / min(WEIGHTS.values())
    loose = 1 - len(evidence.samples) / max(evidence.looks, 1)
    served = max(service(evidence, tenant) for tenant in WEIGHTS)
    return evidence.lives * (gap_bound(evidence) + running) + loose * served


def service(evidence: Evidence, tenant: str) -> float:
    """Weighed tokens that a tenant was served while both queued."""
    began_ns, ended_ns = evidence.backlog_ns
    rows = [row for row in evidence.entries if row.tenant == tenant]
    tokens = sum(
        row.input_tokens - row.cached_tokens + 2 * row.output_tokens
        for row in rows
        if began_ns <= row.ended_ns <= ended_ns
    )
    return tokens / WEIGHTS[tenant]


def _services(evidence: Evidence) -> str:
    return ", ".join(f"{tenant} {service(evidence, tenant):.0f}" for tenant in WEIGHTS)


def decisions_replay(evidence: Evidence) -> Findings:
    """(f) A recorded view decides the same again."""
    found = []
    for name, detail in evidence.decisions.items():
        for number, one in enumerate(detail["decisions"], 1):
            again = route(msgspec.convert(one["view"], View))
            if again != msgspec.convert(one["route"], Route):
                found.append(f"{name}, attempt {number}: it was {one['route']}, now {again}")
    return found


def asked_elsewhere(evidence: Evidence) -> Findings:
    """(g) Nobody is told of a replica's failure while another one could have been asked."""
    found = []
    for one in evidence.asked:
        detail = evidence.decisions.get(one.id)
        if detail is None or one.wire.status not in _FAILED or len(detail["decisions"]) != 1:
            continue
        view = msgspec.convert(detail["decisions"][0]["view"], View)
        ready = [replica.id for replica in view.replicas if replica.state is State.READY]
        if len(ready) > 1:
            found.append(f"{one}: only {detail['replica']} was asked of {ready}")
    return found


def _about(evidence: Evidence, name: str, asked: Asked | None) -> str:
    detail = evidence.decisions.get(name) or {}
    known = {key: detail.get(key) for key in ("status", "error", "retries", "resumed", "basis")}
    killed = [death.victim for death in evidence.deaths if name in death.attempts]
    logged = {
        number: (one.prompt_tokens, one.cached_tokens, one.completion_tokens)
        for number, one in evidence.logs.get(name, {}).items()
    }
    return f"client: {asked}; gateway: {known}; died under it: {killed}; logs: {logged}"


ORACLES: dict[str, Callable[[Evidence], Findings]] = {
    "a: the ledger equals the logs": ledger_equals_logs,
    "a: everybody is charged once, for what they got": charged_what_was_told,
    "a: money adds up": money_adds_up,
    "b: nothing is reserved": nothing_reserved,
    "c: streams end": streams_end,
    "d: nothing is in flight": nothing_in_flight,
    "e: tenants are served by weight": served_by_weight,
    "f: decisions replay": decisions_replay,
    "g: another replica is asked": asked_elsewhere,
}
