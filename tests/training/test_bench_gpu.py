"""The bench for a GPU runs, in small, where there is none: its FLOP by hand, packed and padded alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from r1zero.models.policy import Policy, Row, micro_batches
from tests.bench import bench_gpu


def test_every_figure_of_the_bench_is_there_and_packed_is_padded(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("--tiny takes the GPU where there is one")
    out = tmp_path / "figures.json"
    found = bench_gpu.main(["--tiny", "--out", str(out)])
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert [way["way"] for way in found["phase"]] == ["packed", "padded"]
    assert [way["tokens"] for way in found["phase"]] == [2 * (8 + 2 * 23), 4 * 32]
    exact, low = found["difference"]
    assert exact["logprobs_max"] < 1e-5
    assert exact["gradient_share"] < 1e-5
    assert low["logprobs_max"] < 0.05
    assert {"rollout", "train", "optimizer", "sync", "step"} <= set(found["step"])


def test_flop_by_hand() -> None:
    config = Qwen2Config(
        vocab_size=10,
        hidden_size=4,
        intermediate_size=6,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    policy = Policy(Qwen2ForCausalLM(config))
    rows = [Row(prompt_ids=(1, 2), completion_ids=(3, 4, 5)), Row(prompt_ids=(1, 2), completion_ids=(6,))]
    # A layer: q and o 4 x 4, k and v 4 x 2, three of 4 x 6: 120 weights, two layers 240. 4 predictions by 40 weights.
    (packed,) = micro_batches(rows, 100, packed=True)  # prompt 2 once, completions 2 and 0: 4 tokens
    assert bench_gpu.flops(policy, rows, packed) == 6 * (240 * 4 + 40 * 4) + 12 * 2 * 4 * (2 * 2 + 2 + 2)
    (padded,) = micro_batches(rows, 100)  # 6 tokens, the prompt's pairs twice
    assert bench_gpu.flops(policy, rows, padded) == 6 * (240 * 6 + 40 * 4) + 12 * 2 * 4 * (2 * 2 + 2 + 2 + 2)
