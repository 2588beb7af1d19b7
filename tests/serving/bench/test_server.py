import time

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.bench.sample import Answer
from ridgeline.serving.bench.server import Served, Server, base_url, choose, connect, models


async def asked(fake, *, api="chat", tokens=4, key=None, timeout_s=30.0, **options) -> Answer:
    async with connect(timeout_s, key) as session:
        server = Server(session, fake.url, "fake-1", api, **options)
        return await server.send("The time", tokens, time.perf_counter())


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("host:8000", "http://host:8000"),
        ("https://host/prefix/v1", "https://host/prefix"),
    ],
)
def test_the_root_of_a_server_is_found_in_what_people_paste(url, root):
    assert base_url(url) == root


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_an_answer_is_timed_piece_by_piece_and_counted_by_usage(fake, api):
    answer = await asked(fake, api=api)
    assert answer.error == ""
    assert answer.output_tokens == len(answer.token_times_s) == 4
    assert answer.prompt_tokens == (7 if api == "chat" else 2)
    first_s = answer.token_times_s[0] - answer.sent_s
    assert fake.ttft_s <= first_s < fake.ttft_s + 5
    assert answer.ended_s - answer.sent_s >= fake.ttft_s + 3 * fake.gap_s


async def test_the_request_asks_for_greedy_streamed_text_with_usage(fake):
    await asked(fake, ignore_eos=True)
    (body,) = fake.bodies
    assert body["max_tokens"] == 4
    assert body["temperature"] == 0
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"] is True


async def test_without_ignore_eos_no_foreign_field_is_sent(fake):
    await asked(fake)
    assert "ignore_eos" not in fake.bodies[0]


@pytest.mark.parametrize(
    ("behaviour", "error", "detail"),
    [
        ({"fail_with": 503}, "http 503", "as told"),
        ({"key": "secret"}, "http 401", "no such key"),
        ({"cut_after": 2}, "cut short", ""),
        ({"cut_after": 0}, "cut short", ""),
    ],
)
async def test_failures_are_answers_with_a_kind_and_the_servers_words(
    fake, behaviour, error, detail
):
    for name, value in behaviour.items():
        setattr(fake, name, value)
    answer = await asked(fake)
    assert (answer.error, answer.detail) == (error, detail)


async def test_a_server_that_takes_too_long_is_a_timeout(fake):
    fake.ttft_s = 60.0
    assert (await asked(fake, timeout_s=0.2)).error == "timeout"


async def test_a_server_that_is_gone_is_no_connection(fake, unused_tcp_port):
    fake.url = f"http://127.0.0.1:{unused_tcp_port}"
    assert (await asked(fake)).error == "no connection"


async def test_models_are_listed_with_their_context(fake):
    fake.models, fake.context = ("a", "b"), 2048
    async with connect(5, None) as session:
        assert await models(session, fake.url) == [Served("a", 2048), Served("b", 2048)]


async def test_an_unreachable_server_is_named_with_a_remedy(unused_tcp_port):
    async with connect(5, None) as session:
        with pytest.raises(SpecError, match="cannot be reached") as refused:
            await models(session, f"http://127.0.0.1:{unused_tcp_port}")
    assert "ridgeline up" in refused.value.remedy


@pytest.mark.parametrize("url", ["http://", "ftp://host", "http://[bad"])
async def test_what_is_no_url_is_refused(url):
    async with connect(5, None) as session:
        with pytest.raises(SpecError) as refused:
            await models(session, url)
    assert refused.value.where == "URL"


async def test_a_missing_key_is_told_with_the_option(fake):
    fake.key = "secret"
    async with connect(5, None) as session:
        with pytest.raises(SpecError, match="no such key") as refused:
            await models(session, fake.url)
    assert refused.value.where == "--api-key"
    async with connect(5, "secret") as session:
        assert await models(session, fake.url) == [Served("fake-1", None)]


async def test_a_server_that_is_not_ready_is_told_in_its_own_words(fake):
    fake.loading = True
    async with connect(5, None) as session:
        with pytest.raises(SpecError, match="503: the model is being loaded") as refused:
            await models(session, fake.url)
    assert "when the server is ready" in refused.value.remedy


async def test_a_server_of_another_kind_is_told(fake):
    async with connect(5, None) as session:
        with pytest.raises(SpecError, match="no list of models"):
            await models(session, f"{fake.url}/elsewhere")


def test_the_only_model_needs_no_name():
    assert choose([Served("a", 5)], None) == Served("a", 5)


@pytest.mark.parametrize(
    ("served", "wanted", "said"),
    [
        (["a", "b"], None, "2 models: a, b"),
        (["a", "b"], "c", '"c" is not served; there is: a, b'),
        ([], "c", "there is: none"),
    ],
)
def test_an_unknown_model_is_told_with_those_there_are(served, wanted, said):
    with pytest.raises(SpecError) as refused:
        choose([Served(name, None) for name in served], wanted)
    assert said in refused.value.problem
    assert refused.value.where == "--model"


async def test_tokens_are_counted_by_the_servers_tokenizer_template_included(fake):
    async with connect(5, None) as session:
        assert await Server(session, fake.url, "fake-1").count_tokens("The time") == 7
        assert await Server(session, fake.url, "fake-1", "completions").count_tokens("a b c") == 3
        fake.tokenizer = False
        assert await Server(session, fake.url, "fake-1").count_tokens("The time") is None
