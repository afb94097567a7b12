"""Rollouts against bare vLLM: the same prompts, completions and tokens through our engine and through `LLM.generate`.

    python tests/bench/bench_rollout.py [--size tiny|135m] [--dtype float32] [--prompts 32] [--n 8] [--tokens 64]

Both run in one process on one vLLM, in turn, so that they meet the same machine; the figures are medians over rounds of
ours divided by bare, by the wall clock and by the process's CPU time (the one to read on a busy machine, with
OMP_NUM_THREADS=1). Bare is measured twice: with our request shape (a request a completion, seeded), and as users
write it (`n` completions a request, unseeded, vLLM's own detokenizer). The bar: at least 0.95 of both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from r1zero.config import EngineConfig
from r1zero.rollout import Sampling
from r1zero.rollout.vllm import VllmEngine, sampling_params

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.tiny_models import char_tokenizer, save_model, tiny_llama


def model_135m() -> Any:
    """Random weights in SmolLM2-135M's shape: speed does not depend on their values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", choices=["tiny", "135m"], default="tiny")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    model = tiny_llama() if args.size == "tiny" else model_135m()
    prompts = [char_tokenizer().encode(f"{i} + {7 * i} + 3 = ? Think step by step. " * 2) for i in range(args.prompts)]
    context = max(map(len, prompts)) + args.tokens
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), model)
        config = EngineConfig(name="vllm", max_sequences=256)
        engine = VllmEngine(folder, config=config, compute_dtype=getattr(torch, args.dtype), max_context=context)

    from vllm import SamplingParams, TokensPrompt

    llm = engine._llm
    sampling = Sampling(max_tokens=args.tokens, seed=0)

    def ours() -> int:
        return sum(c.num_tokens for group in engine.generate(prompts, sampling, args.n) for c in group)

    def bare_same_requests() -> int:
        requests = [TokensPrompt(prompt_token_ids=p) for p in prompts for _ in range(args.n)]
        params = [sampling_params(sampling, (i, j)) for i in range(len(prompts)) for j in range(args.n)]
        outputs = llm.generate(requests, params, use_tqdm=False)
        return sum(len(out.outputs[0].token_ids) for out in outputs)

    def bare_as_users_write_it() -> int:
        requests = [TokensPrompt(prompt_token_ids=p) for p in prompts]
        params = SamplingParams(n=args.n, max_tokens=args.tokens, temperature=1.0, ignore_eos=True, logprobs=0)
        return sum(len(c.token_ids) for out in llm.generate(requests, params, use_tqdm=False) for c in out.outputs)

    def rates(generate: Callable[[], int]) -> tuple[float, float]:
        """Tokens per second of the wall clock, and of CPU time."""
        llm.reset_prefix_cache()
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = generate()
        return tokens / (time.perf_counter() - wall), tokens / (time.process_time() - cpu)

    ways = (ours, bare_same_requests, bare_as_users_write_it)
    for way in ways:
        rates(way)  # warm
    rounds = [[rates(way) for way in ways] for _ in range(args.rounds)]
    print(f"{args.size} {args.dtype}, {args.prompts} prompts x {args.n} completions x {args.tokens} tokens")
    for k, way in enumerate(ways):
        wall, cpu = (statistics.median(r[k][clock] for r in rounds) for clock in (0, 1))
        of_wall, of_cpu = (statistics.median(r[0][clock] / r[k][clock] for r in rounds) for clock in (0, 1))
        print(
            f"{way.__name__:24} {wall:8.0f} tokens/s (ours {of_wall:.3f} of it), "
            f"{cpu:8.0f} per CPU second (ours {of_cpu:.3f} of it)"
        )
    engine.close()


if __name__ == "__main__":
    main()
