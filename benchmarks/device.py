"""What watching a phone costs: the sampler beside a shell per sample and a shell per zone; a shell's round trip.

    python benchmarks/device.py [--seconds 5] [--repeats 5] [--round-trips 60] [--backend auto]

Runs against the stand-in: SIMULATED, a phone's figures are its own. The ways take turns within each repeat, so that
a busy machine slows all of them; ratios are taken within a repeat. Device CPU is that of the stand-in's own child
processes (kernel's account), host CPU that of this process and its adb server. A stand-in's shell is started through
a wrapper that no phone has: its cost is measured (an empty shell there less a bare mksh here) and taken off. Packets
and bytes are counted on the wire by a proxy, in a pass of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import adbutils
import psutil

from mtplab.device.errors import DeviceError
from mtplab.device.link import Link, connect, disconnect
from mtplab.device.sampler import Sampler
from mtplab.device.standin_host import StandinProcess

HZ = 10.0
ZONES = "/sys/class/thermal/thermal_zone"
# The best that a shell per sample can be: builtins only, types and temperatures of all zones at once.
ONE_SHOT = (
    f'for z in {ZONES}*; do t=; v=; read -r t <$z/type; read -r v <$z/temp; echo "${{z##*zone}} ${{v:-NA}} $t"; done'
    " 2>/dev/null"
)
WAYS = ("sampler", "shell per sample", "shell per zone")


class Cost:
    """CPU seconds of the stand-in's processes and of the host's side since it was made."""

    def __init__(self, standin: StandinProcess) -> None:
        self._phone = psutil.Process(standin.pid)
        self._adb = psutil.Process(standin.server.pid)
        self._began = self._now()

    def _now(self) -> tuple[float, float]:
        ended = self._phone.cpu_times()
        device = ended.children_user + ended.children_system
        for child in self._phone.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                used = child.cpu_times()
                device += used.user + used.system
        adb = self._adb.cpu_times()
        return device, time.process_time() + adb.user + adb.system

    def spent(self) -> tuple[float, float]:
        """Device and host seconds."""
        time.sleep(0.2)  # the last shell is being collected
        return tuple(now - then for now, then in zip(self._now(), self._began, strict=True))  # type: ignore[return-value]


class Row:
    """One way's figures in one repeat."""

    def __init__(self, samples: int, seconds: float, spent: tuple[float, float]) -> None:
        self.rate_hz = samples / seconds
        self.device_ms, self.host_ms = (1000.0 * part / samples for part in spent)


def persistent(link: Link, seconds: float, standin: StandinProcess | None) -> Row | int:
    """The sampler's own loop; figures from its first sample on. Without `standin` only the count of samples."""
    samples: list[float] = []
    with Sampler(link, HZ, lambda sample: samples.append(sample.t)):
        while not samples:
            time.sleep(0.01)
        first, cost = len(samples), Cost(standin) if standin else None
        began = time.monotonic()
        time.sleep(seconds)
        taken, lasted = len(samples) - first, time.monotonic() - began
        return Row(taken, lasted, cost.spent()) if cost else len(samples)


def shells(link: Link, seconds: float, standin: StandinProcess | None, commands: list[str]) -> Row | int:
    """A sample is one run of every command; the next begins a tenth of a second after the last began, or at once."""
    cost = Cost(standin) if standin else None
    began, taken = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for command in commands:
            link.run(command, timeout_s=30)
        taken += 1
        time.sleep(max(0.0, began + taken / HZ - time.monotonic()))
    lasted = time.monotonic() - began
    return Row(taken, lasted, cost.spent()) if cost else taken


def ways(zones: int) -> dict[str, Callable[[Link, float, StandinProcess | None], Row | int]]:
    """The three ways by name."""
    each = [f"cat {ZONES}{number}/temp" for number in range(zones)]
    return {
        WAYS[0]: persistent,
        WAYS[1]: lambda link, seconds, standin: shells(link, seconds, standin, [ONE_SHOT]),
        WAYS[2]: lambda link, seconds, standin: shells(link, seconds, standin, each),
    }


