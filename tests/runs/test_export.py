"""An exported checkpoint: half the size, loadable, with its card; and pushed to a hub's endpoint on loopback."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from r1zero.commands.main import main
from r1zero.errors import UserError
from r1zero.runs.checkpoint import part_bytes, save_checkpoint
from r1zero.runs.export import export, model_card
from tests import ROOT
from tests.tiny_models import char_tokenizer, tiny_llama


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "sums"
    path = save_checkpoint(
        folder / "checkpoints", 20, tiny_llama(), char_tokenizer(), tensors={"x": torch.ones(2)}, state={}
    )
    rows: list[dict[str, Any]] = [
        {"step": 10, "eval/pass@1": 0.25, "eval/ci95_low": 0.2, "eval/ci95_high": 0.3},
        {"step": 20, "eval/pass@1": 0.5, "eval/ci95_low": 0.45, "eval/ci95_high": 0.55},
        {"step": 30, "eval/pass@1": 0.9, "eval/ci95_low": 0.8, "eval/ci95_high": 1.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"model": {"path": "owner/base"}, "data": {"source": "sums.jsonl"}, "eval": {"data": {"source": "held"}}}
    run = {"run": str(folder), "stage": "grpo", "weights": "abc", "command": ["r1zero", "train", "x"]}
    (path / "lineage.json").write_text(json.dumps({"runs": [{**run, "settings": settings}]}))
    return path


def test_the_export_is_the_same_model_in_half_the_bytes(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export(str(checkpoint.parent.parent), out, "bfloat16") == checkpoint
    assert part_bytes(out)["trainer"] == 0
    assert part_bytes(out)["weights"] == pytest.approx(part_bytes(checkpoint)["weights"] / 2, rel=0.02)
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    for (name, mine), found in zip(tiny_llama().named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(mine.bfloat16(), found), name
    assert (out / "lineage.json").read_bytes() == (checkpoint / "lineage.json").read_bytes()
    with pytest.raises(UserError, match="not empty"):
        export(str(checkpoint), out, "bfloat16")
    with pytest.raises(UserError, match="is no checkpoint"):
        export(str(tmp_path), tmp_path / "other", "bfloat16")


def test_the_card_has_the_data_the_interval_of_this_step_and_the_command(checkpoint: Path) -> None:
    card = model_card(checkpoint, "bfloat16")
    assert "base_model: owner/base" in card
    assert "| sums | grpo | owner/base | sums.jsonl | abc |" in card
    assert "pass@1 on held: 0.500 (95 % interval 0.450 to 0.550), step 20." in card
    assert "    r1zero train x\n" in card
    (checkpoint / "lineage.json").unlink()
    assert "# step-20" in model_card(checkpoint, "bfloat16")


class Hub(BaseHTTPRequestHandler):
    """The routes of the hub's API that an upload goes through; keeps what it is given."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    objects: dict[str, bytes]
    calls: list[str]

    def do_POST(self) -> None:
        body = self.read()
        self.calls.append(self.path)
        base = f"http://localhost:{self.server.server_address[1]}"
        if self.path == "/api/repos/create":
            return self.reply({"url": f"{base}/owner/name", "name": "owner/name"})
        if self.path == "/api/validate-yaml":
            return self.reply({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            mode = {True: "lfs", False: "regular"}
            files = [{"path": n, "uploadMode": mode[n.endswith(".safetensors")], "shouldIgnore": False} for n in names]
            return self.reply({"files": files})
        if self.path.endswith("/info/lfs/objects/batch"):
            found = [
                {**one, "actions": {"upload": {"href": f"{base}/put/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self.reply({"transfer": "basic", "objects": found})
        if "/commit/" in self.path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                if entry["key"] == "lfsFile":
                    self.files[entry["value"]["path"]] = self.objects[entry["value"]["oid"]]
            return self.reply({"commitOid": "a" * 40, "commitUrl": f"{base}/owner/name/commit/{'a' * 40}"})
        return self.reply({"error": "unknown"}, 404)

    def do_PUT(self) -> None:
        self.objects[self.path.removeprefix("/put/")] = self.read()
        self.reply({})

    def do_GET(self) -> None:
        self.calls.append(self.path)
        self.reply({"id": "owner/name", "siblings": [], "sha": "0" * 40, "private": True})

    def read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


def test_an_export_is_pushed_whole_to_the_endpoint(checkpoint: Path, tmp_path: Path) -> None:
    class Handler(Hub):
        files: dict[str, bytes] = {}  # noqa: RUF012
        objects: dict[str, bytes] = {}  # noqa: RUF012
        calls: list[str] = []  # noqa: RUF012

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    out = tmp_path / "out"
    environment = {**os.environ, "HF_ENDPOINT": f"http://localhost:{server.server_address[1]}", "HF_TOKEN": "hf_x"}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "r1zero", "export", str(checkpoint), "-o", str(out), "--push-to-hub", "owner/name"]
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, (done.stderr[-2000:], Handler.calls)
    assert f"/owner/name/commit/{'a' * 40}" in done.stdout
    assert Handler.files == {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert "/api/repos/create" in Handler.calls


def test_a_hub_that_does_not_answer_is_a_line_and_the_export_stays(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import HfApi

    def refused(self: Any, *args: Any, **options: Any) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(HfApi, "create_repo", refused)
    assert main(["export", str(checkpoint), "-o", str(tmp_path / "out"), "--push-to-hub", "owner/name"]) == 2
    assert "owner/name could not be pushed (refused)" in capsys.readouterr().err
    assert (tmp_path / "out" / "model.safetensors").is_file()
