"""The sampler's loop on the phone, and the reader of the frames it prints."""

from __future__ import annotations

import re

from mtplab.device.counters import CoreTimes, LoadMeter, khz
from mtplab.device.thermal import Clock, ThermalSample, is_no_temperature, zone_celsius

# Plain POSIX sh, builtins only inside the loop. The pause is a `read` with a fractional time limit where the shell
# has one: no fork, and it ends at end of file, so that nothing stays on the phone. Paths are collected once: a zone
# that appears later cannot shift the others. One `echo` a frame: one packet. What is dearer is asked for less often:
# the cores' times about once a second, the loop's own CPU time (`times`) every few seconds.
_LOOP = r"""
nl='
'
zs=; head='#H 2'
for z in /sys/class/thermal/thermal_zone*; do
  [ -d "$z" ] || continue
  t=; read -r t <"$z/type"; zs="$zs $z"; head="$head$nl#Z ${z##*thermal_zone} $t"
done
ps=
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  [ -d "$p" ] || continue
  m=; r=; read -r m _ <"$p/cpuinfo_max_freq"; read -r r <"$p/related_cpus"
  ps="$ps $p"; head="$head$nl#P ${p##*/} ${m:-NA} $r"
done
g=
for d in /sys/class/kgsl/kgsl-3d0/devfreq /sys/devices/platform/*.mali /sys/class/devfreq/*.mali; do
  a=; f=; read -r a _ <"$d/cur_freq"
  [ -n "$a" ] || continue
  read -r f <"$d/available_frequencies"; g=$d; gc=$d/max_freq; gb=$d/utilization; head="$head$nl#U $f"
  if [ -f "$d/scaling_max_freq" ]; then gc=$d/scaling_max_freq; fi
  if [ -f "${d%/devfreq}/gpu_busy_percentage" ]; then gb=${d%/devfreq}/gpu_busy_percentage; fi
  break
done
read -r -t 0.01 x; rc=$?
if [ $rc -gt 128 ]; then how=read; elif sleep 0.01; then how=sleep; else how=seconds; fi
echo "$head$nl#G $how"
n=0
while :; do
  if [ $((n % @COST_EVERY@)) -eq 0 ]; then echo '#T'; times; fi
  u=; read -r u _ </proc/uptime
  l=; for z in $zs; do v=; read -r v _ <"$z/temp"; l="$l ${v:-NA}"; done
  c=; for p in $ps; do
    a=; b=; read -r a _ <"$p/scaling_cur_freq"; read -r b _ <"$p/scaling_max_freq"; c="$c ${a:-NA}/${b:-NA}"
  done
  if [ -n "$g" ]; then
    a=; b=; v=; read -r a _ <"$g/cur_freq"; read -r b _ <"$gc"; read -r v _ <"$gb"
    c="$c${nl}U ${a:-NA}/${b:-NA}/${v:-NA}"
  fi
  if [ $((n % @LOAD_EVERY@)) -eq 0 ]; then
    s=; while read -r a k; do
      case $a in cpu) ;; cpu*) s="$s$nl$a $k";; *) break;; esac
    done </proc/stat
    c="$c$s"
  fi
  echo "#B $n ${u:-NA}${nl}T$l${nl}C$c$nl#E $n" || exit 0
  n=$((n+1))
  case $how in
    read) read -r -t @INTERVAL@ x; [ $? -eq 1 ] && exit 0;;
    sleep) sleep @INTERVAL@;;
    *) sleep 1;;
  esac
done
"""
LOAD_PERIOD_S, COST_PERIOD_S = 1.0, 5.0
_TIME = re.compile(r"(\d{1,7})m(\d{1,2}(?:\.\d{1,9})?)s", re.ASCII)


def loop_script(interval_s: float) -> str:
    """The loop for the phone's shell, one frame every `interval_s` seconds and the work in between."""
    return (
        _LOOP.replace("@INTERVAL@", f"{interval_s:g}")
        .replace("@LOAD_EVERY@", str(max(1, round(LOAD_PERIOD_S / interval_s))))
        .replace("@COST_EVERY@", str(max(1, round(COST_PERIOD_S / interval_s))))
    )


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
        self._gpu: tuple[int | None] | None = None
        self._frame: list[str] | None = None
        self._times: list[str] | None = None
        self._cpu: list[tuple[int, float]] = []
        self._load = LoadMeter()
        self._last_seq = -1

    @property
    def zone_count(self) -> int:
        """Zones that the loop reads, electrical ones too."""
        return len(self._zones)

    @property
    def device_ms(self) -> float | None:
        """CPU time of the loop on the phone per sample; None until the phone's clock has told two times apart."""
        if len(self._cpu) < 2 or self._cpu[-1][0] <= self._cpu[0][0] or self._cpu[-1][1] <= self._cpu[0][1]:
            return None
        (first, began_s), (last, ended_s) = self._cpu[0], self._cpu[-1]
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
            self._gpu = (max(steps, default=None),)

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
        states = {
            name: Clock(khz(word.partition("/")[0]), khz(word.partition("/")[2]), most)
            for (name, most), word in zip(self._policies, clocks[1:], strict=True)
        }
        load = self._extras(rest, states)
        uptime = float(begin[2]) if re.fullmatch(r"\d{1,10}(\.\d{1,9})?", begin[2], re.ASCII) else None
        return ThermalSample(t, uptime, zones, states, int(begin[1]), silent, load)

    def _extras(self, lines: list[list[str]], states: dict[str, Clock]) -> dict[str, float]:
        """Read the GPU's line and the cores' times, where the frame has them; the load by policy and of the GPU."""
        load: dict[str, float] = {}
        times: dict[str, CoreTimes] = {}
        for words in lines:
            if words[0] == "U" and len(words) == 2 and self._gpu is not None:
                current, cap, busy = _split(words[1], 3)
                states["gpu"] = Clock(khz(current), khz(cap), self._gpu[0])
                if re.fullmatch(r"\d{1,3}%?", busy, re.ASCII) and int(busy.rstrip("%")) <= 100:
                    load["gpu"] = int(busy.rstrip("%")) / 100
            elif words[0] in self._cores and (core := CoreTimes.parse(words[1:])) is not None:
                times[words[0]] = core
        return load | self._load.feed(times, self._cores)


def _split(word: str, count: int) -> list[str]:
    """The parts of `a/b/c`, filled up with "" to `count`."""
    return [*word.split("/", count - 1), *[""] * count][:count]


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text.strip())[:64]


def _is_count(word: str) -> bool:
    return bool(re.fullmatch(r"\d{1,12}", word, re.ASCII))
