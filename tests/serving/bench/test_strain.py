import asyncio

import pytest

from ridgeline.serving.bench.strain import Strain, Watch, reasons_to_refuse


def test_a_client_at_ease_is_believed():
    assert reasons_to_refuse(Strain(0.3, 0.003, 0.004), 0.2) == []


@pytest.mark.parametrize(
    ("strain", "said"),
    [
        (Strain(0.9, 0.001, 0.001), "90 % of its core"),
        (Strain(0.1, 0.030, 0.001), "event loop was 30.0 ms late"),
        (Strain(0.1, 0.001, 0.040), "sending was 40.0 ms late"),
    ],
)
def test_each_strain_alone_is_a_reason(strain, said):
    (reason,) = reasons_to_refuse(strain, 0.1)
    assert said in reason


def test_lateness_is_judged_beside_what_is_measured():
    late = Strain(0.1, 0.030, 0.030)
    assert len(reasons_to_refuse(late, 0.1)) == 2
    assert reasons_to_refuse(late, 0.4) == []
    assert len(reasons_to_refuse(late, None)) == 2


def test_the_watch_sees_how_late_the_loop_was_and_what_it_used(virtually):
    cpu_s = iter([10.0, 10.5])

    async def blocked() -> Strain:
        loop = asyncio.get_running_loop()
        watch = Watch(now=loop.time, cpu=lambda: next(cpu_s))
        watching = asyncio.create_task(watch.run())
        await asyncio.sleep(0.01)
        loop.now_s += 0.99  # the loop is held up: nothing can run until now
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.005)
        watching.cancel()
        return watch.strain([0.2])

    strain = virtually(blocked())
    assert strain.loop_late_s == pytest.approx(0.98, abs=0.01)
    assert strain.cpu_share == pytest.approx(0.5, abs=0.01)
    assert strain.send_late_s == 0.2
