"""The texts of the phone's services, in the form the real ones have."""

from __future__ import annotations

from typing import Any

from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import HERE, Profile, read_toml
from mtplab.standin.state import Battery

AICORE = "com.google.android.aicore"
# A Pixel's cached section lags; here by a fixed amount, so that a parser that reads it is found out.
CACHED_LAG_C = 9.0


class Services:
    """Renders `dumpsys NAME` from the heat model."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._tables = profile.thermal
        self._last_cached: list[str] = []

    def thermalservice(self, model: HeatModel, hal_ready: bool = True, override: int | None = None) -> str:
        """As Android prints it: the cached section first (and stale), then the HAL's, if that one is ready.

        `override` is the status that `cmd thermalservice override-status` has pinned.
        """
        tables = self._tables
        status = model.status if override is None else override
        lines = [f"IsStatusOverride: {'false' if override is None else 'true'}"]
        for listeners, count in (("ThermalEventListeners", 8), ("ThermalStatusListeners", 2)):
            lines += [f"{listeners}:", f"\tcallbacks: {count}", "\tkilled: false", "\tbroadcasts count: -1"]
        if not hal_ready:
            return self._without_hal(lines, model, override)
        lines += [f"Thermal Status: {status}", "Cached temperatures:"]
        lines += [self._sensor(sensor, model, -CACHED_LAG_C) for sensor in reversed(tables["sensors"])]
        lines += ["HAL Ready: true", "HAL connection:", f"\t{tables['hal']}"]
        lines += ["Current temperatures from HAL:"]
        lines += [self._sensor(sensor, model, 0.0) for sensor in tables["sensors"]]
        lines += ["Current cooling devices from HAL:"]
        throttle = round((1.0 - min(model.clock.values())) * 10)
        for device in tables["cooling_devices"]:
            lines.append(f"\tCoolingDevice{{mValue={throttle}, mType={device['type']}, mName={device['name']}}}")
        lines += ["Temperature static thresholds from HAL:"]
        for row in tables["thresholds"]:
            cold = ", ".join(["NaN"] * 7)
            lines.append(
                f"\tTemperatureThreshold{{mType={row['type']}, mName={row['name']}, "
                f"mHotThrottlingThresholds=[{', '.join(row['hot'])}], mColdThrottlingThresholds=[{cold}]}}"
            )
        return "\n".join(lines) + "\n"

    def _without_hal(self, lines: list[str], model: HeatModel, override: int | None) -> str:
        """What the service knew before the HAL went away, for ever."""
        if not self._last_cached:
            self._last_cached = [self._sensor(sensor, model, 0.0) for sensor in reversed(self._tables["sensors"])]
        lines += [f"Thermal Status: {override or 0}", "Cached temperatures:", *self._last_cached, "HAL Ready: false"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _sensor(sensor: dict[str, Any], model: HeatModel, shift_c: float) -> str:
        if "follows" in sensor:
            value = f"{model.temperature_c[sensor['follows']] + sensor.get('offset_c', 0.0) + shift_c:.6g}"
        else:
            value = str(sensor["value"])
        status = model.status if sensor.get("status") else 0
        return f"\tTemperature{{mValue={value}, mType={sensor['type']}, mName={sensor['name']}, mStatus={status}}}"

    @staticmethod
    def battery(model: HeatModel, battery: Battery) -> str:
        """The battery service; what somebody set by hand stays until `reset`, and the service says so."""
        stopped = "  (UPDATES STOPPED -- use 'reset' to restart)\n" if battery.reported else ""
        text = "".join(f"  {name}: {value}\n" for name, value in battery.rows(model).items())
        return f"Current Battery Service state:\n{stopped}{text}"

    def settings(self) -> dict[str, object]:
        """The settings database of a new phone, keys `NAMESPACE.KEY`."""
        spaces = read_toml(HERE / "services.toml")["settings"].items()
        return {f"{space}.{key}": value for space, rows in spaces for key, value in rows.items()}

    def display(self) -> str:
        """Enough of the display service to learn the size of the screen and that it is on."""
        width, height = self._profile.display["size"].split("x")
        return (
            "DISPLAY MANAGER (dumpsys display)\n"
            f"  mViewports=[DisplayViewport{{type=INTERNAL, valid=true, orientation=0, "
            f"deviceWidth={width}, deviceHeight={height}}}]\n"
            "\nDisplay Power State:\n  mStopped=false\n  mScreenState=ON\n"
        )

    def aicore_package(self) -> str:
        """`dumpsys package`: an updated system app has two blocks, the active one first; others have one."""
        aicore = self._profile.aicore
        updated, enabled = aicore["form"] == "updated", 3 if aicore["form"] == "disabled" else 0
        text = (
            f"Packages:\n  Package [{AICORE}] (7c0ffee):\n"
            f"    versionCode={aicore['version_code']} minSdk=31 targetSdk={aicore['target_sdk']}\n"
            f"    versionName={aicore['version_name']}\n"
            f"    flags=[ SYSTEM HAS_CODE {'UPDATED_SYSTEM_APP ' if updated else ''}]\n"
            "    User 0: ceDataInode=4711 installed=true hidden=false suspended=false distractionFlags=0 "
            f"stopped=false notLaunched=false enabled={enabled} instant=false virtual=false\n"
        )
        if updated:
            text += (
                f"\nHidden system packages:\n  Package [{AICORE}] (1de5):\n"
                f"    versionCode=395592 minSdk=31 targetSdk={aicore['target_sdk']}\n"
                "    versionName=stub\n"
            )
        return text
