"""The sampler's loop on the phone, and the reader of the frames it prints."""

from __future__ import annotations

import re

from mtplab.device.counters import CoreTimes, LoadMeter, khz
from mtplab.device.thermal import NO_TEMPERATURE, Clock, ThermalSample, is_no_temperature, zone_celsius

# Plain POSIX sh, builtins only inside the loop. Two things are better than POSIX has them in Android's shell, and are
# tried first: `read` with a fractional time limit (a pause without a fork, which ends at end of file, so that nothing
# stays on the phone) and `$(<file)` (one read in place of one for each byte; elsewhere it gives nothing). Paths are
# collected once: a zone that appears later cannot shift the others, and zones without a temperature are left out.
# One `echo` a frame: one packet. What changes slowly or is dear is asked for less often.
_LOOP = r"""
nl='
'
zs=; head='#H 3'
for z in /sys/class/thermal/thermal_zone*; do
  [ -d "$z" ] || continue
  t=; read -r t <"$z/type"
  case $t in @NO_TEMPERATURE@) continue;; esac
  zs="$zs $z/temp"; head="$head$nl#Z ${z##*thermal_zone} $t"
done
ps=; ks=
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  [ -d "$p" ] || continue
  m=; r=; read -r m _ <"$p/cpuinfo_max_freq"; read -r r <"$p/related_cpus"
  ps="$ps $p/scaling_cur_freq"; ks="$ks $p/scaling_max_freq"; head="$head$nl#P ${p##*/} ${m:-NA} $r"
done
g=
for d in /sys/class/kgsl/kgsl-3d0/devfreq /sys/devices/platform/*.mali /sys/class/devfreq/*.mali; do
  a=; f=; read -r a _ <"$d/cur_freq"
  [ -n "$a" ] || continue
  read -r f <"$d/available_frequencies"; gc=$d/max_freq; gb=$d/utilization; head="$head$nl#U $f"
  if [ -f "$d/scaling_max_freq" ]; then gc=$d/scaling_max_freq; fi
  if [ -f "${d%/devfreq}/gpu_busy_percentage" ]; then gb=${d%/devfreq}/gpu_busy_percentage; fi
  g="$d/cur_freq $gc $gb"
  break
done
read -r -t 0.01 x; rc=$?
if [ $rc -gt 128 ]; then how=read; elif sleep 0.01; then how=sleep; else how=seconds; fi
q=$(</proc/uptime)
echo "$head$nl#G $how"
# The first word of each file of $1, as one line: into $l.
words() {
  l=
  if [ -n "$q" ]; then
    for z in $1; do v=$(<"$z"); v=${v%%[!0-9-]*}; l="$l ${v:-NA}"; done
  else
    for z in $1; do v=; read -r v _ <"$z"; l="$l ${v:-NA}"; done
  fi
}
n=0
while :; do
  if [ $((n % @COST_EVERY@)) -eq 0 ]; then echo '#T'; times; fi
  u=; read -r u _ </proc/uptime
  words "$zs"; f="T$l"
  words "$ps"; f="$f${nl}C$l"
  if [ $((n % @SLOW_EVERY@)) -eq 0 ]; then
    words "$ks"; f="$f${nl}K$l"
    if [ -n "$g" ]; then words "$g"; f="$f${nl}U$l"; fi
  fi
  if [ $((n % @LOAD_EVERY@)) -eq 0 ]; then
    s=
    if [ -n "$q" ]; then
      s=$(</proc/stat); s=$nl${s%%"$nl"[!c]*}
    else
      while read -r a k; do case $a in cpu*) s="$s$nl$a $k";; *) break;; esac; done </proc/stat
    fi
    f="$f$s"
  fi
  echo "#B $n ${u:-NA}$nl$f$nl#E $n" || exit 0
  n=$((n+1))
  case $how in
    read) read -r -t @INTERVAL@ x; [ $? -eq 1 ] && exit 0;;
    sleep) sleep @INTERVAL@;;
    *) sleep 1;;
  esac
done
"""
SLOW_PERIOD_S, LOAD_PERIOD_S, COST_PERIOD_S = 0.5, 1.0, 2.5
# A shell tells its CPU time in hundredths of a second: less than this is mostly rounding.
_LEAST_CPU_S = 0.03
_TIME = re.compile(r"(\d{1,7})m(\d{1,2}(?:\.\d{1,9})?)s", re.ASCII)


def loop_script(interval_s: float) -> str:
    """The loop for the phone's shell, one frame every `interval_s` seconds and the work in between."""
    script = _LOOP.replace("@INTERVAL@", f"{interval_s:g}").replace("@NO_TEMPERATURE@", "|".join(NO_TEMPERATURE))
    for name, period_s in (("SLOW", SLOW_PERIOD_S), ("LOAD", LOAD_PERIOD_S), ("COST", COST_PERIOD_S)):
        script = script.replace(f"@{name}_EVERY@", str(max(1, round(period_s / interval_s))))
    return script


def parse_times(lines: list[str]) -> float | None:
    """CPU seconds of a shell and its children by the two lines of `times`; None for anything else."""
    found = [_TIME.fullmatch(word) for line in lines for word in line.split()]
    if len(lines) != 2 or len(found) != 4 or None in found:
        return None
    return sum(60 * int(m.group(1)) + float(m.group(2)) for m in found if m is not None)


