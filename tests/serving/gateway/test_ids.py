"""Ids are never the same, not even in processes that share their beginning."""

import os
import re

from ridgeline.serving.gateway.ids import Ids, new_id


def test_ids_are_different_and_of_one_form() -> None:
    drawn = [new_id() for _ in range(5000)]
    assert len(set(drawn)) == len(drawn)
    assert all(re.fullmatch(r"req-[0-9a-f]{32}", one) for one in drawn)


def test_a_forked_process_draws_its_own() -> None:
    ids = Ids()
    ids.new()  # now there is a stock to inherit
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, ids.new().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        assert told.read() != ids.new()
