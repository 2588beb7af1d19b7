"""`ridgeline serve` with a fault that no option makes: FAULT, then serve's own arguments.

cut=N         a chat's prompt loses all but its last N tokens, without a word
temperature=T the temperature of a request that does not say; top_p=P in the same way
"""

import sys
from typing import Any


def cut(keep: int) -> None:
    from ridgeline.serving.engine.prompts import Prompts

    whole = Prompts.chat

    def chat(self: Prompts, *given: Any, **named: Any) -> list[int]:
        return whole(self, *given, **named)[-keep:]

    Prompts.chat = chat  # type: ignore[method-assign]


def default(field: str, value: float) -> None:
    import msgspec

    from ridgeline.serving.engine import asking

    ask = asking._sampling

    def sampling(request: Any, *given: Any) -> Any:
        made = ask(request, *given)
        if getattr(request, field) is not None:
            return made
        return msgspec.structs.replace(made, **{field: value})

    asking._sampling = sampling


if __name__ == "__main__":  # the engine's process imports this module too
    from ridgeline.cli import main

    kind, _, size = sys.argv.pop(1).partition("=")
    if kind == "cut":
        cut(int(size))
    else:
        default(kind, float(size))
    main()
