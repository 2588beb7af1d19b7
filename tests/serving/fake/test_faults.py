import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.fake.faults import KINDS, Fault, Faults, parse


def test_a_fault_is_its_kind_and_what_differs():
    assert parse("cut") == Fault("cut")
    assert parse("error, status=503, share=0.25, times=3, probes") == Fault(
        "error", share=0.25, times=3, status=503, probes=True
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_written(kind):
    assert parse(kind).kind == kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("explode", "no kind"),
        ("cut,when=5", "says nothing"),
        ("cut,after=soon", "says nothing"),
        ("error,status=200", "400 to 599"),
        ("error,share=2", "share is 0 to 1"),
    ],
)
def test_what_is_no_fault_is_refused(text, why):
    with pytest.raises(SpecError, match=why):
        parse(text)


def test_chance_is_seeded_and_times_are_counted():
    def hits(seed):
        faults = Faults([parse("error,share=0.3,times=20")], seed)
        return [faults.draw(probe=False) is not None for _ in range(200)]

    assert hits(1) == hits(1) != hits(2)
    assert sum(hits(1)) == 20
    assert sum(hits(1)[:50]) in range(5, 26)


def test_probes_are_spared_unless_meant():
    faults = Faults([parse("die,times=1")], 0)
    assert faults.draw(probe=True) is None
    assert faults.draw(probe=False) == Fault("die", times=1)
    assert faults.now == []
    assert Faults([parse("die,probes")], 0).draw(probe=True) is not None
