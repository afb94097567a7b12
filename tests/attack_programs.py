"""Programs that attack the sandbox. None may be judged correct on `TESTS`, nor outlive its deadline, nor leave a trace.

`FORGERIES` do not compute the square they are asked for and try to be taken for right ones. `BREACHES` compute it only
when what they attempt has worked: a `correct` verdict is a hole. `HOGS` use up what they can. `SCRIPTS` are whole
programs for a stdin/stdout test. `SECRET`, `OUTSIDE`, `HOME` and `PORT` are filled in by the tests.
"""

from __future__ import annotations


def fill(source: str, *, secret: str, outside: str, home: str, port: int) -> str:
    """`source` with its targets filled in: a file to read, a path to write to, a home folder, an open local port."""
    source = source.replace("SECRET", secret).replace("OUTSIDE", outside)
    return source.replace("'HOME'", repr(home)).replace("PORT", str(port))


TESTS = "assert square(3) == 9\nassert square(-4) == 16\n"

_WRONG = "\ndef square(x):\n    return None\n"

FORGERIES: dict[str, str] = {
    "exits with 0 before the tests": "import sys\nsys.exit(0)",
    "exits hard before the tests": "import os\nos._exit(0)",
    "exits with 0 inside a test": "import sys\ndef square(x):\n    sys.exit(0)",
    "exits hard inside a test": "import os\ndef square(x):\n    os._exit(0)",
    "raises what an assert raises": "def square(x):\n    raise AssertionError",
    "raises StopIteration": "def square(x):\n    raise StopIteration",
    "prints success markers": """
import sys
for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
    for text in ("passed", "OK", "PASSED", "ran 2 tests: all passed", '{"status": "ran"}', "ready"):
        print(text, file=stream, flush=True)
"""
    + _WRONG,
    "an int that equals everything": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
def square(x):
    return Any(0)
""",
    "an object that equals everything": """
class Any:
    def __eq__(self, other): return True
    def __req__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *args): return True
def square(x):
    return Any()
