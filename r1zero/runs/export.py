"""A checkpoint out of its run: the weights alone, in a type of choice, with a model card and its lineage.

The folder loads in transformers and vLLM as it stands. Adapters are merged already: every checkpoint is a plain model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from r1zero.errors import UserError, first_line
from r1zero.runs.checkpoint import resolve_checkpoint

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def export(checkpoint: str, folder: Path, dtype: str) -> Path:
    """Write the weights of `checkpoint` (a run's folder: its latest) as `dtype` into the new `folder`.

    Returns the checkpoint that was taken. Raises UserError where it is none, or `folder` is there already.
    """
    source = Path(resolve_checkpoint(checkpoint))
    shards = sorted(source.glob("*.safetensors"))
    if not (source / "config.json").is_file() or not shards:
        raise UserError(f"{checkpoint} is no checkpoint: it has no config.json with *.safetensors beside it")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: name a new folder with -o")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for path in source.iterdir():
            if path.is_file() and path.suffix != ".safetensors" and path.name != "README.md":
                shutil.copy(path, partial / path.name)
        size = sum(_convert(path, partial / path.name, DTYPES[dtype]) for path in shards)
        _edit(partial / "config.json", {"dtype": dtype}, drop=("torch_dtype",))
        index = partial / "model.safetensors.index.json"
        if index.is_file():
            _edit(index, {"metadata": {"total_size": size}})
        (partial / "README.md").write_text(model_card(source, dtype), encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(f"{folder} could not be written ({error}): free some disk space") from error
    return source


def _convert(source: Path, target: Path, dtype: torch.dtype) -> int:
    """Write the floating-point tensors of one file as `dtype`, one at a time from the map; returns their bytes."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(source, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        tensors = {name: x.to(dtype) if x.is_floating_point() else x for name, x in tensors.items()}
        save_file(tensors, target, metadata=file.metadata() or {"format": "pt"})
    return sum(x.numel() * x.element_size() for x in tensors.values())


def _edit(path: Path, values: Mapping[str, Any], drop: tuple[str, ...] = ()) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    found = {key: value for key, value in found.items() if key not in drop} | dict(values)
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def model_card(checkpoint: Path, dtype: str) -> str:
    """The card: what it was made of and by, its evaluations with their intervals, and the command to repeat it.

    From the checkpoint's lineage and its run's metrics, as far as these are there.
    """
    lineage = _json(checkpoint / "lineage.json")
    last = (lineage.get("runs") or [{}])[-1]
    settings = last.get("settings") or {}
    base = (settings.get("model") or {}).get("path", "")
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["r1zero"]}
    if base.count("/") == 1 and not Path(base).exists() and not base.startswith((".", "~", "/")):
        head["base_model"] = base
    lines = ["---", yaml.safe_dump(head, sort_keys=False).rstrip(), "---", "", f"# {last_name(checkpoint, last)}", ""]
    lines += [f"Checkpoint `{checkpoint.name}`, weights alone, {dtype}. Made with r1zero.", ""]
    if last:
        lines += ["## Made of", "", "| run | stage | base | data | weights |", "|---|---|---|---|---|"]
        for run in lineage["runs"]:
            own = run.get("settings") or {}
            data, model = own.get("data"), own.get("model") or {}
            source = data.get("source", "") if isinstance(data, Mapping) else ""
            name = Path(run["run"]).name
            lines.append(f"| {name} | {run['stage']} | {model.get('path', '')} | {source} | {run.get('weights')} |")
        lines += ["", "The whole record, parents first: `lineage.json`.", ""]
    found = evaluation(checkpoint)
    if found:
        low, high = found.get("eval/ci95_low"), found.get("eval/ci95_high")
        interval = f" (95 % interval {low:.3f} to {high:.3f})" if low is not None and high is not None else ""
        where = ((settings.get("eval") or {}).get("data") or {}).get("source", "held-out problems")
        lines += [
            "## Evaluation",
            "",
            f"pass@1 on {where}: {found['eval/pass@1']:.3f}{interval}, step {found['step']}.",
        ]
        lines += ["", "To repeat it:", "", "    r1zero eval FOLDER", ""]
    if last.get("command"):
        lines += ["## To train it again", "", "    " + " ".join(last["command"]), ""]
    if settings:
        text = yaml.safe_dump(settings, sort_keys=False).rstrip()
        lines += ["## Settings", "", "```yaml", text, "```", ""]
    return "\n".join(lines)


def last_name(checkpoint: Path, run: Mapping[str, Any]) -> str:
    return Path(run["run"]).name if run else checkpoint.name


def evaluation(checkpoint: Path) -> dict[str, Any]:
    """The row of the run's metrics with the latest evaluation at or before this checkpoint's step; empty: none."""
    step, _, number = checkpoint.name.partition("-")
    path = checkpoint.parent.parent / "metrics.jsonl"
    if step != "step" or not number.isdigit() or not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    rows = [row for row in rows if "eval/pass@1" in row and row["step"] <= int(number)]
    return rows[-1] if rows else {}


def push(folder: Path, name: str, *, private: bool = True) -> str:
    """Upload an exported folder to the hub (HF_ENDPOINT, HF_TOKEN) as `name`; returns the address of the commit.

    Raises UserError with the hub's words where it does not take it.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    api = HfApi()
    try:
        api.create_repo(name, exist_ok=True, private=private)
        done = api.upload_folder(repo_id=name, folder_path=folder, commit_message="Weights exported by r1zero")
    except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, httpx.TransportError, OSError) as error:
        raise UserError(
            f"{name} could not be pushed ({first_line(error)}): check the name (OWNER/NAME), HF_TOKEN and the network; "
            f"the export stays in {folder}"
        ) from error
    return str(done.commit_url)


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
