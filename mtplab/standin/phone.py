"""The phone's file tree: properties, services, stub commands, sensors; written once and then kept up to date."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mtplab.standin.dumpsys import AICORE, Services
from mtplab.standin.files import DeviceFiles
from mtplab.standin.kernel import KernelFiles
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import HERE, Profile, Scenario
from mtplab.standin.state import SystemState

SIM = "/dev/.sim"
FOLDERS = (
    "/system/bin", "/vendor/bin", "/data/local/tmp", "/data/media/0", "/etc", "/proc", "/tmp",
    "/sys/class/thermal", "/sys/class/power_supply/battery", "/sys/devices/system/cpu/cpufreq",
    f"{SIM}/dumpsys", f"{SIM}/run", "/storage/emulated",
)  # fmt: skip
LINKS = {"/sdcard": "/data/media/0", "/bin": "/system/bin", "/storage/emulated/0": "/data/media/0"}


class Phone:
    """Builds and refreshes what a shell on the device can read."""

    def __init__(self, files: DeviceFiles, profile: Profile, scenario: Scenario, model: HeatModel) -> None:
        self.files, self.profile, self.scenario, self.model = files, profile, scenario, model
        self._services = Services(profile)
        self.state = SystemState(files, profile)
        self.kernel = KernelFiles(files, profile, scenario, model, self.state)
        self._written: dict[str, str] = {}

    def build(self, backend: str) -> None:
        """Everything that does not move."""
        for folder in FOLDERS:
            Path(self.files.root + folder).mkdir(parents=True, exist_ok=True)
        for link, target in LINKS.items():
            path = Path(self.files.root + link)
            if not path.is_symlink():
                path.symlink_to(os.path.relpath(target, str(Path(link).parent)))
        self._write_settings()
        self._open_to_the_shell()
        self._write_properties(backend)
        self._write_stubs()
        self._write_static()
        self.refresh()

    def _open_to_the_shell(self) -> None:
        # Mode bits are the outer fence in a chroot, where the shell is another user than the server.
        modes = {"/data/local/tmp": 0o771, "/data/media/0": 0o770, f"{SIM}/run": 0o1777, f"{SIM}/settings": 0o771}
        for folder, mode in modes.items():
            Path(self.files.root + folder).chmod(mode)
        if os.geteuid() == 0:  # a root kept from a run with another backend may belong to another user
            for place in ("/data/local/tmp", "/data/media/0"):
                for folder, folders, names in os.walk(self.files.root + place):
                    for name in (".", *folders, *names):
                        self.files.give_to_shell(f"{folder.removeprefix(self.files.root)}/{name}")

    def _write_settings(self) -> None:
        """As the factory left them; what a user has set since then outlasts a restart, as on a phone."""
        folder = Path(f"{self.files.root}{SIM}/settings")
        if folder.is_dir():
            return
        folder.mkdir()
        for name, value in self._services.settings().items():
            self.files.write(f"{SIM}/settings/{name}", f"{value}\n")

    def _write_properties(self, backend: str) -> None:
        properties = {**self.profile.properties, "ro.mtplab.backend": backend}
        properties |= {"ro.mtplab.scenario": self.scenario.name, "ro.mtplab.profile": self.profile.name}
        properties["ro.mtplab.likeness"] = f"{self.profile.likeness}; a likeness, not a measurement"
        self.files.write(f"{SIM}/props", "".join(f"{key}={value}\n" for key, value in properties.items()))

    def _write_stubs(self) -> None:
        for stub in sorted((HERE / "stubs").glob("*.sh")):
            body = stub.read_text(encoding="utf-8")
            for name in body.partition("\n")[0].removeprefix("# names:").split():
                self.files.write(f"/system/bin/{name}", f"#!/system/bin/sh\n{body}", 0o755)

    def _write_static(self) -> None:
        profile, write = self.profile, self.files.write
        self.kernel.write_static()
        write("/etc/passwd", "root:x:0:0::/:/system/bin/sh\nshell:x:2000:2000::/:/system/bin/sh\n")
        write("/etc/group", "root:x:0:\nshell:x:2000:\n")
        write("/system/build.prop", "# see getprop\n")
        write(f"{SIM}/logcat", "--------- beginning of main\n", 0o666)
        facts = {"cpus": sum(len(policy.cpus) for policy in profile.policies), "kernel": profile.kernel}
        facts |= {f"wm_{name}": value for name, value in profile.display.items()}
        facts["hostname"] = "localhost"
        write(f"{SIM}/facts", "".join(f"{key}={value}\n" for key, value in facts.items()))
        write(f"{SIM}/dumpsys/display", self._services.display())
        package = Path(f"{self.files.root}{SIM}/dumpsys/package.{AICORE}")
        packages = ["com.android.shell", "com.google.android.gms"]
        if self.scenario.aicore_installed and profile.aicore["form"] != "absent":
            packages.append(AICORE)
            write(f"{SIM}/dumpsys/package.{AICORE}", self._services.aicore_package())
        else:
            package.unlink(missing_ok=True)
        write(f"{SIM}/packages", "".join(f"{name}\n" for name in packages))

    def refresh(self, programs_kib: int = 0) -> None:
        """Bring sensors, clocks and service texts up to the heat model."""
        self.kernel.refresh(programs_kib)
        self.refresh_services()
        self._update(f"{SIM}/clock", "".join(f"{die} {share:.4f}\n" for die, share in self.model.clock.items()))

    def refresh_services(self) -> None:
        """Bring the texts of the services up to what is so now."""
        model, state = self.model, self.state
        thermal = self._services.thermalservice(model, self.scenario.hal_ready, state.thermal_override)
        self._update(f"{SIM}/dumpsys/thermalservice", thermal)
        self._update(f"{SIM}/dumpsys/battery", self._services.battery(model, state.battery))

    def write_uptime(self) -> None:
        """The device's clock is the host's monotonic clock, so that stamps and uptime share one axis."""
        now = time.monotonic()
        self.files.write("/proc/uptime", f"{now:.2f} {now * 6:.2f}\n")

    def write_space(self, df_line: str) -> None:
        """What `df` says."""
        self._update(f"{SIM}/df", df_line)

    def _update(self, path: str, text: str) -> None:
        if self._written.get(path) != text:
            self._written[path] = text
            self.files.write(path, text, 0o444)
