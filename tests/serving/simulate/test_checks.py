"""What is no platform is refused before anything is simulated."""

from dataclasses import replace

import pytest
from worlds import engine, model

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.checks import check, kinds_of
from ridgeline.serving.simulate.setup import Fault, Place, Serving, Tenant, Trouble


def test_kinds_are_those_of_one_name():
    chat, more, code = model(), model("more", serves="chat"), model("code")
    assert kinds_of([chat, more, code]) == {"chat": [chat, more], "code": [code]}


WRONG = [
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
    check(replace(serving, models=(model(),), tenants=(), faults=()))