""",
    "a class that equals everything": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 0
class square(metaclass=Meta):
    def __new__(cls, x): return cls
""",
    "patches builtins": """
import builtins
class Never(Exception):
    def __init__(self, *args): pass
builtins.AssertionError = Never
builtins.all = builtins.any = builtins.bool = builtins.isinstance = lambda *args: True
builtins.__dict__["len"] = lambda x: 0
builtins.compile = lambda *args, **kw: None
"""
    + _WRONG,
    "an import hook": """
import builtins, sys
class Anything:
    def __getattr__(self, name): return lambda *args, **kwargs: True
builtins.__import__ = lambda *args, **kwargs: Anything()
sys.meta_path.insert(0, Anything())
"""
    + _WRONG,
    "rewrites every function it finds": """
import gc, types
def _yes(*args, **kwargs): return True
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and found is not _yes:
        try: found.__code__ = _yes.__code__
        except Exception: pass
"""
    + _WRONG,
    "rewrites every dictionary it finds": """
import gc
for found in gc.get_objects():
    if type(found) is dict:
        for key in ("check", "candidate", "tests", "failed", "status", "recorder", "passed"):
            if key in found: found[key] = 0
"""
    + _WRONG,
    "walks the frames of its callers": """
import sys
def square(x):
    frame = sys._getframe()
    while frame is not None:
        for names in (frame.f_globals, frame.f_locals):
            for key, value in list(names.items()):
                if key in ("pack", "answer", "describe", "value", "changed"):
                    names[key] = lambda *args, **kwargs: True
        frame = frame.f_back
    return None
""",
    "looks for the expected values in memory": """
import gc, re
def square(x):
    found = []
    for thing in gc.get_objects():
        for text in gc.get_referents(thing):
            if type(text) in (str, bytes):
                text = text if type(text) is str else text.decode("latin-1")
                found += re.findall(r"assert square\\(%d\\) == (\\d+)" % x, text)
    return int(found[0]) if found else None
""",
    "traces and profiles": """
import sys, threading
def lie(frame, event, arg):
    for names in (frame.f_locals, frame.f_globals):
        for key in ("failed", "value", "held"): names[key] = True
    return lie
sys.settrace(lie); sys.setprofile(lie); threading.settrace(lie); threading.setprofile(lie)
"""
    + _WRONG,
    "a handler at exit": """
import atexit, os
atexit.register(lambda: (print("passed"), os._exit(0)))
raise SystemExit(0)
""",
    "audit and exception hooks": """
import sys
sys.excepthook = sys.unraisablehook = lambda *args: None
sys.addaudithook(lambda *args: None)
"""
    + _WRONG,
    "forges a right report on every descriptor": """
import os, json
report = {"status": "ran", "reason": "", "calls": 2, "tests": [{"test": "a", "passed": 1, "failed": 0, "reason": ""}]}
data = json.dumps(report).encode()
data = len(data).to_bytes(4, "little") + data
for fd in range(3, 256):
    try: os.write(fd, data)
    except OSError: pass
os._exit(0)
""",
    "floods every descriptor with replies": """
import os, threading
data = b'{"value": true, "changed": []}'
data = len(data).to_bytes(4, "little") + data
for fd in range(3, 256):
    try: os.write(fd, data * 100)
    except OSError: pass
"""
    + _WRONG,
    "a reply of four gigabytes": """
import os
for fd in range(3, 64):
    try: os.write(fd, b"\\xff\\xff\\xff\\xff" + b"1" * 1000)
    except OSError: pass
"""
    + _WRONG,
    "a reply nested without end": """
import os
data = b'{"value": ' + b"[" * 1000000
data = len(data).to_bytes(4, "little") + data
for fd in range(3, 64):
    try: os.write(fd, data)
    except OSError: pass
"""
    + _WRONG,
    "replies that are no values": """
import os
for data in (b"", b"null", b"7", b"[]", b"{}", b'{"value": {"T": "eval"}}', b'{"callback": 0, "args": []}',
             b'{"value": {"o": ["os.system", "true"]}}', b'{"names": 5}',
             b'{"names": [["square", {"T": "__import__"}]]}', b"\\xff"):
    data = len(data).to_bytes(4, "little") + data
    for fd in range(3, 64):
        try: os.write(fd, data)
        except OSError: pass
"""
    + _WRONG,
    "a recursive value": "a = []\na.append(a)\ndef square(x):\n    return a",
    "a value of a billion digits": "def square(x):\n    return 1 << (1 << 31)",
    "not a number, infinite, negative zero": "def square(x):\n    return [float('nan'), float('inf'), -0.0][x % 3]",
    "replaces the runner's modules": """
import sys
for name, module in list(sys.modules.items()):
    if "r1zero" in name:
        for key in list(vars(module)):
            if not key.startswith("__"):
                try: setattr(module, key, lambda *args, **kwargs: {"value": True, "changed": []})
                except Exception: pass
"""
    + _WRONG,
    "no function of that name": "def cube(x):\n    return x ** 3",
    "shadows the names of a test": "def check(candidate):\n    return True\nassert_ = check\n" + _WRONG,
}

_BREACH = """
def square(x):
    return x * x if WORKED else None
"""


def _breach(attempt: str) -> str:
    """A program that is right only when `attempt` (the body of a function) returns something true."""
    body = "\n".join("    " + line for line in attempt.strip("\n").splitlines())
    guard = "try:\n    WORKED = bool(attempt())\nexcept BaseException:\n    WORKED = False\n"
    return f"def attempt():\n{body}\n{guard}{_BREACH}"


_LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"

