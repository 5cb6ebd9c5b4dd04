"""What an adb client may open on the device: shell, exec, sync, sockets, reboot, and the refusals of a user build."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mtplab.standin.backends import Backend, device_environment
from mtplab.standin.files import DeviceFiles
from mtplab.standin.processes import Processes
from mtplab.standin.programs import Programs
from mtplab.standin.settings import Profile
from mtplab.standin.shell import ShellRun, parse_request
from mtplab.standin.sync import SyncSession
from mtplab.standin.wire import Stream

Service = Callable[[Stream, str], Awaitable[None]]
# What adbd of a user build prints where it will not do a thing; the service then simply ends.
REFUSALS = {
    "root": "adbd cannot run as root in production builds\n",
    "unroot": "adbd not running as root\n",
    "remount": "remount can only be used on userdebug or eng builds\n",
    "disable-verity": "disable-verity only works for userdebug builds\n",
    "enable-verity": "enable-verity only works for userdebug builds\n",
    "tcpip": "the stand-in is reached over TCP already\n",
    "usb": "the stand-in has no USB\n",
}
# After `adb reboot NAME` the phone comes back like this.
BOOT_MODES = {
    "recovery": "recovery", "sideload": "sideload", "sideload-auto-reboot": "sideload", "bootloader": "bootloader",
    "fastboot": "bootloader",
}  # fmt: skip


class AdbServices:
    """The services of a device that runs Android, and the few of one that does not."""

    def __init__(
        self,
        profile: Profile,
        files: DeviceFiles,
        backend: Backend,
        processes: Processes,
        programs: Programs,
        *,
        room_bytes: Callable[[], int],
        reboot: Callable[[str], None],
    ) -> None:
        """`room_bytes` tells how much may still be pushed; `reboot` takes the mode in which the phone comes back."""
        self._profile, self._files, self._backend = profile, files, backend
        self._processes, self._programs = processes, programs
        self._room_bytes, self._reboot_into = room_bytes, reboot
        self._table: dict[str, Service] = {
            "shell": self._shell, "exec": self._shell, "sync": self._sync, "tcp": self._socket,
            "localfilesystem": self._socket, "reboot": self._reboot, "reverse": self._reverse,
            **dict.fromkeys(REFUSALS, self._refuse),
        }  # fmt: skip

    def find(self, name: str, mode: str) -> Callable[[Stream], Awaitable[None]] | None:
        """The service of this name, bound to its arguments; None (adb says `closed`) when there is none."""
        kind = name.split(":", 1)[0].split(",", 1)[0]
        if mode != "normal" and kind != "reboot":  # recovery and its like have neither shell nor files
            return None
        found = self._table.get(kind)
        return None if found is None else lambda stream: found(stream, name)

    async def _shell(self, stream: Stream, name: str) -> None:
        self._programs.table.settle()
        request = parse_request(name)
        env = device_environment(self._profile.properties["ro.product.device"])
        run = ShellRun(request, stream, self._processes)
        argv = self._backend.command(request.command, self._processes.shell_limits)
        await run.run(argv, env, self._files.root)

    async def _sync(self, stream: Stream, _name: str) -> None:
        self._programs.table.settle()
        session = SyncSession(
            stream, self._files, room_bytes=self._room_bytes,
            content=self._programs.table.content, pushed=self._programs.table.adopt,
        )  # fmt: skip
        await session.run()

    async def _socket(self, stream: Stream, name: str) -> None:
        kind, _, address = name.partition(":")
        try:
            if kind == "tcp":
                reader, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[0]))
            else:
                reader, writer = await asyncio.open_unix_connection(self._files.host(address))
        except (OSError, ValueError):
            return

        async def upward() -> None:
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
            writer.close()

        feeding = asyncio.ensure_future(upward())
        try:
            while data := await reader.read(65536):
                await stream.write(data)
        finally:
            feeding.cancel()
            writer.close()

    async def _reboot(self, _stream: Stream, name: str) -> None:
        self._reboot_into(BOOT_MODES.get(name.partition(":")[2], "normal"))

    async def _refuse(self, stream: Stream, name: str) -> None:
        await stream.write(REFUSALS[name.split(":", 1)[0]].encode())

    async def _reverse(self, stream: Stream, name: str) -> None:
        request = name.partition(":")[2]
        if request.startswith("list-forward"):
            await stream.write(b"OKAY0000")
            return
        text = b"reverse forwarding is not supported by the stand-in"
        await stream.write(b"FAIL%04x%s" % (len(text), text))
