"""One question with its answer, as Python programs and notebooks get it from `ridgeline.plan`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.quantity import Quantity
from ridgeline.topics import Asked, ask
from ridgeline.working.data import as_data
from ridgeline.working.lines import plain, styled
from ridgeline.working.markdown import markdown
from ridgeline.working.matters import unused
from ridgeline.working.sensitivity import Sensitivity, sensitivity
from ridgeline.working.text import answer_lines, said
from ridgeline.working.why import found, why


@dataclass(frozen=True)
class Plan:
    """An answer whose numbers can be read, explained, swept and varied."""

    asked: Asked

    @property
    def says(self) -> str:
        """The answer in one sentence."""
        return said(self.asked)

    @property
    def values(self) -> dict[str, Quantity]:
        """Its numbers by name; the first is the headline."""
        return self.asked.answer.values

    @property
    def notes(self) -> list[str]:
        """What to know beside the numbers, and what is odd or does not matter of what was given."""
        return [*self.asked.answer.notes, *self.asked.remarks, *unused(self.asked)]

    @property
    def about(self) -> str:
        """Which model and accelerator it is about, by their full names."""
        return self.asked.about

    def __getitem__(self, name: str) -> Quantity:
        """A value of the answer, or any step of its derivation; SpecError names the nearest."""
        return found(self.asked, name)[0]

    def why(self, name: str = "") -> str:
        """The derivation of one of its numbers, the headline unless said."""
        wanted = name or next(iter(self.values))
        trees = [plain(why(step, name or wanted)) for step in found(self.asked, wanted)]
        return "\n\n".join(trees)

    def sweep(self, written: str, **options: Any) -> Any:
        """The same question at many points: a `working.sweep.Sweep`."""
        from ridgeline.working.sweep import sweep

        asked = self.asked
        return sweep(asked.topic.name, written, asked.given, asked.overrides, **options)

    def sensitivity(self, **options: Any) -> Sensitivity:
        """How far each input moves a value, the headline unless `value` says another."""
        asked = self.asked
        return sensitivity(asked.topic.name, asked.given, asked.overrides, **options)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as `ridgeline plan --json` prints it."""
        return as_data(self.asked)

    def to_markdown(self) -> str:
        """The page that `ridgeline plan --markdown` prints."""
        return markdown(self.asked)

    def __str__(self) -> str:
        return plain(answer_lines(self.asked))

    def __rich__(self) -> Any:
        return styled(answer_lines(self.asked))


def plan(topic: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Ask a topic. `settings` are overrides of steps; numbers without a unit are in base units."""
    written = {name: _written(value) for name, value in given.items()}
    return Plan(ask(topic, written, {name: _written(value) for name, value in settings.items()}))


def _written(value: Any) -> Any:
    """What a person would write; a bool, a Quantity or a row of the catalog stays what it is."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