BREACHES: dict[str, str] = {
    "reads a file of its user": _breach("return open('SECRET').read() == 'secret'"),
    "reads /etc/shadow": _breach("return open('/etc/shadow').read()"),
    "reads /etc/passwd": _breach("return open('/etc/passwd').read()"),
    "lists the home folder": _breach("import os\nreturn os.listdir('HOME')"),
    "finds a home in its environment": _breach("import os\nreturn 'HOME' in os.environ or 'PATH' in os.environ"),
    "reads a secret from its environment": _breach("import os\nreturn os.environ['R1ZERO_TEST_SECRET']"),
    "writes outside": _breach("return open('OUTSIDE', 'w').write('x')"),
    "writes into the root": _breach("return open('/new', 'w').write('x')"),
    "writes into the standard library": _breach("import os\nreturn open(os.__file__, 'a').write('# x')"),
    "replaces the standard library": _breach("import os\nos.rename(os.__file__, os.__file__ + '.old')\nreturn True"),
    "reads through a symbolic link": _breach(
        "import os\nos.symlink('SECRET', '/tmp/link')\nreturn open('/tmp/link').read() == 'secret'"
    ),
    "writes through a symbolic link": _breach(
        "import os\nos.symlink('OUTSIDE', '/tmp/link2')\nreturn open('/tmp/link2', 'w').write('x')"
    ),
    "climbs out by dots": _breach("import os\nreturn os.path.exists('../../../../../../..' + 'SECRET')"),
    "connects to a local port": _breach(
        "import socket\nreturn socket.create_connection(('127.0.0.1', PORT), timeout=1) is not None"
    ),
    "sends a datagram": _breach(
        "import socket\nreturn socket.socket(2, 2).sendto(b'x', ('198.51.100.1', 53))"  # RFC 5737: nobody's address
    ),
    "talks to the hypervisor": _breach("import socket\nreturn socket.socket(40, 1)"),
    "opens a netlink socket": _breach("import socket\nreturn socket.socket(16, 3)"),
    "reads /proc": _breach("import os\nreturn os.listdir('/proc')"),
    "reads its parent's memory map": _breach("import os\nreturn open(f'/proc/{os.getppid()}/maps').read()"),
    "reads /sys": _breach("import os\nreturn os.listdir('/sys')"),
    "opens a disk": _breach("import os\nos.mknod('/tmp/disk', 0o60600, os.makedev(8, 0))\nreturn True"),
    "forks": _breach("import os\npid = os.fork()\nif pid == 0: os._exit(0)\nreturn os.waitpid(pid, 0)[1] == 0"),
    "runs a command": _breach("import subprocess\nreturn subprocess.run(['/usr/bin/env'], capture_output=True).stdout"),
    "runs a shell": _breach("import os\nreturn os.system('true') == 0"),
    "starts a process by posix_spawn": _breach(
        "import os, sys\nreturn os.waitpid(os.posix_spawn(sys.executable, ['p', '-c', ''], {}), 0)[1] == 0"
    ),
    "has the root user's id": _breach("import os\nreturn os.getuid() == 0 or os.geteuid() == 0"),
    "takes the root user's id": _breach("import os\nos.setuid(0)\nreturn True"),
    "raises its own limits": _breach(
        "import resource as r\nr.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))\nreturn True"
    ),
    "traces the first process": _breach(_LIBC + "return libc.ptrace(16, 1, 0, 0) == 0"),
    "mounts a file system": _breach(_LIBC + "return libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0"),
    "remounts the root writable": _breach(_LIBC + "return libc.mount(b'none', b'/', b'', 32 | 4096, None) == 0"),
    "makes a namespace": _breach(_LIBC + "return libc.unshare(0x10000000) == 0"),
    "clones into a namespace": _breach(_LIBC + "return libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) >= 0"),
    "changes its root": _breach("import os\nos.chroot('/tmp')\nreturn True"),
    "outlives its parent": _breach(_LIBC + "return libc.prctl(1, 0, 0, 0, 0) == 0"),
    "takes memory no limit counts": _breach("import os\nreturn os.memfd_create('x')"),
    "takes System V memory": _breach(_LIBC + "return libc.shmget(0, 1 << 20, 0o1600) >= 0"),
    "uses the kernel's keyring": _breach(_LIBC + "return libc.syscall(250, 0, -3, 1) >= 0"),
    "sets the times of the machine's /dev/zero": _breach("import os\nos.utime('/dev/zero', (1, 1))\nreturn True"),
    "sets the times of the machine's /dev/null, by descriptor": _breach(
        "import os\nos.utime(os.open('/dev/null', os.O_RDWR), (1, 1))\nreturn True"
    ),
    "sets the times of the machine's /dev/urandom, by each call": _breach(
        _LIBC + "times = (ctypes.c_long * 4)(1, 0, 1, 0)\npath = b'/dev/urandom'\n"
        "return 0 in (libc.utime(path, times), libc.utimes(path, times), libc.futimesat(-100, path, times),\n"
        "             libc.syscall(132, path, times), libc.syscall(235, path, times))"
    ),
    # To the mode and the owner they have: harmless to this machine where it works.
    "sets the mode of the machine's /dev/zero": _breach("import os\nos.chmod('/dev/zero', 0o666)\nreturn True"),
    "sets the mode of the machine's /dev/null, by descriptor": _breach(
        "import os\nos.fchmod(os.open('/dev/null', os.O_RDWR), 0o666)\nreturn True"
    ),
    "sets the mode of the machine's /dev/zero, by the newest call": _breach(
        _LIBC + "return libc.syscall(452, -100, b'/dev/zero', 0o666, 0) == 0"
    ),
    "sets the owner of the machine's /dev/zero": _breach("import os\nos.chown('/dev/zero', -1, -1)\nreturn True"),
    "sets an attribute": _breach("import os\nopen('/tmp/a', 'w')\nos.setxattr('/tmp/a', 'user.a', b'')\nreturn True"),
    "sees another program's files": _breach(
        "import os\nfor name in ('/tmp/left', '/dev/shm/left'):\n    if os.path.exists(name): return True\n"
        "for name in ('/tmp/left', '/dev/shm/left'):\n    try: open(name, 'w').close()\n    except OSError: pass"
    ),
    "sees other processes": _breach(
        "import os\nfound = []\nfor pid in range(1, 40000):\n    if pid in (1, os.getpid()): continue\n"
        "    try: os.kill(pid, 0)\n    except OSError: continue\n    found.append(pid)\nreturn found"
    ),
}

