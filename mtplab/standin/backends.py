"""Three ways to run a shell inside the device's root: chroot, user namespace, and our own portable shell."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mtplab.standin.files import WRITABLE, DeviceFiles
from mtplab.standin.settings import UsageError

NAMES = ("chroot", "userns", "portable")
SHELL_UID = 2000
INTERACTIVE = "exec /system/bin/sh -"
PROBE = ": </dev/null >/dev/null && echo probe > /data/local/tmp/.probe && rm /data/local/tmp/.probe && id -u"

# Runs as the user's own root in a namespace: the device is mounted read-only but for the shell user's folders, then
# a second namespace makes the user 2000.
_USERNS = """
r=$1; shift
@mount@ --bind "$r" "$r" || exit 125
for d in data/local/tmp data/media/0 dev/.sim/run dev/.sim/settings
do @mount@ --bind "$r/$d" "$r/$d" || exit 125; done
for d in null zero urandom; do @mount@ --bind "/dev/$d" "$r/dev/$d" || exit 125; done
@mount@ --bind "$r/dev/.sim/logcat" "$r/dev/.sim/logcat" || exit 125
@mount@ --bind /proc/uptime "$r/proc/uptime" || exit 125
@mount@ -o remount,bind,ro "$r" || exit 125
exec @unshare@ --user --map-user=2000 --map-group=2000 --root="$r" "$@"
"""

# In place of the first entry, which is the folder it is started in: that one belongs to the device.
PORTABLE_START = "import sys; sys.path[0] = sys.argv.pop(1); from mtplab.standin.minish.main import main; main()"


@dataclass
class Backend:
    """How a device command becomes a host process."""

    name: str
    argv: list[str]
    limits_itself: bool = False  # nobody else may: its user is not the one who starts it
    writes_uptime: bool = False  # the shell reads a file that the stand-in must keep current

    @property
    def has_trampolines(self) -> bool:
        """True when programs must be scripts in the root; the portable shell knows them by path instead."""
        return self.name != "portable"

    def command(self, script: str, limits: str = "") -> list[str]:
        """The host's argv for a device command; an empty one is an interactive shell. `limits`: a line of its own."""
        if self.limits_itself and limits:
            return [*self.argv, "-c", f"{limits}\n{script or INTERACTIVE}"]
        return [*self.argv, *(["-c", script] if script else ["-"])]


def device_environment(device: str) -> dict[str, str]:
    """What a shell on the phone finds in its environment."""
    return {
        "PATH": "/system/bin:/vendor/bin",
        "HOME": "/",
        "SHELL": "/bin/sh",
        "USER": "shell",
        "LOGNAME": "shell",
        "HOSTNAME": device,
        "ANDROID_ROOT": "/system",
        "ANDROID_DATA": "/data",
        "TMPDIR": "/data/local/tmp",
        "LC_ALL": "C",
    }


def choose(name: str, files: DeviceFiles) -> Backend:
    """The backend called `name`, or for `auto` the most faithful that works here; UsageError when it does not."""
    if name not in (*NAMES, "auto"):
        raise UsageError(f"unknown backend {name!r}: there are auto, {', '.join(NAMES)}")
    reasons = []
    for candidate in NAMES if name == "auto" else (name,):
        backend, reason = _make(candidate, files)
        if backend is not None:
            return backend
        reasons.append(f"{candidate}: {reason}")
    raise UsageError(f"backend {name} does not work here ({'; '.join(reasons)}); use --backend portable")


def _make(name: str, files: DeviceFiles) -> tuple[Backend | None, str]:
    if name == "portable":
        files.shell_owner = None
        home = str(Path(__file__).resolve().parents[2])
        return Backend(name, [sys.executable, "-SEs", "-c", PORTABLE_START, home, files.root]), ""
    missing = [tool for tool in ("mksh", "toybox", *_TOOLS[name]) if shutil.which(tool) is None]
    if missing:
        return None, f"needs {' and '.join(missing)}"
    if name == "chroot" and os.geteuid() != 0:
        return None, "needs root"
    install_tools(files)
    try:
        _make_devices(files, real=name == "chroot")
    except OSError as error:
        return None, f"cannot make devices ({error.strerror})"
    if name == "chroot":
        return _make_chroot(files)
    return _probed(Backend(name, _userns_argv(files.root)), files)


def _make_chroot(files: DeviceFiles) -> tuple[Backend | None, str]:
    files.shell_owner = SHELL_UID
    for place in WRITABLE:
        files.give_to_shell(place)
    who = [f"--userspec={SHELL_UID}:{SHELL_UID}", f"--groups={SHELL_UID}"]
    argv = [_which("chroot"), *who, files.root, "/system/bin/sh"]
    return _probed(Backend("chroot", argv, limits_itself=True, writes_uptime=True), files)


_TOOLS = {"chroot": ("chroot",), "userns": ("unshare", "mount")}


def _userns_argv(root: str) -> list[str]:
    outer = [_which("unshare"), "--user", "--map-root-user", "--mount"]
    return [*outer, "/bin/sh", "-c", _with_tools(_USERNS), "sh", root, "/system/bin/sh"]


def _with_tools(script: str) -> str:
    """The host's tools by path: the PATH these wrappers run with is already the device's."""
    for tool in ("mount", "unshare"):
        script = script.replace(f"@{tool}@", _which(tool))
    return script


def _which(tool: str) -> str:
    found = shutil.which(tool)
    assert found is not None
    return found


def _probed(backend: Backend, files: DeviceFiles) -> tuple[Backend | None, str]:
    try:
        done = subprocess.run(
            backend.command(PROBE),
            env=device_environment("probe"),
            capture_output=True,
            timeout=20,
            check=False,
            text=True,
            cwd=files.root,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.stdout.strip() == str(SHELL_UID):
        return backend, ""
    reason = done.stderr.strip().splitlines()
    return None, reason[-1].replace(files.root, "") if reason else "its probe gave no answer"


def install_tools(files: DeviceFiles) -> None:
    """Copy mksh, toybox and the libraries they need into the root."""
    for tool, name in (("mksh", "sh"), ("toybox", "toybox")):
        _copy(_which(tool), files.root + "/system/bin/" + name)
        linked = subprocess.run(["ldd", _which(tool)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", linked):
            if Path(library).is_file():
                _copy(library, files.root + library)
    _link(files, "mksh", "sh")
    listing = subprocess.run([_which("toybox")], capture_output=True, text=True, check=False).stdout
    for applet in listing.split():
        _link(files, applet, "toybox")


def _copy(source: str, target: str) -> None:
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(target + "~")
    shutil.copyfile(source, draft)
    draft.chmod(0o755)
    draft.replace(path)


def _link(files: DeviceFiles, name: str, target: str) -> None:
    path = Path(f"{files.root}/system/bin/{name}")
    if not path.exists() or path.is_symlink():
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _make_devices(files: DeviceFiles, real: bool) -> None:
    for name, minor in (("null", 3), ("zero", 5), ("urandom", 9)):
        path = Path(f"{files.root}/dev/{name}")
        is_device = path.exists() and stat.S_ISCHR(path.stat().st_mode)
        if real and not is_device:
            path.unlink(missing_ok=True)
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        if real:
            path.chmod(0o666)  # also of a root that was copied from elsewhere
        elif not path.exists():
            path.touch()
