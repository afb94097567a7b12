from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from r1zero import prompts
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.harness import StreamEngine, evaluate
from r1zero.eval.result import EvalResult
from r1zero.eval.run import run_eval
from r1zero.eval.samples import read_samples
from r1zero.eval.tasks import EvalSettings
from r1zero.rollout.base import Sampling
from r1zero.rollout.openai import ChatTemplate, EndpointConfig, FailedCompletion, OpenAIEngine
from r1zero.verifiers import Outcome, VerifierPool, VerifierSpec

PROBLEMS = [Problem(id=f"p{i}", prompt=f"{i}+1", answer=str(i + 1)) for i in range(5)]
SAMPLING = Sampling(max_tokens=16, temperature=0.7, top_p=0.9, seed=3)
TEMPLATE = ChatTemplate(prompts.load("boxed_chat"))


class Server(ThreadingHTTPServer):
    """Answers sums in OpenAI's form; `fault(path, body, number of this request)` may answer in its place."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.fault: Any = lambda handler, body, number: False
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up in the middle is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            number = len(self.server.bodies)
        if not self.server.fault(self, body, number):
            self.answer(200, json.dumps(reply(body)))

    def answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(text.encode())), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None: ...


def reply(body: dict[str, Any]) -> dict[str, Any]:
    if "messages" in body:
        number = int(body["messages"][-1]["content"].split("+")[0])
        choice = {"message": {"content": f"It is \\boxed{{{number + 1}}}."}, "finish_reason": "stop"}
    else:
        choice = {"text": f"seen {len(body['prompt'])}", "finish_reason": "length"}
    return {"choices": [choice], "usage": {"completion_tokens": 7}}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1) as pool:
        yield pool


def engine(server: Server, **changes: Any) -> OpenAIEngine:
    settings: dict[str, Any] = {
        "tries": 3,
        "backoff_seconds": 0.01,
        "timeout_seconds": 5.0,
        "concurrency": 4,
        **changes,
    }
    return OpenAIEngine(EndpointConfig(url=server.url, model="m", **settings))


def score(server: Server, pool: VerifierPool, **changes: Any) -> EvalResult:
    endpoint = engine(server, **changes)
    try:
        return evaluate(
            PROBLEMS,
            engine=endpoint,
            tokenizer=None,
            template=TEMPLATE,
            sampling=SAMPLING,
            k=2,
            pool=pool,
            verifier=VerifierSpec(name="math"),
            seed=0,
        )
    finally:
        endpoint.close()


def test_a_healthy_endpoint_is_asked_with_every_parameter_and_a_seed_for_each_sample(
    server: Server, pool: VerifierPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    result = score(server, pool)
    assert result.pass_at_1 == 1.0
    assert result.tokens_per_answer == 7
    assert len({body["seed"] for body in server.bodies}) == len(server.bodies) == 10
    first = server.bodies[0]
    assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.7, 0.9, 16)
    assert first["messages"][0]["role"] == "system"
    assert first["path"] == "/v1/chat/completions"
    assert first["key"] == "Bearer secret"


def cut_response(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.close_connection = True
    return True


def hang_up(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.close_connection = True
    return True


def error_500(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(500, "out of memory")
    return True


def too_many(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(429, "slow down", {"Retry-After": "0.01"})
    return True


def nonsense(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(200, '{"choices": []}')
    return True


def no_reason(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(200, json.dumps({"choices": [{"message": {"content": "1"}, "finish_reason": "content_filter"}]}))
    return True


def no_content(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(200, json.dumps({"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}))
    return True


def not_gzip(handler: Handler, body: dict[str, Any], number: int) -> bool:
    handler.answer(200, json.dumps(reply(body)), {"Content-Encoding": "gzip"})
    return True


def drip(handler: Handler, body: dict[str, Any], number: int) -> bool:
    """A byte now and then: no pause is long enough for a timeout between two bytes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    try:
        for _ in range(20):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass
    handler.close_connection = True
    return True


