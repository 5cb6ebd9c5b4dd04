"""The texts of the phone's services, in the form the real ones have."""

from __future__ import annotations

from typing import Any

from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import HERE, Profile, read_toml

AICORE = "com.google.android.aicore"
# A Pixel's cached section lags; here by a fixed amount, so that a parser that reads it is found out.
CACHED_LAG_C = 9.0


class Services:
    """Renders `dumpsys NAME` from the heat model."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._tables = read_toml(HERE / "services.toml")
        self._last_cached: list[str] = []

    def thermalservice(self, model: HeatModel, hal_ready: bool = True) -> str:
        """As Android prints it: the cached section first (and stale), then the HAL's, if that one is ready."""
        tables = self._tables
        lines = ["IsStatusOverride: false"]
        for listeners, count in (("ThermalEventListeners", 8), ("ThermalStatusListeners", 2)):
            lines += [f"{listeners}:", f"\tcallbacks: {count}", "\tkilled: false", "\tbroadcasts count: -1"]
        if not hal_ready:
            return self._without_hal(lines, model)
        lines += [f"Thermal Status: {model.status}", "Cached temperatures:"]
        lines += [self._sensor(sensor, model, -CACHED_LAG_C) for sensor in reversed(tables["sensors"])]
        lines += ["HAL Ready: true", "HAL connection:", "\tThermalHAL AIDL 1  connected: yes"]
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

    def _without_hal(self, lines: list[str], model: HeatModel) -> str:
        """What the service knew before the HAL went away, for ever."""
        if not self._last_cached:
            self._last_cached = [self._sensor(sensor, model, 0.0) for sensor in reversed(self._tables["sensors"])]
        lines += ["Thermal Status: 0", "Cached temperatures:", *self._last_cached, "HAL Ready: false"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _sensor(sensor: dict[str, Any], model: HeatModel, shift_c: float) -> str:
        if "follows" in sensor:
            value = f"{model.temperature_c[sensor['follows']] + sensor.get('offset_c', 0.0) + shift_c:.6g}"
        else:
            value = str(sensor["value"])
        status = model.status if sensor.get("status") else 0
        return f"\tTemperature{{mValue={value}, mType={sensor['type']}, mName={sensor['name']}, mStatus={status}}}"

    def battery(self, model: HeatModel) -> str:
        """Temperature in tenths of a degree, voltage in millivolts, as on a phone."""
        battery = self._profile.battery
        charge = battery["capacity_uah"] * battery["level"] // 100
        rows = {
            "AC powered": "false",
            "USB powered": "true",
            "Wireless powered": "false",
            "Dock powered": "false",
            "Max charging current": 500000,
            "Max charging voltage": 5000000,
            "Charge counter": charge,
            "status": 2,
            "health": 2,
            "present": "true",
            "level": battery["level"],
            "scale": 100,
            "voltage": battery["voltage_mv"],
            "temperature": round(model.temperature_c["battery"] * 10),
            "technology": "Li-ion",
        }
        text = "".join(f"  {name}: {value}\n" for name, value in rows.items())
        return "Current Battery Service state:\n" + text

    def settings(self) -> dict[str, object]:
        """The settings database of a new phone, keys `NAMESPACE.KEY`."""
        spaces = self._tables["settings"].items()
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
        """`dumpsys package` of an updated system app: the active block first, the hidden one after it."""
        aicore = self._profile.aicore
        return (
            f"Packages:\n  Package [{AICORE}] (7c0ffee):\n"
            f"    versionCode={aicore['version_code']} minSdk=31 targetSdk={aicore['target_sdk']}\n"
            f"    versionName={aicore['version_name']}\n"
            "    flags=[ SYSTEM HAS_CODE UPDATED_SYSTEM_APP ]\n\n"
            f"Hidden system packages:\n  Package [{AICORE}] (1de5):\n"
            f"    versionCode=395592 minSdk=31 targetSdk={aicore['target_sdk']}\n"
            "    versionName=stub\n"
        )
