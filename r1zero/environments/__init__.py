"""Environments: what a policy acts in over several turns. The runner is `play`, which alone imports an engine."""

from r1zero.environments.base import Environment, Observation, Start
from r1zero.environments.registry import EnvironmentSpec, Example, environment, get, names, resolve

__all__ = [
    "Environment",
    "EnvironmentSpec",
    "Example",
    "Observation",
    "Start",
    "environment",
    "get",
    "names",
    "resolve",
]
