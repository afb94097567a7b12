"""`r1zero.train` and `r1zero.load_run`: a recipe trained from Python, and a run read, by the code of the commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState

from r1zero.config import DataConfig, GRPOConfig, PPOConfig, RewardConfig, RewardTerm, StageConfig, recipe
from r1zero.config.recipe import merged
from r1zero.data.memory import GivenProblem, write_problems
from r1zero.errors import UserError, unknown_name
from r1zero.pipelines import stages
from r1zero.runs.checkpoint import latest_checkpoint, step_checkpoint
from r1zero.runs.folder import RunFolder, plain, read_rollouts
from r1zero.verifiers.running import by_value

Reward = Callable[..., Any] | str


class Run:
    """A run on disk. Passes for its folder's path wherever one is taken (`evaluate(run)`)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises UserError where `path` holds no run."""
        self.path = Path(path)
        self._folder = RunFolder(self.path.parent, self.path.name)
        if not self._folder.exists:
            raise UserError(f"{self.path} holds no run (no config.yaml)")

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        rows = self._folder.metrics()
        at = f"step {rows[-1]['step']}" if rows else "no step yet"
        return f"Run({str(self.path)!r}, stage {self.config.stage}, {at})"

    @property
    def config(self) -> StageConfig:
        """The complete settings it was begun with."""
        return recipe.load(str(self.path / "config.yaml"))

    def metrics(self) -> Any:
        """A row a step, `step` and the step's figures (step 0: the evaluation before training): a pandas DataFrame
        where pandas is installed, else a list of dicts."""
        rows = self._folder.metrics()
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows)

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """Every prompt, completion, verdict, reward and advantage of one step, a dict a completion.

        Raises UserError for a step without them (`run.save_rollouts`), naming those there are.
        """
        path = self.path / "rollouts" / f"step-{step:06d}.jsonl.zst"
        if not path.is_file():
            steps = sorted(int(found.name[5:-10]) for found in path.parent.glob("step-*.jsonl.zst"))
            there = f"steps {steps[0]} to {steps[-1]} have some" if steps else "no step has any"
            raise UserError(f"{self.path} keeps no rollouts of step {step}: {there}")
        return read_rollouts(path)

    def checkpoint(self, which: str | int = "last") -> Path:
        """The model folder of the `last` step, of the `best` evaluation, or of a step by its number.

        Raises UserError where there is none: `best` needs held-out problems.
        """
        if which == "last":
            found = latest_checkpoint(self._folder.checkpoints)
        elif which == "best" or isinstance(which, int):
            found = step_checkpoint(self._folder.checkpoints, None if which == "best" else int(which))
        else:
            raise unknown_name("checkpoint", which, ["last", "best", "a step's number"])
        if found is None:
            hint = " (no evaluation was made: give held_out problems)" if which == "best" else ""
            raise UserError(f"{self.path} has no checkpoint {which!r}{hint}")
        return found

    def resume(self, settings: Mapping[str, Any] | None = None) -> Run:
        """Go on from the last checkpoint to the last step, with `settings` such as {"run.steps": 200} on its own."""
        here = {"run": {"root": str(self.path.parent), "name": self.path.name}}
        config = recipe.load(str(self.path / "config.yaml"), settings=merged(_nested(settings or {}), here))
        return _run(config, resume=True)


def load_run(folder: str | os.PathLike[str]) -> Run:
    """The run in `folder`, such as `runs/tiny-cpu`. Raises UserError where it holds none."""
    return Run(folder)


