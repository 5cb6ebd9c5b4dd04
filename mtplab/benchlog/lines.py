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
_LOGCAT = re.compile(
    # threadtime and time: 05-31 10:38:42.569 22206 22206 I tag : text | 05-31 10:38:42.569 I/tag( 22206): text
    rf"(?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3,6}}\s+(?:\S{{1,20}}\s+)?\d+\s+\d+ (?P<level>{_LEVEL}) "
    r"(?P<tag>[^:]{0,80}): ?"
    rf"|(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3,6}} )?(?P<level2>{_LEVEL})/(?P<tag2>[^(:]{{0,80}})\(\s*\d+\): ?"
    # Android Studio: 2023-10-08 03:39:33.246 27435-27455 tag  package  I  text | package  I  text
    rf"|(?:\d{{4}}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{{3}}\s+\d+-\d+\s+(?P<tag3>\S{{1,80}})\s+\S{{1,160}}\s+"
    rf"(?P<level3>{_LEVEL})  "
    rf"|(?P<tag4>[A-Za-z][\w.:-]{{0,159}})\s{{2,}}(?P<level4>{_LEVEL})  ",
    re.ASCII,
)
_BARE_TAG = re.compile(r"(?P<tag>tflite|litert|native|QnnDsp)\s*: ?(?!\[\d+\]$)")
_HOSTED = re.compile(r"\[\d\d/\w{3}/\d{4}:[^\]]{0,80}\](?: \[[^\]]{0,200}\]){0,6} ?", re.ASCII)
_SEVERITY = re.compile(r"(VERBOSE|INFO|WARNING|WARN|ERROR|FATAL): ?")
_SOURCE = re.compile(r"\[[\w./@+-]{1,200}\.(?:cc|h|cpp|c|mm|java|kt):\d+\] ?", re.ASCII)
# absl, at the start or glued behind the last words of a model: I0000 00:00:1758744860.457295   56310 main.cc:193]
_ABSL = re.compile(
    r"[IWEF]\d{4} (?:\d\d:\d\d:\d{1,10}\.\d{1,9} +\d+ )?[\w./-]{1,200}\.(?:cc|h|cpp):\d+\] ?", re.ASCII
)
_TAG_INITIALS = frozenset("tlnQ")
_TREE = "└ "
_LEVEL_GROUPS = ("level", "level2", "level3", "level4")
_TAG_GROUPS = ("tag", "tag2", "tag3", "tag4")

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
    for _ in range(2):  # a log of a log, such as a saved logcat that is printed again
        # The first characters tell most lines apart, which spares the longer patterns.
        stamped = text[:1].isdigit() or text[1:2] == "/" or "  " in text
        if stamped and (match := _LOGCAT.match(text)):
            found = match.groupdict()
            severity = next(_LOGCAT_LEVEL[found[k]] for k in _LEVEL_GROUPS if found[k])
            tag = next((found[k].strip() for k in _TAG_GROUPS if found[k]), None)
            text, printer = text[match.end() :].strip(), "logcat"
        elif text[:1] == "[" and (match := _HOSTED.match(text)):
            text, printer = text[match.end() :], "hosted"
        elif text[:1] in _TAG_INITIALS and (match := _BARE_TAG.match(text)):
            tag, text, printer = match["tag"], text[match.end() :], "logcat"
        else:
            break
    text = text.removeprefix(_TREE)
    if match := _SEVERITY.match(text):
        severity, text, printer = match[1], text[match.end() :], "stream"
    if "] " in text or text.endswith("]"):
        if match := _SOURCE.match(text):
            text = text[match.end() :]
        elif glued := list(_ABSL.finditer(text)):
            severity = _ABSL_LEVEL[glued[-1][0][0]]
            text, printer = text[glued[-1].end() :], printer or "stream"
    return Line(text.strip(), whole, severity, tag, printer)
