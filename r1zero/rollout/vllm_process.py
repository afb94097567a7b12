"""What vLLM takes over in a process that it shares with a trainer, given back."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def process_group_kept(group: Any) -> Iterator[None]:
    """vLLM's shutdown destroys the default process group, the trainer's `group` too where it was there first."""
    destroy = torch.distributed.destroy_process_group

    def destroy_others(which: Any = None) -> None:
        if which is not None and which is not group:
            destroy(which)

    if group is not None:
        torch.distributed.destroy_process_group = destroy_others  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.distributed.destroy_process_group = destroy


@contextmanager
def process_state_kept() -> Iterator[None]:
    """vLLM's start seeds every generator, pins threads to cores, binds all later memory to one NUMA node and replaces
    `torch.set_num_threads` by a refusal. All of it is as before afterwards."""
    set_num_threads, num_threads = torch.set_num_threads, torch.get_num_threads()
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    policy = memory_policy()
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(num_threads)
        if affinity is not None:
            os.sched_setaffinity(0, affinity)
        if policy is not None:
            set_memory_policy(policy)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


MemoryPolicy = tuple[int, tuple[int, ...]]
"""A mode of Linux's mempolicy.h, and the mask of NUMA nodes it names, 64 a word."""
_POLICY_CALLS = {"x86_64": (239, 238), "aarch64": (236, 237)}
"""Numbers of the system calls get_mempolicy and set_mempolicy; the C library has no functions for them."""
_MASK_WORDS = 16


def memory_policy() -> MemoryPolicy | None:
    """The process's NUMA memory policy; None where the system has none to tell."""
    calls = _POLICY_CALLS.get(platform.machine()) if sys.platform == "linux" else None
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * _MASK_WORDS)()
    if calls is None or _libc().syscall(calls[0], ctypes.byref(mode), mask, 64 * _MASK_WORDS, None, 0) != 0:
        return None
    return mode.value, tuple(mask)


def set_memory_policy(policy: MemoryPolicy) -> None:
    """Best effort, as a container may forbid it: then memory stays on one node."""
    mode, words = policy
    mask = (ctypes.c_ulong * _MASK_WORDS)(*words)
    _libc().syscall(_POLICY_CALLS[platform.machine()][1], mode, mask if any(words) else None, 64 * _MASK_WORDS)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
