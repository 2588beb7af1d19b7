"""What is no platform is refused before anything is simulated."""

from dataclasses import replace

import pytest
from worlds import engine, model

from ridgeline.errors import SpecError
from ridgeline.serving.policy.scale import Settings
from ridgeline.serving.simulate.checks import check, kinds_of
from ridgeline.serving.simulate.setup import (
    Change,
    Fault,
    Place,
    Scaling,
    Serving,
    Tenant,
    Trouble,
)


def test_kinds_are_those_of_one_name():
    chat, more, code = model(), model("more", serves="chat"), model("code")
    assert kinds_of([chat, more, code]) == {"chat": [chat, more], "code": [code]}


SCALED = Scaling(Settings(1, 2))
WRONG = [
    (Serving((model(),), changes=(Change(0, "chat", "v2"),)), "'v2' is no model"),
    (Serving((model(), model("v2")), changes=(Change(0, "chat", "v2"),)), "not two versions"),
    (
        Serving((model(), model("v2", serves="chat")), changes=(Change(0, "chat", "v2"),)),
        "is there before its change begins",
    ),
    (
        Serving(
            (
                model(),
                model("v2", serves="chat", replicas=0),
                model("other", serves="chat"),
            ),
            changes=(Change(0, "chat", "v2"),),
        ),
        "more kinds than these two",
    ),
    (
        Serving(
            (model(scaling=SCALED), model("v2", serves="chat", replicas=0)),
            changes=(Change(0, "chat", "v2"),),
        ),
        "chat is scaled",
    ),
    (Serving((model(), model())), "two have one name"),
    (Serving((model(place=Place("eu")),)), "'eu' is no region"),
    (Serving((model(place=Place(pool="gpus")),)), "'gpus' is no pool"),
    (Serving((model(),), (Tenant("a", residency=frozenset({"eu"})),)), "'eu' is no region"),
    (Serving((model(),), faults=(Fault(0, Trouble.DIES, "other"),)), "'other' is no model"),
    (Serving((model(),), faults=(Fault(0, Trouble.LOST, region="eu"),)), "'eu' is no region"),
    (
        Serving((model(), model("more", serves="chat", engine=engine(block_tokens=32)))),
        "blocks of different sizes",
    ),
]


@pytest.mark.parametrize(("serving", "problem"), WRONG)
def test_it_says_what_is_wrong(serving, problem):
    with pytest.raises(SpecError, match=problem):
        check(serving)
    check(replace(serving, models=(model(),), tenants=(), faults=(), changes=()))
