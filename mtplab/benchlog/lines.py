"""Makes one hostile line of a log clean: no escapes, no control characters, and its printers' prefixes set apart."""

from __future__ import annotations

import re
from typing import NamedTuple

# Longer lines are judged on their two ends: a log line can be glued to the end of any amount of model text.
HALF_LIMIT = 4096

_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, ended by BEL or ST, or cut
    r"|[\x9b][0-?]*[ -/]*[@-~]|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI, in its 8-bit and 7-bit form
    r"|\x1b[ -/]*[0-~]?"  # any other escape
)
# Control characters but the tab, and the invisible ones that reorder or hide text.
_DELETED: dict[int, str | None] = dict.fromkeys(
    [c for c in range(0x20) if c != 0x09]
    + list(range(0x7F, 0xA0))
    + list(range(0x200B, 0x2010))
    + list(range(0x2028, 0x202F))
    + list(range(0x2060, 0x206A))
    + [0xAD, 0x61C, 0xFEFF]
)
_DELETED |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # bytes of a file name that are no UTF-8

_LEVEL = "[VDIWEFA]"
_DAY = r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d{3,9}"
# The forms that logcat and Android Studio print, each tried where the line's first characters allow it.
_STAMPED = re.compile(
    # threadtime with year, microseconds, zone, uid, or with seconds since the epoch or the start instead of a date:
    # 05-31 10:38:42.569 22206 22206 I tag : text
    rf"(?:{_DAY}(?: [+-]\d{{4}})?|\d{{1,12}}\.\d{{3,9}})\s+(?:\S{{1,20}}\s+)?\d+\s+\d+ (?P<level>{_LEVEL}) "
    r"(?P<tag>[^:]{0,80}): ?"
    # time: 05-31 10:38:42.569 I/tag( 22206): text; and the older Android Studio's 22206-22206/com.example I/tag: text
    rf"|{_DAY} (?:\d+-\d+/\S{{1,160}} )?(?P<level2>{_LEVEL})/(?P<tag2>[^(:]{{0,80}})(?:\([\s\d:]{{1,24}}\))?: ?"
    # Android Studio: 2023-10-08 03:39:33.246 27435-27455 tag  package  I  text
    rf"|(?:\d{{4}}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{{3}}\s+\d+-\d+\s+(?P<tag3>\S{{1,80}})\s+\S{{1,160}}\s+"
    rf"(?P<level3>{_LEVEL})  ",
    re.ASCII,
)
_SHORT = re.compile(
    # brief and tag: I/tag  ( 22206): text; thread and process: I(22206:22207) text, I(22206) text  (tag)
    rf"(?:[A-Za-z][\w.]{{2,160}} )?(?P<level>{_LEVEL})/(?P<tag>[A-Za-z][^(:]{{1,80}})(?:\([\s\d:]{{1,24}}\))?: ?"
    rf"|(?P<level2>{_LEVEL})\(\s*\d+(?::\s*\d+)?\) "
    # Android Studio, compact: package  I  text
    rf"|(?P<tag3>[A-Za-z][\w.:-]{{0,159}})\s{{2,}}(?P<level3>{_LEVEL})  ",
    re.ASCII,
)
# logcat -v long: the text comes in the lines below.
_LONG = re.compile(rf"\[ {_DAY}\s+\S{{1,20}}:\s*\S{{1,20}} {_LEVEL}/[^\]]{{0,80}}\]$", re.ASCII)
_PROCESS_TAG = re.compile(r" {2,}\([\w.-]{1,80}\s*\)$", re.ASCII)
_BARE_TAG = re.compile(r"(?P<tag>tflite|litert|native|QnnDsp)\s*: ?(?!\[\d+\]$)")
_HOSTED = re.compile(r"\[\d\d/\w{3}/\d{4}:[^\]]{0,80}\](?: \[[^\]]{0,200}\]){0,6} ?", re.ASCII)
# Whoever prints the log again: CI, journald, NSLog, `ts`, Python's logging (2026-01-31 10:38:42 INFO name: text).
_CLOCK = re.compile(
    r"(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?\]?"
    r"|\[?\s{0,8}\d{1,10}\.\d{6}\]?(?=\s)"  # dmesg; `ts %.s`
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d"
    r"(?: [\w.-]{1,80}(?= \S{1,80}\[\d+\]:))?)"
    r"\s+(?:[\w.-]{1,80}\[\d+(?::\d+)?\]:?\s+)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?P<name>[\w.]{1,80}):\s?"
    r"|- (?:[\w.]{1,80} - )?(?P<level2>DEBUG|INFO|WARNING|ERROR|CRITICAL) - )?",
    re.ASCII,
)
# Whoever quotes it: mail and issues ("> "), cat -n and nl, docker compose ("bench-1  | ").
_QUOTED = re.compile(r"(?:>\s+)+|\d{1,7}(?:\t|\s+\| )|[\w.-]{1,60}\s+\| ", re.ASCII)
_SEVERITY = re.compile(r"(VERBOSE|INFO|WARNING|WARN|ERROR|FATAL): ?")
_SOURCE = re.compile(r"\[[\w./@+-]{1,200}\.(?:cc|h|cpp|c|mm|java|kt):\d+\] ?", re.ASCII)
# absl, at the start or glued behind the last words of a model: I0000 00:00:1758744860.457295   56310 main.cc:193]
_ABSL = re.compile(
    r"[IWEF]\d{4} (?:\d\d:\d\d:\d{1,10}\.\d{1,9} +\d+ )?[\w./-]{1,200}\.(?:cc|h|cpp):\d+\] ?", re.ASCII
)
_SEVERITY_INITIALS = frozenset("VIWEF")
_TAG_INITIALS = frozenset("tlnQ")
_TREE = "└ "

