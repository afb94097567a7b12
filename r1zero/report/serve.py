"""`r1zero serve FOLDER...`: the runs of some folders in one list, each one's report on request, while they train.

Read-only, and no path comes from a request: a page is asked for by the names in the list, so that there is nothing to
escape from. On loopback it answers only to loopback names, or another site's page could read it by rebinding its own.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from r1zero.errors import UserError
from r1zero.report.build import build, page
from r1zero.report.folders import evaluation_folders, run_folders
from r1zero.runs.folder import RunFolder

REFRESH_SECONDS = 5


class Reports:
    """The folders served, and the pages made last."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Raises UserError for a root that is no folder. A root may be empty: runs may come."""
        for root in roots:
            if not root.is_dir():
                raise UserError(f"{root} is no folder: name the folder of your runs, such as runs")
        self.roots = roots
        self._pages: dict[tuple[str, ...], tuple[str, str]] = {}
        self._lock = Lock()

    def folders(self) -> dict[str, Path]:
        """What can be asked for, by name: runs, then evaluations."""
        found: dict[str, Path] = {}
        for root in self.roots:
            for path in [*run_folders(root), *evaluation_folders(root)]:
                name = str(path.relative_to(root)) if len(self.roots) == 1 and path != root else str(path)
                found.setdefault(name, path)
        return found

    def listing(self) -> str:
        """The page that lists them."""
        rows = []
        for name, path in self.folders().items():
            metrics = RunFolder(path.parent, path.name).metrics()
            rewards = [row["reward/mean"] for row in metrics if "reward/mean" in row]
            scores = [row["eval/pass@1"] for row in metrics if "eval/pass@1" in row]
            rows.append(
                {
                    "name": name,
                    "step": metrics[-1].get("step") if metrics else None,
                    "reward": rewards[-1] if rewards else None,
                    "score": scores[-1] if scores else None,
                }
            )
        return page("list.html.jinja", rows=rows, refresh_seconds=REFRESH_SECONDS)

    def report(self, names: Sequence[str]) -> str:
        """Their page, made anew when a file changed. Raises KeyError for a name that is not in the list."""
        version, key = self.version(names), tuple(names)
        with self._lock:  # one build at a time: a training run beside us needs the cores
            if self._pages.get(key, ("", ""))[0] != version:
                known = self.folders()
                made = build([known[name] for name in names], refresh_seconds=REFRESH_SECONDS)
                self._pages = {**dict(list(self._pages.items())[-7:]), key: (version, made)}
            return self._pages[key][1]

    def version(self, names: Sequence[str]) -> str:
        """Changes when what is shown of `names` does. Raises KeyError for a name that is not in the list."""
        known = self.folders()
        files = [known[name] / file for name in names for file in ("metrics.jsonl", "lineage.json", "results.json")]
        return " ".join(f"{file.stat().st_mtime_ns}" if file.is_file() else "-" for file in files)


def server(reports: Reports, host: str, port: int) -> ThreadingHTTPServer:
    """A server that answers when its `serve_forever` is called. port 0: a free one.

    Raises UserError when the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if is_loopback(host) and not is_loopback(_hostname(self.headers.get("Host", ""))):
                self._answer(HTTPStatus.FORBIDDEN, "asked for by another name than this machine's own\n", "text/plain")
                return
            asked = urlsplit(self.path)
            names = parse_qs(asked.query).get("run", [])
            try:
                if asked.path == "/":
                    self._answer(HTTPStatus.OK, reports.listing(), "text/html")
                elif asked.path == "/report" and names:
                    self._answer(HTTPStatus.OK, reports.report(names), "text/html")
                elif asked.path == "/version" and names:
                    self._answer(HTTPStatus.OK, reports.version(names), "text/plain")
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "there is no such page\n", "text/plain")
            except KeyError as error:
                self._answer(HTTPStatus.NOT_FOUND, f"there is no run {error.args[0]!r} here\n", "text/plain")
            except UserError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n", "text/plain")

        def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
            body = text.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a line every few seconds would bury what the terminal is for."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"cannot serve on {host}:{port} ({error}): choose another --port") from error


def _hostname(header: str) -> str:
    return urlsplit(f"//{header}").hostname or ""


def is_loopback(host: str) -> bool:
    """True for a name that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(running: ThreadingHTTPServer, host: str = "127.0.0.1") -> str:
    """Where to point a browser; `host` as it was given to `server`."""
    name = socket.gethostname() if host == "0.0.0.0" else host
    return f"http://{name}:{running.server_port}/"
