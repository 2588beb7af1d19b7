"""Every error a user can meet, as a tree.

    RidgelineError
    ├── SpecError          platform.yaml or a command's argument is wrong
    ├── ModelError         a model's files are missing, torn or of a kind we cannot run
    ├── CatalogError       a row of a catalog is wrong, or there is none of that name
    ├── UnitError          a number has another unit than the one that is needed
    ├── LaunchError        a process could not be started, or died
    ├── StoreError         the database cannot be used, or a backup cannot be believed
    ├── MissingExtraError  a part of the product is not installed
    └── BenchError         a measurement that must not be believed

An error says the field, the problem and the remedy. The command line prints it without a
traceback and leaves with status 2. `assert` is for our own mistakes only.
"""


class RidgelineError(Exception):
    """Base of all errors shown to a user: where it is, what is wrong, what to try.

    `str()` gives at most two lines: `where: problem`, then `  try: remedy`.
    """

    def __init__(self, problem: str, *, where: str = "", remedy: str = "") -> None:
        self.problem = problem
        self.where = where
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        first = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{first}\n  try: {self.remedy}" if self.remedy else first


class SpecError(RidgelineError):
    """platform.yaml, or an argument of a command, is not what it should be."""


class ModelError(RidgelineError):
    """A model's files are missing, torn, or of an architecture or type that cannot be run."""


class CatalogError(RidgelineError):
    """A catalog's row is wrong or has no source, or a name is in no catalog."""


class UnitError(RidgelineError):
    """A number has another unit than the one that is needed, or none."""


class LaunchError(RidgelineError):
    """A process that Ridgeline starts could not be started, or died."""


class StoreError(RidgelineError):
    """The database cannot be reached, read or written, or a backup must not be believed."""


class MissingExtraError(RidgelineError):
    """A command needs an optional part of the product, e.g. `ridgeline[engine]`."""


class BenchError(RidgelineError):
    """A measurement that must not be believed, e.g. since the client was the bottleneck."""