FAULTS = [cut_response, hang_up, error_500, too_many, nonsense, no_reason, no_content, not_gzip, drip]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_costs_a_retry_and_no_sample(fault: Any, server: Server, pool: VerifierPool) -> None:
    server.fault = lambda handler, body, number: number <= 3 and fault(handler, body, number)
    result = score(server, pool, timeout_seconds=0.3 if fault is drip else 5.0)
    assert (result.pass_at_1, result.error) == (1.0, 0.0)
    assert len(server.bodies) == 13  # ten samples, three of them asked twice


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_an_error_and_never_a_wrong_answer(
    fault: Any, server: Server, pool: VerifierPool
) -> None:
    def on_problem_2(handler: Handler, body: dict[str, Any], number: int) -> bool:
        return body["messages"][-1]["content"].startswith("2+1") and bool(fault(handler, body, number))

    server.fault = on_problem_2
    result = score(server, pool, timeout_seconds=0.3 if fault is drip else 5.0)
    failed = [s for s in result.samples if s.problem_id == "p2"]
    assert [(s.outcome, s.score, s.failed) for s in failed] == [(Outcome.ERROR, None, True)] * 2
    assert all("tried 3 times" in s.reason for s in failed)
    assert result.pass_at_1 == 1.0  # over the four problems that were answered
    assert (result.error, result.bounds) == (0.2, (0.8, 1.0))
    assert not result.complete


def test_a_prompt_that_is_refused_is_an_error_at_once_and_the_others_go_on(server: Server, pool: VerifierPool) -> None:
    def refuse(handler: Handler, body: dict[str, Any], number: int) -> bool:
        too_long = body["messages"][-1]["content"].startswith("2+1")
        return too_long and (handler.answer(400, "prompt too long") or True)

    server.fault = refuse
    result = score(server, pool)
    assert {s.problem_id: s.reason for s in result.samples if s.failed} == {
        "p2": "status 400: prompt too long (tried 1 times)"
    }
    assert (result.pass_at_1, result.error, len(server.bodies)) == (1.0, 0.2, 10)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="must be like http://localhost:8000/v1"):
        OpenAIEngine(EndpointConfig(url=url, model="m"))


def test_text_that_utf8_cannot_hold_is_kept(server: Server, tmp_path: Path) -> None:
    """Half of a UTF-16 pair, as servers cut an emoji at the token limit."""
    answer = json.dumps({"choices": [{"message": {"content": "\ud83d é"}, "finish_reason": "length"}]})
    server.fault = lambda handler, body, number: handler.answer(200, answer) or True
    data = tmp_path / "sums.jsonl"
    data.write_text('{"problem": "1+1", "answer": "2", "level": "\\udc00"}\n')
    endpoint = EndpointConfig(url=server.url, model="m")
    done = run_eval(
        EvalSettings(checkpoint="", suite=(str(data),), out=str(tmp_path / "out"), k=1, workers=1, endpoint=endpoint),
        say=lambda line: None,
    )
    (sample,) = read_samples(done.folder / "sums" / "samples.jsonl")
    assert (sample.completion, sample.truncated) == ("\ud83d é", True)


def test_an_endpoint_that_is_down_stops_the_run(server: Server, pool: VerifierPool) -> None:
    server.fault = error_500
    with pytest.raises(UserError, match=r"4 samples in a row failed.*out of memory"):
        score(server, pool, give_up_after=4)


def test_a_refused_request_is_the_users_to_mend_and_not_tried_again(server: Server, pool: VerifierPool) -> None:
    server.fault = lambda handler, body, number: handler.answer(404, "no such model") or True
    with pytest.raises(UserError, match=r"status 404: no such model.*check url, model, key"):
        score(server, pool, concurrency=1)
    assert len(server.bodies) == 1


