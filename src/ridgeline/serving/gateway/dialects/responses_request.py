"""A request of OpenAI's Responses API as a chat completion's.

Nothing is stored here, so what refers to something stored is refused; fields that only concern
OpenAI's own service are dropped; fields that are not of this API go to the replica as they are.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ridgeline.serving.gateway.dialects.asking import (
    call_part,
    fields_beside,
    function_tool,
    given,
    image_part,
    missing,
    refused,
    schema_format,
    text_or_parts,
    text_part,
)
from ridgeline.serving.openai import ApiError


class Audio(msgspec.Struct):
    """Sound, as base64."""

    data: str
    format: str


class Part(msgspec.Struct):
    """One part of a content; which fields it has depends on `type`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: Audio | None = None


class Item(msgspec.Struct):
    """One item of the input; which fields it has depends on `type`."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None


class Tool(msgspec.Struct):
    """A tool; only functions can be offered to a replica."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, omit_defaults=True):
    """A function by name, or a choice among some of the tools."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[Tool] | None = None


class Format(msgspec.Struct, omit_defaults=True):
    """The form of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: Any = None
    strict: bool | None = None


class Text(msgspec.Struct):
    """How the text should be."""

    format: Format | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct):
    """How much to think."""

    effort: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/responses`."""

    model: str
    input: str | list[Item] | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    user: str | None = None
    metadata: Any = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    n: int | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has to carry log-probabilities."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or [])


# Of this API, and either translated below or without a meaning here.
_KNOWN = frozenset(ResponsesRequest.__struct_fields__) | {
    "access_programs",
    "background_options",
    "context_management",
    "image",
    "max_tool_calls",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "truncation",
}


def chat_body(request: ResponsesRequest, body: bytes) -> bytes:
    """The body of the chat completion. Raises ApiError 400 for what it cannot do."""
    _refuse(request)
    messages = _messages(request)
    tools, choice = _tools(request)
    form = request.text.format if request.text else None
    logprobs = request.wants_logprobs or None
    known = given(
        model=request.model,
        messages=messages,
        stream=request.stream,
        stream_options={"include_usage": True} if request.stream else None,
        max_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        logprobs=logprobs,
        top_logprobs=(request.top_logprobs or 0) if logprobs else None,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls if tools else None,
        response_format=_format(form) if form else None,
        verbosity=request.text.verbosity if request.text else None,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        user=request.user,
    )
    return msgspec.json.encode(fields_beside(body, _KNOWN) | known)


def _refuse(request: ResponsesRequest) -> None:
    remedy = "send the whole conversation in `input`"
    if request.previous_response_id is not None:
        raise refused("previous_response_id", "Responses are not stored here", remedy)
    if request.conversation is not None:
        raise refused("conversation", "Conversations are not stored here", remedy)
    if request.prompt is not None:
        raise refused("prompt", "Prompts are not stored here", "send `instructions` and `input`")
    if request.background:
        raise refused(
            "background", "Responses are not stored here", "wait for the answer, or stream it"
        )
    if request.n not in (None, 1):
        raise refused("n", "This API gives one answer", "ask several times")


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    """The conversation; what an assistant says, thinks and calls in one turn is one message."""
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    if request.input is None:
        raise missing("input")
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    for number, item in enumerate(request.input):
        _add(messages, item, f"input[{number}]")
    if not messages:
        raise ApiError(400, "Invalid value for input: it is empty.", param="input")
    return messages


def _add(messages: list[dict[str, Any]], item: Item, param: str) -> None:
    match item.type:
        case "message":
            _add_message(messages, item, param)
        case "function_call":
            calls = _turn(messages).setdefault("tool_calls", [])
            call_id, name = _required(item, "call_id", param), _required(item, "name", param)
            calls.append(call_part(call_id, name, item.arguments or "{}"))
        case "function_call_output":
            call_id = _required(item, "call_id", param)
            content = _content(item.output, f"{param}.output")
            messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        case "reasoning":
            if thought := _thought(item):
                turn = _turn(messages)
                turn["reasoning_content"] = turn.get("reasoning_content", "") + thought
        case "item_reference":
            raise refused(param, "Items are not stored here", "send the item itself")
        case other:
            problem = f"Items of type {other} are not supported here"
            raise refused(f"{param}.type", problem, "leave it out")


def _add_message(messages: list[dict[str, Any]], item: Item, param: str) -> None:
    if item.role is None:
        raise missing(f"{param}.role")
    content = _content(item.content, f"{param}.content")
    if item.role == "assistant":
        turn = _turn(messages)
        if turn["content"] is None and "tool_calls" not in turn:
            turn["content"] = content
        else:
            messages.append({"role": "assistant", "content": content})
        return
    # OpenAI's newer name; what it means is the system message, and templates know only that.
    role = "system" if item.role == "developer" else item.role
    messages.append({"role": role, "content": content})


def _turn(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being put together."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _thought(item: Item) -> str:
    if isinstance(item.content, list):
        return "".join(part.text or "" for part in item.content)
    return item.content or ""


def _required(item: Item, name: str, param: str) -> str:
    value: str | None = getattr(item, name)
    if value is None:
        raise missing(f"{param}.{name}")
    return value


def _content(content: str | list[Part] | None, param: str) -> str | list[dict[str, Any]]:
    if content is None:
        raise missing(param)
    if isinstance(content, str):
        return content
    return text_or_parts([_part(part, f"{param}[{n}]") for n, part in enumerate(content)])


def _part(part: Part, param: str) -> dict[str, Any]:
    match part.type:
        case "input_text" | "output_text" | "text":
            return text_part(part.text or "")
        case "refusal":
            return text_part(part.refusal or "")
        case "input_image" if part.image_url:
            return image_part(part.image_url, part.detail)
        case "input_audio" if part.input_audio:
            return {"type": "input_audio", "input_audio": msgspec.to_builtins(part.input_audio)}
        case "input_file" if part.file_data:
            file = given(file_data=part.file_data, filename=part.filename)
            return {"type": "file", "file": file}
        case "input_image" | "input_file":
            raise refused(param, "Files are not stored here", "send the content itself")
        case other:
            problem = f"Parts of type {other} are not supported here"
            raise refused(f"{param}.type", problem, "leave it out")


def _tools(request: ResponsesRequest) -> tuple[list[dict[str, Any]] | None, Any]:
    """The functions on offer, and the choice among them."""
    tools = {
        tool.name: _tool(tool, f"tools[{number}]")
        for number, tool in enumerate(request.tools or [])
    }
    choice = request.tool_choice
    if not isinstance(choice, ToolChoice):
        return list(tools.values()) or None, choice if tools else None
    if choice.type == "function" and choice.name:
        return list(tools.values()) or None, {
            "type": "function",
            "function": {"name": choice.name},
        }
    if choice.type == "allowed_tools":
        names = {tool.name for tool in choice.tools or []}
        allowed = [tool for name, tool in tools.items() if name in names]
        return allowed or None, (choice.mode or "auto") if allowed else None
    raise refused("tool_choice", f"A {choice.type} choice is not supported here", "name a function")


def _tool(tool: Tool, param: str) -> dict[str, Any]:
    if tool.type != "function":
        raise refused(param, f"{tool.type} tools are not supported here", "offer functions only")
    if not tool.name:
        raise missing(f"{param}.name")
    return function_tool(tool.name, tool.description, tool.parameters, tool.strict)


def _format(form: Format) -> dict[str, Any] | None:
    match form.type:
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            if form.schema is None:
                raise missing("text.format.schema")
            return schema_format(form.name or "answer", form.schema, form.strict, form.description)
