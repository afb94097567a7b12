"""Starting a Python process on this machine, shut in with bubblewrap or (when asked for in as many words) not at all.

bubblewrap: https://github.com/containers/bubblewrap, the unprivileged sandbox under Flatpak; needs user namespaces.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from r1zero.verifiers.sandbox import seccomp
from r1zero.verifiers.sandbox.base import Job
from r1zero.verifiers.sandbox.inside import codec, program, tester

# A child learns its code from the channel, compiled: no file of ours is mounted, nothing is parsed again.
_BOOT = (
    "import os,sys,marshal\n"
    "fd=int(sys.argv[1]);n=int(sys.argv[2]);b=b''\n"
    "while len(b)<n:\n p=os.read(fd,n-len(b))\n if not p: os._exit(3)\n b+=p\n"
    "for name,code in marshal.loads(b):\n m=sys.modules[name]=type(sys)(name);exec(code,m.__dict__)\n"
    "m.main(fd)\n"
)
_PACKAGES = "/packages"
_PYTHON_FLAGS = ("-I", "-S", "-B", "-X", "utf8")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one process inside may use."""

    memory_bytes: int = 512 << 20
    """Address space."""
    cpu_seconds: int = 10
    """Processor time; the wall clock's deadline is the caller's."""
    disk_bytes: int = 16 << 20
    """The private /tmp, and any one file."""
    packages: tuple[str, ...] = ()
    """Paths of installed packages it may import: mounted read-only."""
    compiler: bool = False
    """It may start processes, and finds the system's programs and headers: to run a compiler, never a program."""
    processes: int = 64
    """Processes and threads (the filter allows no second process at all; see `seccomp`)."""

    def rlimits(self) -> dict[str, int]:
        return {
            "AS": self.memory_bytes,
            "CPU": self.cpu_seconds,
            "FSIZE": self.disk_bytes,
            "NPROC": self.processes,
            "NOFILE": 64,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }


def program_limits(job: Job) -> Limits:
    """The limits of a job's program."""
    return Limits(memory_bytes=job.memory_bytes, cpu_seconds=int(job.timeout_seconds) + 2, packages=job.packages)


class Process:
    """A started process and our end of its channel. Killed and reaped by `kill`, or when dropped, or at our exit."""

    def __init__(self, popen: subprocess.Popen[bytes], channel: socket.socket, info: IO[bytes] | None) -> None:
        self.popen = popen
        self.channel = channel
        self._kill = weakref.finalize(self, _end, popen, channel, info, os.getpid())
        self._owner = os.getpid()

    @property
    def ours(self) -> bool:
        """False once killed, and in a fork of the process that started it."""
        return self._kill.alive and self._owner == os.getpid()

    def kill(self) -> None:
        """Kill it with everything in its namespace, and reap it. Safe to call twice."""
        self._kill()


def _end(popen: subprocess.Popen[bytes], channel: socket.socket, info: IO[bytes] | None, owner: int) -> None:
    """`info`: what bubblewrap wrote to its info-fd; None for a process that leads a group of its own instead."""
    if os.getpid() != owner:
        return
    if info is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
    elif popen.poll() is None:
        # The namespace's first process before bubblewrap's own, so that bubblewrap reaps it. Killing bubblewrap would
        # end it too, but leave a zombie to whoever is pid 1: in a container, often nobody who reaps.
        pid = _pid_inside(info)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            popen.wait()
    popen.kill()
    popen.wait()
    for stream in (channel, info, popen.stdin, popen.stdout, popen.stderr):
        if stream is not None:
            stream.close()


def _pid_inside(info: IO[bytes]) -> int | None:
    """The pid outside of the namespace's first process; None when bubblewrap died before there was one."""
    poll = select.poll()
    poll.register(info.fileno(), select.POLLIN)
    text = b""
    while poll.poll(1000):  # one that has only just been started takes a few milliseconds to say
        part = info.read(4096)
        text += part or b""
        match = re.search(rb'"child-pid": (\d+)\D', text)
        if match or not part:
            return int(match[1]) if match else None
    return None