def test_a_missing_server_is_an_error_that_names_the_address(pool: VerifierPool) -> None:
    endpoint = OpenAIEngine(EndpointConfig(url="http://127.0.0.1:9/v1", model="m", tries=1, give_up_after=2))
    with pytest.raises(UserError, match=r"in a row failed at http://127.0.0.1:9/v1.*is it up"):
        endpoint.generate([TEMPLATE.encode("1+1", None)] * 3, SAMPLING, 1)
    endpoint.close()


def test_requests_are_spaced_by_the_rate(server: Server) -> None:
    endpoint = engine(server, requests_per_minute=1200)  # one in 50 ms
    began = time.monotonic()
    endpoint.generate([TEMPLATE.encode("1+1", None)] * 5, SAMPLING, 1)
    assert time.monotonic() - began >= 0.2
    endpoint.close()


def test_the_completions_mode_sends_token_ids_and_stops(server: Server) -> None:
    endpoint = engine(server, mode="completions")
    sampling = Sampling(max_tokens=4, stop_token_ids=(2,), stop=("User:",), seed=1)
    ((completion,),) = endpoint.generate([[5, 6, 7]], sampling, 1)
    endpoint.close()
    (body,) = server.bodies
    assert (body["path"], body["prompt"], body["stop_token_ids"], body["stop"]) == (
        "/v1/completions",
        [5, 6, 7],
        [2],
        ["User:"],
    )
    assert (completion.text, completion.finish_reason, completion.num_tokens) == ("seen 3", "length", 7)


def test_thinking_that_the_server_split_off_is_put_back(server: Server) -> None:
    message = {"content": "\\boxed{2}", "reasoning_content": "hm"}
    answer = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    server.fault = lambda handler, body, number: handler.answer(200, answer) or True
    endpoint = engine(server)
    ((completion,),) = endpoint.generate([TEMPLATE.encode("1+1", None)], SAMPLING, 1)
    endpoint.close()
    assert completion.text == "<think>hm</think>\\boxed{2}"


def test_thinking_that_was_cut_stays_open(server: Server) -> None:
    message = {"content": None, "reasoning_content": "hm"}
    answer = json.dumps({"choices": [{"message": message, "finish_reason": "length"}]})
    server.fault = lambda handler, body, number: handler.answer(200, answer) or True
    endpoint = engine(server)
    ((completion,),) = endpoint.generate([TEMPLATE.encode("1+1", None)], SAMPLING, 1)
    endpoint.close()
    assert completion.text == "<think>hm"


def test_a_run_stopped_by_a_dead_endpoint_goes_on_by_sample(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"problem": p.prompt, "answer": p.answer}) + "\n" for p in PROBLEMS))
    settings = EvalSettings(
        checkpoint="",
        suite=(str(data),),
        out=str(tmp_path / "out"),
        k=2,
        workers=1,
        endpoint=EndpointConfig(
            url=server.url, model="m", tries=1, concurrency=1, give_up_after=2, backoff_seconds=0.01
        ),
    )
    server.fault = lambda handler, body, number: number > 4 and error_500(handler, body, number)
    with pytest.raises(UserError, match="run the same command again to go on"):
        run_eval(settings, say=lambda line: None)
    kept = [s for s in read_samples(tmp_path / "out" / "sums" / "samples.jsonl") if not s.failed]
    assert len(kept) == 4
    server.fault = lambda handler, body, number: False
    asked = len(server.bodies)
    done = run_eval(settings, say=lambda line: None)
    assert done.results[0].pass_at_1 == 1.0
    assert len(server.bodies) - asked == 6  # what was there is not paid for twice
    assert len({body["seed"] for body in server.bodies}) == 10


def test_the_engine_is_taken_for_one_that_resumes_by_sample(server: Server) -> None:
    assert isinstance(engine(server), StreamEngine)
    failed = FailedCompletion(token_ids=(), text="", logprobs=(), finish_reason="length", error="x")
    assert failed.truncated  # the harness must not count it so: see EvalSample.truncated
