"""The bodies of OpenAI's requests as types: every field a replica understands, with its limits.

`reading.read` decodes into these. Fields that are not named here are ignored, as
OpenAI-compatible servers do; docs/guide/api.md lists the named ones for users. A field that
would change the answer but cannot be honoured is named with type `Refused`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

INT_MAX = 2**31 - 1

Count = Annotated[int, Meta(ge=1, le=INT_MAX)]
Amount = Annotated[int, Meta(ge=0, le=INT_MAX)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
StopText = Annotated[str, Meta(min_length=1, max_length=128)]
Stops = Annotated[list[StopText], Meta(max_length=16)]
StopTokens = Annotated[list[Amount], Meta(max_length=64)]
Biases = Annotated[dict[int, Bias], Meta(max_length=1024)]
Name = Annotated[str, Meta(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
Refused = Any


class StreamOptions(msgspec.Struct, kw_only=True):
    """What to say in a stream beside the text."""

    include_usage: bool | None = None


class JsonSchema(msgspec.Struct, kw_only=True):
    """A named JSON schema the answer has to follow."""

    name: Name | None = None
    description: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """Free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Resume(msgspec.Struct, kw_only=True):
    """An answer that was begun elsewhere: the ids that it has so far, in order."""

    token_ids: Annotated[list[Amount], Meta(min_length=1)]


class Generating(msgspec.Struct, kw_only=True):
    """What chat and plain completions have in common: how tokens are chosen and sent."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Seed | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Biases | None = None
    stop: StopText | Stops | None = None
    stop_token_ids: StopTokens | None = None
    ignore_eos: bool | None = None
    min_tokens: Amount | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)] | None = None
    return_token_ids: bool | None = None
    resume: Resume | None = None
    guided_json: Refused = None
    guided_regex: Refused = None
    guided_choice: Refused = None
    guided_grammar: Refused = None
    structured_outputs: Refused = None
    prompt_logprobs: Refused = None


class CompletionRequest(Generating, kw_only=True):
    """`POST /v1/completions`.

    `prompt` is a text, a list of texts, a list of token ids, or a list of such lists; the type
    is wider than that since msgspec tells unions of lists apart only by their elements.
    """

    prompt: str | list[str | Amount | list[Amount]]
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    suffix: Refused = None
    best_of: Count | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    """One part of a message's content; only text parts can be read."""

    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct, kw_only=True):
    """The function an earlier answer called, its arguments as JSON text."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct, kw_only=True):
    """A tool call an earlier answer made."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"


class Message(msgspec.Struct, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(msgspec.Struct, kw_only=True):
    """A function the model may call; `parameters` is a JSON schema of its arguments."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A tool the model may call."""

    type: Literal["function"]
    function: Function


class FunctionName(msgspec.Struct, kw_only=True):
    """A function by name."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    """The one tool that has to be called."""

    type: Literal["function"]
    function: FunctionName


class ChatRequest(Generating, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    functions: Refused = None
    function_call: Refused = None
    audio: Refused = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /tokenize`: a text (`prompt`) or a conversation (`messages`)."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """`POST /detokenize`: token ids to text."""

    tokens: list[Amount]
    model: str | None = None
