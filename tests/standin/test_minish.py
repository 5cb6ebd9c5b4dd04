"""The portable shell reads and runs POSIX sh as the phone's mksh does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.standin.backends import PORTABLE_START
from mtplab.standin.minish.arithmetic import ArithmeticProblem, evaluate
from mtplab.standin.minish.parser import parse
from mtplab.standin.minish.syntax import Incomplete, SyntaxProblem

REPOSITORY = str(Path(__file__).resolve().parents[2])

SAME = [
    r"""echo hello "a  b" 'c $x' d\ e; x=1; y="$x 2"; echo $y "$y" ${#y} ${z:-def} ${x:+set} ${y%2} ${y#1 }""",
    """for i in a "b c"; do echo "[$i]"; done; for a; do echo "<$a>"; done""",
    """set -- 1 '2 3'; for a in "$@"; do echo $a; done; echo $# "$*" $@""",
    "i=0; while [ $i -lt 5 ]; do i=$((i+1)); [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done; echo end $i",
    'case abc in a*) echo 1;; *) echo 2;; esac; case "x y" in "x y"|z) echo q;; esac',
    "case foo in [!a-e]oo) echo r;; esac",
    "f() { local x=2; echo f $1 $# $x; return 3; }; x=1; f a b; echo $? $x",
    'echo a | cat | while read -r l; do echo "got $l"; done; echo "x y z" | { read -r a b; echo "$a|$b"; }',
    "if false; then echo 1; elif true; then echo 2; else echo 3; fi; false || echo or; ! true; echo $?",
    "echo $((1+2*3)) $((7/2)) $((-7/2)) $((-7%3)) $((1?5:6)) $((0x10)) $((2147483647+1)) $((1<<33))",
    "x=5; echo $((x+=1)) $x $((010))",
    'echo $(echo a; echo b) "$(echo a; echo b)" `echo c`; x=$(false); echo $?',
    "cat <<EOF\nhi $((1+1)) $(echo sub)\nEOF\ncat <<'EOF'\nno $HOME\nEOF\ncat <<-X\n\ttab\n\tX",
    "( x=2; exit 4 ); echo $? $x; { echo g; }; (exit 9) & wait $!; echo $?",
    r"printf '%s|%5d|%-5s|%x\n' a 3 b 255; printf '%s\n' 1 2; printf '%b' 'x\ny\n'",
    r"printf '%%\n'; echo 'a\tb'; echo -n x",
    "printf 'b\\na\\nc\\n' | sort | head -2 | tail -1; printf 'a\\nb\\n' | grep -c b",
    "printf 'x1y\\n' | sed 's/[0-9]/N/'",
    "sh -c 'echo inner $0 $1; exit 3' zero one; echo $?; eval 'echo $((1+1))'; x='echo hi'; $x",
    "trap 'echo bye' EXIT; echo hi",
    "trap 'echo term' TERM; kill -TERM $$; echo after",
    "x=abcabc; echo ${x#*b} ${x##*b} ${x%b*} ${x%%b*}; f=/a/b/c.txt; echo ${f##*/} ${f%/*}",
    "IFS=:; x=a:b:c; set -- $x; echo $# $1; IFS='=' read -r k v <<E\nkey=val=ue\nE\necho \"$k\" \"$v\"",
    "false; echo $?; false | true; echo $?; nosuchcommand_x; echo $?",
    "{ echo e >&2; } 2>/dev/null; exec 3>&1; echo three >&3; exec 3>&-; echo out 2>&1 >/dev/null",
    '[ a = a ] && [ ! a = b ] && [ -n x ] && [ -z "" ] && [ 3 -gt 2 -a 1 -eq 1 ] && test -d / && echo ok',
    '[ "" ] || echo empty',
    "for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done",
    "until [ x$n = xaa ]; do n=a$n; done; echo $n",
    "set -e; false || true; if false; then :; fi; echo still; false; echo never",
    'read -r a b c <<E\n1   2 3 4\nE\necho "$a|$b|$c"; printf "no newline" | { read -r l; echo "$? $l"; }',
    "read -t 0.1 x </dev/null; echo $?; sleep 1 | { read -t 0.1 y; echo $?; }",
    "printf 'a\\0b\\0' | { while IFS= read -r -d '' w; do echo \"w=$w\"; done; }",
    'x="a b"; echo ${x:-"c  d"} "${y:-"e  f"}" ${y:-\'g  h\'}; (echo ${u:?missing}) 2>/dev/null; echo $?',
    "if [ -f /nope ] ; then echo yes\nelse\n  echo no # comment\nfi\nfor x in 1 \\\n  2; do\n  echo $x\ndone",
    'echo "$(cat <<E\ninner\nE\n)"; echo $(for i in 1 2; do case $i in 1) echo one;; *) echo other;; esac; done)',
    "echo $(( 1 && 0 )) $(( 1 || 0 )) $(( !3 )) $(( ~0 )) $(( 5 & 3 )) $(( (1 + 2) * 3 == 9 ))",
]