def wrapper_ms(link: Link, standin: StandinProcess, count: int = 30) -> tuple[float, float | None]:
    """CPU of an empty shell on the stand-in, and how much of it no phone would spend (None where it is not known)."""
    cost = Cost(standin)
    for _ in range(count):
        link.run(":")
    empty = 1000.0 * cost.spent()[0] / count
    mksh = shutil.which("mksh")
    if mksh is None or standin.control("status").get("backend") == "portable":
        return empty, None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(count):
        subprocess.run([mksh, "-c", ":"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare = 1000.0 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count
    return empty, max(0.0, empty - bare)


class CountingProxy:
    """A wire between the adb server and the stand-in on which packets and bytes are counted."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.packets, self.bytes = 0, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        reader = source.makefile("rb")
        with contextlib.suppress(OSError):
            while head := reader.read(24):  # command, two arguments, length, checksum, magic
                body = reader.read(int.from_bytes(head[12:16], "little"))
                self.packets, self.bytes = self.packets + 1, self.bytes + len(head) + len(body)
                sink.sendall(head + body)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nobody connect any more."""
        self._listener.close()


@contextlib.contextmanager
def counted(standin: StandinProcess) -> Iterator[tuple[Link, CountingProxy]]:
    """A link whose packets are counted."""
    proxy = CountingProxy(standin.serial)
    try:
        link = Link(standin.server, connect(standin.server, proxy.address))
        link.wait_for_return(10)
        yield link, proxy
        disconnect(standin.server, proxy.address)
    finally:
        proxy.close()


def round_trips(link: Link, count: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of two things, ours and adbutils' by serial, turn by turn.

    `empty command`: until its end is known. `opening`: until the phone has accepted a service, with no shell in it
    (a file service), which is what the host's side alone takes.
    """
    device = adbutils.AdbClient(host="127.0.0.1", port=link.server.port).device(link.serial)

    def open_theirs() -> None:
        with device.open_transport() as connection:
            connection.send_command("sync:")
            connection.check_okay()

    calls: dict[str, dict[str, Callable[[], object]]] = {
        "empty command": {
            "mtplab": lambda: link.run(":"),
            "adbutils shell": lambda: device.shell(":"),
            "adbutils shell2 v2": lambda: device.shell2(":", v2=True),
        },
        "opening": {"mtplab": lambda: link.open("sync:").close(), "adbutils": open_theirs},
    }
    found: dict[str, dict[str, list[float]]] = {what: {name: [] for name in ways} for what, ways in calls.items()}
    for turn in range(count):
        for what, by_name in calls.items():
            names = list(by_name) if turn % 2 == 0 else list(by_name)[::-1]
            for name in names:
                began = time.perf_counter()
                by_name[name]()
                found[what][name].append(1000.0 * (time.perf_counter() - began))
    return found


def spread(values: list[float], digits: int = 1) -> str:
    """Median with the lowest and the highest value."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def sampling(standin: StandinProcess, seconds: float, repeats: int) -> None:
    """The three ways in turns, then their packets; prints one table."""
    link = standin.link()
    zones = len(link.run(f"ls -d {ZONES}*").stdout.split())
    empty, wrapper = wrapper_ms(link, standin)
    told = "not known" if wrapper is None else f"{wrapper:.1f} ms of it the stand-in's wrapper"
    print(f"{zones} zones, {HZ:g} Hz wanted, {repeats} × {seconds:g} s; an empty shell takes {empty:.1f} ms, {told}")
    rows: dict[str, list[Row]] = {name: [] for name in WAYS}
    for _ in range(repeats):
        for name, way in ways(zones).items():
            row = way(link, seconds, standin)
            assert isinstance(row, Row)
            rows[name].append(row)
    starts = {WAYS[0]: 0, WAYS[1]: 1, WAYS[2]: zones}
    net = {name: [r.device_ms - starts[name] * (wrapper or 0.0) for r in rows[name]] for name in WAYS}
    heads = (("", 18), ("Hz", 18), ("device ms/sample", 24), ("÷ sampler", 24), ("host ms/sample", 22))
    print("".join(f"{head:>{wide}}" for head, wide in heads) + f"{'packets':>9}{'bytes':>8}")
    with counted(standin) as (link, proxy):
        for name, way in ways(zones).items():
            before = proxy.packets, proxy.bytes
            taken = way(link, 3.0, None)
            assert isinstance(taken, int)
            ratio = [other / own for other, own in zip(net[name], net[WAYS[0]], strict=True)]
            print(
                f"{name:18}{spread([r.rate_hz for r in rows[name]]):>18}{spread(net[name], 2):>24}{spread(ratio):>24}"
                f"{spread([r.host_ms for r in rows[name]], 2):>22}{(proxy.packets - before[0]) / taken:>9.1f}"
                f"{(proxy.bytes - before[1]) / taken:>8.0f}"
            )


def main() -> None:
    """Measures and prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--round-trips", type=int, default=60)
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    try:
        with StandinProcess(options=["--backend", options.backend]) as standin:
            print(f"SIMULATED: a stand-in phone, shell backend {standin.about.get('backend', options.backend)}")
            sampling(standin, options.seconds, options.repeats)
            print(f"\nround trips by serial, {options.round_trips} turns, ms: median (lowest–highest)")
            for what, by_name in round_trips(standin.link(), options.round_trips).items():
                for name, times in by_name.items():
                    ratio = [other / own for other, own in zip(times, by_name["mtplab"], strict=True)]
                    print(f"{what:15}{name:20}{spread(times, 2):>26}{'÷ mtplab ' + spread(ratio):>28}")
    except DeviceError as problem:
        raise SystemExit(str(problem)) from problem


if __name__ == "__main__":
    main()
