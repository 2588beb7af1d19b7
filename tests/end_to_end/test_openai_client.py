"""The unmodified openai client against the real model behind the gateway."""

import json

import openai
import pytest

MODEL = "smollm2-135m-instruct"
PARIS = [{"role": "user", "content": "What is the capital of France?"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def chat(up, **more):
    return up.client.chat.completions.create(
        **{"model": MODEL, "messages": PARIS, "temperature": 0, "max_tokens": 64, **more}
    )


def test_asked_for_the_capital_of_france_it_says_paris(up):
    answer = chat(up)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same_as_a_whole_answer(up):
    whole = chat(up)
    pieces = list(chat(up, stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [p.choices[0].finish_reason for p in pieces if p.choices][-1] == "stop"


def test_a_stream_without_the_option_carries_no_usage(up):
    assert all(piece.usage is None for piece in chat(up, stream=True, max_tokens=3))


def test_completions_continue_a_text(up):
    answer = up.client.completions.create(
        model=MODEL, prompt="1 2 3 4 5 6 7 8", max_tokens=6, temperature=0
    )
    assert "9" in answer.choices[0].text
    assert answer.usage.completion_tokens == 6
    assert answer.choices[0].finish_reason == "length"


def test_completions_take_token_ids_and_lists_of_prompts(up):
    answer = up.client.completions.create(model=MODEL, prompt=["A B C", "1 2 3"], max_tokens=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    answer = up.client.completions.create(model=MODEL, prompt=[28, 216, 34], max_tokens=2)
    assert answer.usage.prompt_tokens == 3


def test_a_stop_string_ends_the_text_and_is_not_in_it(up):
    answer = chat(up, stop=["Paris"])
    assert "Paris" not in answer.choices[0].message.content
    assert "capital" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


def test_a_seed_makes_a_warm_answer_reproducible(up):
    ask = {"temperature": 1.2, "max_tokens": 24}
    texts = [chat(up, seed=seed, **ask).choices[0].message.content for seed in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


def test_n_answers_differ_where_chance_decides(up):
    answer = chat(up, n=3, temperature=1.3, max_tokens=16, seed=1)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_logprobs_name_the_chosen_token_first(up):
    answer = chat(up, logprobs=True, top_logprobs=3, max_tokens=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == 4
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == pytest.approx(token.top_logprobs[0].logprob)
        assert bytes(token.bytes).decode() == token.token
        assert token.logprob <= 0


def test_a_json_schema_binds_the_answer(up):
    answer = chat(
        up,
        messages=[{"role": "user", "content": "Invent a person."}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "strict": True, "schema": PERSON},
        },
        max_tokens=80,
    )
    person = json.loads(answer.choices[0].message.content)
    assert set(person) == {"name", "age"}
    assert isinstance(person["age"], int)


def test_json_mode_gives_a_json_object(up):
    answer = chat(up, response_format={"type": "json_object"}, max_tokens=200, seed=3)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)
    assert answer.choices[0].message.content.lstrip().startswith("{")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_required_tool_is_called_with_valid_arguments(up, choice):
    answer = chat(up, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, max_tokens=80)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city"}
    assert call.id
    assert answer.choices[0].finish_reason in ("tool_calls", "stop")


def test_a_streamed_tool_call_joins_to_valid_arguments(up):
    name, arguments = "", ""
    ask = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 80}
    for piece in chat(up, tools=[WEATHER], stream=True, **ask):
        for call in piece.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert name == "get_weather"
    assert set(json.loads(arguments)) == {"city"}


def test_an_unknown_model_is_a_404_that_names_those_there_are(up):
    with pytest.raises(openai.NotFoundError) as caught:
        chat(up, model="gpt-4")
    assert caught.value.code == "model_not_found"
    assert MODEL in caught.value.message


def test_too_long_a_prompt_is_a_400_of_openais_kind(up):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(up, messages=[{"role": "user", "content": "word " * 9000}])
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in caught.value.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n"),
        ({"temperature": "warm"}, "temperature"),
    ],
)
def test_a_bad_field_is_a_400_that_names_it(up, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(up, **body)
    assert caught.value.param == param


def test_leaving_in_mid_stream_frees_the_request(up):
    stream = chat(up, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    # An answer after it proves that nothing hangs; the soak counts blocks and tasks.
    assert "Paris" in chat(up).choices[0].message.content


def test_the_models_are_listed(up):
    assert [model.id for model in up.client.models.list()] == [MODEL]