class Launcher(Protocol):
    """Starts Python with one of our modules inside; the whole difference between two local sandboxes."""

    def status(self) -> str | None:
        """None when it works here, else one line: what is missing and what mends it."""

    def package_folders(self, packages: tuple[str, ...]) -> list[str]:
        """The folders in which a process started with `packages` finds them."""

    def command(self, python_args: list[str], limits: Limits, fds: Mapping[str, int]) -> list[str]:
        """The command line that runs Python with `python_args`. `fds`: `info`, to write the pid of the process inside
        to, as bubblewrap does, and `seccomp`, the filter to read (where there is one)."""


class Bubblewrap:
    """A fresh set of namespaces for each process: user, pid, net, ipc, uts, mount, and cgroup where there is one.

    Inside: the system's libraries and this Python's standard library, read-only; a private /tmp of `disk_bytes`;
    /dev/null, /dev/zero and /dev/urandom (where there is no system-call filter, a file of /tmp as /dev/null and no
    node of the machine's); no /proc, no /etc, no /home, no site-packages, no environment; uid 65534
    without capabilities. All of it dies with the process that started it.
    """

    def command(self, python_args: list[str], limits: Limits, fds: Mapping[str, int]) -> list[str]:
        size = ["--size", str(limits.disk_bytes), "--tmpfs", "/tmp", "--chdir", "/tmp"]
        options = ["--info-fd", str(fds["info"])]
        for path in limits.packages:
            options += ["--ro-bind", path, f"{_PACKAGES}/{Path(path).name}"]
        if limits.compiler:
            for folder in ("/usr/bin", "/usr/include", "/usr/libexec"):
                options += ["--ro-bind-try", folder, folder]
        if "seccomp" in fds:
            options += ["--seccomp", str(fds["seccomp"])]
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise FileNotFoundError("bwrap")
        end = ["--remount-ro", "/", "--", _inside_python()]
        return [bwrap, *_bubblewrap_base(), *size, *options, *end, *python_args]

    def package_folders(self, packages: tuple[str, ...]) -> list[str]:
        return [_PACKAGES] if packages else []

    def status(self) -> str | None:
        return _bubblewrap_status()


class Unprotected:
    """No isolation: rlimits and a process group only. A program can read, write and send whatever its user can, can
    start processes that leave the group and live on, and outlives a caller that is killed in the middle."""

    def command(self, python_args: list[str], limits: Limits, fds: Mapping[str, int]) -> list[str]:
        return [_outside_python(), *python_args]

    def package_folders(self, packages: tuple[str, ...]) -> list[str]:
        return sorted({str(Path(path).parent) for path in packages})

    def status(self) -> str | None:
        return None


def start(launcher: Launcher, role: str, limits: Limits) -> Process:
    """Start a process in the `role` `program` or `tester`, its standard streams being pipes to us.

    It says `ready` on its channel once it is inside, and waits for a job. Raises OSError where it cannot be started.
    """
    code = _code(role)
    protected = isinstance(launcher, Bubblewrap)
    with contextlib.ExitStack() as passed:  # what the process inherits, and we close
        ours, theirs = socket.socketpair()
        passed.enter_context(theirs)
        info_read, info_write = os.pipe()
        passed.callback(os.close, info_write)
        info = open(info_read, "rb", buffering=0)  # noqa: SIM115, PTH123  closed with the process
        fds = {"info": info_write}
        try:
            if protected and seccomp.supported():
                fds["seccomp"] = _filter_fd(role == "tester" or limits.compiler)
                passed.callback(os.close, fds["seccomp"])
            python_args = [*_PYTHON_FLAGS, "-c", _BOOT, str(theirs.fileno()), str(len(code))]
            popen = subprocess.Popen(
                launcher.command(python_args, limits, fds),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), *(fds.values() if protected else ())],
                env={},
                # Unprotected, a group of its own to be killed by. Else it stays in ours: who kills that, kills it too.
                start_new_session=not protected,
            )
        except BaseException:
            ours.close()
            info.close()
            raise
    if not protected:
        info.close()
    process = Process(popen, ours, info if protected else None)
    with contextlib.suppress(OSError):  # it died at birth: the caller sees no `ready`
        ours.sendall(code)
    return process


