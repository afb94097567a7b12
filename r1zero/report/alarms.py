"""The alarms of a run, found again from its metrics: `runs/health.py` over each row in turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from r1zero.config import HealthConfig
from r1zero.report.folders import Run
from r1zero.runs.health import Health


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One kind of alarm in one run."""

    name: str
    first: int
    last: int
    """Steps."""
    times: int
    says: str
    """What was seen at the first, and which setting helps."""


def alarms(run: Run) -> list[Alarm]:
    """In the order in which they first rang. Thresholds are the run's own, the defaults where it has none."""
    known = {field.name for field in dataclasses.fields(HealthConfig)}
    own = {key: value for key, value in run.config.get("health", {}).items() if key in known}
    unpaid = [term["key"] for term in run.terms if term.get("weight") == 0]
    health = Health(HealthConfig(**own), unpaid=unpaid)
    found: dict[str, Alarm] = {}
    for row in run.rows:
        for name, says in health.check(row).items():
            before = found.get(name) or Alarm(name=name, first=row["step"], last=row["step"], times=0, says=says)
            found[name] = dataclasses.replace(before, last=row["step"], times=before.times + 1)
    return list(found.values())
