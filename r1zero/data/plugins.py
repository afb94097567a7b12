"""Code that a recipe names: one table for each kind (verifiers, environments), filled by decorators and by plugins.

Three ways in: the kind's own decorator, its entry-point group (installed plugins), and `package.module:attribute`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar

from r1zero.errors import UserError, unknown_name


class Described(Protocol):
    """What a table holds: some code, and what a recipe may set of it."""

    @property
    def code(self) -> Callable[..., Any]:
        """The function or class itself."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Its options and their defaults."""
        ...


P = TypeVar("P", bound=Described)


class NameTakenError(ValueError):
    """Two want one name."""

    def __init__(self, kind: str, name: str, owner: str) -> None:
        super().__init__(f"{kind} name {name!r} is taken by {owner}: choose another")
        self.name = name


class Plugins(Generic[P]):
    """The table of one kind of plugin. Built-ins and plugins are imported when a name is first asked for."""

    def __init__(
        self, kind: str, *, group: str, builtin: str, describe: Callable[[str, Callable[..., Any]], P], named: str
    ) -> None:
        """kind: the word for errors; group: the entry-point group; builtin: the module whose import registers the
        built-ins; describe: reads a signature, raising TypeError or ValueError where it does not fit; named: how one
        that is not installed is written."""
        self.kind, self.group, self.named = kind, group, named
        self.known: dict[str, P] = {}
        self.failed: dict[str, str] = {}
        self._builtin, self._describe = builtin, describe
        self._state, self._reading = "unread", threading.RLock()

    def add(self, name: str, one: P) -> None:
        """Enter `one` as `name`. Raises NameTakenError where other code has the name."""
        owner = self.known.get(name)
        if owner is not None and _identity(owner.code) != _identity(one.code):
            raise NameTakenError(self.kind, name, _identity(owner.code))
        self.known[name] = one

    def get(self, name: str) -> P:
        """The one registered as `name`, or named `package.module:attribute`.

        Raises UserError with the near names, or with what kept the plugin of that name from being imported.
        """
        self.load()
        if name in self.failed:
            raise UserError(f"{self.kind} {name!r} cannot be used: {self.failed[name]}")
        if name in self.known:
            return self.known[name]
        if ":" in name:
            return self._imported(name)
        error = unknown_name(self.kind, name, self.known)
        raise UserError(f"{error}; one that is not installed is named {self.named}")

    def _imported(self, name: str) -> P:
        module_name, _, attribute = name.partition(":")
        try:
            code = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # whatever a user's module does at import is theirs to read, on one line
            raise UserError(f"{self.kind} {name!r} cannot be imported: {type(error).__name__}: {error}") from error
        for one in self.known.values():
            if one.code is code:
                return one
        try:
            return self._describe(name, code)
        except (TypeError, ValueError) as error:
            raise UserError(f"{name!r} is no {self.kind}: {error}") from error

    def resolve(self, name: str, options: Mapping[str, Any]) -> P:
        """`get(name)`, options checked: UserError for an unknown one or a value of another kind than the default."""
        one = self.get(name)
        for option, value in options.items():
            if option not in one.options:
                raise unknown_name(f"option of {self.kind} {name!r}", option, one.options)
            default = one.options[option]
            if not _same_kind(value, default):
                raise UserError(
                    f"option {option!r} of {self.kind} {name!r} is {value!r}, which is no {type(default).__name__} "
                    f"(its default is {default!r})"
                )
        return one

    def names(self) -> list[str]:
        """All names that can be used, built-in and plugin, sorted."""
        self.load()
        return sorted(self.known.keys() - self.failed.keys())

    def broken(self) -> dict[str, str]:
        """Plugins that cannot be used, by name: why not."""
        self.load()
        return dict(self.failed)

    def load(self) -> None:
        """Import the built-ins and every installed plugin, once.

        A plugin that fails to import, or that wants a name that is taken, breaks nobody else: its name is kept in
        `failed`, and using that name raises the reason. A name that two want is then nobody's, so that none is taken
        for the other.
        """
        if self._state == "read":
            return
        with self._reading:
            if self._state != "unread":  # "reading": called by a plugin's own import, which has the built-ins by now
                return
            importlib.import_module(self._builtin)
            self._state = "reading"
            for entry in entry_points(group=self.group):
                self.load_entry(entry)
            self._state = "read"

    def load_entry(self, entry: EntryPoint) -> None:
        """Import one plugin; what it raises is kept, not passed on."""
        try:
            loaded = entry.load()
            # An entry point may name decorated code, or a module whose import registers several.
            if callable(loaded) and all(one.code is not loaded for one in self.known.values()):
                self.add(entry.name, self._describe(entry.name, loaded))
        except NameTakenError as error:
            self.failed[error.name] = f"plugin {entry.value}: {error}"
        except Exception as error:  # noqa: BLE001  it runs a stranger's code, and any failure of it is kept and named
            self.failed[entry.name] = f"plugin {entry.value} cannot be imported: {type(error).__name__}: {error}"


def _identity(code: Callable[..., Any]) -> str:
    return f"{code.__module__}:{code.__qualname__}"


def _same_kind(value: object, default: object) -> bool:
    """Whether `value` may stand where `default` does. YAML writes 1 for 1.0 and knows lists only."""
    if default is None:
        return True
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, list | tuple):
        return isinstance(value, list | tuple)
    if isinstance(default, int) and not isinstance(default, bool):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, type(default))