def train(
    recipe_or_config: str | os.PathLike[str] | StageConfig,
    settings: Mapping[str, Any] | None = None,
    *,
    problems: Sequence[GivenProblem] | None = None,
    reward: Reward | None = None,
    held_out: Sequence[GivenProblem] | None = None,
) -> Run:
    """Train and return the run; it prints a line a step, in a notebook too. Ctrl-C (a notebook's stop button) ends it
    after the step under way, with a checkpoint: `load_run(folder).resume()` goes on.

    recipe_or_config: a recipe's name, a YAML file or a config object; settings: {"section.key": value} on top.
    problems: to train on, in place of the recipe's: Problems, (problem, answer) pairs or mappings. They are written to
    the run's folder. The recipe's own held-out problems are then left out: give `held_out`, or set eval.data.source.
    reward: a verifier's name, or a function of `completion`, `answer`, `problem`, … (by parameter name) that returns a
    number in [-1, 1], a bool or a Verdict, in place of the recipe's reward terms. A function of a script or a notebook
    cell works: it is copied by value, with what it refers to, into the run's folder and runs in the verifier processes,
    killed past `reward.deadline_seconds`; it sees no variable that changes afterwards, and no GPU.

    Raises UserError for every mistake that is yours to mend, and where the run's folder holds a run already.
    """
    config = _config(recipe_or_config, settings or {})
    folder = RunFolder(config.run.root, config.run.name)
    if folder.exists:
        raise UserError(
            f"{folder.path} holds a run already: r1zero.load_run({str(folder.path)!r}).resume() goes on with it, "
            '{"run.name": …} begins another'
        )
    if problems is not None or reward is not None or held_out is not None:
        config = _with_objects(config, settings or {}, folder.path.absolute() / "inputs", problems, reward, held_out)
    return _run(config, resume=False)


def _config(given: str | os.PathLike[str] | StageConfig, settings: Mapping[str, Any]) -> StageConfig:
    if isinstance(given, str | os.PathLike):
        return recipe.load(os.fspath(given), settings=_nested(settings))
    if not is_dataclass(given) or isinstance(given, type):
        raise UserError(f"train: {given!r:.80} is no recipe: give its name, a YAML file or a config object")
    if not settings:
        return given
    return recipe.from_settings(merged(plain(given), _nested(settings)), (), "the config object")


def _with_objects(
    config: StageConfig,
    settings: Mapping[str, Any],
    folder: Path,
    problems: Sequence[GivenProblem] | None,
    reward: Reward | None,
    held_out: Sequence[GivenProblem] | None,
) -> StageConfig:
    """`config` with files in `folder`, the run's `inputs/`, in place of the Python objects."""
    if not isinstance(config, GRPOConfig | PPOConfig):
        raise UserError(f"problems, reward and held_out are for the stages grpo and ppo, not for {config.stage}")
    if problems is not None:
        write_problems(problems, folder / "problems.jsonl")
        config = replace(config, data=_file(config.data, folder / "problems.jsonl"))
        if held_out is None and "eval.data.source" not in settings:
            config = replace(config, eval=replace(config.eval, data=DataConfig()))
    if held_out is not None:
        write_problems(held_out, folder / "held-out.jsonl")
        config = replace(config, eval=replace(config.eval, data=_file(config.eval.data, folder / "held-out.jsonl")))
    if isinstance(reward, str):
        config = replace(config, reward=_one_term(config.reward, RewardTerm(verifier=reward)))
    elif reward is not None:
        by_value.store(reward, folder / "reward.pkl")
        name = getattr(reward, "__name__", type(reward).__name__).strip("<>")
        term = RewardTerm(verifier=by_value.NAME, name=name, options={"path": str(folder / "reward.pkl")})
        config = replace(config, reward=_one_term(config.reward, term))
    return config


def _one_term(reward: RewardConfig, term: RewardTerm) -> RewardConfig:
    return replace(reward, terms=[term], models=[])


def _file(data: DataConfig, path: Path) -> DataConfig:
    """The data section of a file that `write_problems` wrote; the recipe's limits on prompts stay."""
    return DataConfig(
        source=str(path), seed=data.seed, max_prompt_tokens=data.max_prompt_tokens, too_long=data.too_long
    )


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} as {"a": {"b": 1}}; what is nested already stays."""
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise UserError(f'settings {settings!r:.80}: give a mapping such as {{"run.steps": 20}}')
    result: dict[str, Any] = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merged(result, value)
    return result


def _run(config: StageConfig, *, resume: bool) -> Run:
    # accelerate keeps the first run's compute type for the whole process; a second run may have another.
    if "RANK" not in os.environ:
        AcceleratorState._reset_state(reset_partial_state=True)
    stages.run(config, resume=resume)
    return Run(RunFolder(config.run.root, config.run.name).path)
