"""Where a policy's starting point comes from: a model folder, a hub id, or a model this project makes and caches.

`resolve` is what every stage calls with `model.path`. Imports no torch by itself.
"""

from __future__ import annotations

from pathlib import Path

from r1zero.data.hub import hub
from r1zero.errors import UserError, first_line, unknown_name

MADE = ("smollm2:135m-instruct", "tiny:arithmetic")


def resolve(path: str) -> Path:
    """The local folder of the model `path` names: made, downloaded or checked.

    A path with a colon is a model this project makes (`MADE`), made at first use and cached. A folder is taken when
    it holds a model, or is a run's with a checkpoint; anything else is a hub id, downloaded through huggingface_hub's
    cache.
    Raises UserError where there is no such model, the folder holds none, or the hub cannot be reached.
    """
    if not path:
        raise UserError(f"model.path is empty: name a model folder, a hub id, or one of {', '.join(MADE)}")
    if path == "tiny:arithmetic":
        from r1zero.models.made import tiny

        return tiny.ensure()
    if path == "smollm2:135m-instruct":
        from r1zero.models.made import smollm2

        return smollm2.ensure()
    folder = Path(path).expanduser()
    if folder.is_dir():
        return _checked(folder)
    if ":" in path:
        raise unknown_name("made model", path, MADE)
    if folder.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
        raise UserError(f"no model folder {path}: check model.path (a hub id has the form owner/name)")
    return _download(path)


def _checked(folder: Path) -> Path:
    """`folder`, when it holds a config and weights; of a run's folder its latest checkpoint."""
    if (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file():
        from r1zero.runs.checkpoint import resolve_checkpoint

        folder = Path(resolve_checkpoint(str(folder)))
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is no model folder: it has no config.json")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise UserError(f"{folder} is no model folder: it has a config.json but no weights (*.safetensors)")
    return folder


def _download(name: str) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # Weights in one form are enough: many repositories hold the same ones two or three times.
    ignore = ["*.bin", "*.pth", "*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*", "onnx/*"]
    try:
        with hub():
            return _checked(Path(huggingface_hub.snapshot_download(name, ignore_patterns=ignore)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"model {name}: neither a folder here nor to be had from the hub ({first_line(error)[:200]}); check "
            "model.path and the network (runs/NAME: has that run been made?)"
        ) from error