@functools.cache
def _code(role: str) -> bytes:
    """The compiled modules of a role, in the order they are to be run."""
    modules = (codec, {"program": program, "tester": tester}[role])
    parts = []
    for module in modules:
        assert module.__file__ is not None
        source = Path(module.__file__).read_text(encoding="utf-8")
        parts.append((module.__name__, compile(source, f"<{module.__name__}>", "exec", dont_inherit=True)))
    return marshal.dumps(parts)


@functools.cache
def _outside_python() -> str:
    """The interpreter below a virtual environment: same version, no site-packages of the environment."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    path = Path(sys.base_prefix) / "bin" / name
    return str((path if path.exists() else Path(sys.executable)).resolve())


def _inside_python() -> str:
    outside = _outside_python()
    return outside if _is_system_python() else f"/python/bin/{Path(outside).name}"


def _is_system_python() -> bool:
    return Path(sys.base_prefix).resolve() == Path("/usr")


@functools.cache
def _bubblewrap_base() -> tuple[str, ...]:
    """The part of the command that does not vary."""
    args = ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    # As pid 1, because bubblewrap does not reap a first process of its own: each program that ended by itself would
    # leave a zombie to whoever is pid 1 outside, and in a container that is often nobody who reaps.
    args += ["--unshare-cgroup-try", "--as-pid-1", "--die-with-parent", "--new-session", "--clearenv"]
    args += ["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for folder in ("/usr/lib", "/usr/lib64"):
        args += ["--ro-bind-try", folder, folder]
    for folder in ("/lib", "/lib64"):
        path = Path(folder)
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), folder]
        elif path.exists():
            args += ["--ro-bind", folder, folder]
    args += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    python = _outside_python()
    if _is_system_python():
        args += ["--ro-bind", python, python]
    else:
        library = Path(sys.base_prefix) / "lib"
        args += ["--ro-bind", python, _inside_python(), "--ro-bind", str(library), "/python/lib"]
        args += ["--setenv", "LD_LIBRARY_PATH", "/python/lib"]
        packages = Path(sysconfig.get_path("stdlib")) / "site-packages"
        if packages.is_dir() and packages.is_relative_to(library):
            args += ["--tmpfs", f"/python/lib/{packages.relative_to(library)}"]
            args += ["--remount-ro", f"/python/lib/{packages.relative_to(library)}"]
    if seccomp.supported():
        # The machine's own nodes: the filter keeps their mode, owner and times from change. A read-only mount would
        # too, but bubblewrap's --remount-ro adds nodev, after which they cannot be opened.
        for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
            args += ["--dev-bind", device, device]
    else:
        args += ["--symlink", "/tmp/null", "/dev/null"]
    return tuple(args)


def _filter_fd(allow_processes: bool) -> int:
    """A fresh descriptor on the filter's bytes (bubblewrap reads it to the end)."""
    fd = os.memfd_create("filter")
    os.write(fd, _filter(allow_processes))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


_filter = functools.cache(seccomp.program_filter)

_REFUSED = (
    "bubblewrap cannot make namespaces here ({}): allow unprivileged user namespaces "
    "(`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` or `kernel.unprivileged_userns_clone=1`; "
    "in a container: `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`)"
)


def _bubblewrap_status() -> str | None:
    if not sys.platform.startswith("linux"):
        return "the code sandbox needs Linux: run there, or set the option sandbox: none to run programs unprotected"
    if shutil.which("bwrap") is None:
        return "bubblewrap is missing: `apt-get install bubblewrap` (or dnf, pacman, apk)"
    with tempfile.TemporaryFile() as errors:
        # The real command with one harmless change: its pid goes to stdout.
        command = Bubblewrap().command([*_PYTHON_FLAGS, "-c", "pass"], Limits(), {"info": 1})
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, timeout=20, env={}
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return _REFUSED.format(error)
        if code == 0:
            return None
        errors.seek(0)
        lines = errors.read(2000).decode(errors="replace").strip().splitlines()
    return _REFUSED.format(lines[-1] if lines else f"exit status {code}")
