"""A request of Anthropic's Messages API as a chat completion's, or as a question for its tokens.

What only concerns Anthropic's own service (caching marks, containers, the thinking budget) is
dropped; fields that are not of this API go to the replica as they are.
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


class Source(msgspec.Struct):
    """Where an image or a document comes from."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class Content(msgspec.Struct):
    """One block of a message; which fields it has depends on `type`."""

    type: str
    text: str | None = None
    source: Source | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str | None = None
    content: "str | list[Content] | None" = None
    thinking: str | None = None


class Message(msgspec.Struct):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Content]


class Tool(msgspec.Struct):
    """A tool; those with another type than custom run at Anthropic, so they cannot be offered."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: Any = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """Whether a tool has to be used, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Format(msgspec.Struct):
    """The form of the text."""

    type: Literal["json_schema"]
    schema: Any = None


class OutputConfig(msgspec.Struct):
    """The form of the text, and how much to think."""

    format: Format | None = None
    effort: str | None = None


class Metadata(msgspec.Struct):
    """Who is asking."""

    user_id: str | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/messages/count_tokens`."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)]
    system: str | list[Content] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """`POST /v1/messages`."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    n: int | None = None


# Of this API, and either translated below or without a meaning here.
_KNOWN = frozenset(MessagesRequest.__struct_fields__) | {
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "inference_geo",
    "mcp_servers",
    "service_tier",
    "speed",
    "stream_options",
    "thinking",
    "user_profile_id",
    "workspace_id",
}


def chat_body(request: MessagesRequest, body: bytes) -> bytes:
    """The body of the chat completion. Raises ApiError 400 for what it cannot do."""
    if request.n not in (None, 1):
        raise refused("n", "This API gives one answer", "ask several times")
    if request.messages[-1].role == "assistant":
        raise refused(
            "messages", "An answer cannot be begun for the model", "end with a user's message"
        )
    choice = request.tool_choice
    config = request.output_config
    form = config.format if config else None
    alone = choice is not None and choice.disable_parallel_tool_use and bool(request.tools)
    known = given(
        model=request.model,
        messages=_messages(request),
        stream=request.stream,
        stream_options={"include_usage": True} if request.stream else None,
        max_tokens=request.max_tokens,
        stop=request.stop_sequences or None,
        temperature=request.temperature,
        top_p=request.top_p,
        tools=_tools(request),
        tool_choice=_choice(choice) if choice and request.tools else None,
        parallel_tool_calls=False if alone else None,
        response_format=schema_format("answer", form.schema, True) if form else None,
        reasoning_effort=config.effort if config else None,
        user=request.metadata.user_id if request.metadata else None,
    )
    return msgspec.json.encode(fields_beside(body, _KNOWN) | known)


def tokenize_body(request: CountRequest) -> bytes:
    """The body for `/tokenize`, which renders the same conversation and counts."""
    messages, tools = _messages(request), _tools(request)
    return msgspec.json.encode(given(model=request.model, messages=messages, tools=tools))


def _messages(request: CountRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if system := _system(request.system):
        messages.append({"role": "system", "content": system})
    for number, message in enumerate(request.messages):
        param = f"messages[{number}].content"
        blocks = message.content
        if isinstance(blocks, str):
            messages.append({"role": message.role, "content": blocks})
        elif message.role == "assistant":
            messages.append(_assistant(blocks, param))
        else:
            messages += _user(message.role, blocks, param)
    return messages


def _system(system: str | list[Content] | None) -> str:
    if isinstance(system, list):
        texts = [_required(block.text, f"system[{n}].text") for n, block in enumerate(system)]
        return "\n\n".join(texts)
    return system or ""


def _assistant(blocks: list[Content], param: str) -> dict[str, Any]:
    """What the model said, thought and called in one turn."""
    message: dict[str, Any] = {"role": "assistant"}
    parts, calls, thoughts = [], [], []
    for number, block in enumerate(blocks):
        match block.type:
            case "tool_use":
                call_id = _required(block.id, f"{param}[{number}].id")
                name = _required(block.name, f"{param}[{number}].name")
                arguments = bytes(block.input).decode()
                calls.append(call_part(call_id, name, arguments))
            case "thinking":
                thoughts.append(block.thinking or "")
            case "redacted_thinking":
                pass  # only Anthropic can read it
            case _:
                parts.append(_part(block, f"{param}[{number}]"))
    message["content"] = text_or_parts(parts) or None
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(role: str, blocks: list[Content], param: str) -> list[dict[str, Any]]:
    """The results of tools, which follow their calls at once, then what the user says."""
    results, parts = [], []
    for number, block in enumerate(blocks):
        if block.type != "tool_result":
            parts.append(_part(block, f"{param}[{number}]"))
            continue
        call_id = _required(block.tool_use_id, f"{param}[{number}].tool_use_id")
        content = _result(block.content, f"{param}[{number}].content")
        results.append({"role": "tool", "tool_call_id": call_id, "content": content})
    said = [{"role": role, "content": text_or_parts(parts)}] if parts or not results else []
    return results + said


def _result(content: str | list[Content] | None, param: str) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return text_or_parts([_part(block, f"{param}[{n}]") for n, block in enumerate(content)])


def _part(block: Content, param: str) -> dict[str, Any]:
    source = block.source
    match block.type:
        case "text":
            return text_part(_required(block.text, f"{param}.text"))
        case "image" if source and source.type == "url" and source.url:
            return image_part(source.url)
        case "image" if source and source.type == "base64" and source.data:
            return image_part(f"data:{source.media_type};base64,{source.data}")
        case "document" if source and source.type == "text" and source.data:
            return text_part(source.data)
        case "image" | "document" if source:
            problem = f"A {block.type} from a {source.type} source is not supported here"
            raise refused(f"{param}.source", problem, "send its text, or an image as base64 or url")
        case other:
            problem = f"Content of type {other} is not supported here"
            raise refused(f"{param}.type", problem, "leave it out")


def _required(value: str | None, param: str) -> str:
    if value is None:
        raise missing(param)
    return value


def _tools(request: CountRequest) -> list[dict[str, Any]] | None:
    return [_tool(tool, f"tools[{n}]") for n, tool in enumerate(request.tools or [])] or None


def _tool(tool: Tool, param: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise refused(
            param, f"{tool.type} tools are not supported here", "offer tools of your own only"
        )
    return function_tool(tool.name, tool.description, tool.input_schema, tool.strict)


def _choice(choice: ToolChoice) -> Any:
    match choice.type:
        case "any":
            return "required"
        case "tool":
            if choice.name is None:
                raise missing("tool_choice.name")
            return {"type": "function", "function": {"name": choice.name}}
        case other:
            return other
