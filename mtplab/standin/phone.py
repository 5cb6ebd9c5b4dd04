"""The phone's file tree: properties, services, stub commands, sensors; written once and then kept up to date."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from mtplab.standin.counters import Counters
from mtplab.standin.dumpsys import AICORE, Services
from mtplab.standin.files import DeviceFiles
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import HERE, Policy, Profile, Scenario, Zone

SIM = "/dev/.sim"
FOLDERS = (
    "/system/bin", "/vendor/bin", "/data/local/tmp", "/data/media/0", "/etc", "/proc", "/tmp",
    "/sys/class/thermal", "/sys/class/power_supply/battery", "/sys/devices/system/cpu/cpufreq",
    f"{SIM}/dumpsys", f"{SIM}/run", "/storage/emulated",
)  # fmt: skip
LINKS = {"/sdcard": "/data/media/0", "/bin": "/system/bin", "/storage/emulated/0": "/data/media/0"}
THERMAL = "/sys/class/thermal"
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
NOISE_MILLI_C = 60.0


class Phone:
    """Builds and refreshes what a shell on the device can read."""

    def __init__(self, files: DeviceFiles, profile: Profile, scenario: Scenario, model: HeatModel) -> None:
        self.files, self.profile, self.scenario, self.model = files, profile, scenario, model
        self._services = Services(profile)
        self._counters = Counters(profile)
        self._noise = random.Random(f"{profile.name}/{scenario.name}")
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
        properties["ro.mtplab.scenario"] = self.scenario.name
        self.files.write(f"{SIM}/props", "".join(f"{key}={value}\n" for key, value in properties.items()))

    def _write_stubs(self) -> None:
        for stub in sorted((HERE / "stubs").glob("*.sh")):
            body = stub.read_text(encoding="utf-8")
            for name in body.partition("\n")[0].removeprefix("# names:").split():
                self.files.write(f"/system/bin/{name}", f"#!/system/bin/sh\n{body}", 0o755)

    def _write_static(self) -> None:
        profile, write = self.profile, self.files.write
        cpus = [(cpu, policy) for policy in profile.policies for cpu in policy.cpus]
        parts = dict(zip(("LITTLE", "MID", "BIG"), profile.cpu_parts, strict=True))
        write("/proc/version", f"Linux version {profile.kernel} (mtplab@standin) #1 SMP PREEMPT\n")
        write(
            "/proc/cpuinfo",
            "".join(
                f"processor\t: {cpu}\nBogoMIPS\t: 49.15\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
                f"CPU part\t: {parts[policy.die]}\n\n"
                for cpu, policy in cpus
            ),
        )
        total = profile.memory_kib
        write(
            "/proc/meminfo",
            f"MemTotal:       {total:8d} kB\nMemFree:        {total // 5:8d} kB\n"
            f"MemAvailable:   {total // 2:8d} kB\n",
        )
        write("/etc/passwd", "root:x:0:0::/:/system/bin/sh\nshell:x:2000:2000::/:/system/bin/sh\n")
        write("/etc/group", "root:x:0:\nshell:x:2000:\n")
        write("/system/build.prop", "# see getprop\n")
        if profile.npu_counter is not None:
            write(profile.npu_counter, "0 0 0\n")
        write(f"{SIM}/logcat", "--------- beginning of main\n", 0o666)
        facts = {"cpus": len(cpus), "kernel": profile.kernel, "hostname": "localhost"}
        facts |= {"wm_size": profile.display["size"], "wm_density": profile.display["density"]}
        write(f"{SIM}/facts", "".join(f"{key}={value}\n" for key, value in facts.items()))
        write(f"{SIM}/dumpsys/display", self._services.display())
        package = Path(f"{self.files.root}{SIM}/dumpsys/package.{AICORE}")
        packages = ["com.android.shell", "com.google.android.gms"]
        if self.scenario.aicore_installed:
            packages.append(AICORE)
            write(f"{SIM}/dumpsys/package.{AICORE}", self._services.aicore_package())
        else:
            package.unlink(missing_ok=True)
        write(f"{SIM}/packages", "".join(f"{name}\n" for name in packages))
        for number, zone in enumerate(profile.zones):
            mode = 0o000 if self.scenario.zones_denied else 0o444
            write(f"{THERMAL}/thermal_zone{number}/type", f"{zone.type}\n", mode)
        for policy in profile.policies:
            folder = f"{CPUFREQ}/{policy.name}"
            write(f"{folder}/cpuinfo_min_freq", f"{policy.min_khz}\n")
            write(f"{folder}/cpuinfo_max_freq", f"{policy.max_khz}\n")
            write(f"{folder}/scaling_min_freq", f"{policy.min_khz}\n")
            write(f"{folder}/scaling_governor", "sched_pixel\n")
            for name in ("affected_cpus", "related_cpus"):
                write(f"{folder}/{name}", " ".join(map(str, policy.cpus)) + "\n")

    def refresh(self) -> None:
        """Bring sensors, clocks and service texts up to the heat model."""
        for number, zone in enumerate(self.profile.zones):
            path = f"{THERMAL}/thermal_zone{number}/temp"
            mode = 0o444 if zone.readable and not self.scenario.zones_denied else 0o000
            self._update(path, f"{self._zone_milli_c(zone)}\n", mode)
        for policy in self.profile.policies:
            self._refresh_policy(policy)
        model = self.model
        for path, text in self._counters.files(model):
            self._update(path, text)
        self._update(f"{SIM}/dumpsys/thermalservice", self._services.thermalservice(model, self.scenario.hal_ready))
        self._update(f"{SIM}/dumpsys/battery", self._services.battery(model))
        supply = {
            "temp": round(model.temperature_c["battery"] * 10),
            "capacity": self.profile.battery["level"],
            "voltage_now": self.profile.battery["voltage_mv"] * 1000,
            "current_now": -round(model.total_w() / self.profile.battery["voltage_mv"] * 1e9),
            "status": "Charging",
        }
        for name, value in supply.items():
            self._update(f"/sys/class/power_supply/battery/{name}", f"{value}\n")
        self._update(f"{SIM}/clock", "".join(f"{die} {share:.4f}\n" for die, share in model.clock.items()))

    def write_uptime(self) -> None:
        """The device's clock is the host's monotonic clock, so that stamps and uptime share one axis."""
        now = time.monotonic()
        self.files.write("/proc/uptime", f"{now:.2f} {now * 6:.2f}\n")

    def write_space(self, df_line: str) -> None:
        """What `df` says."""
        self._update(f"{SIM}/df", df_line)

    def _refresh_policy(self, policy: Policy) -> None:
        span, clock = policy.max_khz - policy.min_khz, self.model.clock[policy.die]
        limit = max(policy.min_khz, int(policy.max_khz * clock))
        load = min(1.0, self.model.load.get(policy.die, 0.0) * 1.25)
        now = policy.min_khz + int((limit - policy.min_khz) * load) if span else limit
        self._update(f"{CPUFREQ}/{policy.name}/scaling_max_freq", f"{limit}\n")
        self._update(f"{CPUFREQ}/{policy.name}/scaling_cur_freq", f"{now}\n")

    def _zone_milli_c(self, zone: Zone) -> int:
        if zone.follows is None:
            return zone.value_milli or 0
        noise = self._noise.gauss(0.0, NOISE_MILLI_C)
        return round((self.model.temperature_c[zone.follows] + zone.offset_c) * 1000 + noise)

    def _update(self, path: str, text: str, mode: int = 0o444) -> None:
        if self._written.get(path) != text:
            self._written[path] = text
            self.files.write(path, text, mode)
