"""The vllm-server engine against a real server on this machine, and its refusals without one."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.rollout import Sampling, make_engine
from r1zero.rollout.hf import TransformersEngine
from r1zero.rollout.serve import serve_command
from tests import ROOT
from tests.tiny_models import EOS, char_tokenizer, save_model, tiny_llama

TOKENIZER = char_tokenizer()
PROMPTS = [TOKENIZER.encode(text) for text in ("1+2=", "What is 12+34?", "x")]
GREEDY = Sampling(max_tokens=24, temperature=0.0)
SAMPLED = Sampling(max_tokens=24, seed=5, stop_token_ids=(EOS,))
GENERATION = {"do_sample": True, "temperature": 0.1, "top_k": 1, "repetition_penalty": 5.0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def started_server(folder: str, port: int, root: Path) -> subprocess.Popen[bytes]:
    options = ["--port", str(port), "--max-model-len", "128", "--dtype", "float32"]
    options += ["--kv-cache-memory-bytes", str(64 << 20), "--max-num-seqs", "64"]
    with (root / f"log-{port}").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "r1zero", "rollout-server", folder, *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )


def wait_for(port: int, process: subprocess.Popen[bytes], root: Path) -> None:
    log, deadline = root / f"log-{port}", time.monotonic() + 500
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        try:
            if httpx.get(f"http://localhost:{port}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(url, model folder) of a running server."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    root = tmp_path_factory.mktemp("server")
    folder, port = save_model(root / "model", tiny_llama(), generation=GENERATION), free_port()
    process = started_server(folder, port, root)
    try:
        wait_for(port, process, root)
        yield f"http://localhost:{port}", folder
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


@pytest.fixture
def engine(server: tuple[str, str], tmp_path: Path) -> Iterator[Any]:
    config = EngineConfig(name="vllm-server", url=server[0], sync_dir=str(tmp_path), max_sequences=16)
    started = make_engine(config, server[1], compute_dtype=torch.float32, max_context=128)
    yield started
    started.close()


def largest_gap(ours: list[tuple[Completion, ...]], theirs: list[tuple[Completion, ...]]) -> float:
    pairs = [(a, b) for g, h in zip(ours, theirs, strict=True) for a, b in zip(g, h, strict=True)]
    assert [(a.token_ids, a.text, a.finish_reason) for a, _ in pairs] == [
        (b.token_ids, b.text, b.finish_reason) for _, b in pairs
    ]
    return max(abs(x - y) for a, b in pairs for x, y in zip(a.logprobs, b.logprobs, strict=True))


@pytest.mark.slow
def test_a_sync_through_files_changes_the_server_s_weights_and_leaves_no_file(engine: Any, tmp_path: Path) -> None:
    for seed in (1, 0):  # the head is tied to the embedding
        model = tiny_llama(seed=seed)
        engine.sync_weights(model)
        reference = TransformersEngine(model, tokenizer=TOKENIZER, max_context=128)
        assert largest_gap(engine.generate(PROMPTS, GREEDY, 1), reference.generate(PROMPTS, GREEDY, 1)) < 1e-4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_samples_repeat_with_their_seed_stop_where_told_and_are_announced(engine: Any) -> None:
    seen: dict[tuple[int, int], Completion] = {}
    groups = engine.generate(PROMPTS, SAMPLED, 8, lambda i, j, c: seen.update({(i, j): c}))
    assert seen == {(i, j): c for i, group in enumerate(groups) for j, c in enumerate(group)}
    again = engine.generate(PROMPTS, SAMPLED, 8)
    assert [[c.token_ids for c in group] for group in again] == [[c.token_ids for c in group] for group in groups]
    completions = list(seen.values())
    assert len({c.token_ids for c in completions}) == 24  # the folder's temperature and top_k have no say
    ended = [c for c in completions if c.finish_reason == "stop"]
    assert ended
    assert all(c.token_ids[-1] == EOS for c in ended)
    assert all(len(c.logprobs) == c.num_tokens for c in completions)


@pytest.mark.slow
def test_logprobs_are_of_the_sampled_temperature(engine: Any) -> None:
    engine.sync_weights(tiny_llama())
    sampling = Sampling(max_tokens=12, temperature=0.6, seed=1)
    ((completion,),) = engine.generate(PROMPTS[:1], sampling, 1)
    ids = torch.tensor([[*PROMPTS[0], *completion.token_ids]])
    with torch.no_grad():
        logprobs = (tiny_llama()(input_ids=ids).logits[0, :-1] / 0.6).log_softmax(-1)
    expected = logprobs.gather(-1, ids[0, 1:, None])[len(PROMPTS[0]) - 1 :, 0]
    assert torch.tensor(completion.logprobs) == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_a_server_with_too_short_a_context_is_refused(server: tuple[str, str], tmp_path: Path) -> None:
    config = EngineConfig(name="vllm-server", url=server[0], sync_dir=str(tmp_path))
    with pytest.raises(UserError, match="--max-model-len 129"):
        make_engine(config, server[1], compute_dtype=torch.float32, max_context=129)


def test_no_server_is_said_in_one_line(tmp_path: Path) -> None:
    config = EngineConfig(name="vllm-server", url=f"http://localhost:{free_port()}", sync_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"no vLLM server answers at .*r1zero rollout-server MODEL"):
        make_engine(config, "", compute_dtype=torch.float32, max_context=64, tokenizer=TOKENIZER)


def test_a_server_needs_its_address_and_a_shared_folder() -> None:
    with pytest.raises(UserError, match=r"engine\.url and engine\.sync_dir"):
        make_engine(
            EngineConfig(name="vllm-server"), "", compute_dtype=torch.float32, max_context=64, tokenizer=TOKENIZER
        )


def test_the_server_is_started_for_training_and_the_user_has_the_last_word() -> None:
    command = serve_command("model", ["--host", "0.0.0.0"], on_gpu=True)
    assert command[command.index("--logprobs-mode") + 1] == "processed_logprobs"
    assert command[-2:] == ["--host", "0.0.0.0"]
    assert "--no-enable-chunked-prefill" not in command
    assert "--no-enable-chunked-prefill" in serve_command("model", [], on_gpu=False)


@pytest.mark.slow
def test_of_two_servers_one_is_killed_and_comes_back_with_the_weights_in_force(tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    folder, ports = save_model(tmp_path / "model", tiny_llama(), generation=GENERATION), [free_port(), free_port()]
    running: dict[int, subprocess.Popen[bytes]] = {}
    engine: Any = None
    try:
        for port in ports:
            running[port] = started_server(folder, port, tmp_path)
        for port in ports:
            wait_for(port, running[port], tmp_path)
        urls = ",".join(f"http://localhost:{port}" for port in ports)
        config = EngineConfig(name="vllm-server", url=urls, sync_dir=str(tmp_path / "sync"), max_sequences=16)
        engine = make_engine(config, folder, compute_dtype=torch.float32, max_context=128, tokenizer=TOKENIZER)
        models = [tiny_llama(seed=1), tiny_llama(seed=2)]
        engine.sync_weights(models[0])
        before = engine.generate(PROMPTS, SAMPLED, 8)
        seen: list[tuple[int, int]] = []

        def killing(i: int, j: int, completion: Completion) -> None:
            seen.append((i, j))
            if len(seen) == 3:
                os.killpg(running[ports[1]].pid, signal.SIGKILL)
                running[ports[1]].wait(60)

        during = engine.generate(PROMPTS, SAMPLED, 8, killing)
        assert sorted(seen) == [(i, j) for i in range(3) for j in range(8)]
        assert largest_gap(during, before) < 1e-4  # whichever server: the seed is the request's
        engine.sync_weights(models[1])
        running[ports[1]] = started_server(folder, ports[1], tmp_path)
        wait_for(ports[1], running[ports[1]], tmp_path)
        deadline = time.monotonic() + 120
        while len(engine.fleet.fit()) < 2:
            assert time.monotonic() < deadline
            engine.generate(PROMPTS, SAMPLED, 1)
            time.sleep(0.5)
        # The returned one alone: the logprobs are those of the weights in force.
        engine.fleet.lost(f"http://localhost:{ports[0]}", busy=False)
        reference = TransformersEngine(models[1], tokenizer=TOKENIZER, max_context=128)
        last = engine.generate(PROMPTS, GREEDY, 1)
        assert largest_gap(last, reference.generate(PROMPTS, GREEDY, 1)) < 1e-4
        assert {c.version for group in last for c in group} == {2}
    finally:
        if engine is not None:
            engine.close()
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)