def run_minish(root: Path, script: str) -> tuple[int, bytes]:
    for place in ("data/local/tmp", "dev/.sim/run", "proc", "system/bin"):
        (root / place).mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-SEs", "-c", PORTABLE_START, REPOSITORY, str(root), "-c", script, "sh", "a1", "b 2"],
        env={"PATH": "/system/bin", "HOME": "/"}, capture_output=True, timeout=30, check=False,
        cwd=root,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("script", SAME)
def test_it_answers_as_mksh_does(script: str, tmp_path: Path) -> None:
    mksh = shutil.which("mksh")
    if mksh is None:
        pytest.skip("no mksh to compare with")
    theirs = subprocess.run(
        [mksh, "-c", script, "sh", "a1", "b 2"], env={"PATH": os.environ["PATH"], "HOME": "/"}, cwd=tmp_path,
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert run_minish(tmp_path / "root", script) == (theirs.returncode, theirs.stdout)


def test_no_module_of_the_device_is_taken_into_the_shell(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for name in ("re", "shutil", "os", "fnmatch", "signal"):
        (tmp_path / "root" / f"{name}.py").write_text("print('guest'); raise SystemExit(99)")
    assert run_minish(tmp_path / "root", "echo in") == (0, b"in\n")


def test_every_stub_command_can_be_parsed() -> None:
    stubs = list((Path(REPOSITORY) / "mtplab" / "standin" / "stubs").glob("*.sh"))
    assert stubs
    for stub in stubs:
        parse(stub.read_text())


@pytest.mark.parametrize("text", ["if true; then echo", "echo 'open", "cat <<E\nbody", "f() {", 'echo "${x', "a |"])
def test_text_that_may_go_on_is_told_from_wrong_text(text: str) -> None:
    with pytest.raises(Incomplete):
        parse(text)


@pytest.mark.parametrize("text", ["fi", "a ;; b", "done; x", "echo )", "| a", "for 1 in x; do :; done"])
def test_wrong_text_is_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse(text)


@given(st.text(alphabet="ab $'\"`\\(){};|&<>\n=#*?![]~x1:-%/", max_size=40))
@settings(max_examples=400, deadline=None)
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse(text)
    except SyntaxProblem:
        return


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_arithmetic_has_32_bits(left: int, right: int) -> None:
    value = evaluate(f"({left}) + ({right})", {})
    assert -(2**31) <= value < 2**31
    assert (value - left - right) % 2**32 == 0


def test_a_division_by_zero_is_an_error() -> None:
    with pytest.raises(ArithmeticProblem):
        evaluate("1/0", {})


def test_a_fork_bomb_ends_by_itself(tmp_path: Path) -> None:
    code, _out = run_minish(tmp_path / "root", "b() { b | b & }; b; wait; exit 3")
    assert code in (1, 3)
