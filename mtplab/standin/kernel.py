"""What the kernel shows under /proc and /sys: clocks, zones, load, memory, GPU, NPU, charger."""

from __future__ import annotations

import random
import time

from mtplab.standin.files import DeviceFiles
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import Policy, Profile, Scenario, Zone
from mtplab.standin.state import SystemState

THERMAL = "/sys/class/thermal"
CPU = "/sys/devices/system/cpu"
NOISE_MILLI_C = 60.0
TICKS_HZ = 100  # the unit of /proc/stat
# What is in use before any program runs, as shares of the whole memory.
SHARES = {"MemFree": 0.12, "Buffers": 0.001, "Cached": 0.36, "Active": 0.28, "Inactive": 0.3, "Slab": 0.05}
AVAILABLE_SHARE = 0.5


class KernelFiles:
    """Writes those files once, and then again whenever what they show has changed."""

    def __init__(
        self, files: DeviceFiles, profile: Profile, scenario: Scenario, model: HeatModel, state: SystemState
    ) -> None:
        self._files, self._profile, self._scenario = files, profile, scenario
        self._model, self._state = model, state
        self._noise = random.Random(f"{profile.name}/{scenario.name}/{scenario.seed}")
        self._written: dict[str, str] = {}
        self._cpus = sorted((cpu, policy) for policy in profile.policies for cpu in policy.cpus)
        self._busy_ticks = {cpu: 0.0 for cpu, _ in self._cpus}
        self._idle_ticks = {cpu: 0.0 for cpu, _ in self._cpus}
        self._averages = [0.0, 0.0, 0.0]
        self._gpu_ms = dict.fromkeys(profile.gpu.get("steps_khz", []), 0.0)
        self._refreshed = time.monotonic()

    # --- what does not move

    def write_static(self) -> None:
        """Everything that the refresh leaves alone."""
        profile, write = self._profile, self._files.write
        write("/proc/version", f"Linux version {profile.kernel} (mtplab@standin) #1 SMP PREEMPT\n")
        write(
            "/proc/cpuinfo",
            "".join(
                f"processor\t: {cpu}\nBogoMIPS\t: 49.15\n"
                "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm asimddp i8mm\n"
                f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {policy.part}\n"
                "CPU revision\t: 1\n\n"
                for cpu, policy in self._cpus
            ),
        )
        listed = f"0-{len(self._cpus) - 1}\n"
        for name in ("possible", "present", "online"):
            write(f"{CPU}/{name}", listed)
        if profile.npu_counter is not None:
            write(profile.npu_counter, "0 0 0\n")
        for number, zone in enumerate(profile.zones):
            mode = 0o000 if self._scenario.zones_denied else 0o444
            write(f"{THERMAL}/thermal_zone{number}/type", f"{zone.type}\n", mode)
        for policy in profile.policies:
            folder = f"{CPU}/cpufreq/{policy.name}"
            write(f"{folder}/cpuinfo_min_freq", f"{policy.min_khz}\n")
            write(f"{folder}/cpuinfo_max_freq", f"{policy.max_khz}\n")
            write(f"{folder}/scaling_min_freq", f"{policy.min_khz}\n")
            write(f"{folder}/scaling_governor", f"{profile.governor}\n")
            for name in ("affected_cpus", "related_cpus"):
                write(f"{folder}/{name}", " ".join(map(str, policy.cpus)) + "\n")
        self._write_gpu_static()

    def _write_gpu_static(self) -> None:
        gpu, write = self._profile.gpu, self._files.write
        steps = gpu.get("steps_khz", [])
        if gpu["kind"] == "mali":
            write(f"{gpu['folder']}/scaling_min_freq", f"{steps[0]}\n")
            write(f"{gpu['folder']}/power_policy", "coarse_demand [adaptive] always_on\n")
            write(f"{gpu['folder']}/available_frequencies", " ".join(map(str, reversed(steps))) + "\n")
            write(f"{gpu['folder']}/gpuinfo", f"{gpu['model']} 7 cores r1p2 0x0B080A02\n")
        elif gpu["kind"] == "kgsl":
            write(f"{gpu['folder']}/gpu_model", f"{gpu['model']}\n")
            write(f"{gpu['folder']}/max_gpuclk", f"{steps[-1] * 1000}\n")
            write(f"{gpu['folder']}/devfreq/governor", "msm-adreno-tz\n")
            write(f"{gpu['folder']}/devfreq/min_freq", f"{steps[0] * 1000}\n")
            in_hz = " ".join(str(khz * 1000) for khz in reversed(steps))
            for name in ("gpu_available_frequencies", "devfreq/available_frequencies"):
                write(f"{gpu['folder']}/{name}", f"{in_hz}\n")

    # --- what moves

    def refresh(self, programs_kib: int = 0) -> None:
        """Bring the files up to the heat model; `programs_kib` is what the running programs hold of the memory."""
        now = time.monotonic()
        elapsed, self._refreshed = now - self._refreshed, now
        for number, zone in enumerate(self._profile.zones):
            path = f"{THERMAL}/thermal_zone{number}/temp"
            mode = 0o444 if zone.readable and not self._scenario.zones_denied else 0o000
            self._update(path, f"{self._zone_milli_c(zone)}\n", mode)
        for policy in self._profile.policies:
            self._refresh_policy(policy)
        self._refresh_gpu(elapsed)
        self._refresh_stat(elapsed, now)
        self._refresh_memory(programs_kib)
        for name, value in self._state.battery.supply(self._model).items():
            self._update(f"/sys/class/power_supply/battery/{name}", f"{value}\n")

    def _refresh_policy(self, policy: Policy) -> None:
        span, clock = policy.max_khz - policy.min_khz, self._model.clock[policy.die]
        limit = max(policy.min_khz, int(policy.max_khz * clock))
        load = min(1.0, self._model.load.get(policy.die, 0.0) * 1.25)
        now = policy.min_khz + int((limit - policy.min_khz) * load) if span else limit
        folder = f"{CPU}/cpufreq/{policy.name}"
        self._update(f"{folder}/scaling_max_freq", f"{limit}\n")
        self._update(f"{folder}/scaling_cur_freq", f"{now}\n")

    def _refresh_gpu(self, elapsed_s: float) -> None:
        gpu, load = self._profile.gpu, self._model.load.get("G3D", 0.0)
        if gpu["kind"] == "hidden":
            return
        steps: list[int] = gpu["steps_khz"]
        limit = next(khz for khz in reversed(steps) if khz <= steps[-1] * self._model.clock["G3D"] or khz == steps[0])
        now = next(khz for khz in steps if khz >= limit * min(1.0, load * 1.25) or khz == steps[-1])
        self._gpu_ms[now] += elapsed_s * 1000
        percent, folder = round(load * 100), gpu["folder"]
        if gpu["kind"] == "mali":
            times = "".join(f"{khz} {round(ms)}\n" for khz, ms in reversed(self._gpu_ms.items()))
            texts = {"cur_freq": f"{now}\n", "scaling_max_freq": f"{limit}\n", "utilization": f"{percent}\n"}
            texts["time_in_state"] = times
        else:
            busy = round(load * 1_000_000)
            texts = {"gpuclk": f"{now * 1000}\n", "devfreq/cur_freq": f"{now * 1000}\n"}
            texts |= {"gpu_busy_percentage": f"{percent} %\n", "gpubusy": f"{busy} 1000000\n"}
            texts["devfreq/max_freq"] = f"{limit * 1000}\n"
        for name, text in texts.items():
            self._update(f"{folder}/{name}", text)

    def _refresh_stat(self, elapsed_s: float, now: float) -> None:
        """/proc/stat and /proc/loadavg follow the loads that also make the heat."""
        running = 0.0
        for cpu, policy in self._cpus:
            load = min(1.0, self._model.load.get(policy.die, 0.0))
            running += load
            self._busy_ticks[cpu] += load * elapsed_s * TICKS_HZ
            self._idle_ticks[cpu] += (1.0 - load) * elapsed_s * TICKS_HZ
        rows = []
        for cpu, _ in self._cpus:
            busy, idle = self._busy_ticks[cpu], self._idle_ticks[cpu]
            rows.append((f"cpu{cpu}", int(busy * 0.85), int(busy * 0.15), int(idle)))
        total = [sum(row[i] for row in rows) for i in (1, 2, 3)]  # type: ignore[misc]
        lines = [f"cpu  {total[0]} 0 {total[1]} {total[2]} 0 0 0 0 0 0"]
        lines += [f"{name} {user} 0 {system} {idle} 0 0 0 0 0 0" for name, user, system, idle in rows]
        lines += [f"btime {int(time.time() - now)}", f"procs_running {1 + round(running)}", "procs_blocked 0"]
        self._update("/proc/stat", "\n".join(lines) + "\n")
        for i, minutes in enumerate((1, 5, 15)):
            share = min(1.0, elapsed_s / (60.0 * minutes))
            self._averages[i] += (running - self._averages[i]) * share
        averages = " ".join(f"{value:.2f}" for value in self._averages)
        self._update("/proc/loadavg", f"{averages} {1 + round(running)}/{len(self._cpus) * 60} 4711\n")

    def averages(self) -> tuple[float, float, float]:
        """Load averages over 1, 5 and 15 minutes."""
        first, second, third = self._averages
        return first, second, third

    def available_kib(self) -> int:
        """What programs may take before the low-memory killer comes."""
        if self._scenario.memory_limit_mib is not None:
            return self._scenario.memory_limit_mib * 1024
        return int(self._profile.memory_kib * AVAILABLE_SHARE)

    def _refresh_memory(self, programs_kib: int) -> None:
        total = self._profile.memory_kib
        available = max(0, self.available_kib() - programs_kib)
        free = min(int(total * SHARES["MemFree"]), available)
        rows = {"MemTotal": total, "MemFree": free, "MemAvailable": available}
        rows |= {name: int(total * share) for name, share in SHARES.items() if name != "MemFree"}
        rows |= {"SwapTotal": total // 2, "SwapFree": total // 3}
        self._update("/proc/meminfo", "".join(f"{name + ':':<16}{kib:8d} kB\n" for name, kib in rows.items()))

    def _zone_milli_c(self, zone: Zone) -> int:
        if zone.follows is None:
            return zone.value_milli or 0
        noise = self._noise.gauss(0.0, NOISE_MILLI_C)
        return round((self._model.temperature_c[zone.follows] + zone.offset_c) * 1000 + noise)

    def _update(self, path: str, text: str, mode: int = 0o444) -> None:
        if self._written.get(path) != text:
            self._written[path] = text
            self._files.write(path, text, mode)