class FrameReader:
    """Turns the loop's lines into samples. Anything that is not a whole, well-formed frame is counted and dropped."""

    def __init__(self) -> None:
        self.rejected = 0
        self.duplicates = 0
        self.pacing: str | None = None
        self._zones: list[str] = []
        self._policies: list[tuple[str, int | None]] = []
        self._cores: dict[str, str] = {}
        self._caps: dict[str, int | None] = {}
        self._gpu: Clock | None = None
        self._frame: list[str] | None = None
        self._times: list[str] | None = None
        self._cpu: list[tuple[int, float]] = []
        self._load = LoadMeter()
        self._last_seq = -1

    @property
    def zone_count(self) -> int:
        """Zones that the loop reads: all that have a temperature."""
        return len(self._zones)

    @property
    def device_ms(self) -> float | None:
        """CPU time of the loop on the phone per sample; None until the phone's clock has told it to a third or so."""
        if len(self._cpu) < 2:
            return None
        (first, began_s), (last, ended_s) = self._cpu[0], self._cpu[-1]
        if last <= first or ended_s - began_s < _LEAST_CPU_S:
            return None
        return 1000.0 * (ended_s - began_s) / (last - first)

    def feed(self, line: str, t: float) -> ThermalSample | None:
        """The sample that this line completes, if any."""
        kind, _, rest = line.partition(" ")
        if kind in ("#Z", "#P", "#U") and self.pacing is None:
            self._head(kind, rest)
        elif kind == "#G":
            self.pacing = rest if rest in ("read", "sleep", "seconds") else "unknown"
        elif kind == "#T":
            self._times = []
        elif kind == "#B":
            self.rejected += self._frame is not None
            self._frame, self._times = [line], None
        elif kind == "#E" and self._frame is not None:
            frame, self._frame = [*self._frame, line], None
            return self._whole(frame, t)
        elif self._frame is not None:
            self._frame.append(line)
        elif self._times is not None:
            self._own_time(line)
        return None

    def _head(self, kind: str, rest: str) -> None:
        words = rest.split()
        if kind == "#Z":
            index, _, name = rest.partition(" ")
            name = _printable(name) or f"zone{_printable(index)}"
            self._zones.append(name if name not in self._zones else f"{name} (zone{_printable(index)})")
        elif kind == "#P":
            name = _printable(words[0]) if words else "?"
            self._policies.append((name, khz(words[1]) if len(words) > 1 else None))
            self._cores |= {f"cpu{core}": name for core in words[2:] if _is_count(core)}
        else:
            steps = [step for step in map(khz, words) if step is not None]
            self._gpu = Clock(None, None, max(steps, default=None))

    def _own_time(self, line: str) -> None:
        self._times = [*(self._times or []), line]
        if len(self._times) == 2:
            seconds = parse_times(self._times)
            self._times = None
            if seconds is not None:
                # It was printed before the frame that comes next; the first reading stays, the last replaces others.
                self._cpu = [*self._cpu[:1], (self._last_seq + 1, seconds)]

    def _whole(self, frame: list[str], t: float) -> ThermalSample | None:
        sample = self._sample(frame, t)
        if sample is None:
            self.rejected += 1
        elif sample.seq <= self._last_seq:
            self.duplicates += 1
            return None
        else:
            self._last_seq = sample.seq
        return sample

    def _sample(self, frame: list[str], t: float) -> ThermalSample | None:
        if len(frame) < 4 or self.pacing is None:
            return None
        begin, temperatures, clocks, *rest, end = (line.split(" ") for line in frame)
        if len(begin) != 3 or len(end) != 2 or begin[1] != end[1] or not _is_count(begin[1]):
            return None
        if temperatures[0] != "T" or clocks[0] != "C":
            return None
        if len(temperatures) - 1 != len(self._zones) or len(clocks) - 1 != len(self._policies):
            return None
        zones: dict[str, float | None] = {}
        silent: dict[str, str] = {}
        for name, raw in zip(self._zones, temperatures[1:], strict=True):
            if is_no_temperature(name):
                continue
            zones[name], why = zone_celsius(name, raw)
            if why is not None:
                silent[name] = why
        load = self._extras(rest)
        states = {
            name: Clock(khz(word), self._caps.get(name), most)
            for (name, most), word in zip(self._policies, clocks[1:], strict=True)
        }
        if self._gpu is not None:
            states["gpu"] = self._gpu
        uptime = float(begin[2]) if re.fullmatch(r"\d{1,10}(\.\d{1,9})?", begin[2], re.ASCII) else None
        return ThermalSample(t, uptime, zones, states, int(begin[1]), silent, load)

    def _extras(self, lines: list[list[str]]) -> dict[str, float]:
        """Take in what only some frames have: caps, the GPU, the cores' times; the load by policy and of the GPU."""
        load: dict[str, float] = {}
        times: dict[str, CoreTimes] = {}
        for kind, *words in lines:
            if kind == "K" and len(words) == len(self._policies):
                self._caps = {name: khz(word) for (name, _), word in zip(self._policies, words, strict=True)}
            elif kind == "U" and len(words) == 3 and self._gpu is not None:
                self._gpu = Clock(khz(words[0]), khz(words[1]), self._gpu.max_khz)
                if re.fullmatch(r"\d{1,3}", words[2], re.ASCII) and int(words[2]) <= 100:
                    load["gpu"] = int(words[2]) / 100
            elif kind in self._cores and (core := CoreTimes.parse([w for w in words if w])) is not None:
                times[kind] = core
        return load | self._load.feed(times, self._cores)


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text.strip())[:64]


def _is_count(word: str) -> bool:
    return bool(re.fullmatch(r"\d{1,12}", word, re.ASCII))
