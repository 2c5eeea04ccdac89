"""Confinement of a process of Linux: it loses files, the network, other processes and unlimited memory.

The confinement cannot be undone, and holds for threads and processes that begin later, too. This module imports nothing
of this package, and is for a process that has one thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import struct
from collections.abc import Sequence
from pathlib import Path

__all__ = ["confine"]

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38


def confine(readable: Sequence[str], memory: int | None, open_files: int = 256) -> list[str]:
    """Confines this process, and returns the measures taken, in words.

    Args:
        readable: files and folders that it may read; it may write none.
        memory: how many bytes it may take, beyond those that it has now.
        open_files: how many files it may have open.
    """
    limits = _limit_resources(memory, open_files)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    measures = [limits]
    if len(os.listdir("/proc/self/task")) == 1:  # Landlock does not confine threads that have begun before
        measures += _restrict_files(readable)
    measures += _restrict_system_calls()
    return measures


def _prctl(*arguments: int) -> None:
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:5]]
    if _libc.prctl(*padded) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# --- Memory and files by number ---------------------------------------------------------------------------------------


def _limit_resources(memory: int | None, open_files: int) -> str:
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: open_files}
    if memory is not None:
        limits[resource.RLIMIT_DATA] = _status("VmData") + memory
        limits[resource.RLIMIT_AS] = (
            _status("VmSize") + 2 * memory + (4 << 30)
        )  # mapped files, and addresses in reserve
    for limit, most in limits.items():
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    return f"limits of resources: {open_files} files" + ("" if memory is None else f", {memory / 1e6:.0f} MB of memory")


def _status(name: str) -> int:
    """Reads a size in bytes that the kernel tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# --- Files: Landlock --------------------------------------------------------------------------------------------------

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on all architectures
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # the number of rights that a version of Landlock knows
_CONNECT_AND_BIND = 0b11  # of TCP, from version 4 of Landlock on
_SOCKETS_AND_SIGNALS = 0b11  # to processes outside, from version 6 of Landlock on


def _restrict_files(readable: Sequence[str]) -> list[str]:
    version = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return []
    files = (1 << max(count for since, count in _FILE_RIGHTS.items() if since <= version)) - 1
    network = _CONNECT_AND_BIND if version >= 4 else 0
    scoped = _SOCKETS_AND_SIGNALS if version >= 6 else 0
    attributes = struct.pack("=QQQ", files, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _checked("landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow_reading(ruleset, path)
        _checked("landlock_restrict_self", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return [f"Landlock {version}: reads {', '.join(readable) or 'nothing'}"]


def _allow_reading(ruleset: int, path: str) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _EXECUTE | _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        rule = struct.pack("=Qi", rights, opened)
        _checked("landlock_add_rule", _LANDLOCK_ADD_RULE, ruleset, 1, rule, 0)
    finally:
        os.close(opened)


def _checked(name: str, number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


# --- System calls: seccomp --------------------------------------------------------------------------------------------

# The system calls that a run needs, with their numbers on x86-64 and on AArch64. There are no sockets among them, no
# programs and no processes; files open if Landlock lets them.
_SYSTEM_CALLS = {
    "access": (21, None),
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "dup": (32, 23),
    "eventfd2": (290, 19),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fstat": (5, 80),
    "futex": (202, 98),
    "get_mempolicy": (239, 236),
    "getcpu": (309, 168),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "mbind": (237, 235),
    "membarrier": (324, 283),
    "mincore": (27, 232),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "poll": (7, None),
    "ppoll": (271, 73),
    "prctl": (157, 167),
    "pread64": (17, 67),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_setaffinity": (203, 122),
    "sched_yield": (24, 124),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "sigaltstack": (131, 132),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "write": (1, 64),
    "writev": (20, 66),
}
# The calls that are allowed with some arguments only. clone3 and openat2 fail as if the kernel had no such call, as
# the filter cannot look at their arguments.
_CLONE, _CLONE3, _FCNTL, _IOCTL = (56, 220), (435, 435), (72, 25), (16, 29)
_OPEN, _OPENAT, _OPENAT2, _PRLIMIT64, _TGKILL = (2, None), (257, 56), (437, 437), (302, 261), (234, 131)
_CLONE_THREAD = 0x00010000
_OF_ONE_FILE = (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC)
_FIONBIO = 0x5421  # sets whether a socket waits
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, and the kernel's number

_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # their offsets in what the filter reads


_Instruction = tuple[int, int, int, int]
_REFUSED: _Instruction = (_RETURN, 0, 0, _FAIL | errno.EPERM)


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _restrict_system_calls() -> list[str]:
    if platform.machine() not in _ARCHITECTURES or not os.path.exists("/proc/sys/kernel/seccomp"):
        return []
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _instructions(platform.machine()))
    filter_ = _Filter(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(filter_))
    return ["seccomp: opens no socket, no file for writing, starts no program, signals no process"]


def _instructions(machine: str) -> list[_Instruction]:
    """Returns the filter's program.

    An instruction is an operation, the number of those to skip where its test holds and where not, and an operand.
    """
    column, architecture = _ARCHITECTURES[machine]

    def number_of(call: tuple[int | None, ...]) -> int | None:
        return call[column]

    only = {
        _CLONE: _with_bits(0, _CLONE_THREAD),
        _FCNTL: _equal(1, *_OF_ONE_FILE),
        _IOCTL: _equal(1, _FIONBIO),
        _OPEN: _without_bits(1, _WRITING),
        _OPENAT: _without_bits(2, _WRITING),
        _PRLIMIT64: _equal(0, 0),  # the limits of this process
        _TGKILL: _equal(0, os.getpid()),
    }
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_where(number_of(_CLONE3), [(_RETURN, 0, 0, _FAIL | errno.ENOSYS)]),  # the C library then takes clone
        *_where(number_of(_OPENAT2), [(_RETURN, 0, 0, _FAIL | errno.ENOSYS)]),
        *(one for numbers, test in only.items() for one in _where(number_of(numbers), [*test, _REFUSED])),
        *(one for numbers in _SYSTEM_CALLS.values() for one in _where(number_of(numbers), [(_RETURN, 0, 0, _ALLOW)])),
        _REFUSED,
    ]


def _where(number: int | None, instructions: list[_Instruction]) -> list[_Instruction]:
    """Returns the instructions for one system call, behind a test of its number; none if the architecture lacks it."""
    return [] if number is None else [(_IF_EQUAL, 0, len(instructions), number), *instructions]


def _equal(argument: int, *values: int) -> list[_Instruction]:
    """Allows a call with one of these values as an argument."""
    tests = [((_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)) for value in values]
    return [_load(argument), *(instruction for test in tests for instruction in test)]


def _with_bits(argument: int, bits: int) -> list[_Instruction]:
    """Allows a call that has some of these bits in an argument."""
    return [_load(argument), (_IF_ANY_BIT, 0, 1, bits), (_RETURN, 0, 0, _ALLOW)]


def _without_bits(argument: int, bits: int) -> list[_Instruction]:
    """Allows a call that has none of these bits in an argument."""
    return [_load(argument), (_IF_ANY_BIT, 1, 0, bits), (_RETURN, 0, 0, _ALLOW)]


def _load(argument: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument)  # its lower half: both architectures are little-endian
