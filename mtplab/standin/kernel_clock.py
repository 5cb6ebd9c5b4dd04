"""Puts the kernel's own clock into the device's root, once: a mount for each command would cost several starts."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CLONE_NEWNS = 0x00020000  # sched.h
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000  # sys/mount.h
_MNT_DETACH = 2


def show_kernel_clock(root: str) -> bool:
    """Let the root's /proc/uptime be the kernel's own, for this process and those it starts; False where it may not.

    The mount stands in a namespace of this process, so that the host never sees it and it is gone with the process.
    """
    libc = ctypes.CDLL(None)
    target = os.fsencode(f"{root}/proc/uptime")
    return (
        libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) == 0
        and libc.mount(b"/proc/uptime", target, None, ctypes.c_ulong(_MS_BIND), None) == 0
    )


def hide_kernel_clock(root: str) -> None:
    """Take the mount away, so that the folder can be removed; nothing where there is none."""
    if _is_mounted(root):
        ctypes.CDLL(None).umount2(os.fsencode(f"{root}/proc/uptime"), _MNT_DETACH)


def _is_mounted(root: str) -> bool:
    try:
        return Path(f"{root}/proc/uptime").stat().st_dev != Path(f"{root}/proc").stat().st_dev
    except OSError:
        return False

