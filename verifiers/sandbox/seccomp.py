"""The system-call filter of the sandbox, as the bytes that bubblewrap's `--seccomp` takes (classic BPF).

Everything is allowed but what is listed: what a program needs is wide and varies between Python builds, what it must
not have is short. The list holds what would widen the kernel's reach or get around an rlimit: new processes (with
them fork bombs, daemons and shared limits go), new namespaces and mounts, tracing, other clocks of death
(`PR_SET_PDEATHSIG`), memory that no rlimit counts (memfd, System V), and sockets other than local and IP ones
(vsock reaches a virtual machine's host whatever the network namespace).

So do changes of an inode's mode, owner, times and attributes: the nodes in /dev are the machine's own, and where we run
as root the program's user owns them. A filter sees numbers and not paths, so it refuses them for the program's own
files in /tmp too: `os.chmod`, `os.utime`, `shutil.copy` and a `touch` of an existing file raise PermissionError.

Source: Linux `seccomp(2)`, `include/uapi/linux/{filter,seccomp,audit}.h`; numbers from `asm/unistd_64.h` and
`asm-generic/unistd.h`.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class _Machine:
    audit: int  # AUDIT_ARCH_*: a call made through another table is killed
    numbers: dict[str, int]


_SAME = {  # one number on every machine since Linux 5.1
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "mount_setattr": 442, "memfd_secret": 447, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    "file_setattr": 469,
}  # fmt: skip
_MACHINES = {
    "x86_64": _Machine(0xC000003E, _SAME | {
        "shmget": 29, "socket": 41, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "semget": 64, "msgget": 68,
        "ptrace": 101, "syslog": 103, "personality": 135, "modify_ldt": 154, "pivot_root": 155, "prctl": 157,
        "chroot": 161, "acct": 163, "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249,
        "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "setxattr": 188,
        "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
        "utimes": 235, "fchownat": 260, "futimesat": 261, "fchmodat": 268, "utimensat": 280,
    }),
    "aarch64": _Machine(0xC00000B7, _SAME | {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89, "personality": 92,
        "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "syslog": 116, "ptrace": 117,
        "reboot": 142, "prctl": 167, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "socket": 198,
        "socketpair": 199, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224,
        "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279,
        "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7,
        "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
        "fchown": 55, "utimensat": 88,
    }),
}  # fmt: skip

_SPECIAL = {"clone", "clone3", "fork", "vfork", "socket", "socketpair", "prctl"}
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_CLONE_THREAD, _CLONE_NEW_ANY = 0x00010000, 0x7E020080  # the second: every CLONE_NEW* flag
_PR_SET_PDEATHSIG = 1
_X32 = 0x40000000

# Offsets into struct seccomp_data; arguments are 64 bits wide, and little-endian on both machines.
_NUMBER, _ARCH, _ARG0 = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def supported() -> bool:
    """True where this machine's system-call numbers are known; elsewhere the sandbox runs without the filter."""
    return platform.machine() in _MACHINES


def program_filter(allow_processes: bool = False) -> bytes:
    """The filter's bytes. `allow_processes`: let it fork (the tester does), still without new namespaces.

    Raises KeyError where `supported()` is False.
    """
    machine = _MACHINES[platform.machine()]
    numbers = machine.numbers
    deny = _ERRNO | errno.EPERM
    code: list[tuple[int, int, int, int]] = [  # operation, jump if true, jump if false, operand
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, deny),
    ]
    for name, number in sorted(numbers.items()):
        if name not in _SPECIAL or (name in ("fork", "vfork") and not allow_processes):
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, deny)]
    # glibc falls back to clone(), whose flags can be read here; clone3's lie in memory and cannot.
    code += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    clone = [(_LOAD, 0, 0, _ARG0), (_ANY_BIT, 0, 1, _CLONE_NEW_ANY), (_RETURN, 0, 0, deny)]
    if not allow_processes:
        clone += [(_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, deny)]
    clone.append((_RETURN, 0, 0, _ALLOW))
    code += [(_EQUAL, 0, len(clone), numbers["clone"]), *clone]
    prctl = [(_LOAD, 0, 0, _ARG0), (_EQUAL, 0, 1, _PR_SET_PDEATHSIG), (_RETURN, 0, 0, deny), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, len(prctl), numbers["prctl"]), *prctl]
    family = [(_LOAD, 0, 0, _ARG0)]
    family += [(_EQUAL, len(_FAMILIES) - i, 0, allowed) for i, allowed in enumerate(_FAMILIES)]
    family += [(_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    for name in ("socket", "socketpair"):
        code += [(_EQUAL, 0, len(family), numbers[name]), *family]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