_ABSL_LEVEL = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_LOGCAT_LEVEL = {"V": "VERBOSE", "D": "DEBUG", "A": "FATAL", **_ABSL_LEVEL}


class Line(NamedTuple):
    """A clean line: `text` is what the program said, `whole` is the same line with its prefixes still on."""

    text: str
    whole: str
    severity: str | None = None  # VERBOSE, DEBUG, INFO, WARN (the tool), WARNING (the runtime), ERROR, FATAL
    tag: str | None = None  # the logcat tag, or the package in Android Studio's compact form
    printer: str | None = None  # "stream" (severity in the text), "logcat", "hosted" or None (bare)


def strip_controls(raw: str) -> str:
    """`raw` without escapes and control characters, shortened to its two ends when it is very long."""
    raw = raw.rstrip("\r\n")
    if len(raw) > 2 * HALF_LIMIT:
        raw = raw[:HALF_LIMIT] + " … " + raw[-HALF_LIMIT:]
    if "\r" in raw:  # a terminal would show what was written last
        raw = next((part for part in reversed(raw.split("\r")) if part.strip()), "")
    if raw.isprintable():
        return raw
    return _ESCAPE.sub("", raw).translate(_DELETED)


def clean(raw: str) -> Line:
    """The line without escapes and with the prefixes of logcat, the severity and the source place set apart."""
    whole = strip_controls(raw)
    text, severity, tag, printer = whole.strip(), None, None, None
    for _ in range(3):  # a log of a log, such as a saved logcat that is printed again
        if text[:1] in _SEVERITY_INITIALS and _SEVERITY.match(text):
            break
        found = _prefix(text)
        if found is None:
            break
        text, printer = found.text, found.printer
        severity, tag = found.severity or severity, found.tag or tag
    text = text.removeprefix(_TREE)
    if text[:1] in _SEVERITY_INITIALS and (match := _SEVERITY.match(text)):
        severity, text, printer = match[1], text[match.end() :], "stream"
    if ":" in text and ("] " in text or text.endswith("]")):
        if text[0] == "[":
            if match := _SOURCE.match(text):
                text = text[match.end() :]
        elif (".cc:" in text or ".h:" in text or ".cpp:" in text) and (glued := list(_ABSL.finditer(text))):
            severity = _ABSL_LEVEL[glued[-1][0][0]]
            text, printer = text[glued[-1].end() :], printer or "stream"
    return Line(text.strip(), whole, severity, tag, printer)


def _prefix(text: str) -> Line | None:
    """The line behind one prefix of a program that printed it on; None when there is none."""
    first = text[:1]
    if (first == ">" or "| " in text[:72] or "\t" in text[:8]) and (match := _QUOTED.match(text)):
        return Line(text[match.end() :].strip(), text)
    # The first character tells most lines apart, which spares the longer patterns
    if first.isdigit():
        if match := _STAMPED.match(text):
            return _behind(match)
        return _retold(text)
    if first == "[":
        if _LONG.match(text):
            return Line("", text, printer="logcat")
        match = _HOSTED.match(text)
        return Line(text[match.end() :], text, printer="hosted") if match else _retold(text)
    if first in _TAG_INITIALS and (match := _BARE_TAG.match(text)):
        return Line(text[match.end() :], text, None, match["tag"], "logcat")
    if (text[1:2] in ("/", "(") or "  " in text or "/" in text[:164]) and (match := _SHORT.match(text)):
        return _behind(match)
    return _retold(text) if first in "JFMASOND" else None


def _behind(match: re.Match[str]) -> Line:
    found = match.groupdict()
    level = found["level"] or found["level2"] or found["level3"]
    tag = found["tag"] or found.get("tag2") or found["tag3"]
    text = match.string[match.end() :].strip()
    if tag is None:  # logcat -v process: the tag stands behind
        text = _PROCESS_TAG.sub("", text)
    return Line(text, match.string, _LOGCAT_LEVEL[level], tag.strip() if tag else None, "logcat")


def _retold(text: str) -> Line | None:
    match = _CLOCK.match(text)
    if not match:
        return None
    level = match["level"] or match["level2"]
    level = "FATAL" if level == "CRITICAL" else level
    return Line(text[match.end() :].strip(), text, level, match["name"], "hosted")
