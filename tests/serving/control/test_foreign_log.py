"""What a log tells while it grows. The lines are of the form that vLLM 0.32 and SGLang write."""

from ridgeline.serving.control.foreign_log import GrowingLog, Marks
from ridgeline.serving.control.programs import _SGLANG, _VLLM

VLLM = """\
(APIServer pid=6850) INFO 11-30 23:48:28 [api_utils.py:286] non-default args: {'port': 51161}
(EngineCore pid=6864) INFO 11-30 23:48:33 [core.py:133] Initializing a V1 LLM engine (v0.32.0)
(Worker pid=6874) INFO 11-30 23:48:38 [cpu_model_runner.py:68] Starting to load model /m...
(Worker pid=6874) INFO 11-30 23:48:38 [base_loader.py:82] Initializing model took 0.109102 seconds
(Worker pid=6874) INFO 11-30 23:48:39 [default_loader.py:501] Loading weights took 0.23 seconds
(EngineCore pid=6864) INFO 11-30 23:49:15 [core.py:402] init engine (profile) took 35.25 s
INFO:     Application startup complete.
"""
SGLANG = """\
[2026-09-14 21:19:23] server_args=ServerArgs(model_path='m', port=30000)
[2026-09-14 21:19:30 TP0] Load weight begin. avail mem=111.97 GB
[2026-09-14 21:19:30 TP1] Load weight begin. avail mem=111.97 GB
[2026-09-14 21:32:38 TP0] Load weight end. elapsed=787.55 s, avail mem=48.1 GB
[2026-09-14 21:32:39 TP0] KV Cache is allocated. #tokens: 383872, KV size: 19.36 GB
[2026-09-14 21:32:44] The server is fired up and ready to roll!
"""


def stages(text, options):
    marks = Marks(options.marks)
    return [stage for line in text.splitlines() if (stage := marks.begun(line))]


def test_both_programs_logs_tell_when_weights_come_and_when_they_are_there():
    assert stages(VLLM, _VLLM) == ["weights", "warm-up"]
    assert stages(SGLANG, _SGLANG) == ["weights", "warm-up"]


def test_a_stage_whose_words_never_came_is_passed_over():
    late = "\n".join(line for line in VLLM.splitlines() if "Starting to load" not in line)
    assert stages(late, _VLLM) == ["warm-up"]
    assert stages(late + "\n" + VLLM, _VLLM) == ["warm-up"]


def test_lines_are_told_once_and_whole(tmp_path):
    path = tmp_path / "log"
    path.write_text("of an earlier life\n")
    log = GrowingLog(path)
    assert list(log.lines()) == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert list(log.lines()) == ["one"]
        file.write("o\nthree\n")
    assert list(log.lines()) == ["two", "three"]
    assert list(log.lines()) == []


def test_a_log_that_is_not_there_has_no_lines(tmp_path):
    log = GrowingLog(tmp_path / "log")
    assert list(log.lines()) == []
    assert log.cause() == ""


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "log"
    log = GrowingLog(path)
    path.write_bytes(b"\xff" * 3_000_000)
    for _ in range(20):
        assert list(log.lines()) == []
    assert len(log._rest) < 1_000_000


def test_the_cause_is_the_first_error_of_this_life_that_says_something(tmp_path):
    path = tmp_path / "log"
    path.write_text("KeyError: 'of an earlier life'\n")
    log = GrowingLog(path)
    with path.open("a") as file:
        file.write(
            "INFO Errors: none yet\n"
            "Traceback (most recent call last):\n"
            "(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried 20 GiB\n"
            "(APIServer pid=6) RuntimeError: Engine core initialization failed. "
            "See root cause above. Failed core proc(s): {}\n"
            "ValueError: a later one\n"
        )
    assert log.cause() == (
        "(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried 20 GiB"
    )
