"""What Android keeps in mind: the battery as it is reported, a pinned thermal status, settings, the screen."""

from __future__ import annotations

from pathlib import Path

from mtplab.standin.files import DeviceFiles
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import Profile

SETTINGS = "/dev/.sim/settings"
USB_W = 2.5  # 500 mA at 5 V, what a computer's port gives at least
ASLEEP_SAVES, AIRPLANE_SAVES = 0.35, 0.12  # of the power of a phone at rest


class Battery:
    """Charge and charger; `dumpsys battery set` changes only what is reported, as on a phone."""

    def __init__(self, profile: Profile) -> None:
        self._facts = profile.battery
        self.level = float(profile.battery["level"])
        self.reported: dict[str, str] = {}

    def step(self, seconds: float, drawn_w: float) -> None:
        """Let time pass: the cable gives, the phone takes."""
        capacity_ws = self._facts["capacity_uah"] * 1e-6 * self._facts["voltage_mv"] * 1e-3 * 3600
        self.level = min(100.0, max(1.0, self.level + (USB_W - drawn_w) * seconds / capacity_ws * 100))

    def rows(self, model: HeatModel) -> dict[str, str]:
        """The fields of `dumpsys battery` in its order; temperature in tenths of a degree, voltage in mV."""
        level = int(self.level)
        rows = {
            "AC powered": "false", "USB powered": "true", "Wireless powered": "false", "Dock powered": "false",
            "Max charging current": "500000", "Max charging voltage": "5000000",
            "Charge counter": str(int(self._facts["capacity_uah"] * self.level / 100)),
            "status": "5" if level >= 100 else "2", "health": "2", "present": "true", "level": str(level),
            "scale": "100", "voltage": str(self._facts["voltage_mv"]),
            "temperature": str(round(model.temperature_c["battery"] * 10)), "technology": "Li-ion",
        }  # fmt: skip
        return {**rows, **self.reported}

    def powered(self, model: HeatModel) -> bool:
        """True when some charger is reported."""
        return any(value == "true" for name, value in self.rows(model).items() if name.endswith("powered"))

    def supply(self, model: HeatModel) -> dict[str, object]:
        """The charger's files under /sys/class/power_supply/battery."""
        voltage_mv = self._facts["voltage_mv"]
        return {
            "temp": round(model.temperature_c["battery"] * 10),
            "capacity": int(self.level),
            "voltage_now": voltage_mv * 1000,
            "current_now": round((USB_W - model.total_w()) / voltage_mv * 1e9),
            "status": "Charging",
        }


class SystemState:
    """The one place where the phone's services keep what outlasts a command."""

    def __init__(self, files: DeviceFiles, profile: Profile) -> None:
        self._files = files
        self.battery = Battery(profile)
        self.thermal_override: int | None = None

    def setting(self, namespace: str, key: str) -> str | None:
        """A value of the settings database; None where there is none."""
        return self._read(f"{namespace}.{key}")

    def is_awake(self) -> bool:
        """False while the screen is off."""
        return (self._read("wakefulness") or "Awake") == "Awake"

    def _read(self, name: str) -> str | None:
        # The shell user may put anything in that folder: only a plain file counts.
        path = Path(f"{self._files.root}{SETTINGS}/{name}")
        try:
            return None if path.is_symlink() else path.read_text(encoding="utf-8", errors="replace").strip()[:4096]
        except OSError:
            return None

    def rest_share(self) -> float:
        """The share of its usual power that the phone takes at rest as it is set now."""
        share = 1.0
        if not self.is_awake():
            share -= ASLEEP_SAVES
        if self.setting("global", "airplane_mode_on") == "1":
            share -= AIRPLANE_SAVES
        return share
