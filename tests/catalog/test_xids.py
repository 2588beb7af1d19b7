"""Fault codes: what they mean and what to do first."""

import pytest

from ridgeline.catalog.rows import rows
from ridgeline.catalog.xids import xid, xids
from ridgeline.errors import CatalogError


def test_a_gpu_that_fell_off_the_bus_needs_a_power_cycle():
    for written in (79, "79", "Xid 79"):
        assert xid(written).action == "drain_power_cycle"


def test_codes_of_a_family_mean_the_same():
    assert xid(39).meaning == xid(135).meaning == "A copy engine (CE0-CE19) faulted."


def test_a_reserved_code_is_refused():
    with pytest.raises(CatalogError, match="Xid 1 is reserved or unknown"):
        xid(1)


def test_every_code_says_what_to_do_and_where_that_is_from():
    found = xids()
    assert [one.code for one in found] == sorted(one.code for one in found)
    assert len(found) == len(rows("xids"))
    assert all(one.meaning and one.action and one.source and one.read_on for one in found)
