"""Users on nodes, with the ledger's inputs and with the catalog's."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: The row counts 80e9 bytes a card and 70.6e9 parameters.
LEDGER = {"memory_bytes": "80GB", "params": "70.6B"}


@pytest.mark.proves("S089")
def test_a_thousand_users_at_8k_need_seven_nodes_of_161_users_each():
    asked = ask("users-per-node", {"users": "1000"}, LEDGER)
    assert asked.answer.values["users_per_node"].value == 161
    assert asked.answer.values["nodes"].value == 7