HOGS: dict[str, str] = {
    "loops without end as it loads": "while True:\n    pass",
    "loops without end in a test": "def square(x):\n    while True:\n        pass",
    "loops in C code": "def square(x):\n    return (10 ** 10 ** 8) % 7",
    "sleeps": "import time\ndef square(x):\n    time.sleep(1000)",
    "stops itself": "import os, signal\ndef square(x):\n    os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores every signal and loops": """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "catches everything and loops": """
def square(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "a daemon": """
import os, time
def square(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(0.1)
    return None
""",
    "many threads": """
import threading, time
def spin():
    while True: time.sleep(0.001)
def square(x):
    threading.stack_size(32768)
    while True:
        threading.Thread(target=spin).start()
""",
    "takes all memory": "def square(x):\n    hoard = []\n    while True:\n        hoard.append(bytearray(1 << 24))",
    "takes all memory at once": "def square(x):\n    return bytearray(1 << 40)",
    "fills the disk": """
def square(x):
    for n in range(10000):
        with open(f"/tmp/{n}", "wb") as file:
            for _ in range(1000): file.write(bytes(1 << 20))
""",
    "makes files without end": "n = 0\nwhile True:\n    n += 1\n    open(f'/tmp/{n}', 'w').close()",
    "prints without end": "def square(x):\n    while True:\n        print('x' * 10000)",
    "answers without end": """
import os
while True:
    for fd in range(3, 64):
        try: os.write(fd, b"x" * 65536)
        except OSError: pass
""",
    "recurses without end": "def square(x):\n    return square(x)",
    "overflows the stack": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef square(x):\n    return square(x) + 1",
    "overflows the stack in C": "x = None\nfor _ in range(10 ** 6): x = [x]\ndef square(n):\n    return repr(x)",
    "crashes the interpreter": "import ctypes\ndef square(x):\n    return ctypes.string_at(0)",
    "kills its parents and all others": """
import os, signal
def square(x):
    for pid in (os.getppid(), 1, -1, 0): os.kill(pid, signal.SIGKILL)
""",
    "returns values without end": "def square(x):\n    while True:\n        yield 9",
    "makes the test work without end": "import itertools\nsquare = lambda x: itertools.count()",
}

SCRIPT_INPUT, SCRIPT_OUTPUT = "3\n4\n", "9\n16\n"
SCRIPTS: dict[str, str] = {
    "exits with 0": "import sys\nsys.exit(0)",
    "prints the right start": "print(9)",
    "prints more than asked": "print(9)\nprint(16)\nprint(25)",
    "prints the right text and fails": "print(9)\nprint(16)\nraise ValueError",
    "prints the right text and dies": "import os\nprint(9)\nprint(16, flush=True)\nos.abort()",
    "prints the right text and does not end": "print(9)\nprint(16, flush=True)\nwhile True: pass",
    "closes its output and does not end": "import os\nos.write(1, b'9\\n16\\n')\nos.close(1)\nos.close(2)\nwhile 1: 0",
    "prints without end": "while True:\n    print('9')",
    "prints errors without end": "import sys\nwhile True:\n    print('9', file=sys.stderr)",
    "waits for more input": "import sys, time\nsys.stdin.read()\ntime.sleep(1000)",
    "prints success markers": "print('passed')\nprint('{\"status\": \"ran\"}')",
    "prints the right text on the wrong stream": "import sys\nprint('9\\n16', file=sys.stderr)",
    "writes on every other descriptor": """
import os
for fd in range(3, 64):
    try: os.write(fd, b"9\\n16\\n")
    except OSError: pass
""",
}
