"""`mtplab tell`: say to a running engine, from a script, what the keys of the lab say to it."""

from __future__ import annotations

import json
from typing import Any

import click

from mtplab.engine.client import attach
from mtplab.engine.errors import EngineError

WORDS = ("status", "cancel", "mark", "keep", "stop")


@click.command("tell", epilog="Exit codes: 0 done, 1 wrong use or refused, 2 no engine runs.")
@click.argument("word", type=click.Choice(WORDS), metavar="|".join(WORDS))
@click.argument("label", required=False)
@click.option("--session", metavar="S", help="Which of several engines, by (the beginning of) its session's name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def tell_command(word: str, label: str | None, session: str | None, as_json: bool) -> int:
    """Ask a running engine how it is, cancel its run, mark this moment with LABEL, keep its session, or stop it."""
    if label is not None and word != "mark":
        raise click.UsageError(f"Only `mark` takes a label, not `{word}`.")
    code = 0
    try:
        engine = attach(session, "--session")
        command: dict[str, Any] = {"cmd": word, **({"label": label} if label else {})}
        reply = {**engine.send(command, timeout_s=5.0), "session": engine.session_dir.name}
        code = 0 if reply.get("ok") else 1
    except EngineError as problem:
        reply, code = {"session": None, "ok": False, "error": str(problem)}, problem.exit_code
    if as_json:
        click.echo(json.dumps(reply, ensure_ascii=False, indent=2))
    else:
        click.echo(_sentence(word, reply), err=code != 0)
    return code


def _sentence(word: str, reply: dict[str, Any]) -> str:
    from mtplab.session.text import clean_text

    if not reply.get("ok"):
        return clean_text(str(reply.get("error") or "The engine refused without a reason."), 1000)
    done = {
        "status": "a run goes on" if reply.get("running") else "no run goes on",
        "cancel": "the run is being cancelled" if reply.get("cancelled") else "no run went on",
        "mark": "marked",
        "keep": "the session will be kept",
        "stop": "the engine is stopping",
    }
    return clean_text(f"{reply['session']}: {done[word]}.", 400)
