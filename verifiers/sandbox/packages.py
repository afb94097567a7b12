"""Installed packages for programs: which files they are, for a sandbox to mount read-only."""

from __future__ import annotations

import functools
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from r1zero.errors import UserError

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*)")


@functools.cache
def package_paths(names: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of the top-level folders and modules of the packages `names`, and of what they require, sorted.

    Raises UserError for one that is not installed here.
    """
    found: set[str] = set()
    seen: set[str] = set()
    todo = [(name, True) for name in names]
    while todo:
        name, asked = todo.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            package = distribution(name)
        except PackageNotFoundError as error:
            if not asked:  # a requirement of some other platform
                continue
            message = f"packages: {name!r} is not installed here: `pip install {name}` into this environment"
            raise UserError(message) from error
        found |= _top_level(package)
        for requirement in package.requires or ():
            match = _REQUIREMENT.match(requirement)
            if match and "extra ==" not in requirement:
                todo.append((match[1], False))
    return tuple(sorted(found))


def _top_level(package: Distribution) -> set[str]:
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__", "bin")}
    return {str(package.locate_file(top)) for top in tops if not top.endswith(".pth")}
