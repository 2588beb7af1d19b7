"""Switches, cards, optics and cables."""

import pytest

from ridgeline.catalog.network import cable, nic, optic, part, parts, switch
from ridgeline.catalog.rows import overlay
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance


@pytest.mark.parametrize(
    ("name", "bits_per_s", "radix"),
    [
        ("qm9700", 400e9, 64),
        ("qm9700", 200e9, 128),
        ("sn5600", 400e9, 128),
        ("sn5600", 800e9, 64),
        ("sn5600", 100e9, 256),
        ("q3400", 800e9, 144),
        ("sn6600", 800e9, 128),
    ],
)
def test_radix_is_counted_at_the_speed_of_an_endpoint(name, bits_per_s, radix):
    assert switch(name).radix(bits_per_s).value == radix


def test_ports_that_are_too_slow_are_refused():
    with pytest.raises(CatalogError, match="no ports of 800 Gb/s") as raised:
        switch("qm9700").radix(800e9)
    assert "400 Gb/s" in raised.value.remedy


def test_rates_are_bytes_and_one_direction():
    assert nic("cx7").bytes_per_s.value == 50e9
    assert nic("connectx-8").bytes_per_s.to("Gb/s") == 800


def test_power_and_price_say_where_they_are_from():
    assert optic("mms4x00-ns").w.value == 17
    assert optic("mms4x00-ns").w.provenance is Provenance.DATASHEET
    assert switch("qm9700").w.provenance is Provenance.ASSUMED
    assert switch("qm9700").price_usd.interval == (25_000, 45_000)
    assert cable("dac").reach_m.value == 3


def test_what_is_not_known_is_not_made_up():
    with pytest.raises(CatalogError, match="w of Quantum-X800 Q3400 is not known"):
        _ = switch("q3400").w


def test_a_card_is_no_switch():
    with pytest.raises(CatalogError, match="ConnectX-7 is no switch but a nic") as raised:
        switch("connectx-7")
    assert "quantum-2-qm9700" in raised.value.remedy


def test_ones_own_switch_can_be_added():
    row = {"id": "mine", "name": "Mine", "kind": "switch", "ports": 32, "bits_per_s_per_port": 1e11}
    with overlay({"network": [row | {"source": "its manual", "read_on": "2026-11-30"}]}):
        assert switch("mine").radix(1e11).value == 32
        assert "its manual" in switch("mine").ports.source


@pytest.mark.parametrize("one", parts(), ids=lambda one: one.id)
def test_every_part_has_a_rate(one):
    assert part(one.id).bytes_per_s.value > 0
