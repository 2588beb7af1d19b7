"""What a server says becomes an answer, whatever it lacks; what cannot be compared is an error."""

from dataclasses import replace

import pytest

from letters import Letters, serving
from ridgeline.errors import SpecError
from ridgeline.serving.evaluate.cases import packaged
from ridgeline.serving.evaluate.endpoint import Endpoint, connect
from ridgeline.serving.policy.answers import Answer, Category, Pair, common, measure

CASES = {case.name: case for case in packaged()}
CHAT, RAW = CASES["chat/sky"], CASES["characters/digits"]
#: Wide apart enough that greedy answers part soon.
OTHER_TYPE = 1.5


async def asked(server, case=CHAT, reference=None, *, key=None, model="m", url=None):
    with serving(server) as address:
        async with connect(key) as session:
            endpoint = Endpoint(session, url or address, model)
            if reference is None:
                return await endpoint.ask(case)
            return await endpoint.follow(case, reference)


@pytest.mark.parametrize("case", [CHAT, RAW])
async def test_an_answer_has_steps_ids_and_the_prompts_tokens(case):
    answer = await asked(Letters(), case)
    assert len(answer.steps) == len(answer.ids) == case.body["max_tokens"]
    assert [chr(one) for one in answer.ids] == [step.token for step in answer.steps]
    assert len(answer.prompt_ids) == answer.prompt_tokens
    assert all(len(step.top) == 5 for step in answer.steps)
    assert all(step.likeliest == step.token for step in answer.steps)


async def test_where_the_answer_leaves_the_reference_the_references_tokens_are_asked_for():
    reference = await asked(Letters())
    server = Letters(shift=OTHER_TYPE)
    own = await asked(server)
    assert common(reference.steps, own.steps) < len(reference.steps) - 2
    seen = await asked(server, reference=reference)
    assert len(seen.steps) == len(reference.steps)
    text = CHAT.body["messages"][0]["content"]
    said = "".join(step.token for step in reference.steps)
    for at, step in enumerate(seen.steps):
        logits = server.logits(f"<user>{text}\n{said[:at]}")
        assert step.top[step.likeliest] == pytest.approx(max(logits.values()))


@pytest.mark.parametrize("lacks", ["tells_ids", "takes_ids"])
async def test_where_that_cannot_be_asked_the_steps_up_to_the_first_other_token_count(lacks):
    reference = await asked(Letters())
    server = replace(Letters(shift=OTHER_TYPE), **{lacks: False})
    shared = common(reference.steps, (await asked(server)).steps)
    seen = await asked(server, reference=reference)
    assert len(seen.steps) == shared + 1


async def test_the_same_server_is_asked_once_for_each_prompt():
    server = Letters()
    reference = await asked(server)
    assert await asked(server, reference=reference) == reference
    assert len(server.bodies) == 2


async def test_a_refusal_is_an_answer():
    case = CASES["structured/schema"]
    assert await asked(Letters(takes_schemas=False), case) == Answer(refused="400 no schemas here")


async def test_a_busy_server_is_asked_again():
    assert (await asked(Letters(busy=3))).steps


@pytest.mark.parametrize(
    ("server", "options", "where"),
    [
        (Letters(key="k"), {}, "--api-key"),
        (Letters(), {"model": "other"}, "URL"),
        (Letters(tells_logprobs=False), {}, "URL"),
        (Letters(), {"url": "http://127.0.0.1:1"}, "--url"),
        (Letters(), {"url": "nonsense"}, "--url"),
    ],
)
async def test_what_makes_a_comparison_impossible_is_said(server, options, where):
    with pytest.raises(SpecError) as raised:
        await asked(server, **options)
    assert raised.value.where == where


async def test_a_key_is_sent():
    assert (await asked(Letters(key="k"), key="k")).steps


async def test_the_longest_sequence_is_what_the_server_tells():
    with serving(Letters(context=77)) as url:
        async with connect(None) as session:
            assert await Endpoint(session, url, "m").longest() == 77
            assert await Endpoint(session, url, "other").longest() is None


async def test_numbers_that_are_none_are_no_likeness():
    reference = await asked(Letters())
    server = Letters(logprob=float("nan"))
    seen = await asked(server, reference=reference)
    measured = measure([Pair(Category.CHAT, "p", reference, seen)])
    assert measured.difference == 10
