"""`ridgeline up` as a person uses it: what it prints works when pasted, and it leaves nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest


def post(url, body, **headers):
    request = urllib.request.Request(
        url, data=body, headers={"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, json.load(answer)


def test_the_curl_line_it_prints_answers_paris(up):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    line = re.search(r"  (curl .*?\}')\n", up.banner, re.S)[1]
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Paris" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_the_python_line_it_prints_answers_paris(up):
    line = re.search(r'  pip install -q openai && python -c "(.*)"\n', up.banner)[1]
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert "Paris" in done.stdout


def test_status_shows_the_replica_ready(up):
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", "status", "--json"],
        env={**os.environ, "RIDGELINE_STATE": str(up.state)},
        capture_output=True,
        text=True,
        check=True,
    )
    [platform] = json.loads(done.stdout)
    assert platform["url"] == up.url
    assert [replica["state"] for replica in platform["replicas"]] == ["ready"]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe{}", b"[]", b'{"model": 3}', b""])
def test_what_is_no_request_gets_openais_400(up, body):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{up.url}/v1/chat/completions", body)
    assert caught.value.code == 400
    error = json.load(caught.value)["error"]
    assert set(error) == {"message", "type", "param", "code"}


def test_metrics_have_the_gateways_names(up):
    with urllib.request.urlopen(f"{up.url}/metrics") as answer:
        text = answer.read().decode()
    assert "ridgeline_gateway_requests_total" in text


def test_a_port_that_is_taken_is_said_with_a_remedy(up):
    port = up.url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", "up", "--port", port],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert port in done.stderr
    assert "try:" in done.stderr


def descendants(up):
    return psutil.Process(up.process.pid).children(recursive=True)


def test_a_platform_of_one_name_is_refused_beside_the_first(up):
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", "up", "--port", "0"],
        env={**os.environ, "RIDGELINE_STATE": str(up.state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is up already" in done.stderr


def test_kill_9_of_the_leader_leaves_no_process(start_up, tmp_path):
    running = start_up(state=tmp_path)
    children = descendants(running)
    assert len(children) >= 2
    running.process.kill()
    running.process.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_killed_replica_comes_back_and_down_stops_all(start_up, tmp_path):
    running = start_up(state=tmp_path)
    children = descendants(running)
    engine = max(children, key=lambda process: process.memory_info().rss)
    os.kill(engine.pid, signal.SIGKILL)
    assert running.process.stdout is not None
    for line in running.process.stdout:
        if "ready" in line:
            break
    status, answer = post(
        f"{running.url}/v1/completions",
        json.dumps({"model": "smollm2-135m-instruct", "prompt": "A", "max_tokens": 1}).encode(),
    )
    assert status == 200
    assert answer["usage"]["completion_tokens"] == 1
    down = subprocess.run(
        [sys.executable, "-m", "ridgeline", "down"],
        env={**os.environ, "RIDGELINE_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is down" in down.stdout
    assert running.process.wait(timeout=60) == 0
    running.process.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
