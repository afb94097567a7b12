"""The fleet engine against real HTTP servers on loopback that answer as vLLM's do, one of which dies and returns."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.rollout import Sampling, make_engine
from r1zero.rollout.fleet import VllmFleetEngine
from tests.tiny_models import char_tokenizer, save_model, tiny_llama

PROMPTS = [[1, 2, 3], [4, 5]]
SAMPLING = Sampling(max_tokens=4, seed=3)


class Server:
    """Answers with the first weight that it holds as every logprob."""

    def __init__(self, port: int = 0) -> None:
        self.path: str | None = None
        self.weight = -1.0
        self.served: Counter[Any] = Counter()
        self.dead = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.reply(
                    {
                        "data": [{"id": "m", "max_model_len": 64}],
                        "vllm_config": {
                            "model_config": {"logprobs_mode": "processed_logprobs"},
                            "parallel_config": {"worker_extension_cls": "x"},
                        },
                    }
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/collective_rpc" and body["method"] == "r1zero_loaded":
                    self.reply({"results": [outer.path]})
                elif self.path == "/collective_rpc":
                    outer.path = body["args"][0]
                    weights = load_file(f"{outer.path}/model.safetensors")
                    outer.weight = float(weights["model.embed_tokens.weight"][5, 0])
                    self.reply({"results": [outer.path]})
                elif self.path == "/reset_prefix_cache":
                    self.reply({"success": True})
                else:
                    outer.served[body["seed"]] += 1
                    ids = [5 + body["seed"] % 7, *body["prompt"]]
                    logprobs = {"token_logprobs": [outer.weight] * len(ids)}
                    self.reply({"choices": [{"finish_reason": "length", "token_ids": ids, "logprobs": logprobs}]})

            def reply(self, answer: Any) -> None:
                if outer.dead:  # a process that is gone answers no connection that was open either
                    raise ConnectionAbortedError
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None: ...

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None: ...

        self.http = Quiet(("localhost", port), Handler)
        self.port: int = self.http.server_address[1]
        self.url = f"http://localhost:{self.port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self.dead = True
        self.http.shutdown()
        self.http.server_close()


def fleet(urls: list[str], tmp_path: Path) -> VllmFleetEngine:
    folder = save_model(tmp_path / "model", tiny_llama())
    config = EngineConfig(name="vllm-server", url=",".join(urls), sync_dir=str(tmp_path / "sync"), max_sequences=4)
    made = make_engine(config, folder, compute_dtype=torch.float32, max_context=64, tokenizer=char_tokenizer())
    assert isinstance(made, VllmFleetEngine)
    return made


def first_weight(model: Any) -> float:
    return float(model.model.embed_tokens.weight.detach()[5, 0])


def test_a_server_that_dies_is_left_out_and_returns_with_the_weights_in_force(tmp_path: Path) -> None:
    one, two = Server(), Server()
    engine = fleet([one.url, two.url], tmp_path)
    try:
        alone = engine.generate(PROMPTS, SAMPLING, 8)
        assert {c.version for group in alone for c in group} == {0}
        assert one.served
        assert two.served
        models = [tiny_llama(seed=1), tiny_llama(seed=2)]
        engine.sync_weights(models[0])
        assert one.path == two.path is not None
        seen: list[tuple[int, int]] = []
        two.stop()
        groups = engine.generate(PROMPTS, SAMPLING, 8, lambda i, j, c: seen.append((i, j)))
        assert sorted(seen) == [(i, j) for i in range(2) for j in range(8)]
        assert engine.fleet.fit() == [one.url]
        # Seeds are the requests', not the servers': the same tokens as before, by the new weights.
        assert [[c.token_ids for c in g] for g in groups] == [[c.token_ids for c in g] for g in alone]
        found = [c for group in groups for c in group]
        assert {c.version for c in found} == {1}
        assert {p for c in found for p in c.logprobs} == {first_weight(models[0])}
        engine.sync_weights(models[1])
        returned = Server(two.port)
        deadline = time.monotonic() + 20
        while returned.url not in engine.fleet.fit():
            assert time.monotonic() < deadline
            engine.generate(PROMPTS, SAMPLING, 1)
            time.sleep(0.1)
        assert returned.weight == first_weight(models[1])
        last: list[Completion] = [c for group in engine.generate(PROMPTS, SAMPLING, 16) for c in group]
        assert returned.served
        assert {c.version for c in last} == {2}
        assert {p for c in last for p in c.logprobs} == {first_weight(models[1])}
        returned.stop()
    finally:
        engine.close()
        one.stop()
    assert list((tmp_path / "sync").iterdir()) == []


def test_a_server_started_again_between_two_rollouts_gets_the_weights_before_it_is_asked(tmp_path: Path) -> None:
    server = Server()
    engine = fleet([server.url, "http://localhost:9"], tmp_path)  # nothing listens at the second
    try:
        engine.sync_weights(tiny_llama(seed=1))
        held = server.path
        server.path, server.weight = None, -1.0  # as after a start
        groups = engine.generate(PROMPTS, SAMPLING, 2)
        assert server.path == held
        assert all(p != -1.0 for group in groups for c in group for p in c.logprobs)
    finally:
        engine.close()
        server.stop()


def test_a_fleet_of_which_none_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no vLLM server answers at http://localhost:9, .*rollout-server MODEL"):
        fleet(["http://localhost:9", "http://localhost:10"], tmp_path)
